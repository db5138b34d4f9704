"""Masked language modelling with four input formats."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import weft
from weft import recipe as R
from weft.data.batches.batching import shape_granularity
from weft.nn.kernels.cross_entropy import IGNORE_INDEX
from weft.support.order import sample_generator
from weft.tasks.base import ArrayRow, LengthLimitedSamples, masks
from weft.tasks.masked_lm import SPAN_LENGTH_CDF, MaskedLMOutputs, MaskedLMPreprocess
from weft.tasks.sampling import random_span_starts
from weft.tasks.text_inputs import truncate_pair

from .cases import SENTENCES, bert
from .made import (
    ORDINARY,
    SPECIAL,
    VOCABULARY,
    Given,
    Stream,
    batch,
    build_pair,
    even,
    meta,
    near,
    rows,
    sure,
    texts,
)

PAD, UNKNOWN, BEGIN, END, MASK = SPECIAL.values()


def masked(known: Any = None, model: Any = None, **more: Any) -> MaskedLMPreprocess:
    corruption, _ = build_pair(R.MaskedLM(**more), model or bert(), known or meta(SENTENCES))
    return corruption


def original(row: ArrayRow) -> np.ndarray:
    return np.where(row["labels"] == IGNORE_INDEX, row["tokens"], row["labels"])


# Which tokens, and what becomes of them


@pytest.fixture(scope="module")
def million() -> tuple[list[ArrayRow], LengthLimitedSamples]:
    samples = texts(1000, 1000, 1002)
    return rows(masked(), samples), samples


def test_of_a_million_tokens_the_share_is_chosen_exactly_but_for_rounding(
    million: tuple[list[ArrayRow], LengthLimitedSamples],
) -> None:
    off = []
    for row in million[0]:
        ordinary = int((original(row) > 4).sum())
        chosen = int((row["labels"] != IGNORE_INDEX).sum())
        assert abs(chosen - 0.15 * ordinary) < 1
        off.append(chosen - 0.15 * ordinary)
    assert abs(np.mean(off)) < 5 * 0.5 / 1000**0.5  # rounded up or down without a lean


def test_of_the_chosen_eight_tenths_are_masked_one_is_random_and_one_is_kept(
    million: tuple[list[ArrayRow], LengthLimitedSamples],
) -> None:
    became, was = (
        np.concatenate([row[name][row["labels"] != IGNORE_INDEX] for row in million[0]])
        for name in ("tokens", "labels")
    )
    n = len(was)
    sides = len(ORDINARY)
    assert n > 140_000
    assert near((became == MASK).sum(), n, 0.8)
    # a random token may be the same by chance
    assert near((became == was).sum(), n, 0.1 + 0.1 / sides)
    fresh = became[(became != MASK) & (became != was)]
    assert near(len(fresh), n, 0.1 - 0.1 / sides)
    assert set(fresh.tolist()) == set(ORDINARY)  # never a special token, never a sentinel
    assert even(np.bincount(fresh, minlength=52)[5:])


@pytest.mark.parametrize(
    ("hidden", "random"), [(0.8, 0.1), (1.0, 0.0), (0.8, 0.2), (0.8, 0.0), (0.0, 0.8), (0.0, 1.0)]
)
def test_every_row_of_bert_s_masking_table_has_its_shares(hidden: float, random: float) -> None:
    """BERT, appendix C.2; what needs no mask token does without."""
    special = {name: i for name, i in SPECIAL.items() if hidden or name != "mask"}
    corruption, _ = build_pair(
        R.MaskedLM(mask_token_rate=hidden, random_token_rate=random),
        bert(),
        meta(SENTENCES, special_tokens=special),
    )
    given = rows(corruption, texts(60, 600, 602))
    was, became = (
        np.concatenate([row[name][row["labels"] != IGNORE_INDEX] for row in given])
        for name in ("labels", "tokens")
    )
    # a random token may be the same by chance
    n = len(was)
    same = random / len(corruption.ordinary_ids)
    assert n > 5000
    # an ordinary token, where none is for masks
    assert near((became == MASK).sum(), n, hidden or same)
    assert near((became == was).sum(), n, 1 - hidden - random + same)


def test_special_tokens_are_never_chosen_and_all_others_alike(
    million: tuple[list[ArrayRow], LengthLimitedSamples],
) -> None:
    text = np.concatenate([original(r) for r in million[0]])
    chosen = np.concatenate([r["labels"] != IGNORE_INDEX for r in million[0]])
    assert not chosen[text <= 4].any()
    assert (text == END).sum() > 20_000  # of documents inside the rows
    assert even(np.bincount(text[chosen], minlength=52)[5:])
    places = np.sum([r["labels"][1:1000] != IGNORE_INDEX for r in million[0]], 0)
    free = np.sum([original(r)[1:1000] > 4 for r in million[0]], 0)
    assert all(near(c, n, 0.15) for c, n in zip(places, free, strict=True))


def test_what_is_not_chosen_stays_and_labels_are_the_text(
    million: tuple[list[ArrayRow], LengthLimitedSamples],
) -> None:
    for i, row in enumerate(million[0][:50]):
        text = million[1][i]["tokens"]
        assert original(row).tolist() == [BEGIN, *(text[:-1] if text[-1] == END else text), END]


def test_a_row_has_at_least_one_label() -> None:
    corruption = masked()
    for i in range(100):
        assert (
            corruption(texts(1, 2, 10, document=10**9), 0, np.random.default_rng(i))["labels"]
            != IGNORE_INDEX
        ).sum() == 1


def test_a_row_without_ordinary_tokens_asks_nothing() -> None:
    samples = LengthLimitedSamples(
        Given(
            [
                {
                    "tokens": np.array([UNKNOWN]),
                    "documents": np.array([0]),
                    "sentences": np.array([0]),
                }
            ]
        ),
        10,
    )
    for choose in ("tokens", "words", "spans"):
        assert (
            masked(masking_unit=choose)(samples, 0, np.random.default_rng(0))["labels"]
            == IGNORE_INDEX
        ).all()


def test_rows_of_any_length_can_be_masked_to_any_share() -> None:
    for choose in ("words", "spans"):
        corruption = masked(masking_unit=choose, mask_rate=0.9)
        for size in range(1, 12):
            samples = texts(1, size, 20, document=10**9)
            for seed in range(40):
                assert (
                    corruption(samples, 0, np.random.default_rng(seed))["labels"] != IGNORE_INDEX
                ).any()


def test_a_word_s_pieces_are_chosen_together() -> None:
    corruption = masked(masking_unit="words")
    share = []
    n = 0
    places = np.zeros(999)
    for row in rows(corruption, texts(1000, 1000, 1002, document=10**9)):
        text = original(row)
        chosen = row["labels"] != IGNORE_INDEX
        goes_on = (text[1:] >= 40) & (text[1:] < 52) & (text[:-1] > 4)
        assert (chosen[1:] == chosen[:-1])[goes_on].all()
        share.append(chosen.sum() - 0.15 * (text > 4).sum())
        n += int(chosen.sum())
        places += chosen[1:1000]
    assert all(near(c, 1000, 0.15) for c in places)
    assert n > 140_000
    assert abs(np.mean(share)) < 5 * np.std(share) / 1000**0.5
    assert np.std(share) < 2  # the last word alone is uncertain


def test_a_word_ends_at_a_special_token() -> None:
    sample = {
        "tokens": np.array([45, UNKNOWN] * 100),
        "documents": np.array([0]),
        "sentences": np.array([0]),
    }
    for choose, most in (("words", 15), ("spans", 25)):
        row = masked(masking_unit=choose)(
            LengthLimitedSamples(Given([sample]), 202), 0, np.random.default_rng(0)
        )
        assert 5 <= (row["labels"] != IGNORE_INDEX).sum() <= most


def test_spans_of_whole_words_become_one_thing_each() -> None:
    corruption = masked(masking_unit="spans")
    share = []
    kinds = np.zeros(3)
    for row in rows(corruption, texts(1000, 1000, 1002, document=10**9)):
        text = original(row)
        chosen = row["labels"] != IGNORE_INDEX
        goes_on = (text[1:] >= 40) & (text[1:] < 52) & (text[:-1] > 4)
        assert (chosen[1:] == chosen[:-1])[goes_on].all()
        share.append(chosen.sum() - 0.15 * (text > 4).sum())
        for piece in np.split(np.arange(len(text)), np.flatnonzero(np.diff(chosen)) + 1):
            if chosen[piece[0]] and len(piece) < 6:  # longer ones may be two spans side by side
                masks = (row["tokens"][piece] == MASK).sum()
                kind = {len(piece): 0, 0: 1}.get(masks, 2)
                kinds[kind] += 1
    assert abs(np.mean(share)) < 5 * np.std(share) / 1000**0.5
    assert kinds[2] < 0.12 * kinds.sum()  # side by side; by token, most spans would be mixed
    assert kinds[0] > 3 * kinds[1]


def test_span_lengths_are_geometric_cut_at_ten_and_average_3_8_words() -> None:
    chance = np.diff(SPAN_LENGTH_CDF, prepend=0)
    assert (chance * np.arange(1, 11)).sum() == pytest.approx(3.8, abs=0.01)
    assert chance[1:] / chance[:-1] == pytest.approx([0.8] * 9)
    drawn = (
        np.searchsorted(SPAN_LENGTH_CDF, np.random.default_rng(0).random(1_000_000), side="right")
        + 1
    )
    assert all(near((drawn == i + 1).sum(), 1_000_000, p) for i, p in enumerate(chance))


def test_span_positions_are_uniform() -> None:
    generator = np.random.default_rng(0)
    seen = np.zeros(100, int)
    for _ in range(5_000):
        a, b = random_span_starts(generator, np.array([2, 1]), 6)
        assert 0 <= a <= b - 2 <= 3
        seen[10 * a + b] += 1
    assert (seen > 0).sum() == 10
    assert even(seen[seen > 0])


# The four inputs

WIDE = meta(SENTENCES, vocab_size=50_000, sentinels=(), is_continuation=None)
BIG = bert(vocab_size=50_000, positions=512)


def numbered(count: int, size: int, length: int, **more: int) -> LengthLimitedSamples:
    """Texts in which every token tells its sample and its place."""
    samples = texts(count, size, length, **more)
    for i in range(count):
        tokens = np.arange(10 + i * size, 10 + (i + 1) * size)
        samples[i]["tokens"] = np.where(samples[i]["tokens"] == END, END, tokens)
    return samples


def split(row: ArrayRow) -> tuple[np.ndarray, np.ndarray]:
    text = original(row)
    assert text[0] == BEGIN
    assert text[-1] == END
    border = int(np.flatnonzero(text == END)[0])
    a = text[1:border]
    b = text[border + 1 : -1]
    assert row["segments"].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    return a, b


def test_documents_in_one_row_are_sequences_of_their_own_and_do_not_see_each_other() -> None:
    corruption, objective = build_pair(
        R.MaskedLM(input_format="doc-sentences"), bert(), meta(SENTENCES), dtype=torch.float64
    )
    objective.eval()
    given = rows(corruption, texts(60, 40, 42, document=15))
    alone = torch.zeros((), dtype=torch.float64)
    for row in given:
        text = original(row)
        for number in range(1, row["tokens_document_ids"].max() + 1):
            own = row["tokens_document_ids"] == number
            assert text[own][0] == BEGIN
            assert text[own][-1] == END
            assert not np.isin(text[own][1:-1], (BEGIN, END)).any()
            tokens = torch.from_numpy(row["tokens"][own])[None]
            labels = torch.from_numpy(row["labels"][own])
            alone += F.cross_entropy(
                objective.model(tokens)[0], labels, ignore_index=IGNORE_INDEX, reduction="sum"
            )
        assert len(text) <= 42
    torch.testing.assert_close(
        objective(batch(corruption, given))["token"], alone, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("kind", ["segment-pair", "sentence-pair"])
def test_zero_means_that_b_follows_a_and_one_that_it_comes_from_another_sample(kind: str) -> None:
    samples = numbered(300, 57, 60)
    labels = []
    for i, row in enumerate(
        rows(masked(WIDE, BIG, input_format=kind, next_sentence=True), samples)
    ):
        a, b = split(row)
        labels.append(int(row["labels_next"][0]))
        assert {(t - 10) // 57 for t in a} == {i}
        assert len({(t - 10) // 57 for t in b}) == 1
        assert (np.diff(a) == 1).all()
        assert (np.diff(b) == 1).all()
        if labels[-1]:
            assert (b[0] - 10) // 57 != i
        else:
            start = (b[0] - 10) % 57
            assert b[0] == a[-1] + 1
            assert start in samples[i]["sentences"]
            assert start not in samples[i]["documents"]
    assert set(labels) == {0, 1}


def test_a_sentence_pair_is_two_sentences_mostly_whole() -> None:
    samples = numbered(100, 57, 60)
    whole = 0
    for row in rows(masked(WIDE, BIG, input_format="sentence-pair", next_sentence=True), samples):
        for piece in split(row):
            sample, first = divmod(piece[0] - 10, 57)
            starts = np.append(samples[sample]["sentences"], 57)
            at = starts.tolist().index(first)
            assert first + len(piece) <= starts[at + 1]
            whole += first + len(piece) >= starts[at + 1] - 1  # less a document's end token
    assert whole > 150  # of 200; B is no longer than the one that could stand in its place


def uneven(count: int, seed: int = 0) -> Stream:
    """Paragraphs as people write them: lognormal numbers of sentences of lognormal lengths, many
    with one sentence alone.
    """
    generator = np.random.default_rng(seed)
    many = np.ceil(generator.lognormal(0.4, 0.9, count)).astype(int)
    assert 0.2 < (many == 1).mean() < 0.5
    long = np.ceil(generator.lognormal(3.0, 0.7, many.sum())).astype(int) + 1
    starts = np.cumsum(long) - long
    documents = starts[np.cumsum(many) - many]
    tokens = generator.integers(5, 5000, long.sum())
    tokens[np.append(documents[1:], len(tokens)) - 1] = END
    return Stream({"tokens": tokens, "documents": documents, "sentences": starts})


def informed(cells: np.ndarray, labels: np.ndarray) -> float:
    """Mutual information of cells and labels in nats, as counted."""
    _, at = np.unique(cells, axis=0, return_inverse=True)
    seen = np.zeros((at.max() + 1, 2))
    np.add.at(seen, (at.ravel(), labels), 1)
    share = seen / len(labels)
    expected = share.sum(1, keepdims=True) * share.sum(0)
    return float((share * np.log(np.where(share > 0, share / expected, 1))).sum())


@pytest.mark.parametrize(("kind", "length"), [("segment-pair", 64), ("sentence-pair", 128)])
def test_the_coin_of_next_sentence_is_fair_and_lengths_do_not_tell_how_it_fell(
    kind: str, length: int
) -> None:
    corruption = masked(WIDE, BIG, input_format=kind, next_sentence=True)
    samples = LengthLimitedSamples(corruption.read_samples(uneven(2000), length, False), length)  # type: ignore[arg-type]
    given = [
        corruption(samples, i, sample_generator(0, epoch, i))
        for epoch in range(length // 21)
        for i in range(len(samples))
    ]
    label = np.array([row["labels_next"][0] for row in given])
    total = np.array([len(row["tokens"]) for row in given])
    a = np.array([np.flatnonzero(original(row) == END)[0] for row in given])
    n = len(label)
    assert n > 4000
    assert abs(label.mean() - 0.5) < 3 * 0.5 / n**0.5
    for cells in (a, total - a, total, np.stack([a // 8, (total - a) // 8], 1)):
        # 2 n times the information of nothing is chi-square of as many
        free = len(np.unique(cells, axis=0)) - 1
        assert 2 * n * informed(cells, label) < free + 4 * (2 * free) ** 0.5
    assert total.max() == length


def test_where_a_sentence_stands_alone_another_sample_gives_the_pair() -> None:
    lone = {"tokens": np.arange(5, 35), "documents": np.array([0]), "sentences": np.array([0])}
    two = [
        {**lone, "tokens": np.arange(40 * i, 40 * i + 30), "sentences": np.array([0, 12])}
        for i in (2, 3)
    ]
    samples = LengthLimitedSamples(Given([lone] * 20 + two), 64)
    for kind in ("segment-pair", "sentence-pair"):
        corruption = masked(WIDE, BIG, input_format=kind, next_sentence=True)
        labels = []
        for i in range(20):
            row = corruption(samples, i, sample_generator(0, 0, i))
            a, b = split(row)
            labels.append(row["labels_next"][0])
            assert a[0] in (80, 120)
            other = 52 if a[0] == 80 else -28
            assert b[0] - a[0] == (other if labels[-1] else 12)
            again = corruption(samples, i, sample_generator(0, 0, i))
            assert all((row[name] == again[name]).all() for name in row)
        assert set(labels) == {0, 1}


@pytest.mark.parametrize("more", [{}, {"next_sentence": True}])
def test_data_without_a_document_of_two_sentences_is_refused_in_one_line(more: Any) -> None:
    samples = numbered(20, 30, 64, document=10**9, sentence=10**9)
    with pytest.raises(ValueError, match="needs documents with at least two sentences") as found:
        rows(masked(WIDE, BIG, input_format="segment-pair", **more), samples)
    assert "\n" not in str(found.value)


def test_one_row_has_no_other_to_draw_from() -> None:
    corruption = masked(WIDE, BIG, input_format="segment-pair", next_sentence=True)
    with pytest.raises(
        ValueError,
        match="next_sentence samples from other rows, and 30 tokens are one row of 64; give more "
        "text",
    ):
        corruption.read_samples(Stream(numbered(1, 30, 64)[0]), 64, False)  # type: ignore[arg-type]


def test_the_longer_side_is_cut_at_both_ends_until_both_fit() -> None:
    generator = np.random.default_rng(0)
    fronts = 0
    for _ in range(2000):
        a, b = truncate_pair(np.arange(50), np.arange(20), 40, generator)
        assert (len(a), len(b)) == (20, 20)
        a, b = truncate_pair(np.arange(9), np.arange(100), 40, generator)
        assert (len(a), len(b)) == (9, 31)
        fronts += int(b[0])
    assert near(fronts, 2000 * 69, 0.5)
    a, b = truncate_pair(np.arange(100), np.arange(100), 41, generator)
    assert (len(a), len(b)) == (21, 20)
    a, b = truncate_pair(np.arange(10), np.arange(10), 20, generator)
    assert (len(a), len(b)) == (10, 10)


def test_a_pair_without_next_sentence_is_always_one_that_follows() -> None:
    for row in rows(
        masked(WIDE, BIG, input_format="segment-pair"), numbered(100, 57, 60, document=10**9)
    ):
        a, b = split(row)
        assert b[0] == a[-1] + 1
        assert "labels_next" not in row


# The score


def test_a_perfect_answer_scores_zero() -> None:
    corruption, objective = build_pair(
        R.MaskedLM(input_format="segment-pair", next_sentence=True), bert(), meta(SENTENCES)
    )
    made = batch(corruption, rows(corruption, texts(9, 38, 41)))
    labels = made["labels"][made["labels"] != IGNORE_INDEX]
    follows = made["labels_next"][:, 0]
    assert objective.loss_sums(
        MaskedLMOutputs(sure(labels, VOCABULARY), sure(follows, 2)), made
    ) == {
        "token": 0,
        "next": 0,
    }
    assert (
        objective.loss_sums(MaskedLMOutputs(sure(labels, VOCABULARY), sure(1 - follows, 2)), made)[
            "next"
        ]
        > 0
    )
    assert corruption.loss_counts(made) == {"token": len(labels), "next": 9}


def test_logits_at_labels_equal_those_of_the_full_head() -> None:
    corruption, objective = build_pair(R.MaskedLM(), bert(), meta(SENTENCES), dtype=torch.float64)
    objective.eval()
    made = batch(corruption, rows(corruption, texts(5, 38, 40)))
    everywhere = objective.model(made["tokens"], **masks(made))
    torch.testing.assert_close(
        objective.forward_outputs(made).logits_TV,
        everywhere[made["labels"] != IGNORE_INDEX],
        rtol=1e-12,
        atol=1e-12,
    )


def test_the_next_sentence_head_starts_as_the_model_s_matrices_do_and_is_no_part_of_the_model() -> (
    None
):
    _, objective = build_pair(
        R.MaskedLM(input_format="segment-pair", next_sentence=True), bert(width=64), meta(SENTENCES)
    )
    own = {name: p for name, p in objective.named_parameters() if not name.startswith("model.")}
    assert own.keys() == {
        "next.dense.weight",
        "next.dense.bias",
        "next.classes.weight",
        "next.classes.bias",
    }
    assert own["next.dense.weight"].std().item() == pytest.approx(0.02, rel=0.1)
    assert not own["next.dense.bias"].any()


def test_static_masking_is_reported_to_the_caller() -> None:
    assert masked(static_mask=True).same_every_epoch
    assert not masked().same_every_epoch


def test_padded_label_positions_in_training_change_nothing() -> None:
    corruption, objective = build_pair(
        R.MaskedLM(), weft.with_dropout(bert(), 0.0), meta(SENTENCES)
    )
    held = batch(corruption, rows(corruption, texts(31, 60, 62)))
    count = len(held["labels_at"])
    found = []
    assert count % shape_granularity(count)  # else there is nothing to see
    for training in (True, False):
        answer = objective.train(training).forward_outputs(held)
        found.append(
            (
                len(answer.logits_TV),
                answer.logits_TV[:count].detach(),
                objective.loss_sums(answer, held)["token"].item(),
            )
        )
    (many, own, loss), (few, plain, right) = found
    assert (many, few) == (-(-count // shape_granularity(count)) * shape_granularity(count), count)
    assert torch.equal(own, plain)
    assert loss == pytest.approx(right, rel=1e-6)
