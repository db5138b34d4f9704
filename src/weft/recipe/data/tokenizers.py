"""Tokenizers to train or to read."""

from typing import ClassVar, Literal

from ...spec import NonNegativeInt, PositiveInt
from ...support.registry import choice, implements


class TokenizerSpec:
    """Base of every tokenizer. Where `special` is True, ids 0 to 4 are pad, unknown, begin, end and
    mask.

    What makes it is registered with `implements`: a function of the value and the training text,
    which it may iterate over several times, that returns a
    `weft.data.tokenizing.tokenizer.Tokenizer`. The same text must give the same tokenizer.

    Attributes:
        name: what `weft prepare --tokenizer` calls it.
        reads_all_text: whether it must see all of the training text, not only a sample.
    """

    name: ClassVar[str]
    reads_all_text: ClassVar[bool] = False

    def files(self) -> tuple[str, ...]:
        """Return the files that it is read from; their content is part of the fingerprint of
        prepared data.
        """
        return ()


@choice
class ByteBPE(TokenizerSpec):
    """Byte-level BPE: no text is unknown (Radford et al. 2019, section 2.2)."""

    name = "byte-bpe"

    vocab_size: PositiveInt
    special_tokens: bool = True
    sentinels: NonNegativeInt = 0  # T5's span sentinels, the last ids of the vocabulary


@choice
class BPE(TokenizerSpec):
    """BPE over characters, one vocabulary for all columns (Sennrich et al. 2016,
    arXiv:1508.07909).
    """

    name = "bpe"

    vocab_size: PositiveInt
    lowercase: bool | Literal["marked"] = (
        False  # marked: what was a capital is known from a mark, and decoded as one
    )
    sentinels: NonNegativeInt = 0


@choice
class WordPiece(TokenizerSpec):
    """WordPiece, with `##` inside a word (Devlin et al. 2018, arXiv:1810.04805)."""

    name = "wordpiece"

    vocab_size: PositiveInt
    lowercase: bool = True
    sentinels: NonNegativeInt = 0


@choice
class Unigram(TokenizerSpec):
    """The most likely segmentation under a unigram model of pieces (Kudo 2018,
    arXiv:1804.10959).
    """

    name = "unigram"

    vocab_size: PositiveInt
    sentinels: NonNegativeInt = 0


@choice
class ByteTokenizer(TokenizerSpec):
    """One token per byte (ByT5, arXiv:2105.13626)."""

    name = "bytes"

    special_tokens: bool = True
    sentinels: NonNegativeInt = 0


@choice
class CharacterTokenizer(TokenizerSpec):
    """One token per character of the training text."""

    name = "characters"
    reads_all_text = True

    special_tokens: bool = True


@choice
class TokenizerFile(TokenizerSpec):
    """An existing `tokenizer.json`."""

    name = "file"

    path: str

    def files(self) -> tuple[str, ...]:
        return (self.path,)


implements(ByteBPE, "weft.data.tokenizing.train_tokenizer:train_byte_bpe")
implements(BPE, "weft.data.tokenizing.train_tokenizer:train_bpe")
implements(WordPiece, "weft.data.tokenizing.train_tokenizer:train_wordpiece")
implements(Unigram, "weft.data.tokenizing.train_tokenizer:train_unigram")
implements(ByteTokenizer, "weft.data.tokenizing.train_tokenizer:byte_tokenizer")
implements(CharacterTokenizer, "weft.data.tokenizing.train_tokenizer:character_tokenizer")
implements(TokenizerFile, "weft.data.tokenizing.train_tokenizer:read_tokenizer_file")
