"""Masked autoencoding of images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft import recipe as R
from weft.support.order import sample_generator
from weft.tasks.masked_autoencoding import mask_patches

from .cases import routed
from .holds import HOLDS, Built
from .made import batch, build_pair, rows
from .tuning import IMAGE, album, images, labelled, mae, mean, ready, twins

DECODER = {
    "decoder_hidden_size": 8,
    "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 16,
}
KNOWN = labelled(R.LabelledImages(), labels=None)


@pytest.fixture(scope="module", params=[mae(), routed(mae(), 1)], ids=["plain", "experts"])
def made(request: pytest.FixtureRequest) -> Built:
    corruption, objective = build_pair(
        R.MaskedAutoencoding(), request.param, KNOWN, seed=1, dtype=torch.float64
    )
    return corruption, objective.eval(), images(14, mae())


@pytest.mark.parametrize("hold", HOLDS, ids=lambda hold: hold.__name__)
def test_it_holds_what_every_objective_holds(made: Built, hold: Callable[[Built], None]) -> None:
    hold(made)


def test_in_a_million_images_each_patch_is_hidden_as_often_as_asked_and_each_two_together() -> None:
    generator = np.random.default_rng(0)
    many = np.zeros((16, 16))
    for _ in range(20):
        noise = generator.random((50_000, 16))
        found = mask_patches(noise, 4, 1)
        hidden = np.zeros((50_000, 16), np.float32)
        np.put_along_axis(hidden, found["hidden"], 1, 1)
        assert (hidden.sum(1) == 12).all()
        many += hidden.T @ hidden
        assert np.array_equal(
            np.sort(np.concatenate((found["visible"][:, 1:] - 1, found["hidden"]), 1), 1)[0],
            np.arange(16),
        )
    share = many / 1_000_000
    assert np.abs(share.diagonal() - 0.75).max() < 0.003
    assert np.abs(share[~np.eye(16, dtype=bool)] - 0.75 * 11 / 15).max() < 0.003


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("share", [0.75, 0.5])
def test_the_loss_is_transformers(normalised: bool, share: float, tmp_path: Path) -> None:
    other, model = twins(
        "ViTMAEForPreTraining",
        tmp_path,
        **IMAGE,
        **DECODER,
        norm_pix_loss=normalised,
        mask_ratio=share,
    )
    corruption, objective, given = ready(
        R.MaskedAutoencoding(mask_rate=share, normalise_pixels=normalised),
        model,
        KNOWN,
        images(6, model.spec),
    )
    noise = np.random.default_rng(0).random((6, 16))
    given |= {
        name: torch.from_numpy(places)
        for name, places in mask_patches(noise, int(16 * (1 - share)), 1).items()
    }
    theirs = other(given["image"], noise=torch.from_numpy(noise)).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5 * max(theirs, 1)
    assert theirs > 0.5
    shifted = {**given, "hidden": given["hidden"].roll(1, 0)}
    assert abs(mean(corruption, objective, shifted) - theirs) > 1e-4


def test_the_model_sees_no_hidden_pixel() -> None:
    corruption, objective = build_pair(R.MaskedAutoencoding(), mae(), KNOWN, dtype=torch.float64)
    given = batch(corruption, rows(corruption, images(4, mae())))
    other = {**given, "image": given["image"].clone()}
    for i in range(4):
        for p in given["hidden"][i].tolist():
            other["image"][i, :, p // 4 * 4 : p // 4 * 4 + 4, p % 4 * 4 : p % 4 * 4 + 4] = 9.0
    assert torch.equal(objective.eval().forward_outputs(given), objective.forward_outputs(other))
    other["image"][0, :, :] = 9.0
    assert not torch.equal(objective.forward_outputs(given), objective.forward_outputs(other))


def test_crops_are_larger_than_a_classifiers_and_validation_sees_the_middle() -> None:
    corruption, _ = build_pair(R.MaskedAutoencoding(), mae(), KNOWN)
    store: Any = album(2)
    train = corruption.open_samples(store, 17)
    valid = corruption.open_samples(store, 17, include_partial=True)
    assert train.samples.area == (0.2, 1.0)  # type: ignore[attr-defined]
    seen = [corruption(valid, 0, sample_generator(0, epoch, 0)) for epoch in (0, 1)]
    assert np.array_equal(seen[0]["image"], seen[1]["image"])
    assert not np.array_equal(seen[0]["hidden"], seen[1]["hidden"])
    assert not np.array_equal(
        corruption(train, 0, sample_generator(0, 0, 0))["image"], seen[0]["image"]
    )
