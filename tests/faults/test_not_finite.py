"""A loss or a gradient that is not finite: the step is not taken, its samples are named, and the
run ends when it happens too often.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from weft import recipe as R
from weft.runs import run, validation
from weft.runs.logs.log import read_log
from weft.training.checkpoints.checkpoint import all_checkpoints, latest_checkpoint

from .runs import (
    STEPS,
    Plot,
    Whole,
    at_step,
    fork,
    model_bytes,
    ranks,
    steps_of,
    told,
    train,
    wait,
    whole,
)

__all__ = ["whole"]
BAD = 6  # the step that goes wrong, counted from 0


def poison(
    made: run.Run,
    value: float,
    where: str,
    when: Callable[[int], bool],
    *,
    micro_batch: int | None = None,
    rank: int | None = None,
) -> None:
    """Multiply the loss, or its gradient alone, of some steps; in one micro-batch or on one rank,
    if given.
    """
    trainer = made.trainer
    score = made.loss.loss_sums
    at = [-1, -1]

    def spoilt(answer: Any, batch: Any) -> dict[str, Tensor]:
        sums = score(answer, batch)
        if not made.loss.training:
            return sums
        at[:] = trainer.step, at[1] + 1 if at[0] == trainer.step else 0
        if (
            not when(trainer.step)
            or micro_batch not in (None, at[1])
            or rank not in (None, trainer.ranks.rank)
        ):
            return sums
        first = next(iter(sums))
        if where == "gradient":
            sums[first].register_hook(lambda grad: grad * value)
            return sums
        return {**sums, first: sums[first] * value}

    made.loss.loss_sums = spoilt  # type: ignore[method-assign]


def parts(made: run.Run) -> str:
    """Model, optimiser and average, bit by bit: what a refused step must leave alone."""
    found = hashlib.sha256()
    for name, group in made.trainer.state()[0].items():
        for tensor in group.values() if name != "rng" else ():
            found.update(
                tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            )
    return found.hexdigest()


def notes(seen: list[Any], plots: tuple[Plot, ...], *poisons: Any, **more: Any) -> Plot:
    """Poisons a run once it is built, and notes what it is after each step."""

    def plot(made: run.Run, event: Any) -> None:
        if event is None:
            poison(made, *poisons, **more)
        seen.append(
            [
                event and event.step,
                event and event.skipped_reason,
                event and event.sample_ids,
                parts(made),
            ]
        )
        for other in plots:
            other(made, event)

    return plot


def poisoned(
    recipe: R.Recipe,
    out: Path,
    *poisons: Any,
    plots: tuple[Plot, ...] = (),
    world: int = 1,
    **more: Any,
) -> Any:
    """[what was seen after each step, the digest or the error that ended the run]; None where it
    was killed.
    """

    def work() -> Any:
        seen: list[Any] = []
        try:
            return [seen, train(recipe, out, notes(seen, plots, *poisons, **more))]
        except RuntimeError as error:
            return [seen, {"error": str(error)}]

    if world > 1:
        return ranks(recipe, out, world, work)
    note = out.with_suffix(".json")
    note.unlink(missing_ok=True)
    wait(fork(work, note))
    return json.loads(note.read_text()) if note.exists() else None


CASES: dict[str, tuple[float, str, dict[str, Any]]] = {
    "loss nan": (nan, "loss", {}),
    "loss inf": (inf, "loss", {}),
    "loss -inf": (-inf, "loss", {}),
    "gradient nan": (nan, "gradient", {}),
    "gradient inf": (inf, "gradient", {}),
    "loss nan in one micro-batch": (nan, "loss", {"micro_batch": 1}),
    "gradient nan in one micro-batch": (nan, "gradient", {"micro_batch": 2}),
    "gradient inf in the first micro-batch": (inf, "gradient", {"micro_batch": 0}),
    "loss nan on one of two ranks": (nan, "loss", {"rank": 1, "world": 2}),
    "gradient inf on one of two ranks": (inf, "gradient", {"rank": 0, "world": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_step_is_not_taken_its_samples_are_named_and_the_next_one_is(
    name: str, whole: Whole, tmp_path: Path
) -> None:
    value, where, more = CASES[name]
    recipe = replace(whole.recipes["causal"], steps=9, checkpoints=R.Checkpoints(every_steps=7))
    out = tmp_path / "run"
    found = poisoned(recipe, out, value, where, lambda step: step == BAD, **more)
    for seen, end in found if "world" in more else [found]:
        assert isinstance(end, str), end
        before = seen[BAD]
        bad = seen[BAD + 1]
        after = seen[BAD + 2]
        assert bad[0] == BAD + 1
        assert ("loss" in bad[1]) == (where == "loss")
        assert bad[3] == before[3] != after[3]  # bit by bit; and the run goes on
        assert [s[1] for s in seen if s[0] != BAD + 1] == [None] * (len(seen) - 1)
        (line,) = [line for line in read_log(out / "log.jsonl") if line.get("skipped_reason")]
        assert (line["step"], line["sample_ids"]) == (BAD + 1, bad[2])
        assert len(line["sample_ids"]) == 7
    saved = latest_checkpoint(out / "checkpoints", pytest.fail)
    assert saved
    assert [skip["step"] for skip in saved.state["guard"]["skipped"]] == [BAD + 1]


def good(out: Path) -> None:
    for found in all_checkpoints(out / "checkpoints"):
        for group in found.all_tensors().values():
            assert all(
                tensor.isfinite().all() for tensor in group.values() if tensor.is_floating_point()
            )


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_beyond_the_budget_the_run_ends_with_one_line_and_only_good_numbers_are_saved(
    where: str, whole: Whole, tmp_path: Path
) -> None:
    recipe = replace(
        whole.recipes["causal"],
        guard=R.LossGuard(max_skipped_steps=2),
        checkpoints=R.Checkpoints(every_steps=3, keep=9),
    )
    out = tmp_path / "run"
    # steps 3, 5 and 9; 3 and 9 are saved
    (seen, end) = poisoned(recipe, out, nan, where, lambda step: step in (2, 4, 8))
    assert "3 steps were skipped, the last, step 9, because the" in end["error"]
    assert "guard.max_skipped_steps allows 2" in end["error"]
    assert "\n" not in end["error"]
    assert [line["step"] for line in read_log(out / "log.jsonl") if line.get("skipped_reason")] == [
        3,
        5,
        9,
    ]
    assert [s[3] == b[3] for b, s in pairwise(seen)] == [step in (2, 4, 8) for step in range(9)]
    good(out)
    same = poisoned(recipe, out, nan, where, lambda step: step in (2, 4, 8))[1]
    assert same == end  # and a new start decides the same
    more = replace(recipe, guard=R.LossGuard(max_skipped_steps=3))
    assert isinstance(poisoned(more, out, nan, where, lambda step: step in (2, 4, 8))[1], str)
    assert steps_of(out) == list(range(1, STEPS + 1))


# an update that puts a value into one weight, the first or the last; or a rate beyond all bounds
UPDATES: dict[str, Any] = {
    **{
        f"{value} in the {'first' if i == 0 else 'last'} weight": (value, i)
        for value in (nan, inf, -inf)
        for i in (0, -1)
    },
    **{
        f"{kind.__name__} at {rate:g}": kind(lr=rate)
        for kind in (R.AdamW, R.Adam)
        for rate in (1e38, 1e300)
    },
}


def overflow(made: run.Run, value: float, which: int) -> Callable[[float], None]:
    """An optimiser's step after which one weight is not finite."""

    def step(rate: float) -> None:
        with torch.no_grad():
            list(made.trainer.optimiser.parameters.values())[which].view(-1)[which] = value

    return step


