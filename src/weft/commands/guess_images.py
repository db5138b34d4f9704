"""`weft new` for images: classes of a folder, boxes of COCO's layout."""

import os
import shlex
from collections.abc import Sequence
from itertools import chain
from math import log2
from statistics import median
from typing import Any, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.files import find, size_and_mtime
from ..data.formats.coco import load_coco
from ..data.formats.image_folder import IMAGE_SUFFIXES
from ..data.images import DecodedWithin, displayed_size
from ..data.quarantine import bad_rows_line, check_bad_row_limit, image_bytes
from ..data.reading.column_names import check_columns_exist
from ..data.reading.columns import infer_row_schema
from ..data.reading.image_columns import (
    COLUMNS_OPTION,
    SAMPLE_IMAGES,
    check_column_order,
    find_image_column,
)
from ..data.reading.rows import BadRowEntries, check_rows, sample_rows
from ..data.source import format_of, read_piece, resolve_source, split_source
from ..recipe.cells import check_box_units, class_names, sorted_classes
from ..recipe.formats import Piece, SourceRow
from ..tuning.detect import format_labels
from ..tuning.images import check_class_count, check_classes_in_training
from .first_recipe import (
    COMMENTS,
    Guess,
    NewOptions,
    count_steps,
    plan_fields,
    rounded_up,
    warn_if_sorted,
    warnings_of,
    with_valid,
)
from .recipe_code import Call, Name

IMAGE_FORMATS = ("folder", "npz", "idx")
IMAGE_TABLES = ("parquet", "image_table")
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


Sample = tuple[list[SourceRow], BadRowEntries]


class SampledImages(NamedTuple):
    source: R.Source
    rows: R.LabelledImages
    sample: Sample


def find_images(files: list[str], options: NewOptions) -> SampledImages | None:
    """Return images with their classes, None if the files hold no images."""
    source = resolve_source(R.Source(paths=tuple(files)), R.LabelledImages())
    if source.format not in (*IMAGE_FORMATS, *IMAGE_TABLES):
        return None
    sample = sample_rows(source, SAMPLE_IMAGES, options.max_bad_row_fraction)
    if source.format in IMAGE_FORMATS:
        return SampledImages(source, R.LabelledImages(), sample)
    fields = [row.fields for row in sample[0]]
    check_columns_exist(fields[0], options.columns)
    if len(options.columns) == 2:
        check_column_order(fields, *options.columns)
    image = find_image_column(fields, options.columns[:1] or tuple(fields[0]))
    if image is None and source.format == "image_table":
        column = repr(options.columns[0]) if options.columns else "its columns"
        raise ValueError(
            f"{files[0]}: no file that {column} names in {files[1]} is an image; name another column with {COLUMNS_OPTION}"
        )
    if image is None:
        return None
    rows = infer_row_schema(R.LabelledImages(), fields, (image, *options.columns[1:]))
    assert isinstance(rows, R.LabelledImages)
    return SampledImages(source, rows, sample)


def usable_rows(
    sample: Sample,
    rows: R.RowSchema,
    classes: Sequence[str],
    source: R.Source,
    options: NewOptions,
) -> tuple[list[SourceRow], str]:
    """Return the rows that training can use, and a warning of the others; ValueError if these are more than it may skip."""
    decoded = DecodedWithin(SAMPLE_PIXELS)
    good, wrong = check_rows(sample[0], rows, classes, source.format, decoded)
    bad = sorted([*sample[1], *wrong], key=lambda entry: (entry["file"], entry["offset"]))
    check_bad_row_limit(len(good), bad, options.max_bad_row_fraction)
    return good, f"of the first rows, {bad_rows_line(len(good), bad)}" if bad else ""


def sizes_of(sample: list[SourceRow], column: str = "image") -> list[tuple[int, int]]:
    """Return width and height of each image."""
    return [displayed_size(image_bytes(row.fields[column])) for row in sample]


