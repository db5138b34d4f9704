"""One process, copies, FSDP, tensor parallelism and both together train alike: real ranks over
gloo.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests import whole_runs
from weft import recipe as R
from weft.families.electra import generator
from weft.runs import validation
from weft.training.parallel.ranks import init_ranks
from weft.training.parallel.sharding import full_tensor

from ..faults.runs import BERT, VOCABULARY, Whole, partial_recipe, ranks, whole
from .test_layer_combination import combined

__all__ = ["whole"]
SMALL: dict[str, Any] = {"depth": 2, "width": 32, "heads": 4, "vocab_size": VOCABULARY}


def cases(whole: Whole) -> dict[str, R.Recipe]:
    """Tasks, and the layers that tensor parallelism splits in a way of their own, with dropout
    wherever there is any.
    """
    known = whole.recipes
    text = known["causal"].data
    experts = weft.mixtral(**SMALL, kv_heads=2, hidden=16, experts=4, top_k=2)
    electra = generator("small", **{**BERT, "embedding": 8, "width": 8, "heads": 2})

    def causal(model: Any, **more: Any) -> R.Recipe:
        return partial_recipe(model, R.CausalLM(), data=text, **more)

    return {
        "causal": known["causal"],
        "masked": replace(known["masked"], workers=0),
        "spans": known["spans"],
        "translation": replace(known["translation, packed"], workers=0),
        "autoencoding": replace(known["autoencoding"], workers=0),
        "detection": replace(known["detection"], workers=0),
        "classification": replace(known["images"], workers=0),
        "distillation": known["distillation"],
        "replaced": replace(
            known["replaced"],
            optimiser=R.AdamW(lr=3e-3),
            task=R.ReplacedTokenDetection(generator=electra),
        ),
        "mixture": causal(experts, micro_batch_size=2),
        "multi-query": causal(weft.llama(**SMALL, kv_heads=1, hidden=64), micro_batch_size=3),
        "parallel blocks": causal(weft.gpt_neox(**SMALL, hidden=64)),
        "alibi": causal(weft.bloom(**SMALL)),
        "combined layers": causal(combined(known["causal"].model)),
        "lora": causal(
            known["causal"].model, trainable=R.LoRA(rank=2, target_modules=("query", "out"))
        ),
    }


def follow(recipe: R.Recipe, ranks: Any, steps: int) -> dict[str, Any]:
    """Losses, norms, validation, and the gathered gradients of the first step."""
    torch.set_num_threads(1)
    built = whole_runs.build_run(recipe, ranks)
    trainer = built.trainer
    events = []
    gradients = {}
    update = trainer.optimiser.step

    def keep_gradients(scale: float) -> None:
        for name, p in trainer.optimiser.parameters.items():
            if trainer.step == 0 and p.grad is not None:
                gradients[name] = full_tensor(p.grad).flatten().tolist()
        update(scale)

    trainer.optimiser.step = keep_gradients  # type: ignore[method-assign]
    for event in trainer:
        events.append([event.loss, event.grad_norm])
        if event.step == steps:
            break
    valid = validation.validate_run(built)
    trainer.drop_ddp()
    return {"events": events, "gradients": gradients, "valid": valid}


def compare(
    recipes: dict[str, R.Recipe],
    grids: list[R.Parallel],
    world: int,
    folder: Path,
    steps: int,
) -> None:
    """Every recipe on every grid equals one process; all in one world, since ranks take long to
    meet.
    """

    def work() -> Any:
        with init_ranks(device="cpu") as here:
            return [
                follow(replace(recipe, parallel=grid), here, steps)
                for name, recipe in recipes.items()
                for grid in grids
            ]

    def one() -> Any:
        return [follow(recipe, None, steps) for recipe in recipes.values()]

    first = next(iter(recipes.values()))
    (singles,) = ranks(first, folder / "one", 1, one)
    both = ranks(first, folder / "many", world, work)
    assert isinstance(singles, list), singles
    for there in both:
        assert isinstance(there, list), both
    labels = [(name, grid) for name in recipes for grid in grids]
    for there in both:
        for (name, grid), result in zip(labels, there, strict=True):
            single = singles[list(recipes).index(name)]
            assert_alike(single, result, f"{name} on {grid}")


def assert_alike(single: dict[str, Any], other: dict[str, Any], what: str) -> None:
    for (loss, norm), (other_loss, other_norm) in zip(
        single["events"], other["events"], strict=True
    ):
        assert abs(loss - other_loss) <= 1e-6 * max(1, abs(loss)), what
        assert abs(norm - other_norm) <= 1e-5 * max(1, norm), what
    assert single["gradients"].keys() == other["gradients"].keys() != set(), what
    for name, values in single["gradients"].items():
        a = torch.tensor(values)
        b = torch.tensor(other["gradients"][name])
        assert (a - b).abs().max() <= 1e-5 * max(1, float(a.abs().max())), (what, name)
    if single["valid"] is not None:
        assert abs(single["valid"]["loss"] - other["valid"]["loss"]) <= 1e-5, what


def some(recipes: dict[str, R.Recipe], *names: str) -> dict[str, R.Recipe]:
    return {name: recipes[name] for name in names}


TWO = [R.Parallel(shard=2), R.Parallel(tensor=2)]


def test_two_ranks_share_weights_or_layers_and_train_as_one_process(
    whole: Whole, tmp_path: Path
) -> None:
    compare(some(cases(whole), "causal"), [R.Parallel(), *TWO], 2, tmp_path, 3)


def test_experts_are_split_or_spread_over_ranks_and_train_as_one_process(
    whole: Whole, tmp_path: Path
) -> None:
    recipes = some(cases(whole), "mixture")
    compare(recipes, [R.Parallel(tensor=2), R.Parallel(tensor=2, expert=2)], 2, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "checkpointing",
    [True, R.CheckpointBlocks(every=2), R.SelectiveCheckpointing()],
    ids=lambda c: "all" if c is True else type(c).__name__,
)
def test_activation_checkpointing_changes_nothing_on_sharded_ranks(
    whole: Whole, tmp_path: Path, checkpointing: Any
) -> None:
    recipes = some(cases(whole), "multi-query", "parallel blocks", "mixture")
    recipes = {
        name: replace(recipe, activation_checkpointing=checkpointing)
        for name, recipe in recipes.items()
    }
    compare(recipes, TWO, 2, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "causal",
        "masked",
        "spans",
        "translation",
        "autoencoding",
        "detection",
        "classification",
        "distillation",
        "replaced",
        "mixture",
        "multi-query",
        "alibi",
        "combined layers",
        "lora",
    ],
)
def test_every_task_trains_alike_on_every_grid(name: str, whole: Whole, tmp_path: Path) -> None:
    recipes = some(cases(whole), name)
    compare(recipes, [R.Parallel(), *TWO], 2, tmp_path, 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "grid",
    [
        R.Parallel(shard=2, tensor=2),
        R.Parallel(replicate=2, shard=2),
        R.Parallel(replicate=2, tensor=2),
        R.Parallel(shard="all"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "name", ["causal", "masked", "translation", "autoencoding", "detection", "mixture"]
)
def test_four_ranks_share_weights_and_layers_and_train_as_one_process(
    name: str, grid: R.Parallel, whole: Whole, tmp_path: Path
) -> None:
    steps = 20 if grid == R.Parallel(shard=2, tensor=2) else 5
    compare(some(cases(whole), name), [grid], 4, tmp_path, steps)
