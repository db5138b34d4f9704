"""Ranks, workers and micro-batches may change at every start without changing the global batch, its
samples and the loss.
"""

import contextlib
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from weft import recipe as R
from weft.runs import run
from weft.runs.train import RunStopped
from weft.training.checkpoints import checkpoint

from .runs import Whole, child, ranks, told, train, whole, write_text

__all__ = ["whole"]
STEPS = 15


class Leg(NamedTuple):
    """One start: so many ranks, workers and rows in a micro-batch, until a step."""

    world: int
    workers: int
    micro: int | None
    until: int


def still(recipe: R.Recipe) -> R.Recipe:
    """With dropout, which belongs to samples. Seven rows, 53 samples: nothing divides anything."""
    return replace(
        recipe,
        steps=STEPS,
        average=None,
        checkpoints=R.Checkpoints(every_steps=4),
        micro_batch_size=None,
        workers=0,
    )


def path(draw: random.Random) -> list[Leg]:
    stops = sorted(draw.sample(range(2, STEPS), 4))
    rest = [
        Leg(world, workers, draw.choice([None, 1, 2, 3]), until)
        for world, workers, until in zip(
            (2, 4, 3, 1), (4, 2, 0, 1), [*stops[1:], STEPS], strict=True
        )
    ]
    return [Leg(1, 0, None, stops[0]), *rest]


def walk(recipe: R.Recipe, out: Path, leg: Leg, one: bool) -> list[Any]:
    """The events of a leg as every rank saw them; `one`: only the last rank is asked to stop."""
    recipe = replace(recipe, workers=leg.workers, micro_batch_size=leg.micro)

    def work() -> Any:
        seen: list[Any] = []

        def plot(made: run.Run, event: Any) -> None:
            if event:
                seen.append(
                    [event.step, event.loss, event.grad_norm, event.tokens, event.sample_ids]
                )
                if event.step == leg.until and (
                    not one or made.trainer.ranks.rank == leg.world - 1
                ):
                    made.trainer.stop_requested = True

        with contextlib.suppress(RunStopped):
            train(recipe, out, plot)
        return seen

    return ranks(recipe, out, leg.world, work)


@pytest.mark.parametrize(
    "name", ["causal", "masked", "replaced", "translation, packed", "detection"]
)
def test_any_path_of_worlds_workers_and_micro_batches_reads_and_loses_the_same(
    name: str, whole: Whole, tmp_path: Path, long: bool
) -> None:
    recipe = still(whole.recipes[name])
    (single,) = walk(recipe, tmp_path / "single", Leg(1, 0, None, STEPS), False)
    assert [e[0] for e in single] == list(range(1, STEPS + 1))
    for i in range(5 if long else 1):
        draw = random.Random(f"{name} {i}")
        seen = []
        for leg in path(draw):
            found = walk(recipe, tmp_path / f"path-{i}", leg, one=draw.random() < 0.5)
            assert all(events == found[0] for events in found), (
                f"{leg}: ranks saw different steps: {found}"
            )
            seen += found[0]
        assert [e[0] for e in seen] == [e[0] for e in single]
        assert [e[3:] for e in seen] == [e[3:] for e in single]
        assert (
            max(abs(a[1] - b[1]) / max(1, b[1]) for a, b in zip(seen, single, strict=True)) < 1e-6
        )


def test_more_ranks_than_rows_change_nothing(whole: Whole, tmp_path: Path) -> None:
    recipe = replace(still(whole.recipes["spans"]), batch=R.FixedBatch(size=2, length=32), steps=4)
    (single,) = walk(recipe, tmp_path / "single", Leg(1, 0, None, 4), False)
    found = walk(recipe, tmp_path / "three", Leg(3, 0, None, 4), False)
    assert found[0] == found[1] == found[2]
    assert [e[3:] for e in found[0]] == [e[3:] for e in single]
    assert (
        max(abs(a[1] - b[1]) / max(1, b[1]) for a, b in zip(found[0], single, strict=True)) < 1e-6
    )


def test_workers_and_micro_batches_do_not_change_the_digest(whole: Whole, tmp_path: Path) -> None:
    recipe = replace(whole.recipes["masked"], steps=8)
    found = {
        child(replace(recipe, workers=workers), tmp_path / f"run-{workers}")
        for workers in (0, 1, 3)
    }
    assert len(found) == 1
    assert None not in found


def test_two_ranks_never_prepare_data_and_say_what_to_run_first(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = replace(
        whole.recipes["causal"],
        data=replace(whole.recipes["causal"].data, prepared_folder=str(tmp_path / "none")),
    )
    found = ranks(recipe, tmp_path / "run", 2, lambda: train(recipe, tmp_path / "run"))
    assert any(
        answer and "is not prepared yet; run weft prepare" in answer["line"] for answer in found
    ), found


def test_ranks_refuse_prepared_data_of_other_files_as_one_process_does(
    whole: Whole, tmp_path: Path
) -> None:
    data = whole.recipes["causal"].data
    write_text(tmp_path / "other.txt", 40, seed=7)
    other = replace(data, train=R.Source(paths=(str(tmp_path / "other.txt"),)))
    recipe = replace(whole.recipes["causal"], data=other, steps=1)
    found = ranks(recipe, tmp_path / "run", 2, lambda: train(recipe, tmp_path / "run"))
    line = f"{data.prepared_folder} contains prepared data of other files or settings"
    assert [line in answer["line"] for answer in found] == [True, True], found
    (tmp_path / "other.txt").unlink()  # without its sources, what is prepared counts
    found = ranks(recipe, tmp_path / "run", 2, lambda: train(recipe, tmp_path / "run"))
    assert all(isinstance(digest, str) for digest in found), found


def test_checkpoints_are_averaged_where_only_the_first_rank_has_them(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = replace(
        still(whole.recipes["causal"]),
        average=R.AverageLast(checkpoints=2),
        steps=4,
        eval_every=None,
        checkpoints=R.Checkpoints(every_steps=2),
    )

    def work() -> str:
        return train(recipe, tmp_path / f"disk-{os.environ['RANK']}")

    found = ranks(recipe, tmp_path / "machine", 2, work)
    assert found[0] == found[1]
    shared = ranks(recipe, tmp_path / "run", 2, lambda: train(recipe, tmp_path / "shared"))
    assert shared == found
    assert told(tmp_path / "disk-0")[-1].keys() == {"step", "averaged"}
    assert told(tmp_path / "disk-0") == told(tmp_path / "shared")


def test_ranks_wait_for_a_last_save_that_outlasts_their_collective_operations(
    whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts = R.Timeouts(collective=3.0)
    recipe = replace(still(whole.recipes["causal"]), steps=1, eval_every=None, timeouts=timeouts)
    put = checkpoint._put

    def put_slowly(*arguments: Any) -> Path:
        time.sleep(4.0)
        return put(*arguments)

    monkeypatch.setattr(checkpoint, "_put", put_slowly)
    found = ranks(recipe, tmp_path / "run", 2, lambda: train(recipe, tmp_path / "run"))
    assert isinstance(found[0], str), found
    assert found[0] == found[1]