def usual_size(sizes: Sequence[tuple[int, int]]) -> str:
    return "{} × {} pixels".format(*sorted(sizes)[len(sizes) // 2])


def warn_if_few(count: int, way_out: str) -> str:
    """Return a warning where a model from random weights learns little."""
    return f"{count:,} images are few to learn from; {way_out}" if count < FEW else ""


# Classes


def labels_of(source: R.Source, pieces: Sequence[Piece], column: str) -> list[list[str]]:
    """Return the classes of each row."""
    return [
        class_names(item.fields.get(column))
        for piece in pieces
        for item in read_piece(source, piece, (column,))
        if isinstance(item, SourceRow)
    ]


class LabelFacts(NamedTuple):
    classes: Sequence[str]
    used: list[str]  # the classes that have an image
    images: int
    warning: str  # about their order


def read_labels(source: R.Source, column: str) -> LabelFacts:
    """Read the class of every image, and no image."""
    pieces = split_source(source)
    labels = labels_of(source, pieces, column)
    known = format_of(source).class_names(source, pieces, column)
    used = sorted_classes(set(chain.from_iterable(labels)))
    in_folder = source.format == "folder"  # where each class is divided by itself
    warning = "" if in_folder else warn_if_sorted([" ".join(names) for names in labels])
    return LabelFacts(known or used, used, len(labels), warning)


def image_crop(side: int, sizes: Sequence[tuple[int, int]]) -> R.Transform:
    """Return small shifts for images that all have this size, else a random part of each."""
    if set(sizes) == {(side, side)}:
        return R.RandomCrop(size=side, padding=side // 8)
    return R.RandomResizedCrop(size=side, scale=(0.5, 1.0))


def guess_image_classes(
    files: list[str], valid: list[str], images: SampledImages, options: NewOptions
) -> Guess:
    source, rows, sample = images
    in_folder = source.format == "folder"
    classes, used, count, order_warning = read_labels(source, rows.label)
    check_class_count(source, used, rows.label)
    usable, bad_warning = usable_rows(sample, rows, classes, source, options)
    sizes, example = sizes_of(usable, rows.image), usable[0].path or files[0]
    shortest = median(min(size) for size in sizes)
    side = next((side for side in SIDES if side >= SHRINK * shortest), SIDES[-1])
    last_of = {"last_of": "of each class, by name"} if in_folder else {}
    train, valid_source, validation_text = with_valid(source, valid, count, **last_of)
    if valid:  # of any format
        valid_source = resolve_source(R.Source(paths=tuple(valid)), rows)
    else:
        in_training = labels_of(train, split_source(train), rows.label)
        check_classes_in_training(source, used, set(chain.from_iterable(in_training)))
    cells = {"image_size": side, "patch_size": side // CELLS, "classes": len(classes)}
    cct = f"image_size={side}, convolutions={int(log2(side // CELLS))}, classes={len(classes)}"
    return Guess(
        f"Classification of the images of {files[0]} into {len(classes)} classes: ViT, made small.",
        {
            "images": f"{count:,} ({source.format}), typically {usual_size(sizes)}",
            **({} if in_folder else {"columns": f"{rows.image!r} and {rows.label!r}"}),
            "classes": f"{len(classes)}: {format_labels(tuple(classes))}",
            "image size": f"{side} × {side} pixels after a crop",
            "architecture": "ViT, which transformers opens; weft.cct (see the file) learns faster, but only Weft opens it",
            "validation": validation_text,
            **warnings_of(
                bad_warning,
                warn_if_few(count, "weft tune starts from a pre-trained model"),
                "" if valid else order_warning,
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
    source = R.Source(paths=tuple(files), format="coco")
    all_rows = sample_rows(source, SAMPLE_IMAGES, options.max_bad_row_fraction)
    sample, bad_warning = usable_rows(all_rows, R.ImagesWithBoxes(), classes, source, options)
    try:
        check_box_units([box for row in sample for box in row.fields["boxes"]])
    except ValueError as error:
        raise ValueError(f"{files[0]}: {error}") from None
    sizes = sizes_of(sample)
    side = rounded_up(min(256, median(max(size) for size in sizes)), 32, 256)
    usual_box = box_side(sample, side)
    cell = 16 if usual_box >= LARGE_BOX else 8  # a large box covers several cells
    train, valid_source, validation_text = with_valid(source, valid, len(names))
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
                bad_warning,
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
            "data": R.Data(rows=R.ImagesWithBoxes(labels=classes), train=train, valid=valid_source),
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
