"""The contents of a page: panels of attention maps, the logit lens, pictures and objects."""

from base64 import b64encode
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from .measures import attention_entropy

# Bytes of all maps of a page. A page of base64 is a third larger: both together stay under 10 MB.
WHOLE_MAPS = 6_300_000
POOLED_MAPS = 2_500_000
LINKS = 3_600_000
LINK_BYTES = 3  # two of the key's number, one of the weight
MOST_LINKS = 64
FRACTION_DIGITS = 4


class Grid(NamedTuple):
    """Tokens that are cells of an image, after `extra` others such as the class token."""

    rows: int
    columns: int
    extra: int = 0


@dataclass(frozen=True, eq=False)
class AttentionPanel:
    """The maps of attentions that have the same queries and keys.

    Attributes:
        kind: such as "encoder" or "cross".
        layers: the number of each layer in its stack, from 0.
        maps: of each layer, (H, L, M).
        queries, keys: the label of each token.
        query_grid, key_grid: where these are cells of an image.
    """

    kind: str
    layers: tuple[int, ...]
    maps: tuple[Tensor, ...]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    query_grid: Grid | None = None
    key_grid: Grid | None = None

    @property
    def cells(self) -> int:
        return sum(weight_HLM.numel() for weight_HLM in self.maps)

    @property
    def rows(self) -> int:
        return sum(weight_HLM.shape[:2].numel() for weight_HLM in self.maps)


class LensPanel(NamedTuple):
    """The most likely words and their probabilities per layer, starting with the embedding."""

    tokens: tuple[str, ...]  # of the positions; one for a head that reads a whole row
    words: tuple[tuple[tuple[tuple[str, float], ...], ...], ...]  # layer, position, rank


class Picture(NamedTuple):
    """A picture with its caption: a PIL image, SVG, or an HTML table."""

    title: str
    caption: str
    image: Image.Image | str


class DetectedObject(NamedTuple):
    query: int
    label: str
    score: float
    box: tuple[float, float, float, float]  # x, y, width, height, as shares of the image


@dataclass(frozen=True, eq=False)
class Observation:
    """Everything that a page or a picture shows for one model and one input."""

    title: str
    text: str = ""
    panels: tuple[AttentionPanel, ...] = ()
    lens: LensPanel | None = None
    image: Image.Image | None = None
    objects: tuple[DetectedObject, ...] = ()
    pictures: tuple[Picture, ...] = field(default=())


# Packing


def square_root_bytes(weight: Tensor) -> np.ndarray:
    """Weights from 0 to 1 in one byte each: b = 255 √w, so that small weights keep a digit."""
    packed: np.ndarray = (
        weight.float().clamp(0, 1).sqrt().mul(255).round().to(torch.uint8).cpu().numpy()
    )
    return packed


def base64(array: np.ndarray) -> str:
    return b64encode(np.ascontiguousarray(array).tobytes()).decode()


def pool_maps(weight_HLM: Tensor, factor: int) -> Tensor:
    """Max-pool each square of `factor` × `factor` cells, so that thin lines remain visible."""
    if factor == 1:
        return weight_HLM
    return F.max_pool2d(weight_HLM[:, None], factor, ceil_mode=True)[:, 0]


def pooling_factor(panels: tuple[AttentionPanel, ...]) -> int:
    """Return the factor by which the sides of all maps shrink to fit on a page; 1 if they fit."""
    if sum(panel.cells for panel in panels) <= WHOLE_MAPS:
        return 1

    def size(factor: int) -> int:
        return sum(
            weight_HLM.shape[0]
            * -(-weight_HLM.shape[1] // factor)
            * -(-weight_HLM.shape[2] // factor)
            for panel in panels
            for weight_HLM in panel.maps
        )

    return next(factor for factor in range(2, 1 << 16) if size(factor) <= POOLED_MAPS)


def plain_panel(panel: AttentionPanel, factor: int, links: int) -> dict[str, Any]:
    """A panel for JSON. Pooled maps include the strongest links of each query at their exact
    positions.
    """
    small = torch.stack([pool_maps(weight_HLM.float(), factor) for weight_HLM in panel.maps])
    plain = {
        "kind": panel.kind,
        "layers": panel.layers,
        "heads": small.shape[1],
        "rows": small.shape[2],
        "columns": small.shape[3],
        "factor": factor,
        "queries": panel.queries,
        "keys": panel.keys,
        "queryGrid": panel.query_grid,
        "keyGrid": panel.key_grid,
        "maps": base64(square_root_bytes(small)),
        "entropy": [
            [round(h, 3) for h in attention_entropy(weight_HLM[None]).mean((0, 2)).tolist()]
            for weight_HLM in panel.maps
        ],
    }
    if factor > 1:
        top = min(links, len(panel.keys))
        best = [weight_HLM.float().topk(top) for weight_HLM in panel.maps]
        indices = torch.stack([each.indices for each in best]).cpu().numpy().astype("<u2")
        weights = square_root_bytes(torch.stack([each.values for each in best]))
        plain |= {"links": top, "linkKeys": base64(indices), "linkWeights": base64(weights)}
    return plain


def plain_lens(lens: LensPanel) -> dict[str, Any]:
    """The lens for JSON: words once, and their numbers per layer and position."""
    vocabulary: dict[str, int] = {}
    cells = [
        [
            [
                [vocabulary.setdefault(word, len(vocabulary)), round(p, FRACTION_DIGITS)]
                for word, p in ranks
            ]
            for ranks in positions
        ]
        for positions in lens.words
    ]
    return {"tokens": lens.tokens, "words": list(vocabulary), "cells": cells}


def data_uri(image: Image.Image, smallest: int = 1) -> str:
    """An image in the page itself,
    enlarged so that its longer side has `smallest` pixels at least."""
    scale = max(1, -(-smallest // max(image.size)))
    if scale > 1:
        size = (image.width * scale, image.height * scale)
        image = image.resize(size, Image.Resampling.NEAREST)
    file = BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()


def to_plain(observation: Observation) -> dict[str, Any]:
    """Return the page's data as plain values for JSON."""
    panels = observation.panels
    factor = pooling_factor(panels)
    rows = max(1, sum(panel.rows for panel in panels))
    links = max(1, min(MOST_LINKS, LINKS // (LINK_BYTES * rows)))
    return {
        "title": observation.title,
        "text": observation.text,
        "panels": [plain_panel(panel, factor, links) for panel in panels],
        "lens": None if observation.lens is None else plain_lens(observation.lens),
        "image": None if observation.image is None else data_uri(observation.image),
        "objects": [thing._asdict() for thing in observation.objects],
        "pictures": [
            {
                "title": picture.title,
                "caption": picture.caption,
                "markup": picture.image if isinstance(picture.image, str) else None,
                "src": None if isinstance(picture.image, str) else data_uri(picture.image, 320),
            }
            for picture in observation.pictures
        ],
    }
