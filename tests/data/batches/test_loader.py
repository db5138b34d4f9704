"""The loader returns the same batches with any number of workers, ranks and micro-batches, from any
position, and leaves no processes running.
"""

import gc
import multiprocessing
import pickle
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft import recipe as R
from weft.data.batches.batching import build_planner
from weft.data.batches.collate import ArrayRow, attention_mask
from weft.data.batches.loader import Loader, RankBatch
from weft.data.batches.samples import Samples, TokenWindows
from weft.tasks import build_task

from ...tasks.cases import IMAGE_CASES
from ..made import Copy, Lists, counted

LENGTH = 40
BATCHES = {
    "rows": R.FixedBatch(size=6, length=LENGTH),
    "budget": R.TokenBudget(tokens=300, length=LENGTH, sort_pool=64),
    "packed": R.PackedBatch(size=4, length=LENGTH, pack_pool=64),
}


def lists(n: int = 101) -> Lists:
    return Lists(np.random.default_rng(0).lognormal(2.5, 0.5, n).astype(int).clip(1).tolist())


def load(
    kind: str,
    samples: Samples,
    position: int = 0,
    steps: int = 12,
    copy: Copy | None = None,
    **more: Any,
) -> list[RankBatch]:
    works = Loader(
        build_planner(BATCHES[kind], samples, 7, LENGTH), samples, copy or Copy(LENGTH), 7, **more
    ).from_position(position)
    return list(islice(works, steps))


