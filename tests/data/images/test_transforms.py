"""Transforms match Pillow or a slow reference with the same random numbers; boxes follow the image;
sampling is unbiased.
"""

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from weft import recipe as R
from weft.data.images import transforms_augment as augment
from weft.data.images.images import TRIES, crop_box, normalise
from weft.data.images.transforms import ImagePipeline, resized_sides
from weft.recipe.transforms import IMAGENET_MEAN, IMAGENET_STD
from weft.support.registry import implementation

RGB = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
IMAGE = Image.fromarray(RGB)


def run(value: R.Transform, image: Any = IMAGE, boxes: Any = None, seed: int = 0) -> Any:
    return implementation(value)(value)(image, boxes, np.random.default_rng(seed))


def pixels(value: R.Transform, image: Any = IMAGE, seed: int = 0) -> np.ndarray:
    return np.asarray(run(value, image, None, seed)[0])


# Size and place


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_resize_is_pillows(interpolation: Any) -> None:
    method = Image.Resampling[interpolation.upper()]
    short = pixels(R.Resize(size=20, interpolation=interpolation))
    assert np.array_equal(short, np.asarray(IMAGE.resize((26, 20), method)))
    both = pixels(R.Resize(size=(12, 33), interpolation=interpolation))
    assert np.array_equal(both, np.asarray(IMAGE.resize((33, 12), method)))


@pytest.mark.parametrize(
    ("sides", "size", "max_size", "expected"),
    [
        ((640, 480), 800, 1333, (1066, 800)),
        ((480, 640), 800, 1333, (800, 1066)),
        ((640, 200), 800, 1333, (1333, 416)),
        ((200, 640), 800, None, (800, 2560)),
        ((33, 57), 33, None, (33, 57)),
        ((5000, 3), 10, 20, (20, 1)),
    ],
)
def test_sides_keep_their_ratio_and_the_longer_one_its_limit(
    sides: tuple[int, int], size: int, max_size: int | None, expected: tuple[int, int]
) -> None:
    assert resized_sides(*sides, size, max_size) == expected


@pytest.mark.parametrize("size", [10, 30, 36, 50])
def test_the_centre_is_the_middle_and_black_around_it(size: int) -> None:
    framed = np.zeros((230, 240, 3), np.uint8)
    framed[100:130, 100:140] = RGB
    top = 100 + (30 - size) // 2
    left = 100 + (40 - size) // 2
    seen = pixels(R.CenterCrop(size=size))
    assert np.array_equal(seen, framed[top : top + size, left : left + size])


@pytest.mark.parametrize(("image", "size", "padding"), [(RGB, 26, 0), (RGB[:, :30], 30, 3)])
def test_a_random_crop_is_a_window_of_the_padded_image_and_every_place_is_as_likely(
    image: np.ndarray, size: int, padding: int
) -> None:
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    rows, columns = (side - size + 1 for side in padded.shape[:2])
    windows = {
        padded[y : y + size, x : x + size].tobytes(): (x, y)
        for y in range(rows)
        for x in range(columns)
    }
    value = R.RandomCrop(size=size, padding=padding)
    draw = np.random.default_rng(1)
    step = implementation(value)(value)
    box = np.array([[0.0, 0.0, *image.shape[1::-1]]])
    counts = np.zeros((columns, rows))
    for _ in range(counts.size * 40):
        part, boxes, _ = step(Image.fromarray(image), box, draw)
        x, y = windows[np.asarray(part).tobytes()]
        counts[x, y] += 1
        moved = box - np.array((x, y, x, y)) + padding
        assert np.array_equal(boxes, moved.clip(0, size))
    freedom = counts.size - 1
    assert ((counts - 40) ** 2 / 40).sum() < freedom + 4 * (2 * freedom) ** 0.5  # chi squared
    with pytest.raises(ValueError, match=r"RandomCrop.size = 35 exceeds an image of 40 × 30"):
        run(R.RandomCrop(size=35))


