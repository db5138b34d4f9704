"""A tokenizer and models of a few thousand numbers, ready for use."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.tokenizing.tokenizer import Tokenizer
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.inference.open_model import OpenModel
from weft.nn.model import build

TEXTS = [
    "the man went to the store to buy some milk .",
    "a dog runs over the green grass , and the cat sleeps .",
    "he said yes !",
    "two women sit on a bench in front of an old house and talk about the weather of the last few "
    "days",
    "paris is the capital of france",
    "i like it",
    "why not ?",
    "nobody knows what the small bird sings in the morning",
]


@lru_cache
def tokenizer(kind: str = "WordPiece") -> Tokenizer:
    return fit_tokenizer(getattr(R, kind)(vocab_size=300), lambda: iter(TEXTS * 3))


def ready(
    head: Any, family: str = "bert", recipe: R.Recipe | None = None, kind: str = "WordPiece"
) -> OpenModel:
    """Weights large enough that answers differ."""
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer(kind).size,
        "width": 32,
        "depth": 2,
        "heads": 4,
    }
    spec = weft.with_dropout(
        getattr(weft, family)("tiny" if family == "bert" else "small", positions=64, **sizes), 0.0
    )
    spec = replace(spec, init=S.NormalInit(std=0.3), **({"head": head} if head is not None else {}))
    torch.manual_seed(0)
    return OpenModel("small", build(spec, seed=1).eval(), tokenizer(kind), recipe, Path("."))
