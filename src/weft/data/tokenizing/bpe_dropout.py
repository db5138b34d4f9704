"""BPE-dropout: random segmentations of a word by skipping merges (Provilkov et al. 2020,
arXiv:1910.13267, algorithm 1).
"""

import json
from functools import lru_cache
from itertools import pairwise
from random import Random

import numpy as np

from ..batches.samples import RowSamples, Sample

VARIANTS_PER_WORD = 64  # segmentations of a word to choose from, so that each is computed once


class BPEDropout:
    """Segmentation k of a word is a pure function of the word and k: the order of the calls does
    not matter."""

    def __init__(self, tokenizer: str, dropout: float) -> None:
        model = json.loads(tokenizer)["model"]
        if model["type"] != "BPE" or not model["merges"]:
            raise ValueError(
                f"bpe_dropout = {dropout} needs a BPE tokenizer, not {model['type']}; set "
                "bpe_dropout=0 or train a BPE tokenizer"
            )
        self.dropout = dropout
        self.ids = model["vocab"]
        self.names = {i: name for name, i in self.ids.items()}
        self.unknown = self.ids.get(model["unk_token"])
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self.cached_segment = lru_cache(maxsize=1 << 20)(self.segment)

    def segment(self, word: tuple[int, ...], variant: int) -> tuple[int, ...]:
        if self.unknown in word:
            return word  # the characters of an unknown token are lost
        pieces = list("".join(self.names[i] for i in word))
        draw = Random(f"{variant} {''.join(pieces)}").random
        while len(pieces) > 1:
            candidate_merges = [
                (self.ranks[pair], i)
                for i, pair in enumerate(pairwise(pieces))
                if pair in self.ranks and draw() >= self.dropout
            ]
            if not candidate_merges:
                break
            _, i = min(candidate_merges)
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
        return tuple(self.ids[piece] for piece in pieces)

    def __call__(
        self, tokens: np.ndarray, continues: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        starts = np.flatnonzero(~continues[tokens])
        bounds = [0, *(int(s) for s in starts if s), len(tokens)]
        variants = rng.integers(0, VARIANTS_PER_WORD, len(bounds) - 1)
        ids = tokens.tolist()
        return np.array(
            [
                piece
                for (a, b), variant in zip(pairwise(bounds), variants.tolist(), strict=True)
                for piece in self.cached_segment(tuple(ids[a:b]), variant)
            ],
            np.int64,
        )


class BPEDropoutSamples(RowSamples):
    """Rows whose words are segmented again each time; their lengths are those without dropout."""

    merges: BPEDropout

    def retokenize(self, sample: Sample, column: str, rng: np.random.Generator) -> np.ndarray:
        continues = self.store.meta.is_continuation
        assert continues is not None
        return self.merges(sample[column], continues, rng)
