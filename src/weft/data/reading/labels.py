"""Detection of label types: classes or numbers."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ... import recipe as R
from ...recipe.data.cells import class_names, is_number, list_classes, short, sorted_classes
from ...recipe.data.formats import Fields
from .columns import MAX_CLASSES
from .image_columns import COLUMNS_OPTION

MIN_NUMERIC_FRACTION = 0.8  # of the labels: then the others are broken numbers, not classes
MAX_SINGLETON_CLASSES = 5  # classes of one row, which are more than half of all, are no classes


def with_tags(row: R.TaggedWords, rows: Sequence[Fields]) -> R.TaggedWords:
    """Return the row schema with all tags of the rows."""
    tags = {tag for fields in rows for tag in class_names(fields.get(row.tags))}
    if not tags:
        raise ValueError(f"{row.tags} is empty in every row; give --columns WORDS TAGS")
    return replace(row, labels=tuple(sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag))))


def with_labels(
    row: R.LabelledTexts, rows: Sequence[Fields], task: str | None, allowed: float
) -> R.LabelledTexts:
    """Return the row schema with the classes of the rows, or with numbers as labels.

    Args:
        row: the row schema.
        rows: rows of the table.
        task: the name of the task; None: inferred from the labels.
        allowed: the number of rows that may be bad.
    """
    cells = [
        cell
        for cell in (fields.get(row.label) for fields in rows)
        if not isinstance(cell, list) and class_names(cell)
    ]
    if not cells:
        raise ValueError(
            f"{row.label} is empty in every row; name the columns: --columns TEXT [TEXT] LABEL"
        )
    if row.numeric_label or (task is None and looks_like_regression(cells, row.label)):
        if not any(map(is_number, cells)):
            raise ValueError(
                f"{row.label} is {short(cells[0])} in a row, not a number; regress needs numbers, "
                "classify does not"
            )
        return replace(row, numeric_label=True)
    return replace(row, labels=detect_classes(cells, row.label, task, allowed))


def looks_like_regression(cells: list[Any], label: str) -> bool:
    """Return whether most cells are numbers and not all of these are integers."""
    numbers = [float(name) for name in map(str, cells) if is_number(name)]
    if len(numbers) < MIN_NUMERIC_FRACTION * len(cells):
        return False
    if any(number % 1 for number in numbers):
        return True
    if len(set(numbers)) > MAX_CLASSES:
        raise ValueError(
            f"{label} has {len(set(numbers))} distinct whole numbers, which may be classes or "
            "quantities; give --task classify or --task regress"
        )
    return False


def detect_classes(cells: list[Any], label: str, task: str | None, few: float) -> tuple[str, ...]:
    """Return the classes; numbers are sorted by value, as in `weft prepare`. Among integers, a few
    other values count as bad rows, unless the task is classification."""
    seen = Counter(map(str, cells))
    broken = [name for name in seen if not is_number(name)]
    if (
        task is None
        and 0 < sum(seen[name] for name in broken) <= few
        and len(seen) > len(broken) + 1
    ):
        seen = Counter({name: count for name, count in seen.items() if name not in broken})
    once = [name for name, count in seen.items() if count == 1]
    if task is None and len(once) >= MAX_SINGLETON_CLASSES and len(once) > len(seen) / 2:
        raise ValueError(
            f"{label} has {len(seen)} classes, of which {len(once)} occur once "
            f"({format_labels(once)}), so it may not be the label; name another with "
            "--columns TEXT [TEXT] LABEL, or give --task classify, or --task regress for numbers"
        )
    if len(seen) < 2:
        raise ValueError(
            f"every row has {label} = {short(next(iter(seen)))}; name the columns: --columns TEXT "
            "[TEXT] LABEL"
        )
    return tuple(sorted_classes(seen))


def format_labels(names: Sequence[str]) -> str:
    return list_classes(names[:4]) + (", …" if len(names) > 4 else "")


def check_class_count(path: str, classes: Sequence[str], column: str, in_folders: bool) -> None:
    """Raise ValueError unless there are images of two classes or more."""
    if len(classes) > 1:
        return
    if not classes:
        raise ValueError(
            f"{path}: {column} is empty in every row; name another column with {COLUMNS_OPTION}"
        )
    raise ValueError(
        f"{path}: every image has the class {classes[0]}; "
        + ("a class is a sub-folder" if in_folders else "give images of two classes or more")
    )


def check_classes_in_training(
    path: str, classes: Sequence[str], training_classes: Collection[str]
) -> None:
    """Raise ValueError if all images of a class are held out."""
    missing = [name for name in classes if name not in training_classes]
    if missing:
        raise ValueError(
            f"{path}: {missing[0]} has no image to train on beside the held-out ones; give more "
            "of them, or validation images with --valid"
        )
