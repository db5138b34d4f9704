"""Tokenizers: round trips, ids of special tokens, deterministic training."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from weft import recipe as R
from weft.data.reading import sentences
from weft.data.tokenizing.tokenizer import SPECIAL_TOKENS, Tokenizer, byte_letters, load_tokenizer
from weft.data.tokenizing.train_tokenizer import (
    count_characters,
    fit_tokenizer,
    most_common_characters,
)

SYLLABLES = ["ba", "ke", "li", "mo", "nu", "pra", "ste", "wy", "zé", "ör", "中", "ß", "12"]


def corpus(seed: int = 0) -> list[str]:
    """Sentences of made-up words, some letters rare, many ties."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(400)]
    return [
        " ".join(draw.choices(words, k=9)).capitalize() + draw.choice([".", " !", "?\n", " …"])
        for _ in range(300)
    ]


TEXT = corpus()
VALUES: dict[str, R.TokenizerSpec] = {
    "byte-bpe": R.ByteBPE(vocab_size=400, sentinels=5),
    "byte-bpe-bare": R.ByteBPE(vocab_size=400, special_tokens=False),
    "bpe": R.BPE(vocab_size=200, sentinels=3),
    "bpe-lower": R.BPE(vocab_size=200, lowercase=True),
    "bpe-marked": R.BPE(vocab_size=200, lowercase="marked"),
    "wordpiece": R.WordPiece(vocab_size=200, sentinels=2),
    "wordpiece-cased": R.WordPiece(vocab_size=200, lowercase=False),
    "unigram": R.Unigram(vocab_size=150, sentinels=4),
    "bytes": R.ByteTokenizer(sentinels=7),
    "bytes-bare": R.ByteTokenizer(special_tokens=False),
    "characters": R.CharacterTokenizer(),
    "characters-bare": R.CharacterTokenizer(special_tokens=False),
}
MADE = {name: fit_tokenizer(value, lambda: TEXT) for name, value in VALUES.items()}
SAMPLES = [
    "Bake limo nu.",
    " Kepra  ste\n\nwy 12 \t zéör中 !",
    "<s> [MASK] </s> <pad> <extra_id_0>",
    "x",
]


@pytest.mark.parametrize("name", ["byte-bpe", "byte-bpe-bare", "bytes", "bytes-bare"])
def test_byte_tokenizers_give_every_text_back(name: str) -> None:
    for text in (*SAMPLES, *TEXT[:50], "日本語 🙂 \x00 \u00a0"):
        assert MADE[name].decode(MADE[name].encode(text)) == text


def test_characters_give_back_every_text_they_know() -> None:
    for name in ("characters", "characters-bare"):
        text = "".join(TEXT)
        assert MADE[name].decode(MADE[name].encode(text)) == text


@pytest.mark.parametrize(
    ("name", "lower"),
    [("bpe", False), ("bpe-lower", True), ("bpe-marked", False), ("unigram", False)],
)
def test_word_tokenizers_give_text_back_up_to_white_space(name: str, lower: bool) -> None:
    for text in TEXT[:50]:
        expected = " ".join(text.split())
        assert MADE[name].decode(MADE[name].encode(text)) == (
            expected.lower() if lower else expected
        )


def test_a_marked_capital_shares_the_pieces_of_the_small_letter() -> None:
    text = ["Ein Ball, ein Ball", "ball im T-Shirt", "USA", "ẞ ǅ ŉ Ǆ", *TEXT]
    made = fit_tokenizer(R.BPE(vocab_size=300, lowercase="marked"), lambda: text)
    for one in text[:4]:
        assert made.decode(made.encode(one)) == one
    small = made.encode("ball").tolist()
    large = made.encode("Ball").tolist()
    assert large[1:] == small
    assert made.inner.id_to_token(large[0]) == "▁↑"
    assert made.decode(made.encode("Balls")) == "Balls"
    assert made.decode(made.encode("a ball")) == "a ball"


@pytest.mark.parametrize(("name", "lower"), [("wordpiece", True), ("wordpiece-cased", False)])
def test_wordpiece_gives_letters_back(name: str, lower: bool) -> None:
    for text in TEXT[:50]:
        expected = "".join(text.split())
        back = "".join(MADE[name].decode(MADE[name].encode(text)).split())
        assert back == (expected.lower().replace("é", "e").replace("ö", "o") if lower else expected)


