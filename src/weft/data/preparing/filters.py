"""Implementations of quality filters: the reason to drop a text, or None. See
`weft.recipe.data.filters`.
"""

import re
from collections.abc import Iterator

import numpy as np

from ... import recipe as R

BULLETS = tuple("•‣◦▪●○–-*")
ELLIPSES = ("…", "...")
TERMINAL = (".", "!", "?", '"', "”", "。", "！", "？", "।", "؟", "۔")
SYMBOLS = re.compile(r"#|…|\.\.\.")
PARAGRAPH = re.compile(r"\n\s*\n")


def non_empty_lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


class LengthRule:
    def __init__(self, value: R.LengthFilter) -> None:
        self.value = value

    def __call__(self, text: str) -> str | None:
        value = self.value
        words = len(text.split())
        if words < value.min_words or len(text) < value.min_characters:
            return "too short"
        if value.max_words is not None and words > value.max_words:
            return "too long"
        if value.max_characters is not None and len(text) > value.max_characters:
            return "too long"
        return None


class CharacterRule:
    def __init__(self, value: R.CharacterFilter) -> None:
        self.value = value

    def __call__(self, text: str) -> str | None:
        value = self.value
        words = text.split()
        if not words:
            return "no words"
        characters = sum(map(len, words))
        mean = characters / len(words)
        if not value.min_mean_word_length <= mean <= value.max_mean_word_length:
            return "mean word length"
        if len(SYMBOLS.findall(text)) > value.max_symbols_per_word * len(words):
            return "symbols"
        with_letters = sum(word.isalpha() or any(map(str.isalpha, word)) for word in words)
        if with_letters < value.min_words_with_letters * len(words):
            return "words without letters"
        if value.min_letter_fraction:
            letters = sum(map(str.isalpha, text))
            if letters < value.min_letter_fraction * characters:
                return "few letters"
        return None


class LineRule:
    def __init__(self, value: R.LineFilter) -> None:
        self.value = value

    def __call__(self, text: str) -> str | None:
        value = self.value
        lines = non_empty_lines(text)
        if sum(line.startswith(BULLETS) for line in lines) > value.max_bullet_fraction * len(lines):
            return "bullets"
        ellipses = sum(line.endswith(ELLIPSES) for line in lines)
        if ellipses > value.max_ellipsis_fraction * len(lines):
            return "ellipses"
        terminal = sum(line.endswith(TERMINAL) and not line.endswith(ELLIPSES) for line in lines)
        if terminal < value.min_terminal_fraction * len(lines):
            return "lines without an end"
        return None


class ForbiddenTextRule:
    def __init__(self, value: R.ForbiddenTextFilter) -> None:
        self.texts = [text.casefold() for text in value.texts]

    def __call__(self, text: str) -> str | None:
        folded = text.casefold()
        return "forbidden text" if any(word in folded for word in self.texts) else None


class RepetitionRule:
    def __init__(self, value: R.RepetitionFilter) -> None:
        self.value = value

    def __call__(self, text: str) -> str | None:
        value = self.value
        for what, parts, max_share, max_character_share in (
            ("lines", non_empty_lines(text), value.max_line_fraction, value.max_line_characters),
            (
                "paragraphs",
                [part.strip() for part in PARAGRAPH.split(text) if part.strip()],
                value.max_paragraph_fraction,
                value.max_paragraph_characters,
            ),
        ):
            repeats, characters = repeated_fractions(parts)
            if repeats > max_share or characters > max_character_share:
                return f"repeated {what}"
        top = value.max_top_ngram_characters
        every = value.max_ngram_characters
        for n, most_frequent, repeated in ngram_fractions(text.split(), 4 + len(every)):
            if n <= 1 + len(top) and most_frequent > top[n - 2]:
                return f"frequent {n}-gram"
            if n >= 5 and repeated > every[n - 5]:
                return f"repeated {n}-grams"
        return None


def repeated_fractions(parts: list[str]) -> tuple[float, float]:
    """Return the fraction of the parts that occurred before, and that of their characters."""
    seen: set[str] = set()
    repeats = characters = 0
    for part in parts:
        if part in seen:
            repeats += 1
            characters += len(part)
        seen.add(part)
    return repeats / max(1, len(parts)), characters / max(1, sum(map(len, parts)))


def ngram_fractions(words: list[str], longest: int) -> Iterator[tuple[int, float, float]]:
    """Yield n, the fraction of the words' characters in the most frequent n-gram, and that in all
    n-grams which occur more than once; no character counts twice. One that occurs once repeats
    nothing."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    word = np.array([*map(numbers.__getitem__, words)], np.int64)
    ends = np.cumsum([0, *map(len, words)])
    label = word  # of the n-gram that starts at each word; equal n-grams, equal labels
    for n in range(2, min(longest, len(words)) + 1):
        pairs = label[:-1] * len(numbers) + word[n - 1 :]
        _, label, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        if counts.max() < 2:
            break  # nor does a longer one occur twice
        fractions = [
            covered_characters(np.flatnonzero(which), n, ends) / ends[-1]
            for which in (label == counts.argmax(), counts[label] > 1)
        ]
        yield n, fractions[0], fractions[1]


def covered_characters(starts: np.ndarray, n: int, ends: np.ndarray) -> int:
    """Return the characters of the words in n-grams that start at `starts`, each word once."""
    change = np.zeros(len(ends), np.int64)
    change[starts] += 1
    np.subtract.at(change, starts + n, 1)
    covered = np.cumsum(change)[:-1] > 0
    return int(np.diff(ends)[covered].sum())
