"""Training of tokenizers. The same text gives the same file, for any number of threads."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Inner

from ... import recipe as R
from ...recipe.data.formats import Piece, SourceRow
from ...support.registry import implementation
from ..reading.files import find
from ..reading.source import ReadPiece
from .tokenizer import CAPITAL_MARK, SPECIAL_TOKEN_NAMES, SPECIAL_TOKENS, Tokenizer, byte_letters

Texts = Callable[[], Iterable[str]]  # the training text, from its start each time
DEFAULT_SPECIALS = [SPECIAL_TOKEN_NAMES[mark][0] for mark in SPECIAL_TOKENS]
BERT_SPECIALS = [SPECIAL_TOKEN_NAMES[mark][1] for mark in SPECIAL_TOKENS]
RARE = 1000  # characters that any vocabulary may hold; large ones a quarter of themselves


def fit_tokenizer(value: R.TokenizerSpec, texts: Texts) -> Tokenizer:
    """Return the tokenizer that a recipe names. If the text is too small, its vocabulary is smaller
    than requested."""
    tokenizer: Tokenizer = implementation(value)(value, texts)
    return tokenizer


def read_tokenizer_file(value: R.TokenizerFile, texts: Texts) -> Tokenizer:
    return Tokenizer.load(find(value.path)[0])


def byte_tokenizer(value: R.ByteTokenizer, texts: Texts) -> Tokenizer:
    inner = single_symbol_tokenizer(byte_letters(), value.special_tokens)
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    add_sentinels(inner, value.sentinels)
    return Tokenizer(inner.to_str(pretty=True))


def character_tokenizer(value: R.CharacterTokenizer, texts: Texts) -> Tokenizer:
    letters = sorted(map(chr, np.flatnonzero(count_characters(texts()))))
    inner = single_symbol_tokenizer(letters, value.special_tokens)
    inner.decoder = decoders.Fuse()
    return Tokenizer(inner.to_str(pretty=True))


def within_vocabulary(
    value: R.ByteBPE | R.BPE | R.WordPiece | R.Unigram, inner: Inner
) -> Tokenizer:
    """Return the trained tokenizer with its sentinels; ValueError if it is larger than
    requested."""
    add_sentinels(inner, value.sentinels)
    if inner.get_vocab_size() > value.vocab_size:
        raise ValueError(
            f"{type(value).__name__}.vocab_size = {value.vocab_size} is less than the "
            f"{inner.get_vocab_size()} characters and special tokens of the text; give "
            f"vocab_size={inner.get_vocab_size()} or more"
        )
    return Tokenizer(inner.to_str(pretty=True))


def add_sentinels(inner: Inner, sentinels: int) -> None:
    """Add sentinels in T5's order: the first one has the last id (arXiv:1910.10683)."""
    inner.add_special_tokens(
        [AddedToken(f"<extra_id_{i}>", special=True) for i in reversed(range(sentinels))]
    )


def single_symbol_tokenizer(letters: list[str], special: bool) -> Inner:
    names = [*(DEFAULT_SPECIALS if special else []), *letters]
    inner = Inner(
        models.BPE(
            vocab={name: i for i, name in enumerate(names)},
            merges=[],
            unk_token=DEFAULT_SPECIALS[1] if special else None,
        )
    )
    inner.add_special_tokens(
        [AddedToken(name, special=True) for name in (DEFAULT_SPECIALS if special else [])]
    )
    return inner


def train_byte_bpe(value: R.ByteBPE, texts: Texts) -> Tokenizer:
    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    # The gap before a mask is the hidden word's
    specials = [
        AddedToken(name, special=True, lstrip=name == DEFAULT_SPECIALS[-1])
        for name in DEFAULT_SPECIALS
    ]
    inner.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=vocab_without_sentinels(value),
            special_tokens=specials if value.special_tokens else [],
            initial_alphabet=byte_letters(),
            min_frequency=2,
            show_progress=False,
        ),
    )
    return within_vocabulary(value, inner)