@pytest.mark.parametrize("sides", [(640, 480), (32, 40), (40, 32), (30, 30), (40, 40)])
def test_a_padded_crop_refuses_an_image_of_which_evaluation_would_see_more(
    sides: tuple[int, int],
) -> None:
    words = (
        rf"RandomCrop\(size=32, padding=4\) needs images of 32 × 32 pixels, not {sides[0]} × "
        rf"{sides[1]}; "
        r"put Resize\(size=\(32, 32\)\) before it, or use padding=0"
    )
    with pytest.raises(ValueError, match=words):
        run(R.RandomCrop(size=32, padding=4), Image.new("RGB", sides))
    assert run(R.RandomCrop(size=32, padding=4), Image.new("RGB", (32, 32)))[0].size == (32, 32)
    steps = (R.Resize(size=(32, 32)), R.RandomCrop(size=32, padding=4))
    pipeline = ImagePipeline(steps)
    seen = pipeline(Image.new("RGB", sides), None, np.random.default_rng(0))[0]
    assert seen.shape == (3, 32, 32)


def test_a_thin_image_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resized_sides(30_000, 1, 64, None) == (1_920_000, 64)
    with pytest.raises(ValueError, match="60000 × 1 pixels would have 3,932,160,000 pixels"):
        resized_sides(60_000, 1, 256, None)
    monkeypatch.setattr("weft.data.images.transforms.MAX_PIXELS", 10_000)
    thin = Image.new("L", (600, 1))
    words = "600 × 1 pixels would have 2,457,600 pixels"
    for value in (R.Resize(size=64), R.RandomShortestSize(min_size=(64,))):
        with pytest.raises(ValueError, match=words):
            run(value, thin)
    assert run(R.Resize(size=64, max_size=133), thin)[0].size == (133, 1)


def test_a_crop_whose_sizes_change_places_is_refused_before_it_reads_an_image() -> None:
    with pytest.raises(ValueError, match="min_size = 600 exceeds max_size = 384"):
        R.RandomSizeCrop(min_size=600, max_size=384)
    assert R.RandomSizeCrop(min_size=384, max_size=384)


def test_a_random_resized_crop_is_pillows_resize_of_the_drawn_part() -> None:
    for seed in range(20):
        box = crop_box(40, 30, np.random.default_rng(seed).random((TRIES, 4)), (0.2, 0.9))
        part = IMAGE.crop(tuple(box.tolist())).resize((16, 16), Image.Resampling.BILINEAR)
        seen = pixels(R.RandomResizedCrop(size=16, scale=(0.2, 0.9)), seed=seed)
        assert np.array_equal(seen, np.asarray(part))


def test_the_shorter_side_is_one_of_those_that_are_named_each_as_often() -> None:
    value = R.RandomShortestSize(min_size=(6, 12, 24), max_size=28)
    step = implementation(value)(value)
    draw = np.random.default_rng(0)
    sides = [step(IMAGE, None, draw)[0].size for _ in range(1500)]
    assert set(sides) == {(8, 6), (16, 12), (28, 21)}
    assert all(abs(sides.count(side) - 500) < 75 for side in set(sides))


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_images_are_mirrored_as_often_as_said(p: float) -> None:
    value = R.RandomHorizontalFlip(p=p)
    step = implementation(value)(value)
    draw = np.random.default_rng(0)
    seen = [np.asarray(step(IMAGE, None, draw)[0]) for _ in range(2000)]
    mirrored = sum(np.array_equal(image, RGB[:, ::-1]) for image in seen)
    assert mirrored + sum(np.array_equal(image, RGB) for image in seen) == 2000
    assert abs(mirrored / 2000 - p) < 0.04


# Boxes follow


def rectangle(box: tuple[int, int, int, int]) -> Image.Image:
    drawn = np.zeros((60, 80, 3), np.uint8)
    drawn[box[1] : box[3], box[0] : box[2]] = 255
    return Image.fromarray(drawn)


BOX_AWARE = [
    R.RandomHorizontalFlip(),
    R.RandomResizedCrop(size=64, scale=(0.1, 1.0)),
    R.RandomSizeCrop(min_size=20, max_size=50),
    R.RandomShortestSize(min_size=(30, 60, 90), max_size=110),
    R.RandomCrop(size=50),
    R.Resize(size=(48, 96)),
    R.CenterCrop(size=40),
    R.CenterCrop(size=100),
    R.RandomApply(transforms=(R.RandomSizeCrop(min_size=20, max_size=50), R.Resize(size=64))),
    R.RandomChoice(transforms=(R.RandomHorizontalFlip(p=1.0), R.CenterCrop(size=40))),
]


