"""Row filters: quality filters and deduplication, applied in order.

Default thresholds are those of the papers. Filters count words, lines and characters and use no
word lists of a language.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ...spec import Fraction, NonNegativeInt, PositiveInt
from ...support.registry import choice, implements

NonNegativeFloat = Annotated[float, Field(ge=0)]


class Filter:
    """Base of filters, which drop rows of a source before encoding and tokenizer training.

    Attributes:
        name: the name in `weft prepare --filters`.
        reads_bytes: whether it also filters rows without text, by the bytes of their images.
    """

    name: ClassVar[str]
    reads_bytes: ClassVar[bool] = False


class QualityFilter(Filter):
    """Base of filters that decide from one row alone.

    Its implementation is registered with `implements` and built from the value. It is called with
    the text of a row and returns the reason to drop it, one of a few fixed texts, or None to keep
    it.
    """


class Deduplication(Filter):
    """Base of filters that drop duplicates of earlier rows, in the order of the files.

    Its implementation is registered with `implements` and built from the value. It is called with
    the text of a row and returns keys (bytes): the row is dropped if an earlier row has one of its
    keys. Rows are compared on disk, by the hashes of their keys.
    """


@choice
class LengthFilter(QualityFilter):
    """Drop texts that are too short or too long (Rae et al. 2021, arXiv:2112.11446, appendix
    A.1.1). Words are separated by whitespace; for languages without spaces set `min_words` to 0 and
    count characters.

    Args:
        min_words: the fewest words (default: 50).
        max_words: the most words (default: 100,000; None: unlimited).
        min_characters: the fewest characters (default: 0).
        max_characters: the most characters (default: unlimited).
    """

    name = "length"
    min_words: NonNegativeInt = 50
    max_words: PositiveInt | None = 100_000
    min_characters: NonNegativeInt = 0
    max_characters: PositiveInt | None = None


@choice
class CharacterFilter(QualityFilter):
    """Drop texts that consist mostly of symbols or unusual words (Rae et al. 2021, appendix A.1.1).

    Args:
        min_mean_word_length: the shortest mean word length (default: 3).
        max_mean_word_length: the longest mean word length (default: 10).
        max_symbols_per_word: the most hash signs, or ellipses, per word (default: 0.1).
        min_words_with_letters: the smallest fraction of words that contain a letter (default: 0.8).
        min_letter_fraction: the smallest fraction of letters among characters without whitespace
            (default: 0).
    """

    name = "characters"
    min_mean_word_length: NonNegativeFloat = 3.0
    max_mean_word_length: NonNegativeFloat = 10.0
    max_symbols_per_word: NonNegativeFloat = 0.1
    min_words_with_letters: Fraction = 0.8
    min_letter_fraction: Fraction = 0.0


@choice
class LineFilter(QualityFilter):
    """Drop lists and teasers by their lines (Rae et al. 2021, appendix A.1.1).

    Args:
        max_bullet_fraction: the largest fraction of lines that start with a bullet (default: 0.9).
        max_ellipsis_fraction: the largest fraction of lines that end with an ellipsis (default:
            0.3).
        min_terminal_fraction: the smallest fraction of lines that end with a full stop,
            exclamation, question or quotation mark (Raffel et al. 2019, arXiv:1910.10683, section
            2.2; default: 0).
    """

    name = "lines"
    max_bullet_fraction: Fraction = 0.9
    max_ellipsis_fraction: Fraction = 0.3
    min_terminal_fraction: Fraction = 0.0


@choice
class RepetitionFilter(QualityFilter):
    """Drop texts that repeat themselves (Rae et al. 2021, table A1).

    Args:
        max_line_fraction: the largest fraction of repeated lines (default: 0.3).
        max_paragraph_fraction: the largest fraction of repeated paragraphs (default: 0.3).
        max_line_characters: the largest fraction of characters in repeated lines (default: 0.2).
        max_paragraph_characters: the largest fraction of characters in repeated paragraphs
            (default: 0.2).
        max_top_ngram_characters: the largest fraction of characters in the most frequent n-gram of
            words, for n = 2, 3, 4 (default: (0.2, 0.18, 0.16)).
        max_ngram_characters: the largest fraction of characters in n-grams of words that occur more
            than once, for n = 5 to 10 (default: (0.15, 0.14, 0.13, 0.12, 0.11, 0.1)).
    """

    name = "repetition"
    max_line_fraction: Fraction = 0.3
    max_paragraph_fraction: Fraction = 0.3
    max_line_characters: Fraction = 0.2
    max_paragraph_characters: Fraction = 0.2
    max_top_ngram_characters: tuple[Fraction, ...] = (0.2, 0.18, 0.16)
    max_ngram_characters: tuple[Fraction, ...] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.1)


@choice
class ForbiddenTextFilter(QualityFilter):
    """Drop texts that contain a placeholder (Raffel et al. 2019, section 2.2).

    Args:
        texts: the forbidden texts; case does not matter (default: ("lorem ipsum",)).
    """

    name = "forbidden"
    texts: tuple[str, ...] = ("lorem ipsum",)

    def __post_init__(self) -> None:
        if not all(self.texts):
            raise ValueError(f"ForbiddenTextFilter.texts = {self.texts}: remove the empty text")


@choice
class ExactDeduplication(Deduplication):
    """Drop a row whose text or image equals an earlier one, regardless of labels. Rows are equal if
    their 128-bit hashes are.

    Args:
        normalize: whether to ignore case and whitespace (default: False).
    """

    name = "exact"
    reads_bytes = True
    normalize: bool = False


@choice
class NearDeduplication(Deduplication):
    """Drop a row that is similar to an earlier one: MinHash (Broder 1997) of its n-grams with
    locality-sensitive hashing. Needs `pip install '.[data]'`.

    Args:
        threshold: the approximate Jaccard similarity from which rows are duplicates (default: 0.8).
        ngram: the length n of n-grams (default: 5).
        unit: the unit of n-grams: "word", or "character" for languages without spaces (default:
            "word").
        permutations: the number of hash functions, at least 16 (default: 128).
        seed: the seed of the hash functions (default: 1).
    """

    name = "near"
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.8
    ngram: PositiveInt = 5
    unit: Literal["word", "character"] = "word"
    permutations: Annotated[int, Field(ge=16)] = 128
    seed: NonNegativeInt = 1


implements(LengthFilter, "weft.data.preparing.filters:LengthRule")
implements(CharacterFilter, "weft.data.preparing.filters:CharacterRule")
implements(LineFilter, "weft.data.preparing.filters:LineRule")
implements(RepetitionFilter, "weft.data.preparing.filters:RepetitionRule")
implements(ForbiddenTextFilter, "weft.data.preparing.filters:ForbiddenTextRule")
implements(ExactDeduplication, "weft.data.preparing.deduplicate:ExactKeys")
implements(NearDeduplication, "weft.data.preparing.deduplicate:MinHashKeys")
