"""Tokenizers: text to ids and back. Each is a standard `tokenizer.json`; bytes and characters are
encoded with numpy.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from ...support.addresses import Location, ObjectPath, locate
from ...support.folder_files import MAX_TABLE_BYTES, read_bounded
from ...support.storage import write_atomically

Array = np.ndarray[Any, Any]
SPECIAL_TOKENS = ("pad", "unk", "bos", "eos", "mask")  # ids 0 to 4
# Names in tokenizer files, Weft's first
SPECIAL_TOKEN_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "bos": ("<s>", "[CLS]", "<|begin_of_text|>", "<bos>"),
    "eos": ("</s>", "[SEP]", "<|end_of_text|>", "<eos>", "<|endoftext|>"),
    "mask": ("<mask>", "[MASK]"),
}
PROBE = "A word, wörd 你好 😀 1.\n"  # encoded once on loading, to detect a broken file
CAPITAL_MARK = "↑"  # a capital, where they are marked: "↑ a"; text that has this is decoded as "A"


GAPS = 1 << 20  # ids without a token, at most: arrays have a place for each id


@contextmanager
def library(what: str) -> Iterator[None]:
    """Context that converts errors of the tokenizers library into a one-line ValueError. A panic of
    its Rust code is a BaseException, which callers do not expect.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, ValueError) or not (
            isinstance(error, Exception) or type(error).__name__ == "PanicException"
        ):
            raise
        raise ValueError(
            f"{what}: {' '.join(str(error).split())[:300] or type(error).__name__}"
        ) from None


@contextmanager
def silent() -> Iterator[None]:
    """Context that silences standard error: a panic prints there before it can be caught."""
    sys.stderr.flush()
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


class SpecialTokenFrame(NamedTuple):
    """Special tokens around a text, and between a text and a second one, which `end` follows
    too."""

    prefix: list[int]
    suffix: list[int]
    separator: list[int]


def with_special_frame(text: str, frame: SpecialTokenFrame) -> str:
    """Return a tokenizer.json that adds these special tokens around texts; the same bytes if it
    already does."""
    inner = tokenizers.Tokenizer.from_str(text)
    inner.no_padding()
    inner.no_truncation()
    a, b = (inner.encode(letter, add_special_tokens=False).ids for letter in "ab")
    single = inner.encode("a")
    pair = inner.encode("a", "b")
    first = [*frame.prefix, *a, *frame.separator]
    second = [*b, *frame.suffix]
    if single.ids == [*frame.prefix, *a, *frame.suffix] and pair.ids == first + second:
        return text
    before, between, end = (
        [f"{inner.id_to_token(i)}" for i in ids]
        for ids in (frame.prefix, frame.separator, frame.suffix)
    )
    template: Any = tokenizers.processors.TemplateProcessing(
        single=[*before, "$A", *end],
        pair=[*before, "$A", *between, "$B:1", *(f"{name}:1" for name in end)],
        special_tokens=[(name, inner.token_to_id(name)) for name in {*before, *between, *end}],
    )
    if "ByteLevel" in json.dumps(json.loads(text)["post_processor"]):
        template = tokenizers.processors.Sequence(
            [tokenizers.processors.ByteLevel(trim_offsets=True), template]
        )
    inner.post_processor = template
    return str(inner.to_str(pretty=True))


def byte_letters() -> list[str]:
    """Return the character for each byte in a byte-level vocabulary: the byte itself if it is
    printable (Radford et al. 2019)."""
    seen = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace() and b != 0xAD]
    hidden = (chr(256 + i) for i in range(256))
    return [chr(b) if b in seen else next(hidden) for b in range(256)]


