"""Sentence boundaries, by one rule for every language with spaces.

A sentence includes the whitespace before it: every tokenizer here splits at whitespace, so the
concatenated tokens of the sentences are those of the whole text.
"""

import re
from itertools import pairwise

TITLES = frozenset({"Mr", "Mrs", "Ms", "Dr", "St", "Prof", "vs"})
# A line always ends a sentence, a mark only before what may begin one
END = re.compile(
    r"[ \t\r]*\n[ \t\r\n]*(?=[^ \t\r\n])"
    r"|(?<=[.!?…])((?: ?[\"'”’»)\]])*)([ \t]+)(?=(?:[\"'“‘«(\[¿¡] ?)*(\w))"
)


def sentence_starts(text: str) -> list[int]:
    """The first place of each sentence, gap included; the first is 0."""
    starts = [0]
    for match in END.finditer(text):
        place = match.start() if match[2] is None else match.start(2)
        if place and (match[2] is None or is_sentence_end(text, match)):
            starts.append(place)
    return starts


def is_sentence_end(text: str, match: re.Match[str]) -> bool:
    """Before a capital or a letter without case; not after an initial or a title."""
    if match[3].islower() or not match[3].isalpha():
        return False
    if text[match.start() - 1] != ".":
        return True
    word = re.search(r"\w*$", text[max(0, match.start() - 8) : match.start() - 1])
    before = word[0] if word else ""
    return not (before in TITLES or (len(before) == 1 and before.isupper()))


def split_sentences(text: str) -> list[str]:
    cuts = [*sentence_starts(text), len(text)]
    return [text[a:b] for a, b in pairwise(cuts)]


def last_word_boundary(text: str) -> int:
    """Where to cut a long text without sentences: before its last word, or inside that if it is the
    only one."""
    end = len(text.rstrip())
    place = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))
    while place > 0 and text[place - 1] in " \t\r\n":
        place -= 1
    return place if place > 0 else max(0, end - 1)
