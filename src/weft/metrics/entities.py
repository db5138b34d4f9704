"""Entity metrics: an entity is correct if type, first and last word are (Tjong Kim Sang and De
Meulder 2003, CoNLL-2003, section 2.3).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from ..recipe.metrics import Scores
from .classification import accuracy, f1_score

SAME = {"L": "E", "U": "S", "M": "I"}  # the letters of BILOU and BMES for the same tags


class Entity(NamedTuple):
    kind: str
    first: int
    last: int


def outside_tag(labels: Sequence[str]) -> str:
    """Return the tag of truncated words."""
    return "O" if "O" in labels else labels[0]


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of IOB1, IOB2 or IOBES tags, as conlleval does: a tag continues the
    previous entity if that is open and of the same type, and the tag does not start a new one.
    """
    entities: list[Entity] = []
    before = "O"
    kind = ""
    for place, tag in enumerate(tags):
        mark, _, this = tag.partition("-")
        mark = SAME.get(mark, mark)
        if mark in "IE" and before in "BI" and this == kind:
            entities[-1] = entities[-1]._replace(last=place)
        elif mark != "O":
            entities.append(Entity(this, place, place))
        before = mark
        kind = this
    return entities


def entity_f1(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> Scores:
    """Yield F1 over all sentences, then per entity type."""
    predicted_counts = Counter[str]()
    reference_counts = Counter[str]()
    hits = Counter[str]()
    for guess, truth in zip(predictions, references, strict=True):
        if len(guess) != len(truth):
            raise ValueError(f"{len(guess)} tags for {len(truth)} words; give one per word")
        predicted = set(find_entities(guess))
        true = set(find_entities(truth))
        for count, these in (
            (predicted_counts, predicted),
            (reference_counts, true),
            (hits, predicted & true),
        ):
            count.update(entity.kind for entity in these)
    yield "precision", hits.total() / predicted_counts.total() if predicted_counts else 0.0
    yield "recall", hits.total() / reference_counts.total() if reference_counts else 0.0
    yield "f1", f1_score(hits.total(), predicted_counts.total(), reference_counts.total())
    for kind in sorted(reference_counts):
        yield f"f1_{kind}", f1_score(hits[kind], predicted_counts[kind], reference_counts[kind])


def f1_of_entities(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> Scores:
    """`entity_f1` with the F1 of all kinds first."""
    scores = dict(entity_f1(predictions, references))
    yield "f1", scores.pop("f1")
    yield from scores.items()


def tagging_metrics(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> Scores:
    """Yield the metrics of a tagger: of entities, and of words."""
    if any(tag[1:2] == "-" for sentence_tags in references for tag in sentence_tags):
        yield from entity_f1(predictions, references)
    ((_, value),) = accuracy(list(chain(*predictions)), list(chain(*references)))
    yield "accuracy", value
