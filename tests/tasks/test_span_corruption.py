"""Decode the spans that sentinels replaced."""

import numpy as np
import pytest

from weft import recipe as R
from weft.spec import replace
from weft.tasks.base import LengthLimitedSamples
from weft.tasks.sampling import random_partition
from weft.tasks.span_corruption import SpanCorruptionPreprocess

from .cases import TEXT, t5
from .made import SPECIAL, Given, build_pair, even, meta, near, rows, texts

MANY = tuple(range(1000, 900, -1))


def spans(
    share: float = 0.15, mean: float = 3.0, sentinels: tuple[int, ...] = MANY
) -> SpanCorruptionPreprocess:
    model = replace(t5(), source=replace(t5().source, vocab_size=1001))
    corruption, _ = build_pair(
        R.SpanCorruption(mask_rate=share, mean_span_length=mean),
        model,
        meta(TEXT, vocab_size=1001, sentinels=sentinels),
    )
    return corruption


def merged(tokens: np.ndarray, labels: np.ndarray) -> list[int]:
    """The text back: each sentinel of the input gives way to what follows it in the target."""
    said: dict[int, list[int]] = {}
    assert tokens[-1] == labels[-1] == SPECIAL["eos"]
    for token in labels[:-1].tolist():
        if token > 900:
            said[token] = []
        else:
            said[list(said)[-1]].append(token)
    assert list(said) == list(MANY[: len(said)]) == [t for t in tokens.tolist() if t > 900]
    assert all(said.values())
    return [piece for token in tokens[:-1].tolist() for piece in said.get(token, [token])]


@pytest.mark.parametrize(
    ("share", "mean", "length"),
    [
        (0.15, 3.0, 512),
        (0.15, 3.0, 128),
        (0.15, 3.0, 33),
        (0.5, 3.0, 64),
        (0.15, 10.0, 100),
        (0.25, 1.0, 77),
        (0.15, 3.0, 4),
    ],
)
def test_input_and_target_give_the_text_back_and_their_lengths_never_change(
    share: float, mean: float, length: int
) -> None:
    corruption = spans(share, mean)
    raw = corruption.raw_length(length)
    assert corruption.lengths(raw)[0] == length < corruption.lengths(raw + 1)[0]
    samples = texts(40, raw, length)
    for i, row in enumerate(rows(corruption, samples)):
        assert len(row["tokens"]) == length
        assert len(row["labels"]) == len(row["target"]) == corruption.lengths(raw)[1]
        assert merged(row["tokens"], row["labels"]) == samples[i]["tokens"].tolist()
        assert row["target"][0] == SPECIAL["pad"]
        assert row["target"][1:].tolist() == row["labels"][:-1].tolist()


def test_t5_s_own_numbers() -> None:
    """Rows of 512 read 568 tokens and decode 114 (section 3.1.2 and 3.3.4: 15 % in spans of 3)."""
    corruption = spans()
    assert (corruption.raw_length(512), *corruption.lengths(568)) == (568, 512, 114)


def test_a_short_tail_is_corrupted_too() -> None:
    corruption = spans()
    for size in range(1, 30):
        samples = texts(1, size, 30)
        row = corruption(samples, 0, np.random.default_rng(size))
        assert merged(row["tokens"], row["labels"]) == samples[0]["tokens"].tolist()


def test_every_cut_into_parts_is_alike_likely() -> None:
    generator = np.random.default_rng(0)
    seen = np.zeros((7, 7), int)
    for _ in range(5_000):
        a, b, c = random_partition(generator, 6, 3)
        assert a + b + c == 6
        seen[a, b] += 1
    assert (seen > 0).sum() == 10
    assert even(seen[seen > 0])


def test_of_a_million_tokens_the_share_is_hidden_in_spans_of_the_mean() -> None:
    corruption = spans()
    raw = corruption.raw_length(512)
    hidden = spread = 0
    first = np.zeros(raw)
    for row in rows(
        corruption,
        LengthLimitedSamples(
            Given([{"tokens": np.arange(5, 5 + raw)}] * (1 + 1_000_000 // raw)), 512
        ),
    ):
        inside = row["labels"][(row["labels"] <= 900) & (row["labels"] > 4)]
        hidden = hidden + len(inside)
        spread = spread + int((row["labels"] > 900).sum())
        first[inside - 5] += 1
    n = 1 + 1_000_000 // raw
    assert hidden == n * round(0.15 * raw)
    assert hidden / spread == pytest.approx(3.0, abs=0.06)  # 85 tokens in 28 spans, always
    assert first[0] == 0  # a kept piece comes first, a hidden one last
    assert first[-1] == n
    # far from both ends every place is hidden alike
    assert all(near(c, n, 0.15) for c in first[150:400])
