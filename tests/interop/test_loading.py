"""Fine-tuning at another resolution: what is loaded computes what the smaller model's forward pass
did with the larger images.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft import spec as S
from weft.training.trainable import initialise_from

SMALL: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "hidden": 24, "patch_size": 8}
HEADS = {
    "vit": S.ClassifierHead(num_labels=5),
    "deit": S.ClassifierHead(num_labels=5, pooling="tokens"),
    "mae": S.ClassifierHead(num_labels=5),
}


def spec(name: str, image: int) -> S.Spec:
    return weft.family(name)(**SMALL, image_size=image, head=HEADS[name])


def model(s: S.Spec, seed: int) -> weft.Model:
    """Weights that all matter, a bias and a class token among them."""
    made = weft.build(s, seed=seed).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)) * 0.3)
    return made


@pytest.mark.parametrize("side", [48, 24, 32])
@pytest.mark.parametrize("name", HEADS)
def test_weights_of_another_image_size_give_what_the_forward_pass_gave_by_itself(
    name: str, side: int, tmp_path: Path
) -> None:
    """Before, the position table was refused: no test loaded one of another size."""
    small = model(spec(name, 32), 1)
    other = model(spec(name, side), 2)
    weft.save(small, tmp_path, to="weft")
    initialise_from(other, str(tmp_path))
    images = torch.randn(2, 3, side, side)
    with torch.no_grad():
        truth = small(images)
        found = other(images)
    assert truth.std() > 0.02
    assert torch.equal(found, truth)
    table = small.source.positions.weight
    mine = other.source.positions.weight
    extra = len(small.spec.source.extra_tokens)
    assert torch.equal(mine[:extra], table[:extra])
    assert torch.equal(mine, table) == (side == 32)


def test_a_larger_window_takes_the_smaller_ones_bias_interpolated(tmp_path: Path) -> None:
    def swin(window: int) -> S.Spec:
        return weft.swin(
            width=8,
            depths=(1, 2),
            heads=(1, 2),
            window=window,
            image_size=32,
            patch_size=2,
            classes=5,
        )

    old = model(swin(4), 1)
    new = model(swin(6), 2)
    weft.save(old, tmp_path, to="weft")
    initialise_from(new, str(tmp_path))
    name = "encoder.stages.1.1.attention.inner.offsets.weight"
    table = old.get_parameter(name).detach()
    square = table.T.reshape(1, 2, 7, 7)
    expected = (
        torch.nn.functional.interpolate(square, size=(11, 11), mode="bicubic", align_corners=False)
        .reshape(2, 121)
        .T
    )
    assert torch.equal(new.get_parameter(name), expected)
    assert torch.isfinite(new(torch.randn(1, 3, 32, 32))).all()


def test_other_size_mismatches_raise_an_error(tmp_path: Path) -> None:
    weft.save(model(spec("vit", 32), 1), tmp_path, to="weft")
    for other in (
        spec("deit", 48),
        weft.vit(**SMALL | {"patch_size": 4}, image_size=48),
        weft.vit(**SMALL | {"width": 32}, image_size=48),
    ):
        with pytest.raises(ValueError, match="use the spec of that model"):
            initialise_from(weft.build(other), str(tmp_path))


DETECTOR: dict[str, Any] = {
    "depth": 1,
    "decoder_depth": 1,
    "width": 16,
    "heads": 2,
    "hidden": 16,
    "depths": (1,),
    "widths": (16,),
    "stem": 8,
    "classes": 3,
}


@pytest.mark.parametrize("family", [weft.detr, weft.dab_detr])
def test_another_number_of_object_queries_starts_afresh_and_the_rest_is_read(
    family: Callable[..., weft.Spec], tmp_path: Path
) -> None:
    before = weft.build(family(**DETECTOR, queries=3), seed=1)
    weft.save(before, tmp_path, to="weft")
    more = weft.build(family(**DETECTOR, queries=5), seed=2)
    fresh = weft.build(family(**DETECTOR, queries=5), seed=2)
    initialise_from(more, str(tmp_path))
    tables = {"target.queries.weight", "target.anchors.weight"}
    for name, tensor in more.state_dict().items():
        truth = (fresh if name in tables else before).state_dict()[name]
        assert torch.equal(tensor, truth), name


def test_norms_without_the_statistics_of_the_model_before_are_refused(tmp_path: Path) -> None:
    """Before, a group norm took the affine numbers of a frozen batch norm, whose mean and variance
    went nowhere.
    """
    frozen = weft.detr(**DETECTOR, queries=3)
    weft.save(weft.build(frozen), tmp_path, to="weft")
    grouped = replace(frozen, source=replace(frozen.source, norm=weft.GroupNorm(groups=4)))
    with pytest.raises(ValueError, match="norms of the recipe's model"):
        initialise_from(weft.build(grouped), str(tmp_path))
