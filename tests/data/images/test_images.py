"""Images: decoding, cropping and sampling distributions."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from weft import spec as S
from weft.data.images.image_samples import ImageSamples
from weft.data.images.images import (
    TRIES,
    crop_box,
    decode,
    displayed_size,
    middle_box,
    normalise,
    random_crop_and_flip,
    stored_image,
)
from weft.recipe.transforms import IMAGENET_MEAN as MEAN
from weft.recipe.transforms import IMAGENET_STD as STD

from ..made import centre_crop

RATIO = (3 / 4, 4 / 3)


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    out = BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def noise(height: int = 30, width: int = 40) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


class Album:
    """A store of one image."""

    def __len__(self) -> int:
        return 1

    def row(self, index: int) -> dict[str, Any]:
        return {"image": encoded(noise()), "label": 3}


def pictures(still: bool, channels: int = 3) -> ImageSamples:
    return ImageSamples(
        Album(), S.Patches(image_size=16, patch_size=4, channels=channels), deterministic=still
    )  # type: ignore[arg-type]


def test_a_lossless_image_is_read_pixel_by_pixel() -> None:
    assert np.array_equal(np.asarray(decode(encoded(noise()))), noise())


def test_grey_paletted_and_clear_images_become_colour_and_colour_becomes_grey() -> None:
    grey = noise()[..., 0]
    assert np.array_equal(np.asarray(decode(encoded(grey))), np.stack((grey,) * 3, -1))
    clear = np.concatenate((noise(), np.zeros((30, 40, 1), np.uint8)), -1)
    assert np.array_equal(np.asarray(decode(encoded(clear))), noise())
    out = BytesIO()
    Image.fromarray(grey % 4).convert("P").save(out, "PNG", transparency=b"\x00\x80\xff\xff")
    assert decode(out.getvalue()).mode == "RGB"
    assert decode(encoded(noise()), channels=1).mode == "L"


# Orientation, by numpy: what EXIF's numbers say
TURNED = {
    1: lambda rows: rows,
    2: lambda rows: rows[:, ::-1],
    3: lambda rows: rows[::-1, ::-1],
    4: lambda rows: rows[::-1],
    5: lambda rows: rows.swapaxes(0, 1),
    6: lambda rows: np.rot90(rows, -1),
    7: lambda rows: rows[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}


def oriented(pixels: np.ndarray, number: int, kind: str) -> bytes:
    exif = Image.Exif()
    out = BytesIO()
    exif[0x0112] = number
    Image.fromarray(pixels).save(
        out, kind, exif=exif, **{"lossless": True} if kind == "WEBP" else {}
    )
    return out.getvalue()


@pytest.mark.parametrize("number", TURNED)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("height", [30, 300])  # stored as raw pixels, or as it came
def test_an_image_is_seen_as_its_exif_says_stored_or_not(
    number: int, kind: str, height: int
) -> None:
    upright = decode(encoded(noise(height), kind)) if kind == "JPEG" else noise(height)
    data = oriented(noise(height), number, kind)
    expected = TURNED[number](np.asarray(upright))
    assert np.array_equal(np.asarray(decode(data)), expected)
    stored = stored_image(data)
    assert (stored == data) == (height == 300)
    assert np.array_equal(np.asarray(decode(stored)), expected)
    assert displayed_size(data) == displayed_size(stored) == expected.shape[1::-1]


def test_deep_and_paletted_images_are_turned_too() -> None:
    deep = np.arange(63, dtype=np.uint16).reshape(9, 7) << 9
    seen = np.asarray(decode(oriented(deep, 6, "PNG"), 1))
    assert np.array_equal(seen, np.rot90(deep >> 8, -1))
    palette = Image.fromarray(noise()).quantize(8)
    exif = Image.Exif()
    out = BytesIO()
    exif[0x0112] = 8
    palette.save(out, "PNG", transparency=0, exif=exif)
    assert np.array_equal(
        np.asarray(decode(out.getvalue())), np.rot90(np.asarray(palette.convert("RGB")))
    )


def test_damaged_exif_is_passed_over() -> None:
    out = BytesIO()
    Image.fromarray(noise()).save(out, "PNG", exif=b"Exif\0\0no directory")
    assert np.array_equal(np.asarray(decode(out.getvalue())), noise())
    assert displayed_size(out.getvalue()) == (40, 30)


def test_the_size_is_known_without_the_pixels_and_from_a_chunk_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = oriented(noise(), 6, "PNG")
    chunk = data[data.index(b"eXIf") - 4 : data.index(b"IDAT") - 4]
    end = data.index(b"IEND") - 4
    late = data[:end].replace(chunk, b"") + chunk + data[end:]
    assert late.index(b"IDAT") < late.index(b"eXIf")
    assert displayed_size(late) == decode(late).size == (30, 40)

    monkeypatch.setattr(
        PngImagePlugin.PngImageFile, "load", lambda image: pytest.fail("the pixels are read")
    )
    assert displayed_size(encoded(noise())) == (40, 30)
    assert displayed_size(data) == (30, 40)


def test_other_numbers_of_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="channels = 4"):
        decode(encoded(noise()), 4)


def test_normalised_pixels_are_shares_less_the_mean_over_the_deviation() -> None:
    found = normalise(Image.fromarray(noise()))
    expected = (noise().transpose(2, 0, 1) / 255 - np.array(MEAN)[:, None, None]) / np.array(STD)[
        :, None, None
    ]
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, expected, atol=1e-6)
    grey = normalise(Image.fromarray(noise()[..., 0]))
    np.testing.assert_allclose(
        grey[0], (noise()[..., 0] / 255 - np.mean(MEAN)) / np.mean(STD), atol=1e-6
    )


@pytest.mark.parametrize("side", [(40, 30), (30, 40), (16, 16), (3, 200), (224, 224)])
def test_the_centre_is_the_middle_square_and_shows_seven_eighths_of_the_shorter_side(
    side: tuple[int, int],
) -> None:
    width, height = side
    ramp = np.broadcast_to(np.linspace(0, 255, width), (height, width)).astype(np.uint8)
    seen = np.asarray(centre_crop(Image.fromarray(ramp), 28), float)
    assert seen.shape == (28, 28)
    assert abs(seen.mean() - 127.5) < 4
    if min(side) >= 16:
        # grey values between the left and the right edge
        shown = 0.875 * min(side) / (width - 1) * 255
        assert abs((seen[:, -1] - seen[:, 0]).mean() - shown * 27 / 28) < 6


def test_an_image_that_fills_its_size_is_not_changed_by_the_centre() -> None:
    square = Image.fromarray(noise(16, 16))
    assert np.array_equal(np.asarray(centre_crop(square, 16, share=1.0)), noise(16, 16))


def test_a_million_crops_lie_inside_with_even_shares_of_area_and_even_logarithms_of_ratio() -> None:
    draw = np.random.default_rng(1)
    width = 1000
    height = 900
    for _ in range(10):
        box = crop_box(width, height, draw.random((100_000, TRIES, 4)), area=(0.1, 0.5))
        w = box[:, 2] - box[:, 0]
        h = box[:, 3] - box[:, 1]
        assert box.min() >= 0
        assert box[:, 2].max() <= width
        assert box[:, 3].max() <= height
        area = w * h / (width * height)
        ratio = np.log(w / h) / np.log(4 / 3)
        for share in (area - 0.1) / 0.4, (ratio + 1) / 2:  # uniform: deciles hold a tenth each
            count = np.histogram(share, np.linspace(-0.01, 1.01, 11))[0] / 1e5
            assert (
                abs(np.interp(0.5, np.linspace(-0.01, 1.01, 11), [0, *count.cumsum()]) - 0.5)
                < 0.006
            )
            assert abs(share.mean() - 0.5) < 0.004
            assert abs(share.std() - 12**-0.5) < 0.004
        left = box[:, 0] / np.maximum(width - w, 1)
        top = box[:, 1] / np.maximum(height - h, 1)
        assert abs(left.mean() - 0.5) < 0.005
        assert abs(top.mean() - 0.5) < 0.005


def test_the_crop_is_the_first_try_that_fits() -> None:
    draw = np.random.default_rng(2)
    for chance in draw.random((300, TRIES, 4)):
        expected = tuple(middle_box(100, 20, RATIO))
        for share, lean, x, y in chance:
            ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** lean
            area = 2000 * (0.08 + 0.92 * share)
            w = round((area * ratio) ** 0.5)
            h = round((area / ratio) ** 0.5)
            if w <= 100 and h <= 20:
                left = int(x * (101 - w))
                top = int(y * (21 - h))
                expected = (left, top, left + w, top + h)
                break
        assert tuple(crop_box(100, 20, chance)) == expected


@pytest.mark.parametrize(
    ("side", "box"),
    [((1000, 10), (493, 0, 506, 10)), ((10, 1000), (0, 493, 10, 506)), ((1, 1), (0, 0, 1, 1))],
)
def test_where_no_try_fits_the_middle_is_taken(side: tuple[int, int], box: tuple[int, ...]) -> None:
    assert tuple(middle_box(*side, RATIO)) == box
    assert tuple(crop_box(*side, np.full((TRIES, 4), 0.999))) == box


def test_images_are_mirrored_half_of_the_time() -> None:
    pixels = noise(2, 2)
    generator = np.random.default_rng(3)
    turned = 0
    for _ in range(6000):
        # all of it: no other ratio fits
        seen = np.asarray(
            random_crop_and_flip(Image.fromarray(pixels), 2, generator, area=(1.0, 1.0))
        )
        turned += np.array_equal(seen, pixels[:, ::-1])
        assert np.array_equal(seen, pixels) or np.array_equal(seen, pixels[:, ::-1])
    assert abs(turned / 6000 - 0.5) < 0.03


def test_a_varied_image_is_its_crop_mirrored_or_not() -> None:
    image = Image.fromarray(noise())
    both = set()
    for seed in range(20):
        chance = np.random.default_rng(seed).random((TRIES + 1, 4))
        part = np.asarray(
            image.crop(tuple(crop_box(40, 30, chance[1:]).tolist())).resize(
                (16, 16), Image.Resampling.BICUBIC
            )
        )
        seen = np.asarray(random_crop_and_flip(image, 16, np.random.default_rng(seed)))
        flip = bool(chance[0, 0] < 0.5)
        assert np.array_equal(seen, part[:, ::-1] if flip else part)
        both.add(flip)
    assert both == {True, False}


def test_what_training_sees_is_decided_by_the_draw_and_what_validation_sees_is_not() -> None:
    data = pictures(False)[0]["image"]
    seen = [pictures(False).transform(data, np.random.default_rng(seed)) for seed in (5, 5, 6)]
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])
    still = [pictures(True).transform(data, np.random.default_rng(seed)) for seed in (5, 6)]
    assert np.array_equal(*still)
    assert np.array_equal(still[0], normalise(centre_crop(decode(data), 16)))


def test_a_picture_has_the_models_size_channels_and_number_of_tokens() -> None:
    grey = pictures(False, channels=1)
    assert grey.transform(grey[0]["image"], np.random.default_rng(0)).shape == (1, 16, 16)
    assert len(grey) == 1
    assert grey.lengths(np.arange(3)).tolist() == [17, 17, 17]
