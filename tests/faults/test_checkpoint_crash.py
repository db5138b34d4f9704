"""The power is cut between any two file operations of a run's saves: a good checkpoint is there,
and the next save works.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from weft.support import storage
from weft.training.checkpoints.checkpoint import CheckpointWriter, latest_checkpoint, read, write

from .disk import Disk, Folder, Recorder, Tree, after_power_cut, build

KEEP = 2
PLAN = (10, 20, 30, 40, 40, 50)  # steps, one saved twice with other tensors
NEXT = len(PLAN) + 1  # the version that is saved after the power is back


@pytest.fixture
def shelf() -> Iterator[Path]:
    """In memory where that can be: thousands of folders come and go."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        (Path(folder) / "real").mkdir()
        yield Path(folder)


def groups(version: int) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {"weight": torch.full((5,), float(version)), "steps": torch.tensor(version)},
        "average": {},
    }


def check(path: Path, versions: set[int | None]) -> None:
    """The newest is one of these versions; and all are whole, so that a name is never given too
    early or kept too long.
    """
    found = latest_checkpoint(path, pytest.fail)
    for folder in path.glob("step-*"):
        read(folder)
    assert (found and found.state["version"]) in versions
    if found is not None:
        for name, tensors in groups(found.state["version"]).items():
            assert all(
                torch.equal(tensor, found.all_tensors()[name][key])
                for key, tensor in tensors.items()
            )


def save(root: Path, versions: dict[int, int], done: Any = None) -> None:
    with CheckpointWriter(root, KEEP, pinned={20}) as saver:
        for version, step in versions.items():
            saver.submit(step, groups(version), {"version": version})
            saver.wait()
            if done is not None:
                done(version)


def cut(
    top: Path, versions: dict[int, int], before: int, patch: pytest.MonkeyPatch
) -> dict[str, tuple[Tree, int]]:
    """Every distinct folder that a power cut may leave while these versions are saved, each with
    the last version that was complete.
    """
    states: dict[str, tuple[Tree, int]] = {}
    complete = before

    def seen(now: Folder) -> None:
        for tree in after_power_cut(now):
            states[f"{complete} {tree}"] = tree, complete

    def done(version: int) -> None:
        nonlocal complete
        complete = version

    with patch.context() as inside:
        recorder = Recorder(top, seen)
        inside.setattr(storage, "os", recorder)
        inside.setattr(storage, "CHUNK", 40)
        save(top / "run" / "checkpoints", versions, done)
        seen(recorder.top)
    return states


def allowed(complete: int) -> set[int | None]:
    return {complete or None, complete + 1}


def test_a_good_checkpoint_exists_between_any_two_operations_and_the_next_save_works(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = cut(shelf / "real", dict(enumerate(PLAN, 1)), 0, monkeypatch)
    assert len(states) > 500  # the simulation sees the writes, not only the result
    monkeypatch.setattr(storage, "os", Disk())
    for tree, complete in states.values():
        root = build(tree, shelf / "found") / "run" / "checkpoints"
        check(root, allowed(complete))
        save(root, {NEXT: 60})
        check(root, {NEXT})
        names = {path.name for path in root.iterdir()}
        assert len(names) <= KEEP + 1
        assert {name[:5] for name in names} == {"step-"}
        assert ("step-000000020" in names) >= (complete >= 2)  # pinned


def test_a_second_power_cut_while_the_first_is_mended_loses_nothing(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    states = list(cut(shelf / "real", dict(enumerate(PLAN, 1)), 0, monkeypatch).values())
    aside = [state for state in states if ".old" in str(state)]  # the hardest: two of one step
    assert len(aside) > 10
    few = 100 if long else 5
    for tree, _ in states[:: max(len(states) // few, 1)] + aside[:: max(len(aside) // few, 1)]:
        again = build(tree, shelf / "again")
        (again / "run" / "checkpoints").mkdir(parents=True, exist_ok=True)
        first = latest_checkpoint(again / "run" / "checkpoints", [].append)
        version = first.state["version"] if first else 0
        # the step that is there already, so that it is set aside
        step = first.step if first else 10
        for other, last in cut(again, {NEXT: step}, version, monkeypatch).values():
            check(build(other, shelf / "found") / "run" / "checkpoints", {last or None, NEXT})


def test_a_damaged_checkpoint_of_the_same_step_never_takes_the_place_of_the_whole_one_set_aside(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = shelf / "real" / "run" / "checkpoints"
    whole = write(root, 10, groups(1), {"version": 1})
    shutil.copytree(whole, root / "step-000000010.old")
    (whole / "model.safetensors").write_bytes(b"")
    for tree, complete in cut(shelf / "real", {2: 10}, 1, monkeypatch).values():
        found = latest_checkpoint(build(tree, shelf / "found") / "run" / "checkpoints", [].append)
        assert found.state["version"] in allowed(complete)
