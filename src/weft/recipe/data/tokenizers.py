"""Tokenizers, trained or read from a file."""

from typing import ClassVar, Literal

from ...spec import NonNegativeInt, PositiveInt
from ...support.registry import choice, implements


class TokenizerSpec:
    """Base of tokenizers. With `special_tokens`, ids 0 to 4 are padding, unknown, begin, end and
    mask.

    Its implementation is registered with `implements`: a function of the value and the training
    text, which it may iterate over several times, that returns a
    `weft.data.tokenizing.tokenizer.Tokenizer`. The same text must give the same tokenizer.

    Attributes:
        name: the name in `weft prepare --tokenizer`.
        reads_all_text: whether it must read all of the training text, not only a sample.
    """

    name: ClassVar[str]
    reads_all_text: ClassVar[bool] = False

    def files(self) -> tuple[str, ...]:
        """Return the files that it reads; their content is part of the fingerprint of prepared
        data.
        """
        return ()


@choice
class ByteBPE(TokenizerSpec):
    """Byte-level BPE: no text is unknown (Radford et al. 2019, section 2.2).

    Args:
        vocab_size: the number of tokens.
        special_tokens: whether to add special tokens (default: True).
        sentinels: the number of T5's span sentinels, the last ids of the vocabulary (default: 0).
    """

    name = "byte-bpe"

    vocab_size: PositiveInt
    special_tokens: bool = True
    sentinels: NonNegativeInt = 0


@choice
class BPE(TokenizerSpec):
    """BPE over characters, with one vocabulary for all columns (Sennrich et al. 2016,
    arXiv:1508.07909).

    Args:
        vocab_size: the number of tokens.
        lowercase: whether to lowercase text; "marked" encodes capitals as a mark, so that decoding
            restores them (default: False).
        sentinels: the number of T5's span sentinels (default: 0).
    """

    name = "bpe"

    vocab_size: PositiveInt
    lowercase: bool | Literal["marked"] = False
    sentinels: NonNegativeInt = 0


@choice
class WordPiece(TokenizerSpec):
    """WordPiece, with `##` inside a word (Devlin et al. 2018, arXiv:1810.04805).

    Args:
        vocab_size: the number of tokens.
        lowercase: whether to lowercase text (default: True).
        sentinels: the number of T5's span sentinels (default: 0).
    """

    name = "wordpiece"

    vocab_size: PositiveInt
    lowercase: bool = True
    sentinels: NonNegativeInt = 0


@choice
class Unigram(TokenizerSpec):
    """The most likely segmentation under a unigram model of pieces (Kudo 2018, arXiv:1804.10959).

    Args:
        vocab_size: the number of tokens.
        sentinels: the number of T5's span sentinels (default: 0).
    """

    name = "unigram"

    vocab_size: PositiveInt
    sentinels: NonNegativeInt = 0


@choice
class ByteTokenizer(TokenizerSpec):
    """One token per byte (ByT5, arXiv:2105.13626).

    Args:
        special_tokens: whether to add special tokens (default: True).
        sentinels: the number of T5's span sentinels (default: 0).
    """

    name = "bytes"

    special_tokens: bool = True
    sentinels: NonNegativeInt = 0


@choice
class CharacterTokenizer(TokenizerSpec):
    """One token per character of the training text.

    Args:
        special_tokens: whether to add special tokens (default: True).
    """

    name = "characters"
    reads_all_text = True

    special_tokens: bool = True


@choice
class TokenizerFile(TokenizerSpec):
    """An existing `tokenizer.json`.

    Args:
        path: the file.
    """

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