def train_bpe(value: R.BPE, texts: Texts) -> Tokenizer:
    inner = word_tokenizer(models.BPE(unk_token=DEFAULT_SPECIALS[1]))
    if value.lowercase == "marked":
        mark_capitals(inner, texts())
    elif value.lowercase:
        inner.normalizer = normalizers.Lowercase()

    def trainer(**more: Any) -> trainers.BpeTrainer:
        return trainers.BpeTrainer(
            vocab_size=vocab_without_sentinels(value),
            special_tokens=DEFAULT_SPECIALS,
            min_frequency=2,
            show_progress=False,
            **more,
        )

    inner.train_from_iterator(texts(), trainer())
    letters = [name for name in inner.get_vocab() if len(name) == 1]
    max_letters = max_alphabet(value.vocab_size)
    if len(letters) > max_letters:
        inner.train_from_iterator(
            texts(),
            trainer(
                initial_alphabet=["▁", *most_common_characters(texts(), inner, max_letters - 1)],
                limit_alphabet=max_letters,
            ),
        )
    return within_vocabulary(value, inner)


def mark_capitals(inner: Inner, texts: Iterable[str]) -> None:
    """Replace a capital letter by a case marker and the lower-case letter, so that Hund and hund
    share a piece (inline case, Bérard et al. 2019, arXiv:1907.06170). Letters without a case pair,
    and those that the text lacks, stay."""
    letters = map(chr, np.flatnonzero(count_characters(texts)))
    pairs = [
        (large, large.lower())
        for large in letters
        if large.isupper() and large.lower().upper() == large and len(large.lower()) == 1
    ]
    inner.normalizer = normalizers.Sequence(
        [normalizers.Replace(large, f"{CAPITAL_MARK} {small}") for large, small in pairs]
    )
    inner.decoder = decoders.Sequence(
        [
            inner.decoder,
            decoders.Fuse(),
            *(decoders.Replace(f"{CAPITAL_MARK} {small}", large) for large, small in pairs),
        ]
    )


def word_tokenizer(model: Any) -> Inner:
    """Return a tokenizer of words between white space, each after SentencePiece's space symbol, so
    that decoding is exact. Punctuation is split off, so that a word at the end of a sentence is the
    same word."""
    inner = Inner(model)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    inner.decoder = decoders.Metaspace()
    return inner


def train_wordpiece(value: R.WordPiece, texts: Texts) -> Tokenizer:
    """Train WordPiece. The library numbers the letters inside words in no fixed order and breaks
    ties by these numbers, so they are collected and numbered first."""

    def trained(size: int, **more: Any) -> Inner:
        inner = Inner(models.WordPiece(unk_token=BERT_SPECIALS[1]))
        inner.normalizer = normalizers.BertNormalizer(lowercase=value.lowercase)
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        inner.train_from_iterator(
            texts(),
            trainers.WordPieceTrainer(
                vocab_size=size, min_frequency=2, show_progress=False, **more
            ),
        )
        return inner

    first = trained(0)
    max_letters = max_alphabet(value.vocab_size)
    letters = sorted(name for name in first.get_vocab() if not name.startswith("##"))
    if len(letters) > max_letters:
        letters = sorted(most_common_characters(texts(), first, max_letters))
    inside = sorted(
        name for name in first.get_vocab() if name.startswith("##") and name[2:] in set(letters)
    )
    inner = trained(
        vocab_without_sentinels(value),
        special_tokens=[*BERT_SPECIALS, *inside],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
    )
    vocabulary = inner.get_vocab(with_added_tokens=True)
    fresh = Inner(
        models.WordPiece(
            vocab=dict(sorted(vocabulary.items(), key=lambda item: item[1])),
            unk_token=BERT_SPECIALS[1],
        )
    )
    fresh.normalizer = inner.normalizer
    fresh.pre_tokenizer = inner.pre_tokenizer
    fresh.decoder = decoders.WordPiece()
    fresh.add_special_tokens([AddedToken(name, special=True) for name in BERT_SPECIALS])
    return within_vocabulary(value, fresh)


