"""Runs that cannot fit into memory are rejected before allocation; runs that may fit never are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft import recipe as R
from weft.plan.cost import (
    TOLERATED_OVERESTIMATE,
    MemoryEstimate,
    activation_bytes,
    check_memory,
    estimate_memory,
)
from weft.plan.recipe_workload import workload_of_recipe
from weft.recipe.recipe import sample_unit
from weft.training.memory import available_bytes, cgroup_available

SHAPE: dict[str, Any] = {"depth": 3, "width": 64, "heads": 4, "hidden": 256, "vocab_size": 500}
DATA = R.Data(rows=R.Documents(), train=R.Source(paths=("x",)))
GPT = R.Recipe(
    name="small",
    model=weft.gpt2(**SHAPE, positions=64),
    task=R.CausalLM(),
    data=DATA,
    batch=R.FixedBatch(size=8, length=64),
    steps=1,
    optimiser=R.AdamW(lr=1e-3),
)
VIT = replace(
    GPT,
    model=weft.vit(depth=2, width=64, heads=4, hidden=128, image_size=32, patch_size=4, classes=10),
    task=R.Classification(),
    batch=R.FixedBatch(size=8, length=65),
    data=replace(DATA, rows=R.LabelledImages()),
)


def kept(recipe: R.Recipe, inputs: torch.Tensor) -> int:
    """Bytes that one forward pass keeps for the backward pass, counted by torch: each storage once,
    parameters left out.
    """
    model = weft.build(recipe.model)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, int] = {}

    def note(t: torch.Tensor) -> torch.Tensor:
        if t.untyped_storage().data_ptr() not in own:
            seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    held = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (held.append(t), note(t))[1], lambda t: t
    ):  # type: ignore[func-returns-value]
        out = model(inputs)
    return sum(seen.values()) + out.untyped_storage().nbytes()


@pytest.mark.parametrize(
    "recipe",
    [
        GPT,
        replace(GPT, model=weft.llama(**SHAPE, kv_heads=2)),
        VIT,
        replace(
            VIT,
            model=weft.swin(
                depths=(2, 2),
                heads=(2, 4),
                width=32,
                image_size=32,
                patch_size=4,
                window=4,
                classes=10,
            ),
        ),
    ],
    ids=["gpt2", "llama", "vit", "swin"],
)
def test_the_estimate_is_below_what_torch_keeps_and_not_by_much(recipe: R.Recipe) -> None:
    inputs = (
        torch.zeros(8, 64, dtype=torch.long)
        if sample_unit(recipe.model) == "tokens"
        else torch.zeros(8, 3, 32, 32)
    )
    found = kept(recipe, inputs)
    guess = 8 * activation_bytes(workload_of_recipe(recipe))
    assert 0.3 * found < guess < 1.1 * found


def test_a_huge_batch_raises_an_error_with_estimate_free_memory_and_fix() -> None:
    absurd = replace(GPT, batch=R.FixedBatch(size=100_000, length=64))
    need = estimate_memory(absurd)
    free = 4 * 10**9
    with pytest.raises(
        ValueError,
        match=r"needs about [\d.]+ GB of memory, but only 4\.0 GB are free: .* 100,000 rows .* "
        r"give "
        r"--set micro_batch_size=\d+",
    ) as error:
        check_memory("absurd", absurd.batch.size_field, need, free)
    micro = int(str(error.value).rpartition("=")[2])
    assert micro & (micro - 1) == 0
    fit = estimate_memory(replace(absurd, micro_batch_size=micro))
    assert fit.total <= free < estimate_memory(replace(absurd, micro_batch_size=4 * micro)).total
    check_memory("absurd", absurd.batch.size_field, fit, free)


@pytest.mark.parametrize(
    ("need", "way"),
    [
        (MemoryEstimate(9, 0, 1, 1), "a smaller model"),
        (MemoryEstimate(1, 9, 1, 1), "fewer rows per step, with --set batch.size="),
        (MemoryEstimate(1, 1, 9, 1), "shorter rows, with --set batch.length="),
        (MemoryEstimate(1, 1, 1, 9), "--set micro_batch_size=2"),
    ],
)
def test_the_suggested_fix_works(need: MemoryEstimate, way: str) -> None:
    with pytest.raises(ValueError, match=f"give {way}"):
        check_memory(
            GPT.name, GPT.batch.size_field, need, 5 if way != "--set micro_batch_size=2" else 4
        )


def test_what_may_fit_is_tried() -> None:
    check_memory(
        GPT.name,
        GPT.batch.size_field,
        MemoryEstimate(0, 0, 1, int(TOLERATED_OVERESTIMATE * 1000)),
        1000,
    )
    for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.py")):
        recipe = R.load_recipe(str(path))
        check_memory(recipe.name, recipe.batch.size_field, estimate_memory(recipe), 10**9)


def test_ranks_share_the_machine_and_a_container_has_a_limit(tmp_path: Path) -> None:
    here = available_bytes(torch.device("cpu"))
    assert here > 10**8
    assert available_bytes(torch.device("cpu"), 4) < 0.5 * here
    assert cgroup_available(tmp_path) == []
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 300\nfile 600\n")
    assert cgroup_available(tmp_path) == [700]
    (tmp_path / "memory.max").write_text("max\n")
    assert cgroup_available(tmp_path) == []


def test_fewer_numbers_are_kept_where_fewer_are_needed() -> None:
    whole = estimate_memory(GPT)
    assert (
        estimate_memory(replace(GPT, activation_checkpointing=True)).activations_per_row
        < 0.6 * whole.activations_per_row
    )
    assert (
        estimate_memory(replace(GPT, precision="bf16")).activations_per_row
        == whole.activations_per_row // 2
    )
    assert estimate_memory(GPT, ranks=4).rows == 2
    assert estimate_memory(replace(GPT, optimiser=R.SGD(lr=1.0))).state_bytes == pytest.approx(
        0.75 * whole.state_bytes
    )
    assert estimate_memory(replace(GPT, average=R.EMA())).state_bytes == pytest.approx(
        1.25 * whole.state_bytes
    )


def test_a_detector_needs_memory_for_images_of_its_batch_and_not_of_the_usual_size() -> None:
    shape = {"depth": 1, "decoder_depth": 1, "width": 32, "heads": 2, "hidden": 64, "classes": 3}
    detector = replace(
        VIT,
        model=weft.detr(**shape, queries=5, depths=(1, 1), widths=(8, 16), stem=8),
        task=R.Detection(),
        data=replace(DATA, rows=R.ImagesWithBoxes()),
    )
    small, large = (
        estimate_memory(replace(detector, batch=R.FixedBatch(size=2, length=cells**2)))
        for cells in (4, 16)
    )
    assert small.batch_bytes == 2 * 3 * 4 * (4 * 8) ** 2  # a cell is 8 pixels wide
    assert large.batch_bytes == 16 * small.batch_bytes
    assert 4 * small.activations_per_row < large.activations_per_row
