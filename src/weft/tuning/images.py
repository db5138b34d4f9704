"""Fine-tuning of image models: classes from the data, augmentation from the checkpoint, a new head where the old one was."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.reading.labels import check_class_count, check_classes_in_training, format_labels
from ..data.reading.table import open_table
from ..data.store import Store
from ..interop.hub import local_folder
from ..interop.image_processor import image_transforms
from .options import TuneOptions

TASK = "classify"
# A wide range, since checkpoints of images differ in size a thousandfold
LEARNING_RATES = (1e-3, 3e-4, 1e-4, 3e-5)
FEW_WEIGHTS = 10  # times these rates for a new head or LoRA alone
HELD_OUT = 0.1  # of the images, of every class in a folder, where no validation data are given
TEXT_OPTIONS = ("column_names", "source_prefix", "label_texts", "max_length", "lm_weight")


class ImageSources(NamedTuple):
    rows: R.LabelledImages
    train: R.Source
    valid: R.Source


def reads_images(spec: S.Spec) -> bool:
    return not isinstance(spec.source, S.Tokens)


def image_sources(options: TuneOptions) -> ImageSources:
    """Return what is read of --data and --valid; without --valid, the last tenth of the images is held out."""
    table = open_table(
        options.data,
        options.columns,
        label=options.label,
        expected=R.LabelledImages(),
        max_bad_rows=options.max_bad_row_fraction,
    )
    rows = table.row_schema(R.task_named(TASK))
    assert isinstance(rows, R.LabelledImages)
    if not options.valid:
        train, valid = table.part(0.0, 1 - HELD_OUT), table.part(1 - HELD_OUT, 1.0)
        return ImageSources(rows, train.source, valid.source)
    valid = table.open_like(options.valid)
    if not {*rows.columns} <= {*valid.columns}:
        raise ValueError(
            f"--data {options.data[0]} has the columns {format_labels(rows.columns)}, --valid {options.valid[0]} has "
            f"{format_labels(valid.columns)}; give tables with the same columns, or two folders"
        )
    return ImageSources(rows, table.source, valid.source)


def check_options(options: TuneOptions, spec: S.Spec) -> None:
    """Raise ValueError for what images cannot have, before anything is written."""
    if not isinstance(spec.source, S.Patches):
        raise ValueError(
            f"{options.checkpoint} is a detector; train it on boxes with a recipe like recipes/detr.py:bccd"
        )
    if options.image_size is not None:
        S.with_image_size(spec, options.image_size)
    if options.task not in (None, TASK):
        raise ValueError(
            f"{options.checkpoint} reads images, which {options.task} does not; leave --task out"
        )
    for name in TEXT_OPTIONS:
        if getattr(options, name):
            raise ValueError(
                f"--{name.replace('_', '-')} is for texts, and {options.checkpoint} reads images; leave it out"
            )


def with_image_head(spec: S.Spec, classes: tuple[str, ...], options: TuneOptions) -> S.Spec:
    """Return the spec with a head for these classes: like the old classifier, or a linear map of the class token or of the mean."""
    old = spec.head
    head = (
        replace(old, num_labels=len(classes), labels=classes)
        if isinstance(old, S.ClassifierHead)
        else S.ClassifierHead(
            num_labels=len(classes),
            labels=classes,
            pooling="cls" if spec.extra_tokens else "mean",
        )
    )
    spec = replace(spec, head=head)
    if options.image_size is not None:
        spec = S.with_image_size(spec, options.image_size)
    return spec if options.dropout is None else S.with_dropout(spec, options.dropout)


def image_task(spec: S.Spec, start: Path, options: TuneOptions) -> R.Task:
    """Return the task with the transforms that the checkpoint was trained with; where they are unknown or the size changes, a random
    resized crop and a flip."""
    folder = local_folder(options.checkpoint)
    before = R.recipe_of_run(folder).task if (folder / "recipe.json").is_file() else None
    transforms = R.transforms_for(before, evaluation=False)
    if transforms is not None and options.image_size is None:
        return R.task_named(TASK).for_model(
            spec,
            transforms=resized_first(transforms),
            eval_transforms=getattr(before, "eval_transforms", None),
        )
    seen = R.transforms_for(before, evaluation=True) or image_transforms(start, spec)
    normalize = next((step for step in seen if isinstance(step, R.Normalize)), R.Normalize())
    assert isinstance(spec.source, S.Patches)
    crop = R.RandomResizedCrop(size=spec.source.image_size)
    return R.task_named(TASK).for_model(
        spec,
        transforms=(crop, R.RandomHorizontalFlip(), normalize),
        eval_transforms=seen if options.image_size is None else None,
    )


def resized_first(transforms: tuple[R.Transform, ...]) -> tuple[R.Transform, ...]:
    """Return the transforms for images of any size: a crop with padding is for images that have its size."""
    first = transforms[0] if transforms else None
    if isinstance(first, R.RandomCrop) and first.padding:
        return (R.Resize(size=(first.size, first.size)), *transforms)
    return transforms


def describe_images(sources: ImageSources, train: Store, valid: Store) -> str:
    """Describe what is read in one sentence.

    Raises:
        ValueError: if the images have one class, or the held-out ones lack most of the classes or hold all images of one.
    """
    classes, path = train.meta.labels or (), sources.train.paths[0]
    trained, held_out = set(train.column("label")), set(valid.column("label"))
    used = [name for i, name in enumerate(classes) if i in trained | held_out]
    check_class_count(path, used, sources.rows.label, sources.train.format == "folder")
    split = sources.valid.fraction != (0.0, 1.0)
    if split and 2 * len(held_out) < len(used):
        raise ValueError(
            f"{path}: the last tenth of the images has {len(held_out)} of {len(used)} classes; give --valid"
        )
    if split:
        check_classes_in_training(path, used, {classes[i] for i in trained})
    text = f"{path}: {len(train) + len(valid) * split:,} images ({sources.train.format}), {len(classes)} classes ({format_labels(classes)}): {TASK}"
    return f"{text}; {len(valid):,} held out" if split else text
