"""The activation formulas equal the bytes that torch saves."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import weft
from weft.plan.activations import row_activations, storage_of
from weft.plan.layout import Layout

from .cases import CASES, Case


def saved_bytes(case: Case, depth: int, bf16: bool, **more: Any) -> int:
    """Of all storages that the graph holds, without parameters."""
    model = weft.build(case.spec(depth, **more)).train()
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, tuple[int, Tensor]] = {}  # a tensor that is kept keeps its address

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = (storage.nbytes(), t)
        return t

    with (
        saved_tensors_hooks(pack, lambda t: t),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        output = model(*case.inputs(case.rows))
    del output
    return sum(size for size, _ in saved.values())


def planned_bytes(case: Case, depth: int, bf16: bool, fused: bool, **more: Any) -> float:
    workload = case.workload(depth, "bf16" if bf16 else "fp32", **more)
    activations = row_activations(workload, storage_of(workload, Layout(), fused))
    return case.rows * activations.blocks


def of_one_block(bytes_of: Any, *arguments: Any, **more: Any) -> float:
    """What a second block adds."""
    case, *rest = arguments
    return float(bytes_of(case, 2, *rest, **more) - bytes_of(case, 1, *rest, **more))


@pytest.mark.parametrize("name", [name for name in CASES if name != "t5"])
def test_a_block_stores_what_torch_saves(name: str) -> None:
    case = CASES[name]
    assert of_one_block(planned_bytes, case, False, True) == of_one_block(saved_bytes, case, False)


@pytest.mark.parametrize("name", ["gpt2", "bert", "bart"])
def test_with_dropout_a_block_stores_masks_and_attention_weights_too(name: str) -> None:
    """On the CPU, where no fused kernel drops weights."""
    more = {"dropout": 0.1, "attention_dropout": 0.1}
    planned = of_one_block(planned_bytes, CASES[name], False, False, **more)
    assert planned == of_one_block(saved_bytes, CASES[name], False, **more)


@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_under_autocast_a_block_also_stores_its_weights_in_bf16(name: str) -> None:
    case = CASES[name]
    saved = of_one_block(saved_bytes, case, True)
    matrices = [
        p.numel() for p in weft.build(case.spec(1)).get_submodule(stack_of(case)).parameters()
        if p.dim() == 2
    ]  # fmt: skip
    assert of_one_block(planned_bytes, case, True, False) + 2 * sum(matrices) == saved


def stack_of(case: Case) -> str:
    return "decoder.blocks" if case.family == "gpt2" else "encoder.blocks"


def test_learned_biases_of_scores_are_near() -> None:
    """A position bias that is trained takes torch's unfused path, whose copies depend on
    strides.
    """
    case = CASES["t5"]
    planned = of_one_block(planned_bytes, case, False, False)
    assert planned == pytest.approx(of_one_block(saved_bytes, case, False), rel=0.06)


def test_a_tensor_group_divides_what_its_layers_store_but_not_what_they_read() -> None:
    case = CASES["gpt2"]
    workload = case.workload(1)
    whole, part = (
        row_activations(workload, storage_of(workload, Layout(tensor=t, shard=4))).blocks
        for t in (1, 4)
    )
    read = 2 * case.length * 64 * 4  # both branches read all tokens
    assert part == pytest.approx(read + (whole - read) / 4)