@pytest.mark.parametrize("kind", UPDATES)
def test_an_update_that_makes_weights_non_finite_ends_the_run_before_anything_of_it_is_saved(
    kind: str, whole: Whole, tmp_path: Path
) -> None:
    """Loss and gradient are finite; only the weights tell. Every step is saved and one checkpoint
    kept, the steps around the update are refused, and still the last good one is not rotated out.
    """
    own = UPDATES[kind]
    given: dict[str, Any] = (
        {}
        if isinstance(own, tuple)
        else {"optimiser": own, "schedule": R.ConstantSchedule(), "grad_clip": None}
    )
    recipe = replace(
        whole.recipes["causal"],
        steps=9,
        checkpoints=R.Checkpoints(every_steps=1, keep=1),
        guard=R.LossGuard(max_skipped_steps=9),
        **given,
    )
    out = tmp_path / "run"
    refusals = [1, 2, 3] if isinstance(own, tuple) else [0, 1, 2, 3]

    def plot(made: run.Run, event: Any) -> None:
        if event is None:
            # the steps before the update, saved too
            poison(made, nan, "loss", lambda step: step in refusals)
        elif event.step == 4 and isinstance(own, tuple):
            made.trainer.optimiser.step = overflow(made, *own)  # type: ignore[method-assign]

    def again(made: run.Run, event: Any) -> None:
        if isinstance(own, tuple):
            made.trainer.optimiser.step = overflow(made, *own)  # type: ignore[method-assign]

    with pytest.raises(
        RuntimeError, match="the update of step 5 made the weights non-finite"
    ) as caught:
        train(recipe, out, plot)
    assert "\n" not in str(caught.value)
    assert [found.step for found in all_checkpoints(out / "checkpoints")] == [4]
    good(out)
    assert not (out / "model").exists()
    with pytest.raises(RuntimeError, match="the update of step 5 made the weights non-finite"):
        train(recipe, out, again)
    # and so after another start
    assert [found.step for found in all_checkpoints(out / "checkpoints")] == [4]