class Tokenizer:
    """A `tokenizer.json`. The text of a special token inside a text is not converted to that
    token.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.inner = tokenizers.Tokenizer.from_str(text)
        self.inner.no_padding()
        self.inner.no_truncation()
        self.inner.encode_special_tokens = True
        vocabulary = self.inner.get_vocab(with_added_tokens=True)
        self.size = max(vocabulary.values(), default=-1) + 1
        if not 0 < self.size <= len(vocabulary) + GAPS:
            raise ValueError(f"it numbers its {len(vocabulary):,} tokens up to {self.size - 1:,}")
        self.limit: int | None = None  # the model's number of ids, if it has fewer
        self.dtype = np.dtype(np.uint16 if self.size <= 1 << 16 else np.uint32)
        ids_of_special = {
            mark: [vocabulary[name] for name in SPECIAL_TOKEN_NAMES[mark] if name in vocabulary]
            for mark in SPECIAL_TOKENS
        }
        self.special = {mark: ids[0] for mark, ids in ids_of_special.items() if ids}
        # RoBERTa's pair is <s> A </s></s> B </s>
        roberta_pair = [self.special.get(mark) for mark in ("bos", "eos", "eos", "eos")]
        if self.inner.encode("", "").ids == roberta_pair:
            self.special["extra_sep"] = self.special["eos"]
        count = 0
        while f"<extra_id_{count}>" in vocabulary:
            count += 1
        self.sentinels = tuple(vocabulary[f"<extra_id_{i}>"] for i in range(count))
        parts = json.loads(text)
        self.byte_level = "ByteLevel" in json.dumps(parts["pre_tokenizer"])
        single = parts["model"]["type"] == "BPE" and not parts["model"]["merges"]
        self.table = self.lookup(vocabulary) if single else None
        # The special tokens of Unigram are ordinary pieces: text could be read as one
        self.forgeable_ids: list[int] = []
        if parts["model"]["type"] == "Unigram":
            self.forgeable_ids = [i for mark, i in self.special.items() if mark != "unk"]
        self.seconds = 0.0  # seconds in the library's own work

    def lookup(self, vocabulary: dict[str, int]) -> Array:
        """Return the id of every byte or character; -1 for one without an id."""
        if self.byte_level:
            return np.array([vocabulary[letter] for letter in byte_letters()], np.int64)
        table = np.full(0x110000, -1, np.int64)
        single = {name: i for name, i in vocabulary.items() if len(name) == 1}
        table[[ord(name) for name in single]] = list(single.values())
        return table

    @classmethod
    def load(cls, path: str | Location) -> "Tokenizer":
        path = locate(path)
        is_folder = path.suffix != ".json" if isinstance(path, ObjectPath) else path.is_dir()
        path = path / "tokenizer.json" if is_folder else path
        if not (path.exists() if isinstance(path, ObjectPath) else os.path.lexists(path)):
            raise ValueError(f"{path} does not exist; give a tokenizer.json or its directory")
        if isinstance(path, ObjectPath):
            text = path.read_text()
        else:
            text = read_bounded(path, MAX_TABLE_BYTES)
        try:
            with silent(), library("the tokenizers library"):
                layer = cls(text)
                layer.probe()
                return layer
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} is not a tokenizer.json: {' '.join(str(error).split())[:300]}"
            ) from None

    def probe(self) -> None:
        """Raise the library's errors on an ordinary text; a text that the vocabulary lacks is not
        an error of the file.
        """
        if self.table is None:
            for ask in (
                lambda: self.inner.decode(self.inner.encode(PROBE).ids),
                lambda: self.inner.encode(PROBE, PROBE),
            ):
                with suppress(Exception):
                    ask()

    def save(self, path: str | Path) -> None:
        write_atomically(Path(path), self.text.encode())

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def encode_many(self, texts: list[str]) -> tuple[Array, Array]:
        """Return the tokens of all texts, concatenated, and the end of each text; special tokens
        are not added. The type is the smallest that fits."""
        if self.table is not None:
            return self.encode_by_table(texts)
        began = perf_counter()
        with library("the tokenizer"):
            encodings = self.inner.encode_batch_fast(texts, add_special_tokens=False)
        self.seconds += perf_counter() - began
        id_lists = [encoding.ids for encoding in encodings]
        ends = np.cumsum([len(ids) for ids in id_lists], dtype=np.int64)
        return self.replace_forged_specials(
            np.fromiter(
                chain.from_iterable(id_lists), self.dtype, int(ends[-1]) if len(ends) else 0
            )
        ), ends

    def replace_forged_specials(self, ids: Array) -> Array:
        """Replace ids of special tokens whose text occurs in the input."""
        self.within(ids)
        return (
            np.where(np.isin(ids, self.forgeable_ids), ids.dtype.type(self.special["unk"]), ids)
            if self.forgeable_ids
            else ids
        )

    def within(self, ids: Any) -> Any:
        """Return the ids; ValueError if one is outside the model's vocabulary."""
        if self.limit is not None and len(ids) and (largest := int(max(ids))) >= self.limit:
            raise ValueError(
                f"token {self.inner.id_to_token(largest)!r} has the id {largest:,}, but the model "
                f"has only ids below {self.limit:,}; use the tokenizer that the model was trained "
                "with"
            )
        return ids

    def encode_by_table(self, texts: list[str]) -> tuple[Array, Array]:
        assert self.table is not None
        if self.byte_level:
            raw = [text.encode() for text in texts]
            places = np.frombuffer(b"".join(raw), np.uint8)
            lengths = [len(r) for r in raw]
        else:
            places = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
            lengths = [len(t) for t in texts]
        ids = self.table[places]
        if not self.byte_level and (ids < 0).any():
            if "unk" not in self.special:
                raise ValueError(
                    f"character {chr(places[ids < 0][0])!r} is not in the training text; use "
                    "CharacterTokenizer(special_tokens=True), which has an unknown token"
                )
            ids[ids < 0] = self.special["unk"]
        return self.within(ids).astype(self.dtype), np.cumsum(lengths, dtype=np.int64)

    def encode(self, text: str) -> Array:
        """Return the ids of one text as int64, which PyTorch's embeddings take; special tokens are
        not added. `encode_many` is for the store."""
        return self.encode_many([text])[0].astype(np.int64)

    def encode_spans(self, text: str) -> tuple[Array, Array]:
        """Return the tokens, and the characters [start, end) of each without the space before a
        word: (tokens, 2)."""
        if self.table is None:
            began = perf_counter()
            with library("the tokenizer"):
                encoding = self.inner.encode(text, add_special_tokens=False)
            self.seconds += perf_counter() - began
            spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
            for i, (begin, end) in enumerate(spans):
                piece = text[begin:end]
                spans[i, 0] += len(piece) - len(piece.lstrip()) if piece.strip() else 0
            return self.replace_forged_specials(np.array(encoding.ids, np.int64)), spans
        widths = [len(c.encode()) for c in text] if self.byte_level else 1
        begin = np.repeat(np.arange(len(text)), widths)
        return self.encode(text), np.stack([begin, begin + 1], 1)

    def special_frame(self) -> tuple[list[int], list[int]]:
        """Return the special tokens that the file adds before and after a text."""
        with library("the tokenizer"):
            probe = self.inner.encode("a", add_special_tokens=True)
        added = probe.special_tokens_mask
        ids = self.within(probe.ids)
        first = added.index(0) if 0 in added else len(ids)
        last = len(ids) - added[::-1].index(0) if 0 in added else len(ids)
        return ids[:first], ids[last:]

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens; special tokens are left out by default."""
        with library("the tokenizer"):
            ids = [int(i) for i in ids]
            return str(self.inner.decode(ids, skip_special_tokens=skip_special_tokens))

    @cached_property
    def is_continuation(self) -> Array:
        """Return, per id, whether the piece continues a word."""
        names = [self.inner.id_to_token(i) or "" for i in range(self.size)]
        special = self.inner.get_added_tokens_decoder()
        # a letter, a digit, or a byte of a longer letter, without the space before a word
        if self.byte_level:
            byte = {letter: b for b, letter in enumerate(byte_letters())}
            continues = [
                byte.get(name[:1], 0) >= 0x80 or chr(byte.get(name[:1], 0)).isalnum()
                for name in names
            ]
        elif self.table is not None:
            continues = [name[:1].isalnum() for name in names]
        elif any(name.startswith("##") for name in names):
            continues = [name.startswith("##") for name in names]
        else:
            continues = [not name.startswith("▁") for name in names]
        return np.array([go and i not in special for i, go in enumerate(continues)], bool)

    @property
    def words_start_with_space(self) -> bool:
        """Return whether a word inside a text starts with its space."""
        return self.byte_level or self.table is not None


def load_tokenizer(folder: str | Path) -> Tokenizer:
    return Tokenizer.load(folder)
