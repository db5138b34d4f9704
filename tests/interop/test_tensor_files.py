"""Folders are read slice by slice and written tensor by tensor: no model is ever whole in
memory.
"""

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import weft
from weft.interop.loading import open_weights
from weft.interop.tensor_files import in_memory, write_tensors

SMALL: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "vocab_size": 20}
MODELS: dict[str, Callable[[], Any]] = {
    "joined rows, transposed": lambda: weft.gpt2(**SMALL, positions=8),
    "stacked experts": lambda: weft.mixtral(**SMALL, kv_heads=1, hidden=12, experts=4, top_k=2),
    "head by head": lambda: weft.gpt_neox(**SMALL, hidden=24),
    "less one": lambda: weft.gemma2(**SMALL, kv_heads=1, hidden=24, head_dim=8),
    "leading axes": lambda: weft.vit(
        depth=4, width=16, heads=2, hidden=24, image_size=8, patch_size=4, classes=3
    ),
    "renamed": lambda: weft.t5(**SMALL, hidden=24, head_dim=8),
}


class CountedTensors:
    """Reads tensors, and knows how many bytes of what it returned are still in memory."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors
        self.live = 0
        self.peak = 0

    def __call__(self, name: str) -> Tensor:
        tensor = self.tensors[name].clone()
        self.live += tensor.nbytes
        self.peak = max(self.peak, self.live)
        weakref.finalize(tensor.untyped_storage(), self.drop, tensor.nbytes)
        return tensor

    def drop(self, size: int) -> None:
        self.live -= size


@pytest.mark.parametrize("to", ["hf", "weft"])
@pytest.mark.parametrize("name", MODELS)
def test_every_slice_of_a_folder_is_that_of_the_loaded_model(
    name: str, to: str, tmp_path: Path
) -> None:
    weft.save(weft.build(MODELS[name](), seed=3), tmp_path, to=to, shard=2_000)
    state = weft.load(tmp_path).state_dict()
    with open_weights(tmp_path) as weights:
        assert weights.shapes == {name: tensor.shape for name, tensor in state.items()}
        for name, whole in state.items():
            for part in (0, 1):  # each dimension cut in two, where it has two
                slices = tuple(
                    slice(part * (n // 2), n - (1 - part) * (n // 2)) for n in whole.shape
                )
                assert torch.equal(weights.read(name, slices), whole[slices]), (name, slices)


@pytest.mark.parametrize("to", ["hf", "weft"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_written_with_the_tensors_of_one_row_in_memory(
    name: str, to: str, tmp_path: Path
) -> None:
    model = weft.build(MODELS[name](), seed=3)
    weft.save(model, tmp_path / "whole", to=to)
    counted = CountedTensors({n: t.detach() for n, t in model.state_dict().items()})
    weft.save(weft.build(model.spec, device="meta"), tmp_path / "parts", to=to, weights=counted)
    same = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "parts")]
    assert same[0] == same[1]
    sizes = sorted(tensor.nbytes for tensor in model.state_dict().values())
    at_once = 3 if to == "hf" else 1  # published layouts join queries, keys and values
    assert sizes[-1] <= counted.peak <= at_once * sizes[-1] < sum(sizes)


def test_tensors_of_several_types_are_aligned_and_read_back_from_shards(tmp_path: Path) -> None:
    tensors = {
        "flags": torch.tensor([True, False, True]),
        "half": torch.arange(5).bfloat16(),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "numbers": torch.arange(12.0).view(3, 4).T,
        "empty": torch.empty(0, 3),
    }
    write_tensors(in_memory(tensors), tmp_path, shard=1_000)
    loaded = load_file(tmp_path / "model.safetensors")
    write_tensors(in_memory(tensors), tmp_path, shard=20)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == 4
    for name, tensor in tensors.items():
        part = load_file(tmp_path / index["weight_map"][name])[name]
        assert torch.equal(loaded[name], tensor)
        assert torch.equal(part, tensor)
        assert loaded[name].dtype == part.dtype == tensor.dtype


def test_a_file_has_the_bytes_that_the_safetensors_library_writes(tmp_path: Path) -> None:
    kinds = (torch.float32, torch.bool, torch.int64, torch.bfloat16, torch.float64, torch.float16)
    tensors = {
        f"{name}.{i}": torch.ones(i + 1, 3).to(kind)
        for name in "ba"
        for i, kind in enumerate(kinds)
    }
    write_tensors(in_memory(tensors), tmp_path, 1 << 20)
    save_file(tensors, tmp_path / "theirs.safetensors", {"format": "pt"})
    ours, theirs = (tmp_path / f"{name}.safetensors" for name in ("model", "theirs"))
    assert ours.read_bytes() == theirs.read_bytes()