def test_a_refusal_at_the_very_last_step_counts_too(whole: Whole, tmp_path: Path) -> None:
    recipe = replace(whole.recipes["causal"], guard=R.LossGuard(max_skipped_steps=0), steps=5)
    out = tmp_path / "run"
    assert "allows 0" in poisoned(recipe, out, nan, "loss", lambda step: step == 4)[1]["error"]
    assert not (out / "model").exists()


def test_a_spike_is_refused_and_the_same_one_after_a_kill(whole: Whole, tmp_path: Path) -> None:
    recipe = replace(
        whole.recipes["causal"],
        steps=14,
        guard=R.LossGuard(spike_deviations=8.0, window=4),
        checkpoints=R.Checkpoints(every_steps=2),
    )
    ends = []
    for out, kill in ((tmp_path / "plain", 99), (tmp_path / "run", 9)):
        if kill < 99:
            assert (
                poisoned(recipe, out, 40.0, "loss", lambda step: step == 10, plots=(at_step(kill),))
                is None
            )
        _, end = poisoned(recipe, out, 40.0, "loss", lambda step: step == 10)
        ends.append(end)
        (line,) = [line for line in read_log(out / "log.jsonl") if line.get("skipped_reason")]
        assert line["step"] == 11
        assert "deviations above" in line["skipped_reason"]
    assert ends[0] == ends[1]
    assert told(tmp_path / "run") == told(tmp_path / "plain")


def test_without_a_finite_validation_the_last_weights_are_exported(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(whole.recipes["causal"], steps=3, eval_every=2, average=None)
    train(recipe, tmp_path / "last")
    monkeypatch.setattr(validation, "validate", lambda *_: {"loss": nan})
    lines = list[str]()
    train(replace(recipe, average=R.BestCheckpoint()), tmp_path / "best", say=lines.append)
    assert lines[-1] == "no validation has a finite loss; the model is that of the last step"
    assert model_bytes(tmp_path / "best") == model_bytes(tmp_path / "last")
    train(replace(recipe, average=R.BestCheckpoint()), tmp_path / "best", say=lines.append)
    assert any("is finished" in line for line in lines)
