"""Head probing: score each head's most attended word as a prediction of a dependency relation
(Clark et al. 2019, arXiv:1906.04341, sections 4.1 and 4.2).
"""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import torch
from torch import Tensor

DIRECTIONS = ("its head", "its dependent")  # what a word attends to


class RelationScore(NamedTuple):
    """The best head of one relation.

    Selecting the best of many heads on few links overestimates its accuracy: `held_out` selects the
    head on one half of the sentences and scores it on the other, and `baseline_held_out` does the
    same for the offset.
    """

    relation: str
    links: int
    layer: int  # from 0
    head: int  # from 0
    direction: str
    accuracy: float
    held_out: float
    baseline: float
    offset: int  # of the head's word from the dependent's, of the baseline
    baseline_held_out: float


def merge_words(weight_HLM: Tensor, word_L: Tensor, words: int) -> Tensor:
    """Attention between words, (H, W, W): to a word, the sum over its pieces;
    from a word, the mean over its pieces.

    Args:
        weight_HLM: of self-attention over tokens.
        word_L: the word of each token; -1 for special tokens, which are ignored.
        words: their number; every one has a token.
    """
    member_LW = torch.nn.functional.one_hot(word_L + 1, words + 1)[:, 1:].to(weight_HLM.dtype)
    to_HLW = weight_HLM @ member_LW
    return (member_LW / member_LW.sum(0)).T @ to_HLW


def strongest_links(weight_HWW: Tensor) -> Tensor:
    """The other word that each word attends to most, (H, W)."""
    itself_WW = torch.eye(weight_HWW.shape[-1], dtype=torch.bool, device=weight_HWW.device)
    return weight_HWW.masked_fill(itself_WW, -1).argmax(-1)


class RelationCounts:
    """Hits of every head by relation, of the even and of the odd sentences."""

    def __init__(self) -> None:
        self.hits: dict[str, list[Tensor]] = {}  # of each half (directions, Y, H)
        self.offsets: dict[str, list[Counter[int]]] = {}
        self.sentences = 0

    def add(self, weight_YHWW: Tensor, heads: Sequence[int], relations: Sequence[str]) -> None:
        """Count one sentence.

        Args:
            weight_YHWW: attention between its words, of each layer and head.
            heads: the number of each word's head; -1 for the root.
            relations: of each word to its head.
        """
        best_YHW = strongest_links(weight_YHWW)
        half = self.sentences % 2
        self.sentences += 1
        for word, (head, relation) in enumerate(zip(heads, relations, strict=True)):
            if head < 0:
                continue
            hit_2YH = torch.stack([best_YHW[..., word] == head, best_YHW[..., head] == word]).long()
            zero = torch.zeros_like(hit_2YH)
            self.hits.setdefault(relation, [zero, zero])
            self.hits[relation][half] = self.hits[relation][half] + hit_2YH
            self.offsets.setdefault(relation, [Counter(), Counter()])[half][head - word] += 1

    def best_heads(self, fewest: int = 1) -> list[RelationScore]:
        """The best head of each relation with at least `fewest` links,
        the most frequent relation first."""
        counts = {name: sum(c.total() for c in both) for name, both in self.offsets.items()}
        names = sorted((n for n in counts if counts[n] >= fewest), key=lambda n: (-counts[n], n))
        return [self.score(name, counts[name]) for name in names]

    def score(self, relation: str, links: int) -> RelationScore:
        halves_2YH = self.hits[relation]
        offsets = self.offsets[relation]
        total_2YH = halves_2YH[0] + halves_2YH[1]
        all_offsets = offsets[0] + offsets[1]
        best = int(total_2YH.argmax())
        direction, layer, head = (
            int(i) for i in torch.unravel_index(torch.tensor(best), total_2YH.shape)
        )
        offset = best_offset(all_offsets)
        held_out = sum(
            int(halves_2YH[half].flatten()[halves_2YH[1 - half].argmax()]) for half in (0, 1)
        )
        baseline_held_out = sum(
            offsets[half][best_offset(offsets[1 - half])] for half in (0, 1) if offsets[1 - half]
        )
        return RelationScore(
            relation,
            links,
            layer,
            head,
            DIRECTIONS[direction],
            int(total_2YH.flatten()[best]) / links,
            held_out / links,
            all_offsets[offset] / links,
            offset,
            baseline_held_out / links,
        )


def best_offset(offsets: Counter[int]) -> int:
    """Return the most frequent offset; the nearest on a tie."""
    return max(offsets, key=lambda offset: (offsets[offset], -abs(offset)))


COLUMNS = (
    "relation",
    "links",
    "head",
    "attends to",
    "right",
    "held out",
    "offset",
    "right",
    "held out",
)


def table_rows(scores: Sequence[RelationScore]) -> list[tuple[str, ...]]:
    """The scores as texts in the order of `COLUMNS`; a head by its layer and number, from 1."""
    return [
        (
            s.relation,
            str(s.links),
            f"{s.layer + 1}·{s.head + 1}",
            s.direction,
            f"{s.accuracy:.1%}",
            f"{s.held_out:.1%}",
            f"{s.offset:+d}",
            f"{s.baseline:.1%}",
            f"{s.baseline_held_out:.1%}",
        )
        for s in scores
    ]


def relations_html(scores: Sequence[RelationScore]) -> str:
    """The table for a page."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for row in table_rows(scores))
    head = line("th", COLUMNS)
    table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'
