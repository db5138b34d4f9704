"""Recipes for detectors with random weights, on COCO's layout."""

import shlex
from statistics import median
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..data.reading.files import find, size_and_mtime
from ..data.reading.formats.coco import load_coco
from ..data.reading.labels import format_labels
from ..data.reading.table import Tables
from ..recipe.data.cells import check_box_units
from ..recipe.data.formats import SourceRow
from .image_samples import IMAGE_COMMENTS, sample_images, sizes_of, usual_size, warn_if_few
from .recipe_code import Call, Name
from .split import split_tables
from .suggestion import RUN, Budget, Suggestion, count_steps, first_fields, rounded_up

BATCH_SIZE = 16
WEFT_ONLY = (
    "only Weft opens this detector, since its group norm is trainable; "
    "transformers opens model=DETR, with frozen norms, or a published DAB-DETR "
    "(init_from)"
)
LARGE_BOX = 48  # pixels
LEAST_STEPS = 1500  # minimum for a detector to find objects, even on few images


def box_side(sample: list[SourceRow], side: int) -> float:
    """Return the median shorter side of a box in pixels, after images are resized to this longer
    side.
    """
    sides = [
        float(min(box[2:])) * side / max(size)
        for row, size in zip(sample, sizes_of(sample), strict=True)
        for box in row.fields["boxes"]
    ]
    return median(sides or [side])


def small_detector(cell: int, queries: int, classes: int) -> dict[str, Call]:
    """Return a small DAB-DETR with random weights. A cell of its last map is 8 or 16 pixels
    wide."""
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


def suggest_detection(tables: Tables, budget: Budget) -> Suggestion:
    """Return a suggestion for a small DAB-DETR with denoising queries."""
    file, folder = tables.train.source.paths
    path = find(file)[0]
    coco = load_coco(path, size_and_mtime(path))
    count = sum(map(bool, coco.files))
    boxes = [len(notes) for notes in coco.boxes.values()]
    if not count or not boxes:
        raise ValueError(f"{file} has no {'image' if not count else 'box'}; give annotated images")
    classes = tuple(dict.fromkeys(coco.names.values()))
    row = R.ImagesWithBoxes(labels=classes)
    usable = sample_images(tables.train, row, classes)
    sizes = sizes_of(usable.rows)
    try:
        check_box_units([box for item in usable.rows for box in item.fields["boxes"]])
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    side = rounded_up(min(256, median(max(size) for size in sizes)), 32, 256)
    usual_box = box_side(usable.rows, side)
    # A large box covers several cells
    cell = 16 if usual_box >= LARGE_BOX else 8
    split = split_tables(tables, row, usable, count)
    queries = rounded_up(1.5 * max(boxes), 10, 300)
    size = budget.batch_size or BATCH_SIZE
    few = warn_if_few(count, "add images, or start from a trained detector with init_from")
    warnings = (WEFT_ONLY, *(f"in the first rows, {note}" for note in usable.notes()), few)
    return Suggestion(
        "detect",
        f"Detection in the images of {folder}: a small DAB-DETR with denoising queries.",
        {
            "images": f"{count:,}, typically {usual_size(sizes)}",
            "boxes": f"{sum(boxes):,}, at most {max(boxes)} in an image: {queries} queries",
            "classes": f"{len(classes)}: {format_labels(classes)}",
            "longest side": f"{side} pixels after resizing, a typical box {usual_box:.0f}",
            **split.facts(*warnings),
        },
        first_fields(
            Name("MODEL"),
            detection_task(side),
            split.data(row),
            R.FixedBatch(size=size, length=(side // cell) ** 2),
            max(LEAST_STEPS, count_steps(budget.epochs or 60, count, size, 20_000)),
        )
        | {
            "workers": 1,
            "optimiser": R.Muon(
                lr=4e-3, weight_decay=1e-4, other=R.AdamW(lr=1e-3, weight_decay=1e-4)
            ),
            "grad_clip": 0.1,
        },
        IMAGE_COMMENTS
        | {
            "model": WEFT_ONLY.replace("; ", ";\n"),
            "batch": "images per step, and cells of the last feature map per image",
        },
        f"weft detect {RUN} {shlex.quote(folder)} --draw boxes",
        small_detector(cell, queries, len(classes)),
    )


def detection_task(side: int) -> R.Detection:
    return R.Detection(
        class_cost=2.0,
        transforms=(
            R.RandomHorizontalFlip(),
            R.Resize(size=side, max_size=side),
            R.Normalize(),
        ),
        denoising=R.DenoisingQueries(groups=5),
    )
