"""Damaged checkpoint files are detected before use and named, and the newest undamaged checkpoint
is used.
"""

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from weft.support import storage
from weft.training.checkpoints import checkpoint
from weft.training.checkpoints.checkpoint import (
    MANIFEST,
    all_checkpoints,
    latest_checkpoint,
    read,
    write,
)

from ..structure.test_security import Bomb, poison
from .disk import Disk

FILES = (
    "model.safetensors",
    "optimiser.safetensors",
    "average.safetensors",
    "rng.safetensors",
    "state.json",
    "manifest.json",
)


def groups(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {
            "weight": torch.full((20,), value),
            "half": torch.full((3, 3), value, dtype=torch.bfloat16),
        },
        "optimiser": {"moment": torch.full((40,), value, dtype=torch.float64)},
        "average": {},
        "rng": {"cpu": torch.arange(50)},
    }


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(storage, "os", Disk())
    for step in (1, 2):
        write(tmp_path / "run", step, groups(step), {"step": step, "text": "é"})
    return tmp_path / "run"


def older(root: Path, patch: pytest.MonkeyPatch) -> str:
    """The one before is taken, no tensor is made before that, and what was said of the
    damaged one.
    """
    said: list[str] = []
    with patch.context() as inside:
        inside.setattr(
            checkpoint,
            "load",
            lambda content: pytest.fail("a tensor was made before the files were compared"),
        )
        found = latest_checkpoint(root, said.append)
    assert found.step == 1
    assert torch.equal(found.all_tensors()["model"]["weight"], groups(1)["model"]["weight"])
    assert len(said) == 1
    assert "\n" not in said[0]
    return said[0]


