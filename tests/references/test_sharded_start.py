"""Sharded runs that start from a folder, with low-rank updates: each rank reads its slices, and all
train as one process.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests import whole_runs
from weft import cli
from weft import recipe as R
from weft.interop import stored_tensors
from weft.runs import export
from weft.training.parallel.ranks import init_ranks

from ..faults.runs import Whole, ranks, whole
from ..faults.test_sharded_checkpoint import ONE, start
from .test_parallel import TWO, compare

__all__ = ["whole"]


def tuned(whole: Whole, folder: Path) -> R.Recipe:
    """Low-rank updates of a published layout, whose queries, keys and values are joined and
    transposed.
    """
    recipe = replace(whole.recipes["causal"], eval_every=None, average=None, steps=4)
    weft.save(weft.build(recipe.model, seed=9), folder / "start", to="hf")
    lora = R.LoRA(rank=2, target_modules=("query", "out"))
    return replace(recipe, init_from=str(folder / "start"), trainable=lora)


class CountedFile:
    """An open safetensors file that counts the numbers that are read from it."""

    numbers = 0

    def __init__(self, file: Any) -> None:
        self.keys = file.keys
        self.file = file

    def count(self, tensor: torch.Tensor) -> torch.Tensor:
        CountedFile.numbers += tensor.numel()
        return tensor

    def get_tensor(self, name: str) -> torch.Tensor:
        return self.count(self.file.get_tensor(name))

    def get_slice(self, name: str) -> Any:
        part = self.file.get_slice(name)
        counted = type("CountedSlice", (), {"__getitem__": lambda _, s: self.count(part[s])})()
        counted.get_shape = part.get_shape
        return counted


def test_a_sharded_run_starts_from_a_folder_with_low_rank_updates_as_one_process(
    whole: Whole, tmp_path: Path
) -> None:
    compare({"tuned": tuned(whole, tmp_path)}, TWO, 2, tmp_path, 4)


def test_each_of_two_ranks_reads_half_of_the_folder(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(tuned(whole, tmp_path), parallel=R.Parallel(shard=2))
    opened = stored_tensors.open_tensors
    monkeypatch.setattr(stored_tensors, "open_tensors", lambda *a: CountedFile(opened(*a)))

    def work() -> Any:
        with init_ranks(device="cpu") as here:
            whole_runs.build_run(recipe, here)
        return CountedFile.numbers

    read = ranks(recipe, tmp_path / "many", 2, work)
    total = recipe.model.parameter_count()
    assert all(isinstance(numbers, int) for numbers in read), read
    assert total <= sum(read) < 1.05 * total
    assert max(read) < 0.6 * total


def test_a_sharded_run_exports_its_low_rank_updates_merged_tensor_by_tensor(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = tuned(whole, tmp_path)
    start(recipe, tmp_path / "one", ONE, stop=-1)
    digests = start(recipe, tmp_path / "many", (2, TWO[0]), stop=-1)
    assert len(set(digests)) == 1, digests
    models = [weft.load(str(tmp_path / name / "model")) for name in ("one", "many")]
    before = weft.load(str(tmp_path / "start")).state_dict()
    for (name, a), (_, b) in zip(*(m.state_dict().items() for m in models), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name
        assert torch.equal(a, before[name]) != name.endswith(("query.weight", "out.weight")), name


def test_the_newest_parts_of_a_run_that_is_not_finished_are_exported_to_a_published_layout(
    whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert set(start(tuned(whole, tmp_path), out, (2, TWO[0]), stop=3)) == {"stopped"}
    assert cli.main(["export", str(out), str(tmp_path / "hf"), "--json"]) == 0
    opened = weft.open(str(out))
    exported = weft.open(str(tmp_path / "hf"))
    assert (tmp_path / "hf" / "config.json").exists()
    for (name, a), (_, b) in zip(
        opened.model.state_dict().items(), exported.model.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name
    assert opened.generate("the loom", max_new_tokens=4) == exported.generate(
        "the loom", max_new_tokens=4
    )


def test_an_export_takes_the_newest_checkpoint_if_the_run_removes_the_one_that_is_read(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(tuned(whole, tmp_path), checkpoints=R.Checkpoints(every_steps=1, keep=3))
    assert set(start(recipe, tmp_path / "run", (2, TWO[0]), stop=3)) == {"stopped"}
    real = export.checkpoint_reader
    lines = list[str]()
    removed = list[str]()

    def remove_once(checkpoint: Any, *parts: Any) -> Any:
        if not removed:
            removed.append(checkpoint.path.name)
            shutil.rmtree(checkpoint.path)
        return real(checkpoint, *parts)

    monkeypatch.setattr(export, "checkpoint_reader", remove_once)
    export.export_checkpoint(tmp_path / "run", tmp_path / "out", "hf", lines.append)
    assert sum("removed this checkpoint" in line for line in lines) == 1
    assert removed[0] not in {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert weft.open(str(tmp_path / "out")).generate("the loom", max_new_tokens=2)