def train_unigram(value: R.Unigram, texts: Texts) -> Tokenizer:
    """Train a unigram model. The library's scores differ between runs in their last digits, and
    between equally rare letters: both are rounded away."""
    inner = word_tokenizer(models.Unigram())
    inner.train_from_iterator(
        texts(),
        trainers.UnigramTrainer(
            vocab_size=vocab_without_sentinels(value),
            special_tokens=DEFAULT_SPECIALS,
            unk_token=DEFAULT_SPECIALS[1],
            show_progress=False,
        ),
    )
    tokenizer_json = json.loads(inner.to_str())
    specials = tokenizer_json["model"]["vocab"][: len(DEFAULT_SPECIALS)]
    pieces = tokenizer_json["model"]["vocab"][len(DEFAULT_SPECIALS) :]
    least = min((score for name, score in pieces if len(name) > 1), default=0.0)
    worst = min(score for _, score in pieces)
    evened = [
        (name, round(worst if len(name) == 1 and score < least else score, 3))
        for name, score in pieces
    ]
    tokenizer_json["model"]["vocab"] = [
        *specials,
        *sorted(evened, key=lambda item: (-item[1], item[0])),
    ]
    return within_vocabulary(value, Inner.from_str(json.dumps(tokenizer_json)))


def vocab_without_sentinels(value: Any) -> int:
    """Return the size of the vocabulary without the sentinels."""
    return int(value.vocab_size - value.sentinels)


def max_alphabet(vocabulary: int) -> int:
    return max(RARE, vocabulary // 4)


def most_common_characters(texts: Iterable[str], inner: Inner, max_length: int) -> list[str]:
    """Return the most common characters after normalisation; ties are ordered by code point."""
    if normalizer := inner.normalizer:
        texts = (normalizer.normalize_str(text) for text in texts)
    counts = count_characters(texts)
    order = np.argsort(-counts, kind="stable")
    return [c for c in map(chr, order[: np.count_nonzero(counts)]) if not c.isspace()][:max_length]


def count_characters(texts: Iterable[str]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return how often each character occurs, by code point."""
    counts = np.zeros(0x110000, np.int64)
    for block in join_texts(texts):
        block_counts = np.bincount(np.frombuffer(block.encode("utf-32-le"), np.uint32))
        counts[: len(block_counts)] += block_counts
    return counts


def join_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts joined into blocks of about four million characters."""
    texts_so_far = []
    size = 0
    for text in texts:
        texts_so_far.append(text)
        size += len(text)
        if size > 1 << 22:
            yield "".join(texts_so_far)
            texts_so_far = []
            size = 0
    yield "".join(texts_so_far)


# Training text


def sample_texts(
    read: ReadPiece, work: list[Piece], columns: tuple[str, ...], share: int
) -> Iterator[str]:
    """Yield texts from the start of each piece, in order, until they have `share` characters."""
    for number, piece in enumerate(work):
        remaining = share
        for item in read(number, piece, columns):
            if isinstance(item, SourceRow):
                for text in text_cells(item.fields, columns):
                    yield text
                    remaining -= len(text)
            if remaining <= 0:
                break


def message_text(message: Any) -> str:
    """What is said in a message of a conversation; "" for what is none, which `check` sets
    aside."""
    return str(message.get("content", "")) if isinstance(message, dict) else ""


def text_cells(fields: dict[str, Any], columns: tuple[str, ...]) -> Iterator[str]:
    for name in columns:
        cell = fields.get(name)
        text: Any = cell
        if isinstance(cell, list):
            talks = any(isinstance(message, dict) for message in cell)
            text = "\n".join(map(message_text, cell)) if talks else " ".join(map(str, cell))
        if isinstance(text, str):
            yield text if text.isascii() else text.encode("utf-8", "ignore").decode()
