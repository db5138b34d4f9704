"""`weft new` for images: classes of a folder, boxes of COCO's layout."""

import os
import shlex
from collections.abc import Sequence
from itertools import chain
from math import log2
from statistics import median
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..data.files import find, size_and_mtime
from ..data.formats.coco import load_coco
from ..data.formats.image_folder import IMAGE_SUFFIXES
from ..data.images import DecodedWithin, displayed_size
from ..data.quarantine import image_bytes
from ..data.reading.image_columns import SAMPLE_IMAGES
from ..data.reading.labels import check_class_count, check_classes_in_training, format_labels
from ..data.reading.table import Table, UsableRows
from ..recipe.cells import check_box_units, sorted_classes
from ..recipe.formats import SourceRow
from .first_recipe import (
    COMMENTS,
    Guess,
    NewOptions,
    count_steps,
    named_columns,
    open_data,
    plan_fields,
    rounded_up,
    warn_if_sorted,
    warnings_of,
    with_valid,
)
from .recipe_code import Call, Name

SAMPLE_PIXELS = 1 << 26  # of the sampled images that are decoded, which takes about a second
SIDES = (32, 64, 128)  # of the squares that a small classifier sees
# An image is rather made this much smaller than larger, which costs four times as much
SHRINK = 0.75
CELLS = 8  # patches along each side of an image
# recipes/vit.py:cifar10
SMALL_VIT = {
    "depth": 6,
    "width": 128,
    "heads": 4,
    "hidden": 256,
    "init": S.NormalInit(std=0.05, truncate_at=2.0),
}
FEW = 1000  # images
WEFT_ONLY = (
    "only Weft opens this detector, whose group norm learns; "
    "transformers opens model=DETR, whose norms stay as they start, or a published DAB-DETR (init_from)"
)
LARGE_BOX = 48  # pixels
LEAST_STEPS = 1500  # before which a detector finds nothing, however few the images are
IMAGE_COMMENTS = COMMENTS | {
    "task": "without the flip where left and right differ, as for digits and text",
    "workers": "processes that read the images; more if the wait for data is over 3 %",
}


def sample_images(table: Table, rows: R.RowSchema, classes: Sequence[str]) -> UsableRows:
    """Return those of the first images that training can use; ValueError if more cannot be used than may be."""
    decoded = DecodedWithin(SAMPLE_PIXELS)
    return table.usable(rows, classes, table.sample(SAMPLE_IMAGES), decoded)


def warn_of_bad_rows(sample: UsableRows) -> str:
    return "".join(f"of the first rows, {note}" for note in sample.notes())


def sizes_of(sample: list[SourceRow], column: str = "image") -> list[tuple[int, int]]:
    """Return width and height of each image."""
    return [displayed_size(image_bytes(row.fields[column])) for row in sample]


