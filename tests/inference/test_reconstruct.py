"""`weft reconstruct` shows what a masked autoencoder sees and rebuilds, and a masked pass costs
what its visible patches cost.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

import weft
from tests.data.made import centre_crop
from weft.cli import main
from weft.data.images.images import normalise, to_image
from weft.inference.reconstruct import reconstruct, unpatchify
from weft.nn.kernels.attention import eager_attention
from weft.nn.layers.attention import attention_backend
from weft.tasks.masked_autoencoding import mask_patches, patchify

SMALL = {"depth": 2, "width": 16, "heads": 2, "hidden": 32, "image_size": 16, "patch_size": 4}
DECODER = {"decoder_depth": 1, "decoder_width": 8, "decoder_heads": 2, "decoder_hidden": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mae")
    weft.save(weft.build(weft.mae(**SMALL, **DECODER)), root / "model")
    pixels = np.random.default_rng(0).integers(0, 256, (18, 18, 3), np.uint8)
    Image.fromarray(pixels).save(root / "image.png")
    return root


def test_pixels_come_back_from_patches_and_from_normalised_numbers() -> None:
    image = torch.randn(3, 12, 12)
    assert torch.equal(unpatchify(patchify(image[None], 4)[0], 4, 3), image)
    for shape in ((9, 7, 3), (9, 7)):
        pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
        assert np.array_equal(np.array(to_image(normalise(Image.fromarray(pixels)))), pixels)


def test_visible_patches_stay_and_hidden_ones_are_predicted(folder: Path) -> None:
    model = weft.open(folder / "model")
    (found,) = reconstruct(model, [folder / "image.png"], mask_rate=0.75, seed=5)
    pixels = torch.from_numpy(normalise(centre_crop(Image.open(folder / "image.png"), 16)))
    masks = mask_patches(np.random.default_rng((5, 0)).random(16), 4, 1)
    visible = torch.from_numpy(masks["visible"])[None]
    with torch.no_grad():
        hidden_states = model.model.encode(model.model.embed(pixels[None]).select(visible))
        guess = model.model.read(hidden_states)[0]  # type: ignore[index]
    for cell in range(16):
        row = 4 * (cell // 4)
        column = 4 * (cell % 4)
        box = (column, row, column + 4, row + 4)
        original, masked, rebuilt = (np.array(p.crop(box)) for p in found[:3])
        if cell in masks["hidden"]:
            patch = pixels[:, row : row + 4, column : column + 4].permute(1, 2, 0).flatten()
            colours = guess[cell] * (patch.var() + 1e-6).sqrt() + patch.mean()
            expected = to_image(colours.reshape(4, 4, 3).permute(2, 0, 1).numpy())
            assert np.abs(rebuilt.astype(int) - np.array(expected)).max() <= 1
            assert (masked == 128).all()
        else:
            assert np.array_equal(original, masked)
            assert np.array_equal(original, rebuilt)


def test_the_command_draws_a_line_per_image(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.png"
    image = str(folder / "image.png")
    arguments = ["reconstruct", str(folder / "model"), image, image, "--draw", str(out), "--json"]
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)["images"]
    assert len(rows) == 2
    assert rows[0]["error"] != rows[1]["error"]  # other patches are hidden
    with Image.open(out) as sheet:
        width, height = sheet.size
    assert width == 3 * 192 + 16
    assert height == 2 * 196 + 4


def test_the_picture_is_a_file_of_its_own(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "image.png"
    image.write_bytes((folder / "image.png").read_bytes())
    arguments = ["reconstruct", str(folder / "model"), str(image), "--draw"]
    assert main([*arguments, str(image)]) == 2
    assert f"--draw: {image} is an input" in capsys.readouterr().err
    assert image.read_bytes() == (folder / "image.png").read_bytes()
    assert main([*arguments, str(tmp_path)]) == 2
    assert f"--draw {tmp_path} is a folder" in capsys.readouterr().err


def test_a_model_that_rebuilds_nothing_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weft.save(weft.build(weft.vit(**SMALL)), tmp_path / "vit")
    image = str(folder / "image.png")
    arguments = ["reconstruct", str(tmp_path / "vit"), image, "--draw", str(tmp_path / "x.png")]
    assert main(arguments) == 2
    words = (
        f"needs PixelDecoder; use weft classify {tmp_path / 'vit'} IMAGE, or train one with weft"
    )
    assert words in capsys.readouterr().err


def test_a_verb_of_another_head_names_the_verb_of_this_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb, reason in (("tag", "reads images, not text"), ("detect", "needs DetectionHead")):
        assert main([verb, str(folder / "model"), str(folder / "image.png")]) == 2
        words = f"{reason}; use weft reconstruct {folder / 'model'} IMAGE"
        assert words in capsys.readouterr().err


def test_the_encoders_cost_falls_with_the_visible_patches() -> None:
    model = weft.build(weft.mae(**SMALL | {"image_size": 64}, **DECODER)).eval()

    def flops(shown: int) -> int:
        masks = mask_patches(np.random.default_rng(0).random(256), shown, 1)
        with torch.no_grad(), attention_backend(model, eager_attention):
            sequence = model.embed(torch.randn(1, 3, 64, 64))
            with FlopCounterMode(display=False) as counter:
                model.encode(sequence.select(torch.from_numpy(masks["visible"])[None]))
        return int(counter.get_total_flops())

    linear = 2 * 2 * (4 * 16 * 16 + 2 * 16 * 32)  # per token: two blocks of four maps and an MLP
    score = 2 * 2 * 2 * 16  # per pair of tokens: two blocks, scores and values
    assert flops(64) == 65 * linear + 65**2 * score
    assert flops(64) < 0.15 * flops(255)
