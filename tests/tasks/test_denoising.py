"""Denoising: reconstruction of infilled and shuffled text."""

from itertools import permutations
from math import exp, factorial
from typing import Any

import numpy as np
import pytest

from weft import recipe as R
from weft.tasks.denoising import DenoisingPreprocess, shuffle_sentences

from .cases import SENTENCES, bart
from .made import SPECIAL, VOCABULARY, batch, build_pair, even, meta, near, rows, sure, texts

BEGIN = SPECIAL["bos"]
END = SPECIAL["eos"]
MASK = SPECIAL["mask"]


def denoise(**more: Any) -> DenoisingPreprocess:
    corruption, _ = build_pair(R.Denoising(**more), bart(), meta(SENTENCES))
    return corruption


def test_labels_are_the_text_between_its_marks_and_the_decoder_starts_at_end() -> None:
    samples = texts(30, 38, 40)
    for i, row in enumerate(rows(denoise(), samples)):
        text = samples[i]["tokens"].tolist()
        assert row["labels"].tolist() == [BEGIN, *(text[:-1] if text[-1] == END else text), END]
        assert row["target"].tolist() == [END, *row["labels"][:-1]]
        assert row["tokens"][0] == BEGIN
        assert row["tokens"][-1] == END
        assert len(row["tokens"]) <= 40


def test_of_a_million_tokens_the_share_is_hidden_one_mask_a_span() -> None:
    corruption = denoise(shuffle_sentences=False)
    off = []
    masks = 0
    empty = 0
    text = np.arange(10, 1010)
    first = np.zeros(1000)
    for i in range(1000):
        row = corruption.infill(text, np.random.default_rng(i))
        kept = row[row != MASK]
        assert (np.diff(kept) > 0).all()  # the rest stays in order
        off.append(1000 - len(kept) - 300)
        masks += len(row) - len(kept)
        first[kept - 10] += 1
        at = np.flatnonzero(row == MASK)
        inner = at[(at > 0) & (at < len(row) - 1)]
        empty += int(((row[inner - 1] != MASK) & (row[inner + 1] - row[inner - 1] == 1)).sum())
    assert abs(np.mean(off)) < 5 * np.std(off) / 1000**0.5
    assert np.std(off) < 3  # the last span alone is uncertain
    assert masks / 100_000 == pytest.approx(1.0, abs=0.01)  # 300 tokens in spans of 3
    assert 0.03 < empty / masks < exp(-3)  # some lie beside another mask
    assert all(near(c, 1000, 0.7) for c in first[50:950])


def test_span_lengths_are_poisson() -> None:
    """In a text of a million tokens whose spans seldom touch, gaps tell their lengths."""
    corruption = denoise(mask_rate=0.01, shuffle_sentences=False)
    text = np.arange(10, 1_000_010)
    row = corruption.infill(text, np.random.default_rng(0))
    at = np.flatnonzero(row == MASK)
    alone = at[(at > 0) & (at < len(row) - 1)]
    alone = alone[(row[alone - 1] != MASK) & (row[alone + 1] != MASK)]
    lengths = row[alone + 1] - row[alone - 1] - 1
    n = len(alone)
    assert n > 3000
    assert all(near((lengths == k).sum(), n, 3**k * exp(-3) / factorial(k)) for k in range(9))


def test_sentences_are_shuffled_whole_and_all_orders_are_alike_likely() -> None:
    text = np.arange(10)
    starts = np.array([0, 2, 7])
    orders = {tuple(np.concatenate(p)): 0 for p in permutations(np.split(text, starts[1:]))}
    generator = np.random.default_rng(0)
    for _ in range(6_000):
        orders[tuple(shuffle_sentences(text, starts, generator))] += 1
    assert len(orders) == 6
    assert even(np.array(list(orders.values())))


def test_zero_rates_change_nothing() -> None:
    corruption = denoise(mask_rate=0.0, shuffle_sentences=False)
    for seed in range(200):
        row = corruption(texts(1, 30, 32), 0, np.random.default_rng(seed))
        assert row["tokens"].tolist() == row["labels"].tolist()


def test_texts_of_any_length_can_be_infilled() -> None:
    for share in (0.3, 0.95):
        corruption = denoise(mask_rate=share)
        for size in range(1, 40):
            text = np.arange(10, 10 + size)
            for seed in range(20):
                row = corruption.infill(text, np.random.default_rng(seed))
                assert set(row.tolist()) <= {MASK, *text.tolist()}


def test_a_perfect_answer_scores_zero() -> None:
    corruption, objective = build_pair(R.Denoising(), bart(), meta(SENTENCES))
    made = batch(corruption, rows(corruption, texts(4, 38, 40)))
    labels = made["labels"].flatten()[made["labels_at"]]
    assert objective.loss_sums(sure(labels, VOCABULARY), made) == {"token": 0}
