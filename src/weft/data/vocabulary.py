"""Tokenizers from text. The same text gives the same file, whatever the threads."""
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Inner

from .. import recipe as R
from .lines import Found
from .source import Piece, read
from .tokenizer import CAPITAL, MARKS, NAMES, Tokenizer, byte_letters

Texts = Callable[[], Iterable[str]]        # the training text, from its start each time
PLAIN = [NAMES[mark][0] for mark in MARKS]
BERT = [NAMES[mark][1] for mark in MARKS]
RARE = 1000                                # characters that any vocabulary may hold; large ones a quarter of themselves


def train(value: R.Tokenizer, texts: Texts) -> Tokenizer:
    """The tokenizer that a recipe names. Where the text has too little in it, the vocabulary is smaller than asked for."""
    match value:
        case R.TokenizerFile():
            return Tokenizer.load(value.path)
        case R.Bytes():
            inner = alone(byte_letters(), value.special, value.sentinels)
            inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel()
        case R.Characters():
            inner = alone(sorted(map(chr, np.flatnonzero(count(texts())))), value.special, 0)
            inner.decoder = decoders.Fuse()
        case R.ByteBPE():
            inner = byte_bpe(value, texts)
        case R.BPE():
            inner = bpe(value, texts)
        case R.WordPiece():
            inner = wordpiece(value, texts)
        case R.Unigram():
            inner = unigram(value, texts)
    if not isinstance(value, R.Bytes | R.Characters):
        mark(inner, value.sentinels)
        if inner.get_vocab_size() > value.vocabulary:
            raise ValueError(f"{type(value).__name__}.vocabulary = {value.vocabulary}: the text's characters and the marks alone "
                             f"are {inner.get_vocab_size()}; give more")
    return Tokenizer(inner.to_str(pretty=True))


def mark(inner: Inner, sentinels: int) -> None:
    """T5's order: the first sentinel is the very last id (arXiv:1910.10683)."""
    inner.add_special_tokens([AddedToken(f"<extra_id_{i}>", special=True) for i in reversed(range(sentinels))])


def alone(letters: list[str], special: bool, sentinels: int) -> Inner:
    names = [*(PLAIN if special else []), *letters]
    inner = Inner(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], unk_token=PLAIN[1] if special else None))
    inner.add_special_tokens([AddedToken(name, special=True) for name in (PLAIN if special else [])])
    mark(inner, sentinels)
    return inner


def byte_bpe(value: R.ByteBPE, texts: Texts) -> Inner:
    inner = Inner(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    marks = [AddedToken(name, special=True, lstrip=name == PLAIN[-1]) for name in PLAIN]       # the gap before a mask is the hidden word's
    inner.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=room(value), special_tokens=marks if value.special else [], initial_alphabet=byte_letters(), min_frequency=2,
        show_progress=False))
    return inner


def bpe(value: R.BPE, texts: Texts) -> Inner:
    inner = words(models.BPE(unk_token=PLAIN[1]))
    if value.lowercase == "marked":
        mark_capitals(inner, texts())
    elif value.lowercase:
        inner.normalizer = normalizers.Lowercase()

    def trainer(**more: Any) -> trainers.BpeTrainer:
        return trainers.BpeTrainer(vocab_size=room(value), special_tokens=PLAIN, min_frequency=2, show_progress=False, **more)

    inner.train_from_iterator(texts(), trainer())
    letters, most = [name for name in inner.get_vocab() if len(name) == 1], limit(value.vocabulary)
    if len(letters) > most:
        inner.train_from_iterator(texts(), trainer(initial_alphabet=["▁", *commonest(texts(), inner, most - 1)], limit_alphabet=most))
    return inner


def mark_capitals(inner: Inner, texts: Iterable[str]) -> None:
    """A capital letter becomes a mark and, as if it began a word, the small letter: Hund and hund, Ball and ball are one piece (inline
    case, Bérard et al. 2019, arXiv:1907.06170). Letters whose case is no pair, and those that the text does not have, stay."""
    letters = map(chr, np.flatnonzero(count(texts)))
    pairs = [(large, large.lower()) for large in letters if large.isupper() and large.lower().upper() == large and len(large.lower()) == 1]
    inner.normalizer = normalizers.Sequence([normalizers.Replace(large, f"{CAPITAL} {small}") for large, small in pairs])
    inner.decoder = decoders.Sequence([inner.decoder, decoders.Fuse(), *(
        decoders.Replace(f"{CAPITAL} {small}", large) for large, small in pairs)])


