"""Entities found whole: type, first and last word right (Tjong Kim Sang and De Meulder 2003, CoNLL-2003, section 2.3)."""
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .accuracy import harmonic

Scores = Iterator[tuple[str, float]]
SAME = {"L": "E", "U": "S", "M": "I"}      # BILOU's and BMES' letters for the same marks


class Entity(NamedTuple):
    kind: str
    first: int
    last: int


def outside(labels: Sequence[str]) -> str:
    """The tag of a word that a row has no room for."""
    return "O" if "O" in labels else labels[0]


def entities(tags: Sequence[str]) -> list[Entity]:
    """IOB1, IOB2 and IOBES are read alike, as conlleval does: a tag goes on with the entity before it if that is open, of the same kind,
    and the tag does not begin one."""
    found: list[Entity] = []
    before, kind = "O", ""
    for place, tag in enumerate(tags):
        mark, _, this = tag.partition("-")
        mark = SAME.get(mark, mark)
        if mark in "IE" and before in "BI" and this == kind:
            found[-1] = found[-1]._replace(last=place)
        elif mark != "O":
            found.append(Entity(this, place, place))
        before, kind = mark, this
    return found


def entity_f1(said: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> Scores:
    """Over all sentences together; then each kind's own F1."""
    spoken, asked, hits = Counter[str](), Counter[str](), Counter[str]()
    for guess, truth in zip(said, right, strict=True):
        if len(guess) != len(truth):
            raise ValueError(f"{len(guess)} tags for {len(truth)} words; give one each")
        own, true = set(entities(guess)), set(entities(truth))
        for count, these in ((spoken, own), (asked, true), (hits, own & true)):
            count.update(entity.kind for entity in these)
    yield "precision", hits.total() / spoken.total() if spoken else 0.0
    yield "recall", hits.total() / asked.total() if asked else 0.0
    yield "F1", harmonic(hits.total(), spoken.total(), asked.total())
    for kind in sorted(asked):
        yield f"F1 {kind}", harmonic(hits[kind], spoken[kind], asked[kind])


def tags(said: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> Scores:
    """What is printed of a tagger: entities, and words."""
    if any(tag[1:2] == "-" for own in right for tag in own):
        yield from entity_f1(said, right)
    pairs = [pair for guess, truth in zip(said, right, strict=True) for pair in zip(guess, truth, strict=True)]
    yield "accuracy of words", sum(s == r for s, r in pairs) / len(pairs)
