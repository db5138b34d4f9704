"""`weft detect`: the objects of image files, printed, drawn, and in COCO's layout."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.conditional_detr.image_processing_pil_conditional_detr import (
    ConditionalDetrImageProcessorPil,
)
from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil

import weft
from tests.tasks.scenes import LABELS, detector
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.data.images.transforms import ImagePipeline
from weft.inference.detect import detect_all
from weft.interop.huggingface.image_processor import image_transforms
from weft.observe.boxes import draw_boxes, free_place, overlap


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small detector with names for its classes, and two images of unequal size."""
    folder = tmp_path_factory.mktemp("detect")
    spec = detector()
    model = weft.build(S.replace(spec, head=S.replace(spec.head, labels=LABELS)), seed=2)
    weft.save(model, folder / "model", to="weft")
    for name, size in (("7", (48, 32)), ("other", (40, 40))):
        generator = torch.Generator().manual_seed(size[0])
        pixels = torch.randint(0, 256, (size[1], size[0], 3), generator=generator)
        Image.fromarray(pixels.to(torch.uint8).numpy()).save(folder / f"{name}.png")
    return folder


def detected(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    assert main(["detect", *map(str, words), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_and_the_method_find_the_same_objects_in_any_batch(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [home / "7.png", home / "other.png"]
    rows = detected(capsys, home / "model", *images, "--threshold", "0")
    opened = weft.open(home / "model")
    assert "detect" in dir(opened)
    assert "classify" not in dir(opened)
    with Image.open(images[1]) as picture:
        alone = [opened.detect(images[0], threshold=0), opened.detect(picture, threshold=0)]
    for row, objects in zip(rows, alone, strict=True):
        assert len(row["objects"]) == 5
        for one, other in zip(row["objects"], objects, strict=True):
            assert one["label"] == other["label"]
            assert one["score"] == pytest.approx(other["score"], abs=1e-5)
            assert one["box"] == pytest.approx(other["box"], abs=1e-3)
    scores = [thing["score"] for thing in rows[0]["objects"]]
    assert scores == sorted(scores, reverse=True)
    fewer = detected(capsys, home / "model", images[0], "--threshold", scores[2])
    assert len(fewer[0]["objects"]) == 3


@pytest.fixture(scope="module")
def focal(home: Path) -> Path:
    """A small detector that scores each class alone, with boxes that leave the image."""
    spec = detector("dab_detr", source={"block": "basic", "norm": S.GroupNorm(groups=8)})
    model = weft.build(S.replace(spec, head=S.replace(spec.head, labels=LABELS)), seed=2)
    weft.save(model, home / "focal", to="weft")
    return home / "focal"


@pytest.mark.parametrize(
    ("name", "processor"),
    [("model", DetrImageProcessorPil), ("focal", ConditionalDetrImageProcessorPil)],
)
def test_the_objects_are_those_of_transformers_own_post_processing(
    home: Path, focal: Path, name: str, processor: Any
) -> None:
    opened = weft.open(home / name)
    (objects,) = detect_all(opened, [home / "7.png"])
    from weft.data.images.images import decode, normalise

    image = decode((home / "7.png").read_bytes())
    with torch.no_grad():
        outputs = opened.model(torch.from_numpy(normalise(image))[None])

    class Theirs:
        logits = outputs.logits_BNV
        pred_boxes = outputs.boxes_BN4

    (theirs,) = processor().post_process_object_detection(
        Theirs, threshold=0.0, target_sizes=[(image.height, image.width)]
    )
    order = theirs["scores"].argsort(descending=True)
    for thing, i in zip(objects.scored, order.tolist(), strict=True):
        left, top, right, bottom = theirs["boxes"][i].tolist()
        assert thing["box"] == pytest.approx([left, top, right - left, bottom - top], abs=1e-3)
        assert LABELS.index(thing["label"]) == theirs["labels"][i]
        assert thing["score"] == pytest.approx(theirs["scores"][i].item(), abs=1e-6)


def test_what_is_listed_ends_at_the_edges_and_is_one_object_per_query(
    home: Path, focal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The results file has every class of every query, and boxes as predicted, since average
    precision is measured so.
    """
    coco = tmp_path / "results.json"
    (row,) = detected(capsys, focal, home / "7.png", "--threshold", "0", "--coco", coco)
    results = json.loads(coco.read_text())
    assert len(results) == 5 * len(LABELS)
    assert any(min(result["bbox"][:2]) < 0 for result in results)
    assert row["objects"] == weft.open(focal).detect(home / "7.png", threshold=0)
    assert len(row["objects"]) == 5
    listed = {tuple(np.round(clipped(result["bbox"], 48, 32), 6)) for result in results}
    for thing in row["objects"]:
        x, y, width, height = thing["box"]
        assert 0 <= x < x + width <= 48
        assert 0 <= y < y + height <= 32
        assert tuple(np.round(thing["box"], 6)) in listed
    best = [max(r["score"] for r in results if r["bbox"] == box) for box in boxes_once(results)]
    assert [thing["score"] for thing in row["objects"]] == sorted(best, reverse=True)
    for thing in weft.look(weft.open(focal), home / "7.png").objects:
        x, y, width, height = thing.box
        assert 0 <= x < x + width <= 1
        assert 0 <= y < y + height <= 1


def clipped(box: list[float], width: int, height: int) -> list[float]:
    """A box inside an image, side by side."""
    left, right = (min(max(side, 0), width) for side in (box[0], box[0] + box[2]))
    top, bottom = (min(max(side, 0), height) for side in (box[1], box[1] + box[3]))
    return [left, top, right - left, bottom - top]


def boxes_once(results: list[dict[str, Any]]) -> list[list[float]]:
    return [
        r["bbox"]
        for i, r in enumerate(results)
        if r["bbox"] not in [q["bbox"] for q in results[:i]]
    ]


def test_an_image_of_one_pixel_has_objects_of_its_size(
    home: Path, focal: Path, tmp_path: Path
) -> None:
    """Also where a group of the norm then holds one number."""
    Image.new("RGB", (1, 1)).save(tmp_path / "one.png")
    objects = weft.open(focal).detect(tmp_path / "one.png", threshold=0)
    assert len(objects) == 5
    for thing in objects:
        assert clipped(thing["box"], 1, 1) == pytest.approx(thing["box"])


def test_the_results_file_is_cocos_and_the_drawing_shows_every_box(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coco = tmp_path / "results.json"
    drawn = tmp_path / "drawn.png"
    words = ("--threshold", "0", "--coco", coco, "--draw", drawn)
    (row,) = detected(capsys, home / "model", home / "7.png", *words)
    results = json.loads(coco.read_text())
    assert [r["image_id"] for r in results] == [1] * 5
    assert [LABELS[r["category_id"] - 1] for r in results] == [t["label"] for t in row["objects"]]
    inside = [clipped(r["bbox"], 48, 32) for r in results]
    assert inside == [pytest.approx(t["box"]) for t in row["objects"]]
    with Image.open(drawn) as picture, Image.open(home / "7.png") as before:
        assert picture.size == (48 * 8, 32 * 8)  # enlarged, so that labels can be read
        assert picture.tobytes() != before.resize(picture.size, 0).tobytes()


def test_the_command_says_what_it_drew_and_that_nothing_was_found(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [str(home / "7.png"), str(home / "other.png")]
    words = ["detect", str(home / "model"), *images, "--draw", str(tmp_path / "drawn")]
    assert main([*words, "--threshold", "0.999"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("0.999 or more; lower --threshold") == 2
    assert f"0 objects in 2 images drawn in {tmp_path / 'drawn'}" in shown.err


def test_the_ids_of_a_results_file_are_those_of_the_annotations(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = tmp_path / "truth.json"
    coco = tmp_path / "results.json"
    categories = [{"id": 90 - i, "name": name} for i, name in enumerate(LABELS)]
    table = {
        "images": [{"id": 139, "file_name": "val/other.png"}, {"id": 5, "file_name": "7.png"}],
        "categories": categories,
        "annotations": [],
    }
    truth.write_text(json.dumps(table))
    words = (home / "model", home, "--threshold", "0", "--coco", coco, "--coco-truth", truth)
    rows = detected(capsys, *words)  # a folder: every image below it
    results = json.loads(coco.read_text())
    assert [Path(row["image"]).name for row in rows] == ["7.png", "other.png"]
    assert [r["image_id"] for r in results] == [5] * 5 + [139] * 5
    names = {c["id"]: c["name"] for c in categories}
    labels = [t["label"] for row in rows for t in row["objects"]]
    assert [names[r["category_id"]] for r in results] == labels
    truth.write_text(json.dumps(table | {"images": table["images"][:1]}))
    assert main(["detect", *map(str, words)]) == 2
    assert "--coco-truth does not list the image" in capsys.readouterr().err
    twice = [*table["images"], {"id": 6, "file_name": "train/7.png"}]
    truth.write_text(json.dumps(table | {"images": twice}))
    assert main(["detect", *map(str, words)]) == 2
    error = capsys.readouterr().err
    assert str(truth) in error
    assert "7.png in two folders" in error


def test_classes_that_the_annotations_lack_are_left_out_of_the_results(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Published models of COCO have outputs that are no category of it."""
    truth = tmp_path / "truth.json"
    coco = tmp_path / "results.json"
    (row,) = detected(capsys, home / "model", home / "7.png", "--threshold", "0")
    found = [thing["label"] for thing in row["objects"]]
    table: dict[str, Any] = {"images": [{"id": 5, "file_name": "7.png"}], "annotations": []}
    words = ("detect", home / "model", home / "7.png", "--coco", coco, "--coco-truth", truth)
    known = [{"id": i, "name": name} for i, name in enumerate(LABELS, 1) if name != found[0]]
    truth.write_text(json.dumps(table | {"categories": known}))
    assert main([*map(str, words)]) == 0
    assert f"the results omit them: {found[0]}" in capsys.readouterr().err
    assert len(json.loads(coco.read_text())) == len(found) - found.count(found[0])
    truth.write_text(json.dumps(table | {"categories": [{"id": 1, "name": "unicorn"}]}))
    assert main([*map(str, words)]) == 2
    assert "has none of the model's classes" in capsys.readouterr().err


def test_the_results_file_has_every_score_whatever_is_shown(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coco = tmp_path / "results.json"
    (row,) = detected(capsys, home / "model", home / "7.png", "--threshold", "1", "--coco", coco)
    assert row["objects"] == []
    assert len(json.loads(coco.read_text())) == 5


def test_what_is_found_does_not_depend_on_the_other_images(tmp_path: Path, home: Path) -> None:
    """Also where convolutions read the padding, as in published models."""
    spec = detector(source={"padding": "zeros"})
    weft.save(weft.build(spec, seed=2), tmp_path / "model", to="weft")
    opened = weft.open(tmp_path / "model")
    images = [home / "7.png", home / "other.png"]
    together = opened.detect(images, threshold=0)
    assert together == [opened.detect(image, threshold=0) for image in images]


def test_a_saved_detector_keeps_the_size_that_it_was_trained_at(tmp_path: Path) -> None:
    seen = (R.Resize(size=40, max_size=64), R.Normalize())
    spec = detector(source={"padding": "zeros"})
    weft.save(weft.build(spec), tmp_path / "ours", to="weft", transforms=seen)
    weft.save(weft.load(tmp_path / "ours"), tmp_path / "theirs")
    pixels = np.random.default_rng(0).integers(0, 256, (60, 100, 3), np.uint8)
    expected = ImagePipeline(seen)(Image.fromarray(pixels), None, np.random.default_rng(0))[0]
    assert expected.shape == (3, 38, 64)
    for folder in ("ours", "theirs"):
        assert image_transforms(tmp_path / folder, spec) == seen
    processor = DetrImageProcessorPil.from_pretrained(tmp_path / "theirs")
    theirs = processor(pixels, return_tensors="np")["pixel_values"][0]
    assert theirs.shape == expected.shape
    np.testing.assert_allclose(theirs, expected, atol=1e-5)


def test_a_folder_s_own_preprocessing_is_what_the_model_sees(home: Path, tmp_path: Path) -> None:
    """As DETR's oldest files have it: one number for the shorter side, and the longest that the
    other may be.
    """
    import shutil

    shutil.copytree(home / "model", tmp_path / "model")
    config = {"size": 64, "max_size": 80, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(config))
    sizes: list[tuple[int, ...]] = []

    def hook(_: Any, args: tuple[Any, ...]) -> None:
        sizes.append(tuple(args[0].shape[-2:]))

    opened = weft.open(tmp_path / "model")
    first = next(m for m in opened.model.modules() if isinstance(m, torch.nn.Conv2d))
    first.register_forward_pre_hook(hook)
    opened.detect(home / "7.png", threshold=0)  # 48 × 32
    assert sizes == [(53, 80)]


def test_a_box_is_drawn_where_it_is() -> None:
    thing = {"label": "a", "score": 0.9, "box": [100.0, 150.0, 200.0, 120.0]}
    black = Image.new("RGB", (400, 400))
    drawn = draw_boxes(black, [thing])
    other = draw_boxes(black, [thing], labels=("first", "a"))
    assert drawn.getpixel((100, 200)) != other.getpixel((100, 200))  # a class has its own colour
    for x, y in ((100, 200), (300, 200), (200, 150), (200, 270)):
        assert drawn.getpixel((x, y)) != (0, 0, 0)
    assert drawn.getpixel((200, 210)) == (0, 0, 0)
    assert black.getpixel((100, 200)) == (0, 0, 0)


def test_labels_of_neighbouring_boxes_hide_neither_each_other_nor_leave_the_image() -> None:
    boxes = [
        (10, 30, 90, 80),
        (14, 34, 90, 80),
        (18, 26, 90, 80),
        (0, 0, 80, 50),
        (340, 380, 60, 20),
    ]
    places = list[tuple[float, float, float, float]]()
    for box in boxes:
        places.append(free_place(box, (50, 15), (400, 400), places))
    assert places[0] == (10, 15, 60, 30)  # above its box
    for first, second in combinations(places, 2):
        assert not overlap(first, second)
    for left, top, right, bottom in places:
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 400


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.png",), "missing"),
        (("note.txt",), "cannot identify the image"),
        (("7.png", "other.png", "--draw", "x.png"), "give a folder for 2 images"),
        (("7.png", "7.png", "--draw", "drawn"), "2 images would be drawn in drawn/7.png"),
        (("7.png", "--coco", "r.json", "--coco-truth", "none.json"), "none.json is not a file"),
        (("7.png", "--coco", "model"), "--coco model is a folder"),
        (("7.png", "--draw", "nowhere/x.png"), "--draw nowhere/x.png: nowhere does not exist"),
        (("7.png", "--draw", "note.txt/drawn"), "note.txt is a file; give a folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    home: Path,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(home)
    (home / "note.txt").write_text("no image")
    assert main(["detect", "model", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        (".", "--draw", "."),
        ("7.png", "--draw", "7.png"),
        ("7.png", "--draw", "link.png"),
        ("7.png", "--coco", "7.png"),
        ("7.png", "--coco", "truth.json", "--coco-truth", "truth.json"),
    ],
    ids=["folder", "file", "link", "results", "annotations"],
)
def test_an_output_never_takes_the_place_of_an_input(
    home: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("7.png", "other.png"):
        (tmp_path / name).write_bytes((home / name).read_bytes())
    (tmp_path / "link.png").symlink_to("7.png")
    categories = [{"id": i, "name": name} for i, name in enumerate(LABELS)]
    table = {"images": [{"id": 5, "file_name": "7.png"}], "categories": categories}
    (tmp_path / "truth.json").write_text(json.dumps(table | {"annotations": []}))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["detect", str(home / "model"), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{words[1]}: " in line
    assert "is an input" in line
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("images", [("7.png", "7.png"), ("7.png", "broken.png")])
def test_a_folder_of_drawings_is_made_only_when_there_are_some(
    home: Path, tmp_path: Path, images: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / "7.png").write_bytes((home / "7.png").read_bytes())
    drawn = tmp_path / "new" / "drawn"
    words = ["detect", str(home / "model"), "--draw", str(drawn)]
    assert main([*words, *(str(tmp_path / name) for name in images)]) == 2
    assert not drawn.parent.exists()
    assert main([*words, str(tmp_path / "7.png")]) == 0
    assert [path.name for path in drawn.iterdir()] == ["7.png"]


def test_no_images_have_no_objects(home: Path) -> None:
    assert weft.open(home / "model").detect([]) == []


def test_a_detector_is_looked_at_in_the_colours_of_the_image(home: Path, tmp_path: Path) -> None:
    """Also where its folder has another Normalize than ImageNet's."""
    own = R.Normalize(mean=(0.5,) * 3, std=(0.25,) * 3)
    weft.save(weft.load(home / "model"), tmp_path / "model", to="weft", transforms=(own,))
    seen = weft.look(weft.open(tmp_path / "model"), home / "7.png").image
    with Image.open(home / "7.png") as image:
        assert np.array_equal(np.array(seen), np.array(image))


def test_a_model_without_boxes_says_how_to_get_one(tmp_path: Path) -> None:
    vit = weft.vit(depth=1, width=16, heads=2, hidden=32, image_size=16, patch_size=4, classes=3)
    weft.save(weft.build(vit), tmp_path / "vit")
    with pytest.raises(ValueError, match="cannot detect: its head is ClassifierHead"):
        weft.open(tmp_path / "vit").detect(b"")