@pytest.mark.parametrize("value", BOX_AWARE, ids=lambda value: type(value).__name__)
def test_a_drawn_rectangle_follows_its_box(value: R.Transform) -> None:
    draw = np.random.default_rng(0)
    gone = 0
    for seed in range(60):
        x = int(draw.integers(0, 70))
        y = int(draw.integers(0, 50))
        box = (x, y, int(draw.integers(x + 8, 81)), int(draw.integers(y + 8, 61)))
        image, boxes, left = run(value, rectangle(box), np.array([box], np.float32), seed)
        shown = np.asarray(image)[..., 0] > 127
        assert boxes.dtype == np.float32
        if not len(boxes):
            assert len(left) == 0
            gone += 1
            assert shown.sum() == 0
            continue
        assert left is None or left.tolist() == [0]
        rows = np.flatnonzero(shown.any(1))
        columns = np.flatnonzero(shown.any(0))
        seen = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        scale = max(image.width / 80, image.height / 60, 1.0)
        assert np.abs(boxes[0] - seen).max() <= 1 + scale, (boxes, seen)
    crops = ("RandomResizedCrop", "RandomSizeCrop", "RandomApply")
    assert gone > 0 or type(value).__name__ not in crops


def test_a_pipeline_says_which_boxes_are_left_over_all_its_steps() -> None:
    pipeline = ImagePipeline(
        (
            R.RandomHorizontalFlip(p=1.0),
            R.CenterCrop(size=40),
            R.RandomSizeCrop(min_size=20, max_size=20),
            R.Normalize(),
        )
    )
    boxes = np.array([[i * 8, i * 6, i * 8 + 4 + i / 4, i * 6 + 6] for i in range(10)], float)
    seen: set[tuple[int, ...]] = set()
    for seed in range(20):
        image, left, keep = pipeline(rectangle((0, 0, 1, 1)), boxes, np.random.default_rng(seed))
        assert image.shape == (3, 20, 20)
        assert keep is not None
        assert left is not None
        assert len(left) == len(keep)
        widths = left[:, 2] - left[:, 0]
        whole = (left > 0).all(1) & (left < 20).all(1)
        assert np.allclose(widths[whole], 4 + keep[whole] / 4)  # the width tells which box it is
        seen.add(tuple(keep.tolist()))
    assert len(seen) > 3


# Numbers


def test_normalize_is_what_the_default_does_and_grey_takes_the_middle() -> None:
    seen = run(R.Normalize())[0]
    expected = (RGB.transpose(2, 0, 1) / 255 - np.array(IMAGENET_MEAN)[:, None, None]) / np.array(
        IMAGENET_STD
    )[:, None, None]
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    assert np.array_equal(seen, normalise(IMAGE))
    grey = run(R.Normalize(mean=(0.5,), std=(0.25,)), Image.fromarray(RGB[..., 0]))[0]
    np.testing.assert_allclose(grey[0], (RGB[..., 0] / 255 - 0.5) / 0.25, atol=1e-6)
    with pytest.raises(ValueError, match="3 channels, but Normalize has 1"):
        run(R.Normalize(mean=(0.5,), std=(0.25,)))
    plain = ImagePipeline(())(IMAGE, None, np.random.default_rng(0))[0]
    np.testing.assert_allclose(plain, RGB.transpose(2, 0, 1) / 255, atol=1e-7)


def test_erasing_takes_a_rectangle_of_the_said_share_as_often_as_said() -> None:
    value = R.RandomErasing(p=0.25, scale=(0.1, 0.3), value=7.0)
    step = implementation(value)(value)
    draw = np.random.default_rng(0)
    shares = []
    for _ in range(3000):
        erased = step(np.zeros((3, 60, 80), np.float32), None, draw)[0] == 7
        shares.append(erased[0].mean())
        rows = np.flatnonzero(erased[0].any(1))
        columns = np.flatnonzero(erased[0].any(0))
        assert erased.sum() == 3 * len(rows) * len(columns)  # one rectangle, in all channels
    some = np.array([share for share in shares if share])
    assert abs(len(some) / 3000 - 0.25) < 0.03
    assert some.min() > 0.09
    assert some.max() < 0.31
    assert abs(some.mean() - 0.2) < 0.01
    noise = run(R.RandomErasing(p=1.0, value="random"), np.zeros((3, 60, 80), np.float32))[0]
    noise = noise[noise != 0]
    assert abs(noise.mean()) < 0.1
    assert abs(noise.std() - 1) < 0.1


