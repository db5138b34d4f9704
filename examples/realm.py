"""A language model that reads documents it retrieves, in small (REALM, Guu et al. 2020,
arXiv:2002.08909).

p(y | x) = sum over z of p(y | z, x) p(z | x): y is a masked name or number of a passage x; z are
the k passages whose vectors have the largest inner products with that of x, and the null document,
which is empty. The passage itself is excluded. All vectors are computed anew every few steps; those
of the k passages carry gradients.

    python -m benchmarks.realm

Reader and retriever are Weft's encoders. The loop is plain PyTorch: a task of Weft prepares a
sample as a pure function of the seed, the epoch and the sample's number, whereas what this model
reads depends on its weights.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.nn.heads import pool_tokens
from weft.nn.layers.sequence import HiddenStates

NAME = r"(?<![.!?=\"] )(?<!^)(?<!^ )\b[A-Z][a-z]+(?: [A-Z][a-z]+)*\b"
NUMBER = r"\b\d+(?: @[.,]@ \d+)*\b"
SALIENT = re.compile(f"{NAME}|{NUMBER}")  # names inside a sentence, dates and other numbers


class Passage(NamedTuple):
    """Pieces of an article, and the places [start, end) of its salient spans among them."""

    ids: list[int]
    spans: list[tuple[int, int]]
    article: int


def read_passages(lines: Sequence[str], tokenizer: Any, length: int) -> Iterator[Passage]:
    """Cut the paragraphs of WikiText into passages with salient spans; a heading of one `=` starts
    an article.
    """
    article = 0
    for line in lines:
        if re.fullmatch(r" = [^=]+ = ?\n?", line):
            article += 1
        if line.startswith(" =") or not line.strip():
            continue
        ids, place = tokenizer.encode_spans(line)
        salient = [
            (
                int(np.searchsorted(place[:, 0], m.start())),
                int(np.searchsorted(place[:, 0], m.end())),
            )
            for m in SALIENT.finditer(line)
        ]
        for start in range(0, len(ids), length):
            end = min(start + length, len(ids))
            spans = [(a - start, b - start) for a, b in salient if start <= a < b <= end]
            if spans and end - start >= length // 2:
                yield Passage(ids[start:end].tolist(), spans, article)


class Query(NamedTuple):
    """A passage with a masked span."""

    ids: list[int]  # [CLS] … [SEP]
    at: list[int]  # places of the masked pieces
    labels: list[int]
    number: int | None  # of the passage in the corpus; None: it is not there


class SpecialTokens(NamedTuple):
    """Ids of special tokens."""

    cls: int
    sep: int
    mask: int
    pad: int


def mask_span(
    passage: Passage, span: tuple[int, int], special: SpecialTokens, number: int | None
) -> Query:
    start, end = span
    ids = [*passage.ids[:start], *[special.mask] * (end - start), *passage.ids[end:]]
    at = list(range(start + 1, end + 1))
    return Query([special.cls, *ids, special.sep], at, passage.ids[start:end], number)


def pad(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


class Realm(nn.Module):
    """A reader with a masked-token head, and a retriever. A vector is a map of the mean over the
    tokens, not of [CLS]: nothing here was pre-trained, and a mean says something from the first
    step on.
    """

    def __init__(
        self, spec: weft.Spec, special: SpecialTokens, vector: int = 64, seed: int = 0
    ) -> None:
        super().__init__()
        self.reader = weft.build(spec, seed=seed)
        self.retriever = weft.build(weft.spec.replace(spec, head=weft.NoHead()), seed=seed + 1)
        torch.manual_seed(seed)
        self.project = nn.Linear(spec.width, vector, bias=False)
        self.special = special

    def vectors(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The vectors of texts between [CLS] and [SEP]; one without pieces is the null document."""
        ids_BL = pad(rows, self.special.pad)
        mask_BL = ids_BL != self.special.pad
        sequence = self.retriever.embed(ids_BL, attention_mask=mask_BL)
        x_BD: Tensor = self.project(pool_tokens(self.retriever.encode(sequence), "mean"))
        return x_BD

    def framed(self, ids: Sequence[int]) -> list[int]:
        return [self.special.cls, *ids, self.special.sep]

    def log_likelihood(
        self, queries: Sequence[Query], documents: Sequence[Sequence[Sequence[int]]]
    ) -> Tensor:
        """log p(y | z, x) of each query with each of its documents: (B, K)."""
        rows = [
            (query, [*query.ids, *([*document, self.special.sep] if document else [])])
            for query, some in zip(queries, documents, strict=True)
            for document in some
        ]
        ids_BL = pad([row for _, row in rows], self.special.pad)
        length_B = torch.tensor([[len(query.ids)] for query, _ in rows])
        segment_BL = (torch.arange(ids_BL.shape[1]) >= length_B).long()
        sequence = self.reader.embed(
            ids_BL, attention_mask=ids_BL != self.special.pad, token_type_ids=segment_BL
        )
        x_BLD = self.reader.encode(sequence).x_BLD
        row_T = torch.tensor([i for i, (query, _) in enumerate(rows) for _ in query.at])
        at_T = torch.tensor([place for query, _ in rows for place in query.at])
        label_T = torch.tensor([label for query, _ in rows for label in query.labels])
        logits_1TV = self.reader.read(HiddenStates(x_BLD[row_T, at_T][None]))
        assert isinstance(logits_1TV, Tensor)
        loss_T = F.cross_entropy(logits_1TV[0], label_T, reduction="none")
        return -loss_T.new_zeros(len(rows)).index_add(0, row_T, loss_T).view(len(queries), -1)

    def log_prior(
        self, queries: Sequence[Query], documents: Sequence[Sequence[Sequence[int]]]
    ) -> Tensor:
        """log p(z | x) among the documents of each query (section 3.2): (B, K)."""
        query_BD = self.vectors([query.ids for query in queries])
        flat = [self.framed(document) for some in documents for document in some]
        document_BKD = self.vectors(flat).unflatten(0, (len(queries), -1))
        return (query_BD[:, None] * document_BKD).sum(-1).log_softmax(-1)

    def log_marginal(
        self, queries: Sequence[Query], documents: Sequence[Sequence[Sequence[int]]]
    ) -> Tensor:
        """log p(y | x) = log sum over z of p(y | z, x) p(z | x) (equation 1): (B,)."""
        both_BK = self.log_prior(queries, documents) + self.log_likelihood(queries, documents)
        return both_BK.logsumexp(-1)


class Index:
    """The vectors of all passages as of the last refresh, searched exactly."""

    def __init__(self, model: Realm, corpus: Sequence[Passage]) -> None:
        self.model = model
        self.corpus = corpus
        self.refresh()

    @torch.no_grad()
    def refresh(self, batch: int = 256) -> None:
        rows = [self.model.framed(passage.ids) for passage in self.corpus]
        parts = [self.model.vectors(rows[i : i + batch]) for i in range(0, len(rows), batch)]
        self.vectors_PD = torch.cat(parts)

    @torch.no_grad()
    def nearest(self, queries: Sequence[Query], k: int) -> list[list[int]]:
        """The numbers of the k best passages of each query, without the passage that it was made
        of.
        """
        score_BP = self.model.vectors([query.ids for query in queries]) @ self.vectors_PD.T
        for row_P, query in zip(score_BP, queries, strict=True):
            if query.number is not None:
                row_P[query.number] = float("-inf")
        chosen: list[list[int]] = score_BP.topk(k).indices.tolist()
        return chosen
