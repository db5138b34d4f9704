"""Mixtures: sampling rates, epochs per source, and independence of interruptions, workers and
ranks.
"""

import csv
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests import whole_runs
from weft import recipe as R
from weft.data.batches.batching import SampleIndex, build_planner, slice_of_rank
from weft.data.batches.loader import Loader
from weft.data.batches.mixture import BLOCK, MixtureOrder, MixtureSamples, block_counts
from weft.data.preparing.prepare import prepare
from weft.data.reading.files import MissingFile
from weft.data.shards.in_memory import ListSamples
from weft.runs import run
from weft.support.values import from_json, to_json

EQUAL = R.ProportionalRates(exponent=0.0)


def samples(*sizes: int, rates: R.MixingRates = EQUAL) -> MixtureSamples:
    return MixtureSamples(
        [
            ListSamples([{"tokens": [part] * (1 + i % 7)} for i in range(size)])
            for part, size in enumerate(sizes)
        ],
        rates,
    )


# Rates


def test_proportional_rates_are_those_of_the_papers() -> None:
    sizes = (100, 10_000)
    assert R.ProportionalRates().shares(sizes) == (100, 10_000)
    assert R.ProportionalRates(limit=200).shares(sizes) == (100, 200)
    assert R.ProportionalRates(exponent=0.5).shares(sizes) == pytest.approx((10, 100))
    assert EQUAL.shares(sizes) == (1, 1)
    low, high = R.ProportionalRates(exponent=0.3).shares(sizes)
    assert low / (low + high) == pytest.approx(100**0.3 / (100**0.3 + 10_000**0.3))


def test_fixed_rates_are_one_per_source() -> None:
    assert R.FixedRates(rates=(3.0, 1.0)).shares((5, 5)) == (3.0, 1.0)
    with pytest.raises(ValueError, match="for 3 sources; give one per source"):
        R.FixedRates(rates=(3.0, 1.0)).shares((5, 5, 5))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
def test_a_block_has_every_source_and_its_share_to_one_sample_each(shares: list[float]) -> None:
    counts = block_counts(shares)
    assert counts.sum() == BLOCK
    assert counts.min() >= 1
    exact = np.array(shares) / sum(shares) * BLOCK
    assert np.abs(counts - exact).max() <= len(shares)


def test_rates_hold_in_every_stretch_within_sampling_error() -> None:
    order = MixtureOrder((50, 1000, 7), (1.0, 2.0, 5.0), seed=3)
    for start in (0, 12_345, 3 * BLOCK - 2000, 10**12):
        indices = order.at(start, 4000)[1]
        shares = np.histogram(indices, (0, 50, 1050, 1057))[0] / 4000
        expected = np.array([1, 2, 5]) / 8
        assert (np.abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000)).all()


# Epochs


@settings(deadline=None, max_examples=8)
@given(st.lists(st.integers(4, 60), min_size=1, max_size=4), st.integers(0, 5))
def test_every_sample_of_a_source_comes_once_in_each_epoch_of_the_source(
    sizes: list[int], seed: int
) -> None:
    order = MixtureOrder(sizes, [1.0] * len(sizes), seed)
    epochs, indices = order.at(0, 1000)
    bounds = np.cumsum([0, *sizes])
    for low, high in pairwise(bounds):
        inside = (indices >= low) & (indices < high)
        own_epochs = epochs[inside]
        own = indices[inside]
        assert (np.diff(own_epochs) >= 0).all()
        for epoch in range(int(own_epochs[-1])):
            assert sorted(own[own_epochs == epoch]) == list(range(low, high))