@pytest.mark.parametrize("name", VALUES)
def test_marks_are_the_first_ids_and_sentinels_the_last(name: str) -> None:
    made = MADE[name]
    value = VALUES[name]
    special = getattr(value, "special_tokens", True)
    assert made.special == (dict(zip(SPECIAL_TOKENS, range(5), strict=True)) if special else {})
    wanted = (
        ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        if "wordpiece" in name
        else ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    )
    assert not special or tuple(made.inner.id_to_token(i) for i in range(5)) == wanted
    sentinels = getattr(value, "sentinels", 0)
    assert made.sentinels == tuple(made.size - 1 - i for i in range(sentinels))
    assert made.size == made.inner.get_vocab_size()
    if isinstance(value, R.ByteTokenizer):
        assert made.size == 256 + 5 * value.special_tokens + sentinels
        assert list(made.encode("\x00A")) == [
            5 * value.special_tokens,
            5 * value.special_tokens + 65,
        ]
    elif not isinstance(value, R.CharacterTokenizer | R.TokenizerFile):
        assert made.size == value.vocab_size


@pytest.mark.parametrize("name", VALUES)
def test_no_text_can_forge_a_mark(name: str) -> None:
    if name == "characters-bare":
        return
    made = MADE[name]
    marks = set(made.special.values()) - {made.special.get("unk")} | set(made.sentinels)
    for text in SAMPLES:
        assert not marks & set(made.encode(text).tolist())


def test_the_same_text_gives_the_same_file_in_another_process_with_other_threads() -> None:
    names = ["byte-bpe", "bpe", "wordpiece", "unigram", "characters"]
    code = (
        "import os; os.environ['TOKENIZERS_PARALLELISM'] = 'false'\n"
        "from tests.data.tokenizing.test_tokenizer import MADE\n"
        f"print(*[MADE[name].sha256 for name in {names}])"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert other == [MADE[name].sha256 for name in names]


@pytest.mark.parametrize("name", VALUES)
def test_a_saved_tokenizer_is_the_same_and_opens_in_the_library(name: str, tmp_path: Path) -> None:
    made = MADE[name]
    made.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path)
    values, ends = made.encode_many(TEXT[:20])
    for text, begin, end in zip(TEXT, np.concatenate([[0], ends[:-1]]), ends, strict=False):
        assert (again.encode(text) == values[begin:end]).all()
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert library.encode(TEXT[3], add_special_tokens=False).ids == made.encode(TEXT[3]).tolist()
    assert (again.size, again.special, again.sentinels) == (made.size, made.special, made.sentinels)
    assert (again.is_continuation == made.is_continuation).all()


def test_unknown_characters_are_the_unknown_or_an_error_that_names_them() -> None:
    assert MADE["characters"].encode("ba☃").tolist()[-1] == 1
    with pytest.raises(ValueError, match="☃"):
        MADE["characters-bare"].encode("ba☃")


def test_characters_are_sorted() -> None:
    made = MADE["characters-bare"]
    assert [made.inner.id_to_token(i) for i in range(made.size)] == sorted(set("".join(TEXT)))


@pytest.mark.parametrize("name", VALUES)
def test_spans_are_the_characters_of_each_token(name: str) -> None:
    text = "Bake  limo nu.\nzéör中 12!"
    if name == "characters-bare":
        text = TEXT[0]
    ids, spans = MADE[name].encode_spans(text)
    assert ids.tolist() == MADE[name].encode(text).tolist()
    assert spans.shape == (len(ids), 2)
    covered = {i for begin, end in spans for i in range(begin, end)}
    assert covered >= {i for i, c in enumerate(text) if not c.isspace()}
    if "bytes" not in name and "byte" not in name:
        assert all(begin < end for begin, end in spans)