def same(a: list[RankBatch], b: list[RankBatch]) -> bool:
    def batches(x: RankBatch, y: RankBatch) -> bool:
        return len(x.batches) == len(y.batches) and all(
            p.keys() == q.keys() and all(torch.equal(p[k], q[k]) for k in p)
            for p, q in zip(x.batches, y.batches, strict=True)
        )

    return len(a) == len(b) and all(
        batches(x, y) and (x.step, x.counts, x.tokens) == (y.step, y.counts, y.tokens)
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("kind", list(BATCHES))
def test_workers_make_what_one_process_makes(kind: str) -> None:
    here = load(kind, lists(), micro_batch_size=3)
    for workers in (2, 4) if kind == "rows" else (2,):
        assert same(here, load(kind, lists(), micro_batch_size=3, workers=workers))


@pytest.mark.parametrize("kind", list(BATCHES))
def test_loading_resumes_exactly_from_a_position(kind: str) -> None:
    works = load(kind, lists(), steps=40)  # into the third epoch
    for k in (1, 17, 30):
        assert same(works[k:], load(kind, lists(), works[k].step.position, 40 - k))
    assert works[-1].step.rows[0][0].epoch >= 2
    assert all(a.step.next_position == b.step.position for a, b in pairwise(works))


def test_augmented_images_are_the_same_on_any_workers_ranks_and_micro_batches() -> None:
    task, spec, info, samples = IMAGE_CASES["images, mixed"]()
    preprocess = build_task(task, spec, info).preprocess
    batching = R.FixedBatch(size=6, length=17, repeats=3)

    def works(position: int = 0, steps: int = 9, **more: Any) -> list[RankBatch]:
        planner = build_planner(batching, samples, 7)
        return list(
            islice(Loader(planner, samples, preprocess, 7, **more).from_position(position), steps)
        )

    def images(works: list[RankBatch], name: str) -> torch.Tensor:
        return torch.cat([batch[name] for work in works for batch in work.batches])

    here = works()
    assert here[-1].step.rows[-1][0].epoch >= 3  # beyond the first shuffle
    for workers in (1, 2):
        assert same(here, works(workers=workers))
        assert same(here[4:], works(here[4].step.position, 5, workers=workers))
    for name in ("image", "labels", "mixed_labels", "label_weight"):
        whole = images(here, name)
        assert torch.equal(images(works(micro_batch_size=2), name), whole)
        ranks = [works(rank=rank, ranks=2) for rank in range(2)]
        assert torch.equal(
            torch.cat([images(list(part), name) for part in zip(*ranks, strict=True)]), whole
        )
    repeated = [row[0] for work in here[:2] for row in work.step.rows][:3]
    assert len({pick.index for pick in repeated}) == 1
    assert len({pick.epoch for pick in repeated}) == 3
    first, second, third = images(here, "image")[:3]
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def rows_of(works: list[RankBatch]) -> list[tuple[int, ...]]:
    """All real tokens by row, which say which samples they are, with the noise that was drawn for
    them.
    """
    found = []
    for batch in (batch for work in works for batch in work.batches):
        mask = attention_mask(batch, "tokens")
        real = torch.ones_like(batch["tokens"], dtype=torch.bool) if mask is None else mask
        found += [
            (*t[k].tolist(), *n[k].tolist())
            for t, n, k in zip(batch["tokens"], batch["noise"], real, strict=True)
        ]
    return found


@pytest.mark.parametrize("micro", [None, 1, 4])
@pytest.mark.parametrize("kind", list(BATCHES))
def test_ranks_and_micro_batches_share_the_same_samples_with_the_same_draws(
    kind: str, micro: int | None
) -> None:
    whole = load(kind, lists())
    for world in (1, 2, 3, 5):
        ranks = [
            load(kind, lists(), rank=rank, ranks=world, micro_batch_size=micro)
            for rank in range(world)
        ]
        for work, *parts in zip(whole, *ranks, strict=True):
            own = [part for part in parts if part.weight]
            assert rows_of(own) == rows_of([work])
            assert sum(part.counts["token"] for part in parts) == work.counts["token"]
            assert sum(part.tokens for part in parts) == work.tokens
            assert all(
                len(batch["tokens"]) <= (micro or 100) for part in parts for batch in part.batches
            )
            assert {part.step.next_position for part in parts} == {work.step.next_position}


def test_a_rank_without_rows_runs_a_dummy_row_with_weight_zero() -> None:
    works = [load("rows", lists(), rank=rank, ranks=9, steps=1)[0] for rank in range(9)]
    idle = [work for work in works if not work.weight]
    assert len(idle) == 3
    assert all(
        (len(work.batches), len(work.batches[0]["tokens"]), work.counts, work.tokens)
        == (1, 1, {"token": 0}, 0)
        for work in idle
    )


def test_counts_and_tokens_are_those_of_the_batches() -> None:
    for work in load("packed", lists(), micro_batch_size=2):
        assert work.counts["token"] == sum(
            int((batch["labels"] != -100).sum()) for batch in work.batches
        )
        assert work.tokens == sum(
            int((batch["tokens_document_ids"] != 0).sum()) for batch in work.batches
        )


@pytest.mark.parametrize("world", [1, 2, 5])
@pytest.mark.parametrize("kind", ["rows", "packed"])
def test_once_is_every_sample_once_in_order_one_a_row(kind: str, world: int) -> None:
    samples = lists(23)
    found = []
    steps = set()
    for rank in range(world):
        works = list(
            Loader(
                build_planner(BATCHES[kind], samples, 7, LENGTH), samples, Copy(), 7, rank, world
            ).one_epoch(4)
        )
        steps.add(len(works))
        batches = [batch for work in works if work.weight for batch in work.batches]
        found += [i for batch in batches for i in batch["index"].tolist()]
        assert all(
            batch["tokens"].shape == (len(batch["index"]), samples.sizes[batch["index"]].max())
            for batch in batches
        )
    assert sorted(found) == list(range(23))
    assert len(steps) == 1


class Reads(Lists):
    """Counts what is read."""

    read = 0

    def __getitem__(self, i: int) -> dict[str, Any]:
        self.read += 1
        return super().__getitem__(i)

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        self.read += len(indices)
        return super().lengths(indices)


@pytest.mark.parametrize(("kind", "most"), [("rows", 6), ("budget", 64 + 300), ("packed", 64 + 64)])
def test_starting_far_away_reads_no_more_than_one_pool(kind: str, most: int) -> None:
    samples = Reads([8] * 1000)
    load(kind, samples, position=987_654_000_000 // 64 * 64, steps=1)
    assert 0 < samples.read <= most


class Breaks(Copy):
    def __call__(self, samples: Samples, index: int, draw: np.random.Generator) -> ArrayRow:
        if index == 17:
            raise KeyError("colour")
        return super().__call__(samples, index, draw)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_names_the_sample_in_one_line_and_keeps_the_trace_as_a_note(workers: int) -> None:
    with pytest.raises(ValueError, match=r"^sample 17 of epoch 0 gives no row") as caught:
        load("rows", lists(), steps=30, copy=Breaks(LENGTH), workers=workers)
    assert str(caught.value) == "sample 17 of epoch 0 gives no row: KeyError: 'colour'"
    assert "in __call__" in caught.value.__notes__[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_random_state_of_torch_is_left_alone(workers: int) -> None:
    before = torch.get_rng_state()
    load("budget", lists(), steps=5, workers=workers)
    assert torch.equal(before, torch.get_rng_state())


def test_workers_end_with_the_iterator() -> None:
    works = Loader(
        build_planner(BATCHES["rows"], lists(), 0), lists(), Copy(), 0, workers=2
    ).from_position(0)
    next(works)
    assert len(multiprocessing.active_children()) == 2
    works.close()  # type: ignore[attr-defined]
    gc.collect()
    assert multiprocessing.active_children() == []


def test_windows_of_a_store_are_read_by_workers_as_here(tmp_path: Path) -> None:
    windows = TokenWindows(counted(tmp_path, [[30] * 20, [7] * 50, [400]]), LENGTH + 1, LENGTH)
    assert same(load("rows", windows), load("rows", windows, workers=2))


def test_what_makes_batches_can_go_to_another_process(tmp_path: Path) -> None:
    windows = TokenWindows(counted(tmp_path, [[30] * 20, [7] * 50, [400]]), LENGTH + 1, LENGTH)
    loader = Loader(build_planner(BATCHES["rows"], windows, 7), windows, Copy(LENGTH), 7)
    other = pickle.loads(pickle.dumps(loader))  # noqa: S301
    assert same(list(islice(loader.from_position(0), 3)), list(islice(other.from_position(0), 3)))