def words(model: Any) -> Inner:
    """Words between white space, each after the mark of a gap (SentencePiece's), so that text can be put together again; marks of
    punctuation stand alone, or a word at the end of a sentence would be another word."""
    inner = Inner(model)
    inner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    inner.decoder = decoders.Metaspace()
    return inner


def wordpiece(value: R.WordPiece, texts: Texts) -> Inner:
    """The library numbers the letters inside words as it meets them, in no fixed order, and breaks ties by these numbers; so the letters
    are found first, and given their numbers."""
    def trained(size: int, **more: Any) -> Inner:
        inner = Inner(models.WordPiece(unk_token=BERT[1]))
        inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(lowercase=value.lowercase), pre_tokenizers.BertPreTokenizer()
        inner.train_from_iterator(texts(), trainers.WordPieceTrainer(vocab_size=size, min_frequency=2, show_progress=False, **more))
        return inner

    first, most = trained(0), limit(value.vocabulary)
    letters = sorted(name for name in first.get_vocab() if not name.startswith("##"))
    if len(letters) > most:
        letters = sorted(commonest(texts(), first, most))
    inside = sorted(name for name in first.get_vocab() if name.startswith("##") and name[2:] in set(letters))
    inner = trained(room(value), special_tokens=[*BERT, *inside], initial_alphabet=letters, limit_alphabet=len(letters))
    vocabulary = inner.get_vocab(with_added_tokens=True)
    fresh = Inner(models.WordPiece(vocab=dict(sorted(vocabulary.items(), key=lambda item: item[1])), unk_token=BERT[1]))
    fresh.normalizer, fresh.pre_tokenizer, fresh.decoder = inner.normalizer, inner.pre_tokenizer, decoders.WordPiece()
    fresh.add_special_tokens([AddedToken(name, special=True) for name in BERT])
    return fresh


def unigram(value: R.Unigram, texts: Texts) -> Inner:
    """The library's scores differ from run to run far behind the point, and between letters as rare as each other: these are evened out."""
    inner = words(models.Unigram())
    inner.train_from_iterator(texts(), trainers.UnigramTrainer(
        vocab_size=room(value), special_tokens=PLAIN, unk_token=PLAIN[1], show_progress=False))
    held = json.loads(inner.to_str())
    marks, pieces = held["model"]["vocab"][:len(PLAIN)], held["model"]["vocab"][len(PLAIN):]
    least = min((score for name, score in pieces if len(name) > 1), default=0.0)
    worst = min(score for _, score in pieces)
    evened = [(name, round(worst if len(name) == 1 and score < least else score, 3)) for name, score in pieces]
    held["model"]["vocab"] = [*marks, *sorted(evened, key=lambda item: (-item[1], item[0]))]
    return Inner.from_str(json.dumps(held))


def room(value: Any) -> int:
    """What is left for pieces beside the sentinels."""
    return int(value.vocabulary - value.sentinels)


def limit(vocabulary: int) -> int:
    return max(RARE, vocabulary // 4)


def commonest(texts: Iterable[str], inner: Inner, most: int) -> list[str]:
    """The commonest characters, as the tokenizer's normaliser leaves them; ties by code point."""
    normal = inner.normalizer
    counts = count(normal.normalize_str(text) for text in texts) if normal else count(texts)
    order = np.argsort(-counts, kind="stable")
    return [c for c in map(chr, order[:np.count_nonzero(counts)]) if not c.isspace()][:most]


def count(texts: Iterable[str]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """How often each character stands in the text."""
    counts = np.zeros(0x110000, np.int64)
    for block in joined(texts):
        found = np.bincount(np.frombuffer(block.encode("utf-32-le"), np.uint32))
        counts[:len(found)] += found
    return counts


def joined(texts: Iterable[str]) -> Iterator[str]:
    held, size = [], 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size > 1 << 22:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


# The text that it learns from

def sample(source: R.Source, work: list[Piece], columns: tuple[str, ...], share: int) -> Iterator[str]:
    """The first `share` characters of each piece, in order."""
    for piece in work:
        left = share
        for item in read(source, piece, columns):
            if isinstance(item, Found):
                for text in cells(item.fields, columns):
                    yield text
                    left -= len(text)
            if left <= 0:
                break


def cells(fields: dict[str, Any], columns: tuple[str, ...]) -> Iterator[str]:
    for name in columns:
        cell = fields.get(name)
        text = " ".join(map(str, cell)) if isinstance(cell, list) else cell
        if isinstance(text, str):
            yield text if text.isascii() else text.encode("utf-8", "ignore").decode()