# Operations


def by_numpy(name: str, amount: float) -> np.ndarray:
    """An operation, pixel by pixel."""
    rows, columns = np.mgrid[:30, :40] + 0.5
    x, y = {
        "ShearX": (columns + amount * rows, rows),
        "ShearY": (columns, rows + amount * columns),
        "TranslateX": (columns + int(amount * 40), rows),
        "TranslateY": (columns, rows + int(amount * 30)),
    }[name]
    x = np.floor(x).astype(int)
    y = np.floor(y).astype(int)
    inside = (x >= 0) & (x < 40) & (y >= 0) & (y < 30)
    return np.where(inside[..., None], RGB[y.clip(0, 29), x.clip(0, 39)], 0)


@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY"])
@pytest.mark.parametrize("amount", [-0.3, -0.07, 0.0, 0.13, 0.3])
def test_moving_operations_take_the_pixel_that_arithmetic_says(name: str, amount: float) -> None:
    moved = np.asarray(augment.OPERATIONS[name][0](IMAGE, amount))
    assert (moved != by_numpy(name, amount)).any(-1).mean() < 0.01  # at edges of a pixel


PILLOW = {
    "Identity": lambda m: IMAGE,
    "Rotate": lambda m: IMAGE.rotate(30 * m),
    "Brightness": lambda m: ImageEnhance.Brightness(IMAGE).enhance(1 + 0.9 * m),
    "Color": lambda m: ImageEnhance.Color(IMAGE).enhance(1 + 0.9 * m),
    "Contrast": lambda m: ImageEnhance.Contrast(IMAGE).enhance(1 + 0.9 * m),
    "Sharpness": lambda m: ImageEnhance.Sharpness(IMAGE).enhance(1 + 0.9 * m),
    "AutoContrast": lambda m: ImageOps.autocontrast(IMAGE),
    "Equalize": lambda m: ImageOps.equalize(IMAGE),
    "Invert": lambda m: Image.fromarray(255 - RGB),
    "Posterize": lambda m: Image.fromarray(RGB & np.uint8(256 - 2 ** round(4 * m))),
    "Solarize": lambda m: Image.fromarray(np.where(255 * (1 - m) > RGB, RGB, 255 - RGB)),
}


@pytest.mark.parametrize("name", PILLOW)
@pytest.mark.parametrize("magnitude", [0.0, 0.3, 0.7, 1.0])
def test_operations_are_pillows_at_the_magnitude_that_is_said(name: str, magnitude: float) -> None:
    signed = augment.OPERATIONS[name][2]
    both = set()
    for seed in range(8):
        seen = augment.apply_operation(IMAGE, name, magnitude, np.random.default_rng(seed))
        ways = [
            np.asarray(PILLOW[name](sign * magnitude)) for sign in ((1, -1) if signed else (1,))
        ]
        matches = [np.array_equal(np.asarray(seen), way) for way in ways]
        assert any(matches)
        both.add(matches.index(True))
    assert len(both) == (2 if signed and magnitude else 1)


def counted(
    monkeypatch: pytest.MonkeyPatch, value: R.Transform, times: int
) -> list[tuple[str, float]]:
    """The operations that a transform does, without doing them."""
    calls: list[tuple[str, float]] = []

    def record(image: Any, name: str, magnitude: float, rng: Any) -> Any:
        calls.append((name, magnitude))
        return image

    monkeypatch.setattr(augment, "apply_operation", record)
    step = implementation(value)(value)
    draw = np.random.default_rng(0)
    for _ in range(times):
        step(IMAGE, None, draw)
    return calls


