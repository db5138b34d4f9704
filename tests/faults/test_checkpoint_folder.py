"""Unexpected or unwritable files in a run directory, and exclusive access of one trainer."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from weft.runs.lock import RunLock
from weft.support import storage
from weft.training.checkpoints.checkpoint import (
    CheckpointWriter,
    all_checkpoints,
    check_free_space,
    latest_checkpoint,
    read,
    write,
)

from .disk import Disk


def groups(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {"weight": torch.full((4,), float(value))}}


def steps(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.iterdir())


# Strays


def test_no_checkpoint_is_none_and_no_folder_is_made_by_looking(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "run", pytest.fail) is None
    assert not (tmp_path / "run").exists()
    assert latest_checkpoint(tmp_path, pytest.fail) is None


def test_stray_folders_of_dead_writers_are_ignored_and_the_next_save_removes_them(
    tmp_path: Path,
) -> None:
    good = write(tmp_path, 1, groups(1), {})
    shutil.copytree(good, tmp_path / ".new-step-000000002")
    (tmp_path / ".trash-step-000000003" / "deep" / "er").mkdir(parents=True)
    (tmp_path / ".trash-step-000000004").write_text("a file")
    (tmp_path / ".new-step-000000005").symlink_to(good)
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found.step == 1
    write(tmp_path, 2, groups(2), {})
    assert steps(tmp_path) == [1, 2]
    assert read(good).step == 1  # the link went, not what it led to


def test_foreign_files_are_not_touched(tmp_path: Path) -> None:
    names = [
        "notes.txt",
        "step-1",
        "step-000000001-mine",
        "latest",
        "best.old",
        ".DS_Store",
        "xstep-000000001",
    ]
    for name in names:
        (tmp_path / name).mkdir()
    with CheckpointWriter(tmp_path, 1) as saver:
        for step in (1, 2):
            saver.submit(step, groups(step), {})
    assert {path.name for path in tmp_path.iterdir()} == {*names, "step-000000002"}
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found.step == 2


def test_a_file_where_a_checkpoint_should_be_is_named_and_gives_way(tmp_path: Path) -> None:
    write(tmp_path, 1, groups(1), {})
    (tmp_path / "step-000000002").write_text("a file")
    said: list[str] = []
    found = latest_checkpoint(tmp_path, said.append)
    assert found.step == 1
    assert said == [f"{tmp_path}/step-000000002/manifest.json is damaged: Not a directory"]
    write(tmp_path, 2, groups(2), {})
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found.step == 2


def test_a_file_where_the_run_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(
        OSError,
        match=f"cannot write {tmp_path}/run/checkpoints/step-000000001.*File exists "
        f".{tmp_path}/run.;",
    ):
        write(tmp_path / "run" / "checkpoints", 1, groups(1), {})
    with pytest.raises(OSError, match=f"{tmp_path}/run"):
        latest_checkpoint(tmp_path / "run", pytest.fail)
    with pytest.raises(ValueError, match=f"{tmp_path}/run is not writable: File exists; give "):
        RunLock(tmp_path / "run")


def test_a_full_disk_takes_the_name_of_the_holder_but_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with RunLock(tmp_path), pytest.raises(ValueError, match="is being trained by another process"):
        RunLock(tmp_path)
    RunLock(tmp_path).release()


def test_a_step_of_ten_digits_is_newer_than_one_of_nine(tmp_path: Path) -> None:
    for step in (999_999_999, 1_000_000_000):
        write(tmp_path, step, groups(1), {})
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found.step == 1_000_000_000


def test_a_checkpoint_that_its_trainer_removes_while_it_is_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        write(tmp_path, step, groups(step), {})
    open_it = Path.read_bytes
    gone = []

    def read_bytes(path: Path) -> bytes:
        if not gone:
            gone.append(2)
            write(tmp_path, 3, groups(3), {})
            shutil.rmtree(tmp_path / "step-000000002")
        return open_it(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found.step == 3


# Retention


def test_a_damaged_one_is_not_counted_among_the_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step, groups(step), {})
    (tmp_path / "step-000000003" / "model.safetensors").write_bytes(b"")
    with CheckpointWriter(tmp_path, 2) as saver:
        saver.submit(4, groups(4), {})
    assert [found.step for found in all_checkpoints(tmp_path)] == [2, 4]


def test_the_newest_save_is_kept_even_if_later_steps_exist(tmp_path: Path) -> None:
    for step in (8, 9):
        write(tmp_path, step, groups(step), {})
    with CheckpointWriter(tmp_path, 1) as saver:
        saver.submit(5, groups(5), {})
    assert steps(tmp_path) == [5, 9]


def test_one_set_aside_for_another_of_its_step_counts_once_and_only_where_the_other_is_damaged(
    tmp_path: Path,
) -> None:
    write(tmp_path, 7, groups(1), {"which": "old"}).rename(tmp_path / "step-000000007.old")
    assert [found.state["which"] for found in all_checkpoints(tmp_path)] == ["old"]
    path = write(tmp_path / "other", 7, groups(2), {"which": "new"}).rename(
        tmp_path / "step-000000007"
    )
    (tmp_path / "other").rmdir()
    assert [found.state["which"] for found in all_checkpoints(tmp_path)] == ["new"]
    (path / "model.safetensors").write_bytes(b"")
    assert [found.state["which"] for found in all_checkpoints(tmp_path)] == ["old"]
    write(tmp_path, 7, groups(3), {"which": "newest"})
    assert [found.state["which"] for found in all_checkpoints(tmp_path)] == ["newest"]
    assert steps(tmp_path) == [7]


def test_an_unremovable_old_checkpoint_is_reported_and_the_new_one_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(call: str, path: str) -> None:
        if call == "unlink":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    write(tmp_path, 1, groups(1), {})
    monkeypatch.setattr(storage, "os", Disk(before))
    saver = CheckpointWriter(tmp_path, 1)
    saver.submit(2, groups(2), {})
    with pytest.raises(
        OSError,
        match=r"step-000000002 is saved, but older ones cannot be removed.*Input/output error",
    ):
        saver.close()
    assert [found.step for found in all_checkpoints(tmp_path)] == [2]


# Not to be written


@contextmanager
def read_only() -> Iterator[Path]:
    """A folder that we may not write to; the superuser steps down for it."""
    folder = Path(tempfile.mkdtemp())
    me = os.geteuid()
    folder.chmod(0o555)
    try:
        if me == 0:
            os.seteuid(65534)
        yield folder
    finally:
        os.seteuid(me)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_read_only_folder_is_named_in_one_line() -> None:
    with read_only() as folder:
        for run in (folder, folder / "inner"):
            with pytest.raises(ValueError, match=f"{run} .*: Permission denied; give another run"):
                RunLock(run)
            with pytest.raises(ValueError, match=f"{run} is not writable"):
                check_free_space(run, 1)
            with pytest.raises(
                OSError,
                match=f"cannot write {run}/step-000000001, which needs .* bytes: Permission denied",
            ) as raised:
                write(run, 1, groups(1), {})
            assert "\n" not in str(raised.value)


def test_a_file_system_that_cannot_sync_folders_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before(call: str, path: str) -> None:
        if call == "fsync" and Path(path).is_dir():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(storage, "os", Disk(before))
    assert read(write(tmp_path, 1, groups(1), {})).step == 1


# One trainer

HOLD = """
import os, sys, time
from weft.runs.lock import RunLock
held = RunLock(sys.argv[1])
if sys.argv[2] == "with a worker" and os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
elif sys.argv[2] == "alone":
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["alone", "with a worker"])
def test_a_second_trainer_is_refused_until_the_first_is_dead(how: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run), how], stdout=subprocess.PIPE, text=True
    )
    assert first.stdout
    ready = int(first.stdout.readline())  # the trainer, or its worker, which lives on
    try:
        with pytest.raises(
            ValueError,
            match=rf"{run} is being trained by process {first.pid} on \S+ since 20\d\d-\S+ \S+;",
        ) as raised:
            RunLock(run)
        assert "\n" not in str(raised.value)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with RunLock(run):
            pass
        if how == "with a worker":
            os.kill(ready, 0)  # it was alive all the time
    finally:
        first.kill()
        first.stdout.close()
        if ready != first.pid:
            os.kill(ready, signal.SIGKILL)


def test_a_lock_is_free_again_after_its_block_and_holds_inside_one_process_too(
    tmp_path: Path,
) -> None:
    with RunLock(tmp_path) as held:
        with pytest.raises(ValueError, match=f"being trained by process {os.getpid()} on"):
            RunLock(tmp_path)
        held.release()
        other = RunLock(tmp_path)
        held.release()
        with pytest.raises(ValueError, match="being trained"):
            RunLock(tmp_path)
        other.release()
    with RunLock(tmp_path):
        pass


def test_a_lock_without_a_name_yet_is_refused_too(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / "lock").write_bytes(b"")
        with pytest.raises(ValueError, match="is being trained by another process"):
            RunLock(tmp_path)
