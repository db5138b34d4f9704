"""BPE-dropout: random segmentations that are pure functions of the word and a seed."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests import whole_runs
from weft import recipe as R
from weft.data.tokenizing.bpe_dropout import VARIANTS_PER_WORD, BPEDropout
from weft.data.tokenizing.train_tokenizer import fit_tokenizer

TEXTS = [
    "the lower the slower, the newest is the widest.",
    "low lower lowest new newer newest wide wider widest",
] * 9


@pytest.fixture(scope="module")
def tokenizer():  # type: ignore[no-untyped-def]
    return fit_tokenizer(R.BPE(vocab_size=90), lambda: TEXTS)


def test_without_dropout_the_cut_is_the_library_s(tokenizer) -> None:  # type: ignore[no-untyped-def]
    merges = BPEDropout(tokenizer.text, 0.0)
    for text in TEXTS[:2]:
        tokens = tokenizer.encode(text)
        assert (
            merges(tokens, tokenizer.is_continuation, np.random.default_rng(0)).tolist()
            == tokens.tolist()
        )


def test_every_cut_spells_the_same_text(tokenizer) -> None:  # type: ignore[no-untyped-def]
    merges = BPEDropout(tokenizer.text, 0.3)
    tokens = tokenizer.encode(TEXTS[0])
    cuts = {
        tuple(merges(tokens, tokenizer.is_continuation, np.random.default_rng(i)))
        for i in range(20)
    }
    assert len(cuts) > 10
    assert {tokenizer.decode(cut) for cut in cuts} == {TEXTS[0]}


def test_a_cut_does_not_depend_on_who_asked_first(tokenizer) -> None:  # type: ignore[no-untyped-def]
    words = [tuple(tokenizer.encode(word).tolist()) for word in TEXTS[1].split()]
    there = BPEDropout(tokenizer.text, 0.5)
    back = BPEDropout(tokenizer.text, 0.5)
    first = [there.segment(word, way) for word in words for way in range(VARIANTS_PER_WORD)]
    last = [
        back.segment(word, way)
        for word in reversed(words)
        for way in reversed(range(VARIANTS_PER_WORD))
    ]
    assert first == last[::-1]


def test_all_merges_left_out_leaves_letters_and_each_share_between_lengthens(tokenizer) -> None:  # type: ignore[no-untyped-def]
    tokens = tokenizer.encode(" ".join(TEXTS))
    lengths = [
        len(
            BPEDropout(tokenizer.text, share)(
                tokens, tokenizer.is_continuation, np.random.default_rng(1)
            )
        )
        for share in (0.0, 0.1, 0.5, 0.99)
    ]
    assert lengths == sorted(set(lengths))
    assert len(
        BPEDropout(tokenizer.text, 1 - 1e-12)(
            tokens, tokenizer.is_continuation, np.random.default_rng(1)
        )
    ) == sum(len(tokenizer.inner.id_to_token(int(i))) for i in tokens)


def test_a_word_with_an_unknown_letter_stays_as_it_is(tokenizer) -> None:  # type: ignore[no-untyped-def]
    tokens = tokenizer.encode("lowest ☃newest lower")
    cut = BPEDropout(tokenizer.text, 0.9)(
        tokens, tokenizer.is_continuation, np.random.default_rng(0)
    )
    assert tokenizer.special["unk"] in cut.tolist()


def test_only_bpe_has_merges_to_leave_out() -> None:
    with pytest.raises(ValueError, match="needs a BPE"):
        BPEDropout(json.dumps({"model": {"type": "WordPiece", "merges": []}}), 0.1)


def test_training_cuts_anew_and_validation_does_not(tmp_path: Path) -> None:
    import weft

    for side in ("a", "b"):
        (tmp_path / f"{side}.txt").write_text("\n".join(TEXTS))
    pair = R.Source(paths=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")), format="parallel")
    recipe = R.Recipe(
        name="cut",
        model=weft.transformer(depth=1, width=16, heads=2, hidden=16, vocab_size=90),
        task=R.Translation(bpe_dropout=0.5),
        data=R.Data(
            rows=R.SourceTargetPairs(),
            train=pair,
            valid=pair,
            tokenizer=R.BPE(vocab_size=90),
            prepared_folder=str(tmp_path / "data"),
        ),
        batch=R.TokenBudget(tokens=400, length=90),
        steps=1,
        optimiser=R.Adam(lr=1e-3),
    )
    made = whole_runs.build_run(recipe)
    assert made.prepared.valid is not None
    trained = made.preprocess.open_samples(made.prepared.train, 90)
    held = made.preprocess.open_samples(made.prepared.valid, 90, include_partial=True)

    def rows(samples, seed: int) -> list[list[int]]:  # type: ignore[no-untyped-def]
        draw = np.random.default_rng(seed)
        return [made.preprocess(samples, i, draw)["tokens"].tolist() for i in range(4)]

    assert rows(held, 0) == rows(held, 1)
    assert rows(trained, 0) == rows(trained, 0) != rows(trained, 1)