def test_randaugment_draws_each_of_fourteen_as_often_at_one_magnitude(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = counted(monkeypatch, R.RandAugment(num_ops=3, magnitude=6), 1400)
    assert len(calls) == 4200
    assert {magnitude for _, magnitude in calls} == {6 / 30}
    names = [name for name, _ in calls]
    assert set(names) == set(augment.RANDOM_OPERATIONS)
    assert len(set(names)) == 14
    assert all(abs(names.count(name) - 300) < 70 for name in set(names))


def test_autoaugment_follows_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, R.AutoAugment(), 10_000)
    expected: dict[tuple[str, float], float] = {}
    for pair in augment.POLICIES["cifar10"]:
        assert len(pair) == 2
        for name, p, magnitude in pair:
            key = name, magnitude / 9
            expected[key] = expected.get(key, 0) + p / 25
    assert len(augment.POLICIES["cifar10"]) == 25
    for key, share in expected.items():
        assert abs(calls.count(key) / 10_000 - share) < 4 * (share / 10_000) ** 0.5 + 1e-9, key


def test_both_refuse_boxes_that_they_would_leave_behind() -> None:
    for value in (R.RandAugment(), R.AutoAugment()):
        with pytest.raises(ValueError, match="use ColorJitter"):
            run(value, boxes=np.zeros((1, 4)))


def test_jitter_is_pillows_in_the_drawn_order_within_its_range() -> None:
    value = R.ColorJitter(brightness=0.4, contrast=0.3, saturation=0.2)
    factors = []
    orders = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        expected = IMAGE
        order = [number for number in rng.permutation(4).tolist() if number != 3]
        for number in order:
            change = (0.4, 0.3, 0.2)[number]
            factor = 1 - change + 2 * change * rng.random()
            kinds = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
            expected = kinds[number](expected).enhance(factor)
            factors.append((factor - 1) / change)
        orders.add(tuple(order))
        assert np.array_equal(pixels(value, seed=seed), np.asarray(expected))
    assert len(orders) == 6
    assert max(map(abs, factors)) <= 1
    assert abs(np.mean(factors)) < 0.2


def test_hue_turns_the_colour_circle_and_leaves_grey() -> None:
    red = Image.new("RGB", (2, 2), (200, 0, 0))
    cyan = np.asarray(augment.shift_hue(red, 0.5))[0, 0].astype(int)
    assert np.abs(cyan - (0, 200, 200)).max() <= 8
    assert np.array_equal(np.asarray(augment.shift_hue(red, 0.0)), np.asarray(red))
    grey = Image.fromarray(RGB[..., 0])
    assert augment.shift_hue(grey, 0.3) is grey
    drawn = {pixels(R.ColorJitter(hue=0.3), red, seed)[0, 0].tobytes() for seed in range(10)}
    assert len(drawn) > 4


# Two samples

WARP = np.ones((3, 24, 32), np.float32)
WEFT = np.zeros((3, 24, 32), np.float32)


def shares(value: R.Transform, times: int = 4000) -> np.ndarray:
    """The share that is returned, after it is compared with the pixels."""
    step = implementation(value)(value)
    draw = np.random.default_rng(0)
    drawn = []
    for _ in range(times):
        mixed, share = step(WARP, WEFT, draw)
        assert mixed.dtype == np.float32
        assert abs(mixed.mean(dtype=float) - share) < 1e-6
        drawn.append(share)
    return np.array(drawn)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_mixup_weighs_pixels_by_beta(alpha: float) -> None:
    drawn = shares(R.MixUp(alpha=alpha))
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(drawn.mean() - 0.5) < 0.03
    assert abs(drawn.var() - variance) < 0.1 * variance
    mixed, share = run(R.MixUp(alpha=alpha), WARP * 5, WEFT + 1)
    np.testing.assert_allclose(mixed, share * 5 + (1 - share), rtol=1e-6)


def test_cutmix_pastes_one_rectangle_and_returns_the_area_that_is_left() -> None:
    assert shares(R.CutMix()).min() >= 0
    assert shares(R.CutMix()).max() <= 1
    value = R.CutMix()
    step = implementation(value)(value)
    draw = np.random.default_rng(1)
    for _ in range(200):
        pasted = step(WARP, WEFT, draw)[0] == 0
        rows = np.flatnonzero(pasted[0].any(1))
        columns = np.flatnonzero(pasted[0].any(0))
        assert pasted.sum() == 3 * len(rows) * len(columns)
    assert WARP.min() == 1  # the first is not written on


# Of several