def test_two_epochs_and_two_sources_of_one_size_are_shuffled_apart() -> None:
    order = MixtureOrder((64, 64), (1.0, 1.0), 0)
    epochs, indices = order.at(0, 1000)
    orders = [
        tuple(indices[(indices // 64 == source) & (epochs == epoch)] % 64)
        for source in (0, 1)
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4


def test_any_position_is_read_without_what_is_before_it() -> None:
    whole = MixtureOrder((5, 11), (1.0, 3.0), 1).at(BLOCK - 500, 1000)
    for start in (0, 1, 499, 500, 501, 990):
        part = MixtureOrder((5, 11), (1.0, 3.0), 1).at(BLOCK - 500 + start, 10)
        assert np.array_equal(np.array(part), np.array(whole)[:, start : start + 10])


BATCHES = [
    R.FixedBatch(size=6, length=8),
    R.FixedBatch(size=6, length=8, sort_pool=32),
    R.TokenBudget(tokens=24, length=8, sort_pool=32),
    R.PackedBatch(size=3, length=8, pack_pool=32),
]


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_steps_from_any_position_and_of_any_ranks_read_the_same(batch: R.Batching) -> None:
    mixture = samples(9, 30, rates=R.FixedRates(rates=(1.0, 2.0)))
    planner = build_planner(batch, mixture, 4)
    position = 0
    picks = list[SampleIndex]()
    while position < 300:
        step = planner.at(position)
        if 100 < position < 130:
            assert step.rows == build_planner(batch, mixture, 4).at(position).rows
        shared = [row for rank in range(3) for row in slice_of_rank(step.rows, rank, 3)]
        assert shared == step.rows
        picks += [pick for row in step.rows for pick in row]
        position = step.next_position
    assert len(set(picks)) == len(picks)  # a sample once per epoch of its source
    assert {(p.epoch, p.index) for p in picks if p.index < 9} >= {(0, i) for i in range(9)}


def test_samples_of_a_mixture_are_not_repeated() -> None:
    with pytest.raises(ValueError, match="is not supported for mixtures; use 1"):
        build_planner(R.FixedBatch(size=2, length=8, repeats=2), samples(3, 4), 0)


def test_a_row_is_made_from_the_samples_of_its_source_alone() -> None:
    mixture = samples(3, 4)
    assert mixture.locate(2) == (mixture.parts[0], 2)
    assert mixture.locate(3) == (mixture.parts[1], 0)
    assert mixture[5] == mixture.parts[1][2]
    assert mixture.lengths(np.array([6, 0, 3])).tolist() == [4, 1, 1]


# From files to runs


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> R.Data:
    """Two tasks in files of different columns: words backwards, and whether a word is long."""
    monkeypatch.chdir(tmp_path)
    words = [f"w{i * 7919 % 1000}" + "x" * (i % 2) for i in range(40)]
    for name, header, cells in (
        ("turn", ("word", "back"), [(word, word[::-1]) for word in words]),
        ("size", ("text", "long"), [(word, str(len(word) % 2)) for word in words[:12]]),
    ):
        with Path(f"{name}.csv").open("w") as file:
            csv.writer(file).writerows([header, *cells])
    turn = R.NamedSource(
        name="turn",
        source=R.Source(paths=("turn.csv",)),
        rows=R.TemplatedPairs(template="turn: {word}", target="back"),
    )
    size = R.NamedSource(
        name="size",
        source=R.Source(paths=("size.csv",)),
        rows=R.TemplatedPairs(
            template="size: {text}", target="long", labels=("0", "1"), label_texts=("short", "long")
        ),
    )
    both = R.Mixture(sources=(turn, size), rates=EQUAL)
    return R.Data(rows=R.TemplatedPairs(), train=both, valid=both, tokenizer=R.ByteTokenizer())


def tiny(data: R.Data, **changes: object) -> R.Recipe:
    return R.Recipe(
        name="mixture",
        model=weft.t5(depth=1, width=16, heads=2, hidden=32, head_dim=8, vocab_size=384),
        task=R.TextToText(),
        data=data,
        batch=R.FixedBatch(size=4, length=16),
        steps=6,
        optimiser=R.Adafactor(lr=1e-2),
        checkpoints=R.Checkpoints(every_steps=2),
        **changes,  # type: ignore[arg-type]
    )


def test_a_mixture_survives_json_and_overrides_reach_its_rates(data: R.Data) -> None:
    recipe = tiny(data)
    assert from_json(to_json(recipe)) == recipe
    changed = R.apply_overrides(recipe, ["data.train.rates.exponent=0.3"])
    assert changed.data.train.rates == R.ProportionalRates(exponent=0.3)  # type: ignore[union-attr]


def test_every_source_is_prepared_with_its_own_prefix_and_target(data: R.Data) -> None:
    prepared = prepare(data)
    folder = prepared.folder
    store = prepared.train
    tokenizer = weft.data.tokenizing.tokenizer.Tokenizer.load(folder)  # type: ignore[attr-defined]
    first = {
        name: [tokenizer.decode(part.row(0)[side]) for side in ("source", "target")]
        for name, part in store.parts.items()  # type: ignore[union-attr]
    }
    assert first == {"turn": ["turn: w0", "0w"], "size": ["size: w0", "short"]}
    assert len(store) == 52  # type: ignore[arg-type]
    changed = replace(
        data, train=R.Mixture(sources=(data.train.sources[0],)), prepared_folder=str(folder)
    )  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="contains prepared data of other files or settings"):
        prepare(changed)


def test_a_finished_folder_is_used_without_its_sources_only_with_each_part_s_rows(
    data: R.Data,
) -> None:
    data = replace(data, prepared_folder="prepared")
    folder = prepare(data).folder
    Path("size.csv").unlink()
    assert prepare(data).folder == folder
    turn, size = data.train.sources  # type: ignore[union-attr]
    other = replace(size, rows=replace(size.rows, template="long? {text}"))
    changed = replace(data, train=R.Mixture(sources=(turn, other), rates=EQUAL))
    with pytest.raises(MissingFile, match=r"size\.csv"):
        prepare(changed)


def test_a_run_on_a_mixture_resumes_exactly_and_reports_every_source(data: R.Data) -> None:
    whole = list(whole_runs.train(tiny(data), "whole"))
    stopped = whole_runs.train(tiny(data), "stopped")
    for event in stopped:
        if event.step == 3:
            break
    stopped.close()
    rest = list(whole_runs.train(tiny(data), "stopped"))
    assert rest[-1].step == 6
    assert rest[-1].loss == whole[-1].loss
    valid = [line["valid"] for line in run_log("whole") if "valid" in line][-1]
    assert valid["loss"] == pytest.approx((valid["turn loss"] + valid["size loss"]) / 2)
    scores = weft.evaluate("whole", report=lambda line: None)
    assert {"turn exact_match", "size accuracy"} <= scores.keys()


def run_log(folder: str) -> list[dict[str, dict[str, float]]]:
    from weft.runs.logs.log import read_log

    return read_log(Path(folder) / "log.jsonl")


def test_workers_and_ranks_make_the_same_rows(data: R.Data) -> None:
    state = whole_runs.build_run(tiny(data))
    mixture = run.open_training_samples(state.preprocess, state.prepared, 16)

    def rows(rank: int, ranks: int, workers: int) -> list[list[int]]:
        planner = build_planner(state.recipe.batch, mixture, 0)
        loader = Loader(planner, mixture, state.preprocess, 0, rank, ranks, workers=workers)
        batches = [next(step) for step in [loader.from_position(4)] for _ in range(3)]
        return [
            row[row != 0].tolist() for step in batches for b in step.batches for row in b["tokens"]
        ]

    alone = rows(0, 1, 0)
    assert rows(0, 1, 1) == alone
    assert sorted(rows(0, 2, 0) + rows(1, 2, 0)) == sorted(alone)


def test_rows_of_another_kind_do_not_mix(data: R.Data) -> None:
    other = R.NamedSource(name="other", source=R.Source(paths=("a.txt",)), rows=R.Documents())
    with pytest.raises(
        ValueError, match=r"train-other: rows are Documents, but Data\.rows are Templated"
    ):
        replace(data, train=R.Mixture(sources=(other,)))
    with pytest.raises(ValueError, match="give each a different name"):
        R.Mixture(sources=(other, other))


def test_rows_that_one_model_cannot_read_do_not_mix() -> None:
    one = R.LabelledTexts()
    pair = R.LabelledTexts(second_text="b")
    named = R.NamedSource(name="pairs", source=R.Source(paths=("a.csv",)), rows=pair)
    with pytest.raises(
        ValueError, match=r"train-pairs: rows differ from Data\.rows in second_text"
    ):
        R.Data(rows=one, train=R.Mixture(sources=(named,)), tokenizer=R.WordPiece(vocab_size=100))


def test_a_source_too_short_for_a_row_is_named_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a loom weaves cloth\n" * 200)
    (tmp_path / "short.txt").write_text("a loom")
    parts = tuple(
        R.NamedSource(name=name, source=R.Source(paths=(str(tmp_path / f"{name}.txt"),)))
        for name in ("long", "short")
    )
    data = R.Data(
        rows=R.Documents(),
        train=R.Mixture(sources=parts),
        tokenizer=R.ByteBPE(vocab_size=300),
        prepared_folder=str(tmp_path / "prepared"),
    )
    recipe = R.Recipe(
        name="short",
        model=weft.gpt2(depth=1, width=8, heads=1, vocab_size=300, context_length=64),
        task=R.CausalLM(),
        data=data,
        batch=R.FixedBatch(size=2, length=64),
        steps=1,
        optimiser=R.AdamW(lr=1e-3),
    )
    with pytest.raises(ValueError, match=r"source short: .*3 tokens.*, or remove the source$"):
        next(whole_runs.train(recipe, tmp_path / "run"))
