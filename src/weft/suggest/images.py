"""Recipes for image classification, from random weights or a checkpoint."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import log2
from statistics import median
from typing import Any, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.reading.formats.image_folder import FOLDER, IMAGE_SUFFIXES
from ..data.reading.labels import check_class_count, check_classes_in_training, format_labels
from ..data.reading.rows import load_source
from ..data.reading.table import Table, Tables, UsableRows
from ..interop.huggingface.image_processor import image_transforms
from ..recipe.data.cells import class_names, sorted_classes
from .checkpoint import Checkpoint, with_layer_mix
from .fine_tuning import Trained, suggest_fine_tuning
from .image_samples import IMAGE_COMMENTS, sample_images, sizes_of, usual_size, warn_if_few
from .recipe_code import Call
from .split import Split, split_tables
from .suggestion import RUN, Budget, FineTuning, Suggestion, count_steps, first_fields

TASK = "classify"
BATCH_SIZE = 32
SIDES = (32, 64, 128)  # input sides of a small classifier
# Prefer shrinking images to this factor over enlarging them, which costs four times as much
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


class LabelledImageTable(NamedTuple):
    """A table of labelled images, its classes and its validation split."""

    table: Table
    rows: R.LabelledImages
    classes: tuple[str, ...]
    total: int
    split: Split
    sample: UsableRows

    @property
    def summary(self) -> str:
        classes = f"{len(self.classes)} classes ({format_labels(self.classes)})"
        return f"{self.table.path}: {self.total:,} images ({self.table.format}), {classes}: {TASK}"


def read_classes(tables: Tables) -> LabelledImageTable:
    """Return a table of labelled images with its classes.

    Raises:
        ValueError: if the table has one class, or if the split holds out all images of a class.
    """
    table = tables.train
    assert table.examined
    try:
        rows = table.row_schema(R.Classification)
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}") from None
    assert isinstance(rows, R.LabelledImages)
    items = load_source(table.source, (rows.label,))[0]
    labels = [class_names(item.fields.get(rows.label)) for item in items]
    classes = tuple(table.classes(rows.label, labels))
    used = sorted_classes(set(chain.from_iterable(labels)))
    check_class_count(table.path, used, rows.label, table.format == FOLDER.name)
    sample = sample_images(table, rows, classes)
    split = split_tables(tables, rows, UsableRows(items, []))
    if tables.valid is None:
        in_training = table.with_source(split.train).labels(rows.label)
        check_classes_in_training(table.path, used, set(chain.from_iterable(in_training)))
    return LabelledImageTable(table, rows, classes, len(items), split, sample)


# Random weights


def suggest_image_classes(tables: Tables, budget: Budget) -> Suggestion:
    """Return a suggestion for a small ViT."""
    table, rows, classes, count, split, sample = read_classes(tables)
    sizes = sizes_of(sample.rows, rows.image)
    example = sample.rows[0].path or table.path
    shortest = median(min(size) for size in sizes)
    side = next((side for side in SIDES if side >= SHRINK * shortest), SIDES[-1])
    size = budget.batch_size or BATCH_SIZE
    cells = {"image_size": side, "patch_size": side // CELLS, "classes": len(classes)}
    columns = f"{rows.image!r} and {rows.label!r}"
    few = warn_if_few(count, "start from a pre-trained model with weft tune")
    return Suggestion(
        TASK,
        f"Classification of the images of {table.path} into {len(classes)} classes: a small ViT.",
        {
            "images": f"{count:,} ({table.format}), typically {usual_size(sizes)}",
            **({} if table.format == FOLDER.name else {"columns": columns}),
            "classes": f"{len(classes)}: {format_labels(classes)}",
            "image size": f"{side} × {side} pixels after a crop",
            "architecture": "ViT, which transformers opens; weft.cct (see the recipe) learns "
            "faster, but only Weft opens it",
            **split.facts(*(f"in the first rows, {note}" for note in sample.notes()), few),
        },
        first_fields(
            Call("weft.vit", SMALL_VIT | cells),
            R.Classification(
                label_smoothing=0.1,
                transforms=(image_crop(side, sizes), R.RandomHorizontalFlip(), R.Normalize()),
            ),
            split.data(rows),
            R.FixedBatch(size=size, length=CELLS**2 + 1),
            count_steps(budget.epochs or 50, count, size, 20_000),
        )
        | {"workers": 1},
        image_comments(side, len(classes)),
        f"weft classify {RUN} {shlex.quote(example)}"
        if example.lower().endswith(IMAGE_SUFFIXES)
        else f"weft evaluate {RUN}",
    )


def image_crop(side: int, sizes: Sequence[tuple[int, int]]) -> R.Transform:
    """Return small shifts if all images have this size, else a random resized crop."""
    if set(sizes) == {(side, side)}:
        return R.RandomCrop(size=side, padding=side // 8)
    return R.RandomResizedCrop(size=side, scale=(0.5, 1.0))


def image_comments(side: int, classes: int) -> dict[str, str]:
    cct = f"image_size={side}, convolutions={int(log2(side // CELLS))}, classes={classes}"
    return IMAGE_COMMENTS | {
        "model": "random weights; weft tune fine-tunes a pre-trained model on the same "
        "images.\n"
        f'weft.cct("4-3x2", {cct}) learns faster (85.6 versus 83.0 % on CIFAR-10), but only Weft '
        "opens it",
        "batch": "images per step, and tokens per image",
    }


# Checkpoints


def suggest_image_tuning(
    tables: Tables,
    task: str | None,
    checkpoint: Checkpoint,
    tuning: FineTuning,
    budget: Budget,
) -> Suggestion:
    """Return the recipe that fine-tunes a checkpoint on images; `suggest` describes the
    arguments."""
    check_choices(task, checkpoint, tuning, budget.max_length)
    images = read_classes(tables)
    spec = with_image_head(checkpoint.spec, images.classes, tuning)
    spec = with_layer_mix(spec, tuning.layer_mix)
    value = image_task(spec, checkpoint, resized=tuning.image_size is not None)
    length = spec.grid_cells + spec.extra_tokens
    title = f"Fine-tuning of {checkpoint.name} on the images of {tables.path}."
    split = images.split
    trained = Trained(
        TASK,
        title,
        spec,
        value,
        split,
        split.data(images.rows),
        length,
        split.train_rows,
        images.summary,
    )
    return suggest_fine_tuning(trained, tables, checkpoint, tuning, budget)


def check_choices(
    task: str | None, checkpoint: Checkpoint, tuning: FineTuning, max_length: int | None
) -> None:
    """Raise ValueError for options and tasks that images do not support."""
    if not isinstance(checkpoint.spec.source, S.Patches):
        raise ValueError(
            f"{checkpoint.name} is a detector; train it on boxes with a recipe like "
            "recipes/detr.py:bccd"
        )
    if tuning.image_size is not None:
        S.with_image_size(checkpoint.spec, tuning.image_size)
    if task not in (None, TASK):
        raise ValueError(f"{checkpoint.name} reads images, and {task} does not; remove --task")
    of_texts: dict[str, Any] = {
        "--source-prefix": tuning.source_prefix,
        "--label-texts": tuning.label_texts,
        "--max-length": max_length,
        "--lm-weight": tuning.lm_weight,
    }
    for option, value in of_texts.items():
        if value:
            raise ValueError(
                f"{option} is for texts, and {checkpoint.name} reads images; remove it"
            )


def with_image_head(spec: S.Spec, classes: tuple[str, ...], tuning: FineTuning) -> S.Spec:
    """Return the spec with a head for these classes: like the checkpoint's classifier, or a linear
    map of the class token or the mean.
    """
    old = spec.head
    pooling: Any = "cls" if spec.extra_tokens else "mean"
    new = S.ClassifierHead(num_labels=len(classes), labels=classes, pooling=pooling)
    if isinstance(old, S.ClassifierHead):
        new = replace(old, num_labels=len(classes), labels=classes)
    spec = replace(spec, head=new)
    if tuning.image_size is not None:
        spec = S.with_image_size(spec, tuning.image_size)
    return spec if tuning.dropout is None else S.with_dropout(spec, tuning.dropout)


def image_task(spec: S.Spec, checkpoint: Checkpoint, resized: bool) -> R.Task:
    """Return the task with the transforms of the checkpoint; if they are unknown or the size
    changes, with a random resized crop and a flip.
    """
    before = checkpoint.task
    transforms = R.transforms_for(before, evaluation=False)
    if transforms is not None and not resized:
        return R.task_named(TASK).for_model(
            spec,
            transforms=resized_first(transforms),
            eval_transforms=getattr(before, "eval_transforms", None),
        )
    seen = R.transforms_for(before, evaluation=True) or image_transforms(checkpoint.folder, spec)
    normalize = next((step for step in seen if isinstance(step, R.Normalize)), R.Normalize())
    assert isinstance(spec.source, S.Patches)
    crop = R.RandomResizedCrop(size=spec.source.image_size)
    return R.task_named(TASK).for_model(
        spec,
        transforms=(crop, R.RandomHorizontalFlip(), normalize),
        eval_transforms=None if resized else seen,
    )


def resized_first(transforms: tuple[R.Transform, ...]) -> tuple[R.Transform, ...]:
    """Return the transforms for images of any size, with a resized crop in place of a padded crop,
    which needs images of the input size.
    """
    first = transforms[0] if transforms else None
    if isinstance(first, R.RandomCrop) and first.padding:
        return (R.Resize(size=(first.size, first.size)), *transforms)
    return transforms