SIZES: dict[str, Callable[[bytes], bytes]] = {
    "0": lambda b: b"",
    "1": lambda b: b[:1],
    "half": lambda b: b[: len(b) // 2],
    "one less": lambda b: b[:-1],
    "one more": lambda b: b + b"\0",
    "a space more": lambda b: b + b" ",
    "zeros": lambda b: bytes(len(b)),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_length_is_found_and_named(
    name: str, size: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "step-000000002" / name
    path.write_bytes(SIZES[size](path.read_bytes()))
    said = older(root, monkeypatch)
    assert f"{path} is damaged" in said
    assert ("as in the manifest" in said) == (name != MANIFEST and size != "zeros")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_or_a_folder_in_its_place_is_found_and_named(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "step-000000002" / name
    path.unlink()
    assert f"{path} is damaged: No such file" in older(root, monkeypatch)
    path.mkdir()
    assert f"{path} is damaged: Is a directory" in older(root, monkeypatch)


def test_one_flipped_bit_anywhere_is_found(
    root: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    draw = random.Random(0)
    paths = [root / "step-000000002" / name for name in FILES]
    sizes = [path.stat().st_size for path in paths]
    for _ in range(2000 if long else 200):
        path = draw.choices(paths, sizes)[0]
        whole = path.read_bytes()
        hurt = bytearray(whole)
        hurt[draw.randrange(len(hurt))] ^= 1 << draw.randrange(8)
        path.write_bytes(hurt)
        assert f"{path} is damaged" in older(root, monkeypatch)
        path.write_bytes(whole)
    found = latest_checkpoint(root, pytest.fail)
    assert found.step == 2


def test_damage_after_the_comparison_is_found_where_the_tensors_are_made(root: Path) -> None:
    found = latest_checkpoint(root, pytest.fail)
    assert found
    path = found.path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        found.all_tensors()


def test_files_of_another_checkpoint_or_another_name_are_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(
        root / "step-000000001" / "model.safetensors", root / "step-000000002" / "model.safetensors"
    )
    assert "model.safetensors is damaged" in older(root, monkeypatch)
    shutil.rmtree(root / "step-000000002")
    shutil.copytree(root / "step-000000001", root / "step-000000002")
    said = older(root, monkeypatch)
    assert "step-000000002 is damaged: manifest.json" in said
    assert said.endswith("step 1")


@pytest.mark.parametrize(
    "name",
    ["../step-000000001/state.json", "/etc/hosts", "MODEL.safetensors", "model.pt", ".hidden.json"],
)
def test_a_manifest_names_only_its_siblings(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "step-000000002" / MANIFEST
    files = {n: (f["bytes"], f["sha256"]) for n, f in json.loads(path.read_text())["files"].items()}
    path.write_bytes(checkpoint._seal(2, files))
    read(path.parent)
    path.write_bytes(checkpoint._seal(2, files | {name: (1, "0")}))
    assert "manifest.json is damaged" in older(root, monkeypatch)


def test_if_all_are_damaged_an_error_is_raised_and_no_run_starts(root: Path) -> None:
    for path in root.glob("*/model.safetensors"):
        path.write_bytes(b"")
    said: list[str] = []
    with pytest.raises(
        ValueError,
        match=r"all checkpoints are damaged \(step-000000002, step-000000001\); restore one",
    ):
        latest_checkpoint(root, said.append)
    assert len(said) == 2
    assert all_checkpoints(root) == []


def test_all_that_are_whole_are_listed_from_the_oldest(root: Path) -> None:
    write(root, 3, groups(3), {})
    (root / "step-000000002" / "rng.safetensors").write_bytes(b"")
    assert [found.step for found in all_checkpoints(root)] == [1, 3]


# Nothing is unpickled


@pytest.mark.parametrize("name", FILES[:-1])
def test_a_pickle_that_the_manifest_vouches_for_is_not_opened_either(
    name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    path = root / "step-000000002" / name
    path.write_bytes(pickle.dumps(Bomb(canary)))
    files = {
        p.name: (p.stat().st_size, checkpoint.sha256(p.read_bytes()).hexdigest())
        for p in path.parent.iterdir()
        if p.name != MANIFEST
    }
    (path.parent / MANIFEST).write_bytes(checkpoint._seal(2, files))
    poison(monkeypatch)
    with pytest.raises(ValueError, match=f"{name} is"):
        read(path.parent).all_tensors()
    assert not canary.exists()


# What is written is what is read

A = torch.arange(12.0).reshape(3, 4) - 5.5
KINDS = {
    "float32": A,
    "bf16": A.bfloat16(),
    "half": A.half(),
    "float64": A.double() / 3,
    "int64": torch.tensor([2**62, -1]),
    "int32": A.int(),
    "uint8": torch.arange(256, dtype=torch.uint8),
    "bool": A > 0,
    "no axis": torch.tensor(7),
    "empty": torch.empty(0, 3),
    "no columns": torch.empty(3, 0, dtype=torch.int64),
    "not in a row": A.t(),
    "a slice": A[:, 1],
    "every second": A[::2],
    "spread": torch.ones(1).expand(5),
    "tied": A,
    "tied part": A[1:],
    "parameter": torch.nn.Parameter(A),
    "nan": torch.tensor([float("nan"), float("inf"), -0.0]),
    "channels last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
}


def test_every_kind_of_tensor_comes_back_bit_by_bit(tmp_path: Path) -> None:
    path = write(tmp_path, 7, {"model": KINDS, "empty": {}}, {"step": 7})
    found = read(path).all_tensors()
    assert found.pop("empty") == {}
    assert found["model"].keys() == KINDS.keys()
    for name, tensor in KINDS.items():
        back = found["model"][name]
        assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape), name
        bits = (
            t.detach().contiguous().reshape(-1).view(torch.uint8) if t.numel() else t
            for t in (back, tensor)
        )
        assert torch.equal(*bits), name
        if back.numel():
            back.add_(back) if back.dtype != torch.bool else back.logical_not_()  # ours to change
    assert torch.equal(safetensors.torch.load_file(path / "model.safetensors")["tied"], A)


def test_facts_round_trip_and_must_be_json(tmp_path: Path) -> None:
    facts = {"step": 2**70, "loss": 0.1, "words": ["é", None, True], "inner": {"deep": [1, [2]]}}
    assert read(write(tmp_path, 1, {}, facts)).state == facts
    with pytest.raises(ValueError, match=r"state.json holds only JSON.*Tensor"):
        write(tmp_path, 2, {}, {"loss": torch.tensor(1.0)})
    assert read(tmp_path / "step-000000001").step == 1
