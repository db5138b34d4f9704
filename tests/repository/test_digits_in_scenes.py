"""The generated scenes: pure in their number, their boxes tight, their files what COCO's format
reads.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from benchmarks.detection import write_bccd
from benchmarks.digits_in_scenes import COVERED, SIDE, SOLID, glyph, scene, turned, write

from weft import recipe as R
from weft.data.reading.rows import check_rows, load_source

NUMBERS = range(30)


def test_a_scene_depends_on_its_seed_its_split_and_its_number_alone() -> None:
    forward = [scene(0, "train", i) for i in NUMBERS]
    for i in reversed(NUMBERS):
        image, digits = scene(0, "train", i)
        assert image.tobytes() == forward[i][0].tobytes()
        assert [(d.label, d.box) for d in digits] == [(d.label, d.box) for d in forward[i][1]]
    for other in (scene(1, "train", 3), scene(0, "valid", 3), scene(0, "train", 4)):
        assert other[0].tobytes() != forward[3][0].tobytes()


def test_boxes_are_tight_inside_the_image_and_most_of_each_digit_is_visible() -> None:
    digits = [digit for i in NUMBERS for digit in scene(0, "train", i)[1]]
    assert {digit.label for digit in digits} == set(range(10))
    for digit in digits:
        x, y, w, h = map(int, digit.box)
        assert 0 <= x < x + w <= SIDE
        assert 0 <= y < y + h <= SIDE
        outside = digit.visible.copy()
        outside[y : y + h, x : x + w] = False
        assert not outside.any()
        assert digit.visible.sum() >= (1 - COVERED) * digit.area
    assert {len(scene(0, "train", i)[1]) for i in NUMBERS} >= {0, 1, 3, 5}
    sizes = [max(digit.box[2:]) for digit in digits]
    assert min(sizes) < 24 < 48 < max(sizes)


@pytest.mark.parametrize("angle", [0.0, 20.0])
def test_a_turned_glyph_fills_its_mask_from_edge_to_edge(angle: float) -> None:
    ink = np.asarray(turned(glyph("7", 40, 1), angle, 0.2, 1.2)) > SOLID
    assert all(edge.any() for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]))


def test_the_files_are_read_without_a_row_set_aside(tmp_path: Path) -> None:
    write(tmp_path, "train", 12, seed=0)
    source = R.Source(paths=(str(tmp_path / "train.json"), str(tmp_path / "train")), format="coco")
    rows, unread = load_source(source)
    good, bad = check_rows(rows, R.ImagesWithBoxes(), list("0123456789"), "coco")
    assert (len(good), unread, bad) == (12, [], [])
    for i, row in enumerate(good):
        digits = scene(0, "train", i)[1]
        assert row.fields["boxes"] == [digit.box for digit in digits]
        assert row.fields["labels"] == [str(digit.label) for digit in digits]


def test_blood_cells_become_cocos_boxes(tmp_path: Path) -> None:
    row = {
        "file": "images/a.jpg",
        "width": 640,
        "height": 480,
        "boxes": [[10.0, 20.0, 50.0, 80.0], [5.0, 5.0, 5.0, 9.0]],
        "labels": ["WBC", "RBC"],
        "split": "val",
    }
    (tmp_path / "annotations.json").write_text(json.dumps([row]))
    with tarfile.open(tmp_path / "bccd.tar", "w") as tar:
        tar.add(tmp_path / "annotations.json", "annotations.json")
    write_bccd(tmp_path / "out", tmp_path / "bccd.tar")
    table = json.loads((tmp_path / "out" / "val.json").read_text())
    (box,) = table["annotations"]  # an empty one is left out
    assert box["bbox"] == [10.0, 20.0, 40.0, 60.0]
    names = {category["id"]: category["name"] for category in table["categories"]}
    assert names[box["category_id"]] == "WBC"
    assert json.loads((tmp_path / "out" / "train.json").read_text())["images"] == []