def test_spans_leave_out_the_gap_before_a_word() -> None:
    ids, spans = MADE["byte-bpe"].encode_spans("ba limo")
    assert len(ids) > 1
    assert all("ba limo"[begin:end] == "ba limo"[begin:end].strip() for begin, end in spans)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("byte-bpe", "Bake limo nu stewy.", 5),
        ("bpe", "Bake limo nu stewy", 4),
        ("wordpiece", "Bake limo nu stewy.", 5),
        ("unigram", "Bake limo nu stewy", 4),
        ("characters", " bake limo nu", 3),
        ("bytes", " bake zéör", 2),
    ],
)
def test_pieces_that_continue_a_word_are_known(name: str, text: str, words: int) -> None:
    made = MADE[name]
    flags = made.is_continuation[made.encode(text)]
    assert (~flags).sum() in (words, words - 1)  # the first word of a text has no space before it
    assert not made.is_continuation[list(made.special.values()) + list(made.sentinels)].any()


@pytest.mark.parametrize("name", ["byte-bpe", "bpe", "wordpiece", "unigram", "bytes", "characters"])
def test_sentence_by_sentence_is_the_same_as_the_whole(name: str) -> None:
    text = "Bake limo! Nu  ste.\n\n  Wy  \n\tlimo zé. 12 ba… Mo \n ke. "
    parts = sentences.split_sentences(text)
    assert len(parts) > 5
    assert MADE[name].encode_many(parts)[0].tolist() == MADE[name].encode(text).tolist()


def test_a_vocabulary_too_small_for_the_characters_is_refused_with_the_count() -> None:
    for value in (R.ByteBPE(vocab_size=100), R.BPE(vocab_size=10), R.WordPiece(vocab_size=10)):
        with pytest.raises(
            ValueError,
            match=r"vocab_size = 10+ is less than the \d+ characters and special tokens",
        ):
            fit_tokenizer(value, lambda: TEXT)


def test_too_little_text_gives_a_smaller_vocabulary() -> None:
    assert fit_tokenizer(R.BPE(vocab_size=10_000), lambda: ["ab ab"]).size < 12


def test_rare_characters_become_unknown_where_there_are_too_many() -> None:
    text = ["common words " * 50 + "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))]
    for value in (R.BPE(vocab_size=1100), R.WordPiece(vocab_size=2100)):
        made = fit_tokenizer(value, lambda: text)
        assert made.size <= value.vocab_size
        assert 1 not in made.encode("common words")
        assert 1 in made.encode(chr(0x4E00 + 1999))


def test_characters_are_counted_and_ranked_by_number_then_code_point() -> None:
    counts = count_characters(["abba", "c é"])
    assert (counts[ord("b")], counts[ord("é")], counts.sum()) == (2, 1, 7)
    assert most_common_characters(["abba", "c é"], MADE["bpe"].inner, 3) == ["a", "b", "c"]


def test_byte_letters_are_the_librarys() -> None:
    assert sorted(byte_letters()) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert made.pre_tokenize_str("\n ~é")[0][0] == "".join(
        byte_letters()[b] for b in "\n ~é".encode()
    )


@pytest.mark.parametrize("content", ["", "{}", "not json", json.dumps({"model": {"type": "?"}})])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a tokenizer"):
        fit_tokenizer(R.TokenizerFile(path=str(tmp_path / "tokenizer.json")), list)
    with pytest.raises(ValueError, match="does not exist"):
        Tokenizer.load(tmp_path / "gone.json")


def test_a_file_with_its_own_padding_and_marks_adds_neither(tmp_path: Path) -> None:
    inner: Any = tokenizers.Tokenizer.from_str(MADE["wordpiece"].text)
    inner.enable_padding(length=50)
    inner.enable_truncation(3)
    inner.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    inner.save(str(tmp_path / "tokenizer.json"))
    made = fit_tokenizer(R.TokenizerFile(path=str(tmp_path / "tokenizer.json")), list)
    assert made.encode(TEXT[0]).tolist() == MADE["wordpiece"].encode(TEXT[0]).tolist()


@pytest.mark.parametrize("name", MADE)
def test_what_is_encoded_goes_into_a_model_as_it_is(name: str) -> None:
    made = MADE[name]
    ids, spans = made.encode_spans(TEXT[3])
    for found in (made.encode(TEXT[3]), ids):
        assert torch.nn.Embedding(made.size, 2)(torch.from_numpy(found)).shape == (len(spans), 2)
    assert made.encode_many([TEXT[3]])[0].dtype == np.uint16, "the store is small"
