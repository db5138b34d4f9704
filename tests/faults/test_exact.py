"""`exact=True`: data-parallel training has the same bits on 1, 2, 4, 8 ranks, stopped and continued
on any of them.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft import recipe as R
from weft.runs import run
from weft.runs.train import RunStopped
from weft.training.parallel.exact import TreeSum, flatten, subtree_size, unflatten

from .runs import (
    VOCABULARY,
    Whole,
    at_step,
    child,
    model_bytes,
    partial_recipe,
    ranks,
    train,
    whole,
)

__all__ = ["whole"]


def exact(recipe: R.Recipe, **more: Any) -> R.Recipe:
    """Seven rows in micro-batches of two: four leaves, the last one smaller."""
    given: dict[str, Any] = {
        "exact": True,
        "micro_batch_size": 2,
        "steps": 8,
        "workers": 0,
        "checkpoints": R.Checkpoints(every_steps=2),
        **more,
    }
    return replace(recipe, **given)


def recipes(whole: Whole) -> dict[str, R.Recipe]:
    mixture = weft.mixtral(
        depth=1,
        width=16,
        heads=2,
        kv_heads=1,
        hidden=16,
        vocab_size=VOCABULARY,
        experts=4,
        top_k=2,
    )
    return {
        "causal": exact(whole.recipes["causal"]),
        "masked": exact(whole.recipes["masked"]),
        "translation, packed": exact(whole.recipes["translation, packed"]),
        "images": exact(whole.recipes["images"]),
        "mixture": exact(partial_recipe(mixture, R.CausalLM(), data=whole.recipes["causal"].data)),
    }


def on_ranks(
    recipe: R.Recipe, out: Path, world: int, plot: Callable[..., None] | None = None
) -> set[Any]:
    def work() -> Any:
        torch.set_num_threads(1)
        try:
            return train(recipe, out, plot)
        except RunStopped:
            return "stopped"

    return {str(digest) for digest in ranks(recipe, out, world, work)}


def stop_at(step: int) -> Callable[..., None]:
    def plot(built: run.Run, event: Any) -> None:
        if event and event.step == step:
            built.trainer.stop_requested = True

    return plot


def same_on(worlds: tuple[int, ...], recipe: R.Recipe, folder: Path) -> str:
    digests = {world: on_ranks(recipe, folder / f"run-{world}", world) for world in worlds}
    assert len(set.union(*digests.values())) == 1, digests
    assert len({model_bytes(folder / f"run-{world}") for world in worlds}) == 1
    (digest,) = digests[worlds[0]]
    assert len(digest) == 64, digest
    return digest


def test_one_and_two_ranks_and_a_run_that_changes_between_them_end_with_the_same_bits(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = recipes(whole)["causal"]
    digest = same_on((1, 2), recipe, tmp_path)
    out = tmp_path / "changing"
    assert on_ranks(recipe, out, 2, stop_at(3)) == {"stopped"}
    assert on_ranks(recipe, out, 1, stop_at(5)) == {"stopped"}
    assert on_ranks(recipe, out, 2) == {digest}
    ordinary = on_ranks(replace(recipe, exact=False), tmp_path / "ordinary", 1)
    assert ordinary != {digest}  # the order of sums is what makes the difference


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "masked", "translation, packed", "images", "mixture"])
def test_every_number_of_ranks_ends_with_the_same_bits(
    name: str, whole: Whole, tmp_path: Path
) -> None:
    same_on((1, 2, 4, 8) if name == "causal" else (1, 2, 4), recipes(whole)[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "masked", "translation, packed"])
def test_a_run_that_is_killed_on_four_ranks_ends_on_one_with_the_same_bits(
    name: str, whole: Whole, tmp_path: Path
) -> None:
    recipe = recipes(whole)[name]
    out = tmp_path / "killed"
    digest = child(recipe, tmp_path / "whole")
    assert None in {None if d == "None" else d for d in on_ranks(recipe, out, 4, at_step(3))}
    on_ranks(recipe, out, 2, at_step(6))
    assert on_ranks(recipe, out, 1) == {digest}


def test_a_tree_sums_in_one_order_for_any_division_of_leaves() -> None:
    generator = torch.Generator().manual_seed(0)
    for leaves in range(1, 18):
        values = torch.randn(leaves, 999, generator=generator)
        results = []
        for world in (1, 2, 4, 8):
            size = subtree_size(leaves, world)
            level = []
            for rank in range(world):
                tree = TreeSum()
                for value in values[rank * size : (rank + 1) * size]:
                    tree.add([value.clone()])
                level.append(tree.total())
            while len(level) > 1:  # what pairs of ranks do
                pairs = zip(level[::2], level[1::2], strict=True)
                level = [a if b is None else [a[0] + b[0]] for a, b in pairs]  # type: ignore[index]
            results.append(level[0][0])  # type: ignore[index]
        assert all(torch.equal(result, results[0]) for result in results), leaves
        assert torch.allclose(results[0], values.double().sum(0).float(), atol=1e-5)


def test_tensors_of_several_types_become_one_buffer_each_and_come_back() -> None:
    tensors = [torch.ones(2, 3), torch.ones(4, dtype=torch.float64), torch.zeros(5)]
    buffers = flatten(tensors)
    assert [len(buffer) for buffer in buffers] == [11, 4]
    assert all(map(torch.equal, unflatten(buffers, tensors), tensors))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batch_size": None}, "give a number"),
        ({"parallel": R.Parallel(shard=2)}, r"parallel = Parallel\(\)"),
        ({"compile": True}, "compile = False"),
        ({"average": R.BestCheckpoint(metric="loss")}, r"average = EMA\(\)"),
    ],
)
def test_settings_that_depend_on_ranks_raise_an_error_with_a_fix(
    changes: dict[str, Any], message: str, whole: Whole
) -> None:
    with pytest.raises(ValueError, match=f"exact = True: .*{message}"):
        exact(whole.recipes["causal"], **changes)


def test_three_ranks_cannot_be_exact() -> None:
    with pytest.raises(ValueError, match="needs 1, 2, 4, 8, … ranks, not 3"):
        subtree_size(4, 3)
