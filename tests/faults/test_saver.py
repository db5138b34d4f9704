"""Background saving: values of its own step, one save at a time, low cost."""

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest
import torch

from weft.support import storage
from weft.training.checkpoints.checkpoint import (
    CheckpointWriter,
    all_checkpoints,
    latest_checkpoint,
    read,
    write,
)

from .disk import Disk


class Gate:
    """A disk that waits before each write until it is let through."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.reached = threading.Event()
        patch.setattr(storage, "os", Disk(self.before))

    def before(self, call: str, path: str) -> None:
        if call in ("open", "mkdir", "write"):
            self.reached.set()
            assert self.open.wait(20)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def test_a_save_holds_the_values_of_its_step_whatever_happens_to_them_after(
    tmp_path: Path, gate: Gate
) -> None:
    base = torch.arange(12.0)
    live = {
        "plain": base.clone(),
        "slice": base.clone()[2:6],
        "turned": base.clone().reshape(3, 4).t(),
        "scalar": torch.tensor(3.0),
        "parameter": torch.nn.Parameter(base.clone()),
        "counter": torch.tensor(5),
        "small": base.to(torch.bfloat16),
    }
    live["tied"] = live["plain"]
    kept = {name: tensor.detach().clone() for name, tensor in live.items()}
    facts = {"step": 1, "inner": {"counts": [1, 2]}}
    group = {"model": live}
    with CheckpointWriter(tmp_path, 1) as saver:
        saver.submit(1, group, facts)
        for tensor in live.values():
            tensor.data.add_(100)
        facts["step"] = 99
        facts["inner"]["counts"].append(3)
        group["other"] = live
        del live["plain"]
        assert gate.reached.wait(20)
        gate.open.set()
    found = latest_checkpoint(tmp_path, pytest.fail)
    assert found.state == {"step": 1, "inner": {"counts": [1, 2]}}
    assert found.all_tensors().keys() == {"model"}
    assert found.all_tensors()["model"].keys() == kept.keys()
    assert all(
        torch.equal(found.all_tensors()["model"][name], tensor) for name, tensor in kept.items()
    )


def test_submit_returns_before_the_file_is_written_and_the_next_one_waits(
    tmp_path: Path, gate: Gate
) -> None:
    with CheckpointWriter(tmp_path, 5) as saver:
        saver.submit(1, {"model": {"weight": torch.zeros(3)}}, {})
        assert gate.reached.wait(20)
        assert list(tmp_path.iterdir()) == []
        second = threading.Thread(
            target=saver.submit, args=(2, {"model": {"weight": torch.ones(3)}}, {})
        )
        second.start()
        second.join(0.1)
        assert second.is_alive()  # one save at a time: memory for two copies is not asked for
        gate.open.set()
        second.join(20)
        assert not second.is_alive()
    assert [found.step for found in all_checkpoints(tmp_path)] == [1, 2]


def test_a_save_in_flight_is_completed_when_the_training_fails(tmp_path: Path) -> None:
    def train() -> None:
        with CheckpointWriter(tmp_path, 1) as saver:
            saver.submit(1, {"model": {"weight": torch.zeros(3)}}, {})
            raise KeyError("training")

    with pytest.raises(KeyError, match="training"):
        train()
    assert read(tmp_path / "step-000000001").step == 1


@pytest.mark.alone
def test_saving_and_loading_cost_little_more_than_the_bare_hash_and_file(tmp_path: Path) -> None:
    """In processor time, since a shared disk has moods."""
    megabytes = 64
    saving = []
    bare = []
    loading = []
    hashing = []
    weights = {f"layer.{i}": torch.randn(1 << 18) for i in range(megabytes)}
    for i in range(4):
        raw = b"".join(tensor.numpy().tobytes() for tensor in weights.values())
        start = time.process_time()
        hashlib.sha256(raw)
        with (tmp_path / f"bare-{i}").open("wb") as file:
            file.write(raw)
            os.fsync(file.fileno())
        bare.append(time.process_time() - start)
        start = time.process_time()
        path = write(tmp_path / "run", i, {"model": weights}, {})
        saving.append(time.process_time() - start)
        start = time.process_time()
        hashlib.sha256((path / "model.safetensors").read_bytes())
        hashing.append(time.process_time() - start)
        start = time.process_time()
        read(path).all_tensors()
        loading.append(time.process_time() - start)
    assert min(saving) < 2.5 * min(bare)
    assert min(loading) < 4 * min(hashing)  # compared twice: when it is chosen and when it is used
