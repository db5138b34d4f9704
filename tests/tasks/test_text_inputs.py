"""Input formats of running text fill rows of the requested length."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from weft import recipe as R
from weft.tasks.base import LengthLimitedSamples

from .cases import SENTENCES, bart, bert, electra, gpt, t5
from .made import Stream, build_pair, meta, rows, text

SIZE = 5003
TEXT = text(np.random.default_rng(0), SIZE)
KNOWN = meta(SENTENCES)


def read(
    value: R.Task, model: Any, length: int = 32, tail: bool = False
) -> tuple[Any, LengthLimitedSamples]:
    corruption, _ = build_pair(value, model, KNOWN)
    return corruption, corruption.open_samples(Stream(TEXT), length, tail)  # type: ignore[arg-type]


def test_every_token_but_the_first_is_a_label_once() -> None:
    corruption, samples = read(R.CausalLM(), gpt(), tail=True)
    given = rows(corruption, samples)
    assert np.concatenate([row["labels"] for row in given]).tolist() == TEXT["tokens"][1:].tolist()
    assert {len(row["tokens"]) for row in given[:-1]} == {32}


def test_without_the_tail_all_rows_are_full() -> None:
    for value, model in ((R.CausalLM(), gpt()), (R.SpanCorruption(), t5())):
        assert {len(row["tokens"]) for row in rows(*read(value, model))} == {32}


def test_spans_read_every_token_once_and_a_short_last_window() -> None:
    corruption, samples = read(R.SpanCorruption(), t5(), tail=True)
    assert (
        np.concatenate([samples[i]["tokens"] for i in range(len(samples))]).tolist()
        == TEXT["tokens"].tolist()
    )
    assert (
        len(rows(corruption, samples)[-1]["tokens"])
        == corruption.lengths(SIZE % corruption.raw_length(32))[0]
    )


@pytest.mark.parametrize(
    "value",
    [
        *(
            R.MaskedLM(input_format=kind)
            for kind in ("full-sentences", "doc-sentences", "segment-pair", "sentence-pair")
        ),
        R.Denoising(),
        R.ReplacedTokenDetection(generator=electra()[1]),
    ],
    ids=lambda v: getattr(v, "input_format", type(v).__name__),
)
def test_rows_of_sentences_fit_the_length_and_use_most_of_it(value: Any) -> None:
    model = {R.Denoising: bart(), R.ReplacedTokenDetection: electra()[0]}.get(type(value), bert())
    given = rows(*read(value, model))
    lengths = [max(len(field) for field in row.values()) for row in given]
    assert max(lengths) <= 32
    # a pair is of one document, and these are short
    if "pair" not in getattr(value, "input_format", ""):
        assert np.mean(lengths) > 24


def test_full_sentences_hold_nearly_all_of_the_text() -> None:
    """A sentence that starts in one window and does not fit loses its end; nothing is read
    twice.
    """
    corruption, samples = read(R.MaskedLM(), bert())
    seen = Counter(token for i in range(len(samples)) for token in samples[i]["tokens"].tolist())
    assert not seen - Counter(TEXT["tokens"].tolist())
    assert seen.total() > 0.8 * SIZE
    assert len(rows(corruption, samples)) == len(samples)
