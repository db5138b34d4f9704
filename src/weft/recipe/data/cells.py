"""Checks of the cells of a row: presence, type and range."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from math import isfinite
from numbers import Number
from typing import Any

FLOAT32 = 3.4028234663852886e38  # its largest number
EXCERPT = 60  # characters of a cell in a message


def is_number(cell: Any) -> bool:
    """Return whether a cell is a finite number."""
    try:
        return isfinite(float(cell))
    except (TypeError, ValueError, OverflowError):
        return False


def require_cell(fields: dict[str, Any], name: str, kind: type = str, each: type = object) -> Any:
    """Return a cell after checking that it exists, has the right type and is not empty.

    Args:
        fields: the cells of the row by column.
        name: the column.
        kind: the type of the cell (default: str).
        each: the type of a list's elements (default: any).
    """
    if name not in fields:
        raise ValueError(f"no column {name!r}; available: {', '.join(map(repr, fields))}")
    cell = fields[name]
    if cell is None or (
        isinstance(cell, str | list) and not (cell.strip() if isinstance(cell, str) else cell)
    ):
        raise ValueError(f"empty {name}")
    if not isinstance(cell, kind):
        raise ValueError(f"{name} is {type(cell).__name__}, not {kind.__name__}")
    for text in cell if isinstance(cell, list) else [cell]:
        if isinstance(cell, list) and not isinstance(text, each):
            raise ValueError(
                f"{name} holds {short(text)}, which is {type(text).__name__}, not {each.__name__}"
            )
        if isinstance(text, str) and not text.isascii():
            text.encode()  # raises ValueError for half a character, which JSON can express
    return cell


class ClassName(str):
    """The name of a class that a table stores as a number. As text it is the name; `float` returns
    the number.

    Attributes:
        number: the number of the class.
        names: the names of all classes of the column, in order.
    """

    number: int
    names: tuple[str, ...]

    def __float__(self) -> float:
        return float(self.number)


def class_name(label: Any) -> str:
    """Return the name of a class from a text or a finite number."""
    if not (isinstance(label, str) and label.strip()) and not (
        isinstance(label, Number) and is_number(label)
    ):
        raise ValueError(f"label {short(label)} is not a class name; give a text or a number")
    return str(label)


def class_names(cell: Any) -> list[str]:
    """Return the classes in a cell, one or a list; skips invalid names, whose rows `check`
    rejects.
    """
    class_names = []
    for label in cell if isinstance(cell, list) else [cell]:
        with suppress(ValueError):
            class_names.append(class_name(label))
    return class_names


def sorted_classes(names: Iterable[str]) -> list[str]:
    """Return class names sorted by number if all are whole numbers, else by name."""
    names = list(names)
    whole = all(name.isdecimal() and is_number(name) for name in names)
    return sorted(names, key=(lambda name: (int(name), name)) if whole else None)


UNKNOWN_CLASS = "is not one of"


def label_index(labels: tuple[str, ...], label: Any) -> int:
    """Return the index of a label among the classes."""
    name = class_name(label)
    if name not in labels:
        more = f", … ({len(labels)} classes)" if len(labels) > 8 else ""
        raise ValueError(f"label {short(name)} {UNKNOWN_CLASS} {list_classes(labels[:8])}{more}")
    return labels.index(name)


def number(name: str, label: Any) -> float:
    """Return a label as a number; ValueError if float32, the type of the shard's column, cannot
    hold it.
    """
    if not is_number(label):
        raise ValueError(f"{name} is {short(label)}, not a number")
    if abs(float(label)) > FLOAT32:
        raise ValueError(f"{name} is {short(label)}, beyond float32's largest number")
    return float(label)


def short(value: Any) -> str:
    """Return a value on one line, truncated, for a message."""
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except ValueError:  # an integer of more digits than Python prints
        return f"an integer of {value.bit_length():,} bits"
    return excerpt(text)


def excerpt(text: str) -> str:
    """Return the start of a text, for a message."""
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def list_classes(names: Iterable[str]) -> str:
    return ", ".join(map(excerpt, names))


VISIBLE = 0.5  # the fraction of a box that must be inside the image; the rest is clipped


def check_boxes(boxes: Any, size: tuple[int, int]) -> None:
    """Raise ValueError for boxes that are empty or mostly outside their image.

    Args:
        boxes: x, y, width and height of each box in pixels.
        size: width and height of the image in pixels.
    """
    width, height = size
    for box in boxes:
        x, y, w, h = map(float, box)
        if w <= 0 or h <= 0:
            raise ValueError(
                f"box {short(box)} is empty; give x, y, width and height, both above 0"
            )
        inside = max(0.0, min(x + w, width) - max(x, 0.0)) * max(
            0.0, min(y + h, height) - max(y, 0.0)
        )
        if inside < VISIBLE * w * h:
            corners = 0 <= x < w <= width and 0 <= y < h <= height
            hint = "it looks like left, top, right and bottom" if corners else "correct the box"
            raise ValueError(
                f"box {short(box)} is outside its image of {width}×{height} pixels; "
                f"give x, y, width and height in pixels: {hint}"
            )


def check_box_units(boxes: Sequence[Sequence[float]]) -> None:
    """Raise ValueError if no number of the boxes of a data set, or of a sample of it, exceeds 1:
    they are fractions of their images, not pixels.
    """
    if max(map(float, chain.from_iterable(boxes)), default=2.0) <= 1:
        raise ValueError(
            f"box {short(boxes[0])} and all others look like fractions of their image; "
            "give x, y, width and height in pixels"
        )
