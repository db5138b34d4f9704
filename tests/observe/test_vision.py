"""Inspection of image models: distances, filters, positions, windows and objects, compared with
slow references.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.observe.test_attention import random_map, tiny_model
from weft import observe
from weft import spec as S
from weft.inference.detect import detect
from weft.inference.look import look
from weft.inference.open_model import OpenModel
from weft.nn.kernels.masks import Positions
from weft.nn.layers.attention import AttentionContext
from weft.nn.layers.images.shifted_windows import ShiftedWindowAttention
from weft.testing.model_part import random_model


def picture(width: int = 64, height: int = 48) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    disc = np.where((x - width / 2) ** 2 + (y - height / 3) ** 2 < 150, 255, 0)
    return Image.fromarray(np.stack([x * 3 % 256, y * 4 % 256, disc], -1).astype(np.uint8))


def opened(family: str) -> OpenModel:
    return OpenModel(family, tiny_model(family), None, None, Path("."))


def test_distance_equals_the_mean_over_pairs_that_is_written_out() -> None:
    rows = 2
    columns = 3
    extra = 1
    weight = random_map(2, 7, 7)
    fast = observe.attention_distance(weight, (rows, columns), extra, cell=16)
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    for head in range(2):
        means = []
        for i, a in enumerate(cells):
            shares = [float(weight[head, 1 + i, 1 + j]) for j in range(6)]
            far = sum(w * math.dist(a, b) for w, b in zip(shares, cells, strict=True))
            means.append(16 * far / sum(shares))
        assert abs(float(fast[head]) - sum(means) / len(means)) < 1e-4


def test_distance_refuses_another_grid() -> None:
    with pytest.raises(ValueError, match="do not match a grid"):
        observe.attention_distance(random_map(2, 7, 7), (2, 2), 1)


def test_similarity_of_positions_equals_the_cosine_that_is_written_out() -> None:
    model = tiny_model("vit")
    similarity = observe.position_similarity(model)
    assert similarity is not None
    table = model.source.positions.weight[1:].tolist()
    for i, j in ((0, 5), (3, 3), (15, 2)):
        dot = sum(a * b for a, b in zip(table[i], table[j], strict=True))
        cosine = dot / math.hypot(*table[i]) / math.hypot(*table[j])
        assert abs(float(similarity[i, j]) - cosine) < 1e-5
    assert observe.position_similarity(tiny_model("detr")) is None


def test_filters_are_the_eigenvectors_of_the_covariance() -> None:
    model = tiny_model("vit")
    filters = observe.patch_filters(model, count=5)
    assert filters is not None
    weight = model.source.patch.weight.detach().double().flatten(1).numpy()
    values, vectors = np.linalg.eigh(np.cov(weight, rowvar=False))
    for i, one in enumerate(filters.double().flatten(1).numpy()):
        other = vectors[:, np.argsort(values)[::-1][i]]
        assert abs(abs(one @ other) - 1) < 1e-5
    assert observe.patch_filters(tiny_model("cct")) is None  # a stem of convolutions


@pytest.mark.parametrize(
    ("size", "shift", "grid"), [(3, 1, (6, 9)), (3, 0, (6, 6)), (4, 2, (6, 7)), (7, 3, (5, 4))]
)
def test_windows_stand_at_their_places_on_the_image(
    size: int, shift: int, grid: tuple[int, int]
) -> None:
    rows, columns = grid
    pattern = S.ShiftedWindows(size=size, shift=shift)
    layer = ShiftedWindowAttention(S.Attention(heads=2, pattern=pattern), 8)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    at = torch.arange(rows * columns)[None]
    context = AttentionContext(Positions(at, at), grid=grid)
    with torch.no_grad(), observe.attention_maps(layer) as maps:
        layer(torch.randn(1, rows * columns, 8), None, context)
    whole = observe.windows_on_grid(maps[""], layer, grid)
    height, width = layer.window_size(grid)
    moved = shift if min(grid) > size else 0
    tall = -(-rows // height) * height
    wide = -(-columns // width) * width

    def place(cell: int) -> tuple[int, int]:
        """The window of a cell, and its number in it."""
        r = (cell // columns - moved) % tall
        c = (cell % columns - moved) % wide
        return (r // height) * (wide // width) + c // width, (r % height) * width + c % width

    for i in range(rows * columns):
        for j in range(rows * columns):
            (window, a) = place(i)
            (other, b) = place(j)
            expected = maps[""][window, :, a, b] if window == other else torch.zeros(2)
            assert torch.equal(whole[:, i, j], expected)
    with pytest.raises(ValueError, match="windows are not those of one image"):
        observe.windows_on_grid(maps[""].repeat(2, 1, 1, 1), layer, grid)


@pytest.mark.parametrize("family", ["vit", "deit", "cct", "mae", "swin", "detr", "dab_detr"])
def test_every_model_of_images_is_seen_on_the_image(family: str) -> None:
    model = opened(family)
    observation = look(model, picture())
    first = observation.panels[0]
    assert first.kind.startswith("encoder")
    assert first.key_grid is not None
    assert len(first.keys) == first.key_grid.rows * first.key_grid.columns + first.key_grid.extra
    assert observation.image is not None
    titles = {one.title for one in observation.pictures}
    assert "Attention distance" in titles
    assert ("Reconstruction" in titles) == (family == "mae")
    assert bool(observation.objects) == (family in ("detr", "dab_detr"))
    for panel in observation.panels:
        if family != "swin":  # a window at the border also sees padding
            for weight in panel.maps:
                torch.testing.assert_close(weight.sum(-1), torch.ones_like(weight[..., 0]))


def test_objects_are_those_of_detect_each_with_its_query() -> None:
    model = opened("detr")
    model = OpenModel("detr", random_model(model.model.spec).eval(), None, None, Path("."))
    image = picture()
    objects = look(model, image).objects
    detected = detect(model, [image], 0.0)[0]
    assert [(o.label, round(o.score, 5)) for o in objects] == [
        (d["label"], round(d["score"], 5)) for d in detected[: len(objects)]
    ]
    for seen, other in zip(objects, detected, strict=False):
        sides = [side * size for side, size in zip(seen.box, image.size * 2, strict=True)]
        np.testing.assert_allclose(sides, other["box"], atol=1e-3)
    cross = next(p for p in look(model, image).panels if p.kind == "cross")
    assert cross.queries[objects[0].query].startswith(objects[0].label)


def test_without_an_image_only_filters_and_positions_are_drawn() -> None:
    observation = look(opened("vit"))
    assert observation.panels == ()
    assert [one.title for one in observation.pictures] == ["Patch filters", "Position embeddings"]
    with pytest.raises(ValueError, match="detr reads images; give an image file"):
        look(opened("detr"))