def usual_size(sizes: Sequence[tuple[int, int]]) -> str:
    return "{} × {} pixels".format(*sorted(sizes)[len(sizes) // 2])


def warn_if_few(count: int, way_out: str) -> str:
    """Return a warning where a model from random weights learns little."""
    return f"{count:,} images are few to learn from; {way_out}" if count < FEW else ""


# Classes


def image_crop(side: int, sizes: Sequence[tuple[int, int]]) -> R.Transform:
    """Return small shifts for images that all have this size, else a random part of each."""
    if set(sizes) == {(side, side)}:
        return R.RandomCrop(size=side, padding=side // 8)
    return R.RandomResizedCrop(size=side, scale=(0.5, 1.0))


def guess_image_classes(table: Table, valid: Sequence[str], options: NewOptions) -> Guess:
    rows = named_columns(table, R.Classification)
    assert isinstance(rows, R.LabelledImages)
    in_folder = table.format == "folder"  # where each class is divided by itself
    labels = table.labels(rows.label)
    classes, count = table.classes(rows.label, labels), len(labels)
    used = sorted_classes(set(chain.from_iterable(labels)))
    check_class_count(table.path, used, rows.label, in_folder)
    sample = sample_images(table, rows, classes)
    sizes, example = sizes_of(sample.rows, rows.image), sample.rows[0].path or table.path
    shortest = median(min(size) for size in sizes)
    side = next((side for side in SIDES if side >= SHRINK * shortest), SIDES[-1])
    valid_table = table.open_like(valid) if valid else None
    last_of = {"last_of": "of each class, by name"} if in_folder else {}
    train, valid_source, validation_text = with_valid(table, valid_table, rows, count, **last_of)
    if not valid:
        in_training = table.with_source(train).labels(rows.label)
        check_classes_in_training(table.path, used, set(chain.from_iterable(in_training)))
    is_sorted = not in_folder and not valid
    order_warning = warn_if_sorted([" ".join(names) for names in labels]) if is_sorted else ""
    cells = {"image_size": side, "patch_size": side // CELLS, "classes": len(classes)}
    cct = f"image_size={side}, convolutions={int(log2(side // CELLS))}, classes={len(classes)}"
    return Guess(
        f"Classification of the images of {table.path} into {len(classes)} classes: ViT, made small.",
        {
            "images": f"{count:,} ({table.format}), typically {usual_size(sizes)}",
            **({} if in_folder else {"columns": f"{rows.image!r} and {rows.label!r}"}),
            "classes": f"{len(classes)}: {format_labels(tuple(classes))}",
            "image size": f"{side} × {side} pixels after a crop",
            "architecture": "ViT, which transformers opens; weft.cct (see the file) learns faster, but only Weft opens it",
            "validation": validation_text,
            **warnings_of(
                warn_of_bad_rows(sample),
                warn_if_few(count, "weft tune starts from a pre-trained model"),
                order_warning,
            ),
        },
        {
            "name": options.name,
            "model": Call("weft.vit", SMALL_VIT | cells),
            "task": R.Classification(
                label_smoothing=0.1,
                transforms=(image_crop(side, sizes), R.RandomHorizontalFlip(), R.Normalize()),
            ),
            "data": R.Data(rows=rows, train=train, valid=valid_source),
            "batch": R.FixedBatch(size=32, length=CELLS**2 + 1),
            **plan_fields(count_steps(50, count, 32, 20_000), 1e-3),
            "workers": 1,
        },
        IMAGE_COMMENTS
        | {
            "model": "nothing is pre-trained; weft tune fine-tunes a pre-trained model on the same images.\n"
            f'weft.cct("4-3x2", {cct}) learns faster (85.6 beside 83.0 % of CIFAR-10), but only Weft opens it',
            "batch": "images per step, and tokens in one of them",
        },
        f"weft classify runs/{options.name} {shlex.quote(example)}"
        if example.lower().endswith(IMAGE_SUFFIXES)
        else f"weft evaluate runs/{options.name}",
    )


# Boxes


def box_side(sample: list[SourceRow], side: int) -> float:
    """Return the usual shorter side of a box in pixels, after images are resized so that their longer side is this."""
    sides = [
        float(min(box[2:])) * side / max(size)
        for row, size in zip(sample, sizes_of(sample), strict=True)
        for box in row.fields["boxes"]
    ]
    return median(sides or [side])


def small_detector(cell: int, queries: int, classes: int) -> dict[str, Call]:
    """A light DAB-DETR from random weights. A cell of its last map is 8 or 16 pixels wide."""
    shape: dict[str, Any] = {"depth": 1, "decoder_depth": 3, "width": 128, "heads": 4}
    shape |= {"hidden": 384, "queries": queries}
    large = cell == 16
    shape |= {"depths": (1, 1, 2) if large else (1, 2)}
    shape |= {"widths": (32, 64, 128) if large else (32, 128), "stem": 32}
    shape |= {"activation": "relu", "dropout": 0.0, "classes": classes}
    resnet = {"block": "basic", "norm": S.GroupNorm(groups=8), "padding": "masked"}
    return {
        "DETR": Call("weft.dab_detr", shape),
        "MODEL": Call(
            "replace", {"source": Call("replace", resnet, Name("DETR.source"))}, Name("DETR")
        ),
    }


def guess_detect(files: list[str], valid: list[str], options: NewOptions) -> Guess:
    if len(files) != 2 or not os.path.isdir(find(files[1])[0]):
        raise ValueError(
            "detect reads COCO's layout: give the JSON of the annotations and the folder of the images"
        )
    path = find(files[0])[0]
    coco = load_coco(path, size_and_mtime(path))
    names = [name for name in coco.files if name]
    boxes = [len(notes) for notes in coco.boxes.values()]
    if not names or not boxes:
        raise ValueError(f"{files[0]} lists no {'image' if not names else 'box'}")
    classes = tuple(dict.fromkeys(coco.names.values()))
    table = open_data(files, options, R.ImagesWithBoxes())
    row = R.ImagesWithBoxes(labels=classes)
    usable = sample_images(table, row, classes)
    sample = usable.rows
    try:
        check_box_units([box for row in sample for box in row.fields["boxes"]])
    except ValueError as error:
        raise ValueError(f"{files[0]}: {error}") from None
    sizes = sizes_of(sample)
    side = rounded_up(min(256, median(max(size) for size in sizes)), 32, 256)
    usual_box = box_side(sample, side)
    cell = 16 if usual_box >= LARGE_BOX else 8  # a large box covers several cells
    valid_table = table.open_like(valid) if valid else None
    train, valid_source, validation_text = with_valid(table, valid_table, row, len(names))
    queries = rounded_up(1.5 * max(boxes), 10, 300)
    steps = max(LEAST_STEPS, count_steps(60, len(names), 16, 20_000))
    return Guess(
        f"Detection in the images of {files[1]}: DAB-DETR with denoising queries, made small.",
        {
            "images": f"{len(names):,}, typically {usual_size(sizes)}",
            "boxes": f"{sum(boxes):,}, at most {max(boxes)} in an image: {queries} queries",
            "classes": f"{len(classes)}: {format_labels(classes)}",
            "longest side": f"{side} pixels after resizing, a typical box {usual_box:.0f}",
            "validation": validation_text,
            **warnings_of(
                WEFT_ONLY,
                warn_of_bad_rows(usable),
                warn_if_few(
                    len(names), "give more, or start from a trained detector with init_from"
                ),
            ),
        },
        {
            "name": options.name,
            "model": Name("MODEL"),
            "task": R.Detection(
                class_cost=2.0,
                transforms=(
                    R.RandomHorizontalFlip(),
                    R.Resize(size=side, max_size=side),
                    R.Normalize(),
                ),
                denoising=R.DenoisingQueries(groups=5),
            ),
            "data": R.Data(rows=row, train=train, valid=valid_source),
            "batch": R.FixedBatch(size=16, length=(side // cell) ** 2),
            **plan_fields(steps, 1e-3),
            "workers": 1,
            "optimiser": R.Muon(
                lr=4e-3, weight_decay=1e-4, other=R.AdamW(lr=1e-3, weight_decay=1e-4)
            ),
            "grad_clip": 0.1,
        },
        IMAGE_COMMENTS
        | {
            "model": WEFT_ONLY.replace("; ", ";\n"),
            "batch": "images per step, and cells of the last feature map in one of them",
        },
        f"weft detect runs/{options.name} {shlex.quote(files[1])} --draw boxes",
        small_detector(cell, queries, len(classes)),
    )
