"""The disk is full at any call: the message says where and how much, the checkpoint before is
whole, and a later save works.
"""

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from weft.support import storage
from weft.training.checkpoints import checkpoint
from weft.training.checkpoints.checkpoint import (
    CheckpointWriter,
    check_free_space,
    latest_checkpoint,
    read,
    tensor_bytes,
    write,
)

from .disk import Disk, full

CALLS = ("open", "write", "fsync", "mkdir", "rename")


def groups(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {"weight": torch.full((20,), float(value))},
        "optimiser": {"moment": torch.full((40,), float(value))},
    }


def save(root: Path, step: int) -> None:
    with CheckpointWriter(root, 1) as saver:
        saver.submit(step, groups(step), {"step": step})


def calls_of_two_saves(root: Path, patch: pytest.MonkeyPatch) -> int:
    made = []
    with patch.context() as inside:
        inside.setattr(
            storage, "os", Disk(lambda call, path: made.append(call) if call in CALLS else None)
        )
        inside.setattr(storage, "CHUNK", 64)
        save(root, 1)
        save(root, 2)
    return len(made)


def test_a_full_disk_at_any_call_is_named_and_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = calls_of_two_saves(tmp_path / "count", monkeypatch)
    failed = 0
    for at in range(count):
        root = tmp_path / str(at)
        with monkeypatch.context() as inside:
            inside.setattr(storage, "os", full(at))
            inside.setattr(storage, "CHUNK", 64)
            complete = 0
            with pytest.raises(OSError, match="No space left on device") as raised:  # noqa: PT012 which of the two is not known
                for complete in (0, 1):
                    save(root, complete + 1)
        failed += 1
        text = str(raised.value)
        assert raised.value.errno == errno.ENOSPC
        assert str(root) in text
        assert "\n" not in text
        assert "bytes are free" in text
        if "is saved, but" not in text:  # else only the removal of older ones failed
            assert f"step-00000000{complete + 1}, which needs" in text
            assert int(text.split("needs ")[1].split()[0].replace(",", "")) >= tensor_bytes(
                groups(0)
            )
        said: list[str] = []
        found = latest_checkpoint(root, said.append)
        assert said == []
        assert (found.step if found else 0) in (complete, complete + 1)
        assert found is None or torch.equal(
            found.all_tensors()["model"]["weight"], groups(found.step)["model"]["weight"]
        )
        with monkeypatch.context() as inside:  # space is back
            inside.setattr(storage, "os", Disk())
            save(root, 3)
        found = latest_checkpoint(root, said.append)
        assert found.step == 3
        assert [path.name for path in root.iterdir()] == ["step-000000003"]
    assert failed == count > 40


def test_a_partial_folder_is_removed_at_once_so_that_its_space_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, groups(1), {})
    monkeypatch.setattr(storage, "os", full(8, ("open", "write", "fsync")))
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, 2, groups(2), {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


class Short(Disk):
    """Takes a part of what it is given, as a signal or a nearly full disk makes it do."""

    def call(self, name: str, *given: Any) -> Any:
        return (
            super().call(name, given[0], given[1][:7])
            if name == "write"
            else super().call(name, *given)
        )


def test_a_write_that_takes_only_a_part_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "os", Short())
    assert torch.equal(
        read(write(tmp_path, 1, groups(1), {})).all_tensors()["optimiser"]["moment"],
        groups(1)["optimiser"]["moment"],
    )


def test_a_failed_save_raises_once_and_saving_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CheckpointWriter(tmp_path, 2) as saver:
        with monkeypatch.context() as inside:
            inside.setattr(storage, "os", full(3))
            saver.submit(1, groups(1), {})
            with pytest.raises(OSError, match="step-000000001"):
                saver.submit(2, groups(2), {})
        saver.wait()
        saver.submit(3, groups(3), {})
        saver.wait()
    found = latest_checkpoint(tmp_path, print)
    assert found.step == 3


def test_disk_space_is_checked_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run" / "checkpoints"
    monkeypatch.setattr(checkpoint, "_free", lambda root: 1000)
    check_free_space(root, 1000)
    with pytest.raises(
        ValueError, match=rf"{root} needs 1,001 more bytes .* 1,000 are free"
    ) as raised:
        check_free_space(root, 1001)
    assert "\n" not in str(raised.value)
    there = sum(file.stat().st_size for file in write(root, 1, groups(1), {}).iterdir())
    check_free_space(root, 1000 + there)  # what lies there already makes room as it goes
    with pytest.raises(ValueError, match="needs 1,001 more bytes"):
        check_free_space(root, 1001 + there)
    (root / ".new-step-000000002").mkdir()  # a kill left it
    (root / ".new-step-000000002" / "model.safetensors").write_bytes(bytes(500))
    check_free_space(root, 1500 + there)
    with pytest.raises(ValueError, match="needs 1,001 more bytes"):
        check_free_space(root, 1501 + there)


def test_the_size_of_a_checkpoint_is_that_of_its_tensors() -> None:
    assert tensor_bytes(groups(1)) == 240
    assert (
        tensor_bytes(
            {
                "model": {
                    "a": torch.zeros(3, dtype=torch.float64),
                    "b": torch.zeros((), dtype=torch.bool),
                },
                "none": {},
            }
        )
        == 25
    )
