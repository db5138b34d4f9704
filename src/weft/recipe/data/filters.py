"""Which rows of a source are kept, as values: quality filters and deduplication, in the order in
which they are applied.

Thresholds are those of the papers; all of them count words, lines and characters, never words of
one language.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ...spec import Fraction, NonNegativeInt, PositiveInt
from ...support.registry import choice, implements

NonNegativeFloat = Annotated[float, Field(ge=0)]


class Filter:
    """Base of every step that drops rows of a source before they are encoded, and before a
    tokenizer is trained on them.

    Attributes:
        name: what `weft prepare --filters` calls it.
        reads_bytes: whether it also takes rows without text, by the bytes of their images.
    """

    name: ClassVar[str]
    reads_bytes: ClassVar[bool] = False


class QualityFilter(Filter):
    """Base of the filters that look at one row alone.

    What implements it is registered with `implements` and built from the value. It is called with
    the text of a row, and returns why the row is dropped, in one of a few fixed texts, or None if
    it is kept.
    """


class Deduplication(Filter):
    """Base of the filters that drop what an earlier row, in the order of the files, already holds.

    What implements it is registered with `implements` and built from the value. It is called with
    the text of a row, and returns keys, which are bytes: the row is dropped if an earlier row has
    one of its keys. Rows are compared on disk, by the hashes of their keys.
    """


# One row alone


@choice
class LengthFilter(QualityFilter):
    """Drop texts that are too short or too long; words are what whitespace separates (Rae et al.
    2021, arXiv:2112.11446, appendix A.1.1). For a language that writes no spaces, set `min_words`
    to 0 and count characters.
    """

    name = "length"
    min_words: NonNegativeInt = 50
    max_words: PositiveInt | None = 100_000
    min_characters: NonNegativeInt = 0
    max_characters: PositiveInt | None = None


@choice
class CharacterFilter(QualityFilter):
    """Drop texts that consist of something else than words (Rae et al. 2021, appendix A.1.1)."""

    name = "characters"
    min_mean_word_length: NonNegativeFloat = 3.0
    max_mean_word_length: NonNegativeFloat = 10.0
    max_symbols_per_word: NonNegativeFloat = 0.1  # hash signs, and ellipses
    min_words_with_letters: Fraction = 0.8  # fraction of the words that contain a letter
    min_letter_fraction: Fraction = 0.0  # of the characters that are not whitespace


@choice
class LineFilter(QualityFilter):
    """Drop lists and teasers, by their lines (Rae et al. 2021, appendix A.1.1) and, with
    `min_terminal_fraction`, by how many end with a full stop, an exclamation mark, a question mark
    or a quotation mark (Raffel et al. 2019, arXiv:1910.10683, section 2.2).
    """

    name = "lines"
    max_bullet_fraction: Fraction = 0.9  # of the lines that start with a bullet
    max_ellipsis_fraction: Fraction = 0.3  # of the lines that end with an ellipsis
    min_terminal_fraction: Fraction = 0.0


@choice
class RepetitionFilter(QualityFilter):
    """Drop texts that repeat themselves (Rae et al. 2021, table A1): repeated lines and paragraphs,
    as fractions of their number and of the characters; the characters of the most frequent n-gram
    of words for n from 2, and of all n-grams that occur more than once for n from 5.
    """

    name = "repetition"
    max_line_fraction: Fraction = 0.3
    max_paragraph_fraction: Fraction = 0.3
    max_line_characters: Fraction = 0.2
    max_paragraph_characters: Fraction = 0.2
    max_top_ngram_characters: tuple[Fraction, ...] = (0.2, 0.18, 0.16)  # n = 2, 3, 4
    max_ngram_characters: tuple[Fraction, ...] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.1)  # n = 5 to 10


@choice
class ForbiddenTextFilter(QualityFilter):
    """Drop texts that contain one of these, in whatever case (Raffel et al. 2019, section 2.2:
    placeholders).
    """

    name = "forbidden"
    texts: tuple[str, ...] = ("lorem ipsum",)

    def __post_init__(self) -> None:
        if not all(self.texts):
            raise ValueError(f"ForbiddenTextFilter.texts = {self.texts}: give texts of some length")


# Earlier rows


@choice
class ExactDeduplication(Deduplication):
    """Drop a row whose text or image equals an earlier one's, whatever their labels, byte for byte
    or, with `normalize`, but for case and whitespace. Equal means an equal hash of 128 bits.
    """

    name = "exact"
    reads_bytes = True
    normalize: bool = False


@choice
class NearDeduplication(Deduplication):
    """Drop a row that resembles an earlier one: MinHash (Broder 1997) of its n-grams, compared by
    locality-sensitive hashing. Rows whose sets of n-grams have a Jaccard similarity above about
    `threshold` are found; needs `pip install '.[data]'`.
    """

    name = "near"
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.8
    ngram: PositiveInt = 5
    unit: Literal["word", "character"] = "word"  # characters: for languages without spaces
    permutations: Annotated[int, Field(ge=16)] = 128
    seed: NonNegativeInt = 1


implements(LengthFilter, "weft.data.preparing.filters:LengthRule")
implements(CharacterFilter, "weft.data.preparing.filters:CharacterRule")
implements(LineFilter, "weft.data.preparing.filters:LineRule")
implements(RepetitionFilter, "weft.data.preparing.filters:RepetitionRule")
implements(ForbiddenTextFilter, "weft.data.preparing.filters:ForbiddenTextRule")
implements(ExactDeduplication, "weft.data.preparing.deduplicate:ExactKeys")
implements(NearDeduplication, "weft.data.preparing.deduplicate:MinHashKeys")