def test_one_of_several_is_taken_as_often_as_any_other_and_all_of_them_as_often_as_said() -> None:
    sizes = tuple(R.Resize(size=size) for size in (3, 6, 9))
    one = R.RandomChoice(transforms=sizes)
    all_ = R.RandomApply(transforms=sizes, p=0.2)
    for value, expected in ((one, {3: 500, 6: 500, 9: 500}), (all_, {30: 1200, 9: 300})):
        step = implementation(value)(value)
        draw = np.random.default_rng(0)
        sides = [step(IMAGE, None, draw)[0].height for _ in range(1500)]
        assert set(sides) == set(expected)
        assert all(abs(sides.count(side) - count) < 75 for side, count in expected.items())
    either = R.RandomChoice(transforms=(R.MixUp(), R.CutMix()))
    step = implementation(either)(either)
    draw = np.random.default_rng(0)
    blended = sum(len(np.unique(step(WARP, WEFT, draw)[0])) == 1 for _ in range(400))
    assert abs(blended - 200) < 60  # CutMix leaves both values, but for a few empty rectangles


# Together


def test_a_size_lost_in_evaluation_raises_an_error_with_a_fix() -> None:
    sizes = R.RandomChoice(
        transforms=(R.RandomShortestSize(min_size=(32,)), R.RandomSizeCrop(min_size=8, max_size=32))
    )
    for task in (R.Detection, R.Classification):
        with pytest.raises(ValueError, match="give eval_transforms"):
            task(transforms=(sizes, R.Normalize()))
        given = (R.Resize(size=32), R.Normalize())
        assert task(transforms=(sizes, R.Normalize()), eval_transforms=given)
        assert task(transforms=(sizes, *given))


def test_an_order_that_cannot_be_is_refused_in_one_line() -> None:
    crop = R.CenterCrop(size=4)
    normal = R.Normalize()
    erase = R.RandomErasing()
    mix = R.MixUp()
    for wrong, words in (
        ((normal, crop), "CenterCrop cannot follow Normalize"),
        ((erase, normal), "Normalize cannot follow RandomErasing"),
        ((mix, crop), "CenterCrop cannot follow MixUp"),
        ((mix, R.CutMix()), "give one of them or a RandomChoice of both"),
        ((normal, normal), "Normalize cannot follow Normalize"),
    ):
        with pytest.raises(ValueError, match=words):
            R.Classification(transforms=wrong)
        with pytest.raises(ValueError, match=words):
            ImagePipeline(wrong)
    with pytest.raises(ValueError, match=r"RandomChoice\.transforms: "):
        R.RandomChoice(transforms=(crop, mix))
    with pytest.raises(ValueError, match="RandomApply does not support MixUp"):
        R.RandomApply(transforms=(mix,))
    with pytest.raises(ValueError, match="leave MixUp and CutMix out"):
        R.MaskedAutoencoding(transforms=(mix,))
    with pytest.raises(ValueError, match="magnitude = 40"):
        R.RandAugment(magnitude=40)


def test_evaluation_transforms_are_deterministic() -> None:
    train = (
        R.RandomCrop(size=32, padding=4),
        R.RandomHorizontalFlip(),
        R.RandAugment(),
        R.Normalize(mean=(0.5,), std=(0.5,)),
        R.RandomErasing(),
        R.RandomChoice(transforms=(R.MixUp(), R.CutMix())),
    )
    assert R.evaluation_transforms(train) == (R.Resize(size=(32, 32)), train[3])
    assert R.RandomCrop(size=32).for_evaluation() == (R.CenterCrop(size=32),)
    part = R.RandomResizedCrop(size=224, interpolation="bicubic")
    middle = (R.Resize(size=256, interpolation="bicubic"), R.CenterCrop(size=224))
    assert R.evaluation_transforms((part,)) == middle
    task = R.Classification(transforms=train)
    assert R.transforms_for(task, evaluation=False) == train
    assert R.transforms_for(task, evaluation=True) == (R.Resize(size=(32, 32)), train[3])
    other = R.Classification(transforms=train, eval_transforms=(R.Normalize(),))
    assert R.transforms_for(other, evaluation=True) == (R.Normalize(),)
    assert R.transforms_for(R.Classification(), evaluation=True) is None
