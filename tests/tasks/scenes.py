"""Small images with boxes, of unequal sizes, and small detectors."""

from typing import Any

import numpy as np

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.shards.in_memory import InMemoryStore
from weft.testing import small_store

from .tuning import photograph

LABELS = ("yes", "no", "perhaps")
SIDES = ((32, 48), (40, 32), (33, 17), (32, 48), (48, 48), (20, 32))


def scenes(sides: tuple[tuple[int, int], ...] = SIDES) -> InMemoryStore:
    """An image per size, with none to three boxes."""
    generator = np.random.default_rng(0)
    rows = [
        {
            "image": photograph(generator, *size),
            "boxes": [[2 + 3 * n, 1, 9, 8 + n] for n in range(i % 4)],
            "labels": [LABELS[n % 3] for n in range(i % 4)],
        }
        for i, size in enumerate(sides)
    ]
    return small_store(rows, R.ImagesWithBoxes(), LABELS, None)[0]


def detector(family: str = "detr", source: dict[str, Any] | None = None, **more: Any) -> S.Spec:
    shape: dict[str, Any] = {
        "depth": 2,
        "width": 16,
        "heads": 2,
        "hidden": 32,
        "queries": 5,
        "depths": (1, 1),
        "widths": (8, 16),
        "stem": 8,
        "classes": 3,
    }
    spec = getattr(weft, family)(**{**shape, **more})
    resnet = S.replace(spec.source, **{"padding": "masked", **(source or {})})
    return S.with_dropout(S.replace(spec, source=resnet), 0.0)
