"""The cells of a row: present, of their kind, and within what is stored."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from math import isfinite
from numbers import Number
from typing import Any

FLOAT32 = 3.4028234663852886e38  # its largest number
EXCERPT = 60  # characters of a cell in a message


def is_number(cell: Any) -> bool:
    """Finite."""
    try:
        return isfinite(float(cell))
    except (TypeError, ValueError, OverflowError):
        return False


def require_cell(fields: dict[str, Any], name: str, kind: type = str, each: type = object) -> Any:
    """A cell that is there, of its kind and not empty; `each`: what the elements of a list are."""
    if name not in fields:
        raise ValueError(f"no column {name!r} among {', '.join(map(repr, fields))}")
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
            text.encode()  # JSON can name half a character; this raises, as a ValueError
    return cell


class ClassName(str):
    """The name of a class that a table keeps as a number: a text to a reader of classes, its number
    to a reader of numbers, who calls `float`.

    Attributes:
        number: of the class.
        names: of all classes of the column, in their order."""

    number: int
    names: tuple[str, ...]

    def __float__(self) -> float:
        return float(self.number)


def class_name(label: Any) -> str:
    """The name of a class, as it is stored: a text, or a finite number."""
    if not (isinstance(label, str) and label.strip()) and not (
        isinstance(label, Number) and is_number(label)
    ):
        raise ValueError(f"label {short(label)} is not the name of a class")
    return str(label)


def class_names(cell: Any) -> list[str]:
    """The classes that a cell names, one or a list; what is no name is left out, for `check` sets
    its row aside."""
    class_names = []
    for label in cell if isinstance(cell, list) else [cell]:
        with suppress(ValueError):
            class_names.append(class_name(label))
    return class_names


def sorted_classes(names: Iterable[str]) -> list[str]:
    """Whole numbers by size, else by name."""
    names = list(names)
    whole = all(name.isdecimal() and is_number(name) for name in names)
    return sorted(names, key=(lambda name: (int(name), name)) if whole else None)


UNKNOWN_CLASS = "is not one of"


def label_index(labels: tuple[str, ...], label: Any) -> int:
    name = class_name(label)
    if name not in labels:
        more = f", … ({len(labels)} classes)" if len(labels) > 8 else ""
        raise ValueError(f"label {short(name)} {UNKNOWN_CLASS} {list_classes(labels[:8])}{more}")
    return labels.index(name)


def number(name: str, label: Any) -> float:
    """A label that float32 can hold: the shard's column is of that kind."""
    if not is_number(label):
        raise ValueError(f"{name} is {short(label)}, not a number")
    if abs(float(label)) > FLOAT32:
        raise ValueError(f"{name} is {short(label)}, beyond float32's largest number")
    return float(label)


def short(value: Any) -> str:
    """A value in a message, on one line."""
    try:
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except ValueError:  # an integer of more digits than Python prints
        return f"an integer of {value.bit_length():,} bits"
    return excerpt(text)


def excerpt(text: str) -> str:
    """The start of a text, for a message."""
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def list_classes(names: Iterable[str]) -> str:
    return ", ".join(map(excerpt, names))


VISIBLE = 0.5  # of a box's area that must be inside the image; what is outside is clipped


def check_boxes(boxes: Any, size: tuple[int, int]) -> None:
    """Refuse boxes, as x, y, width and height in pixels, that are empty or for the most part
    outside an image of this size."""
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
                f"boxes are x, y, width and height: {hint}"
            )


def check_box_units(boxes: Sequence[Sequence[float]]) -> None:
    """Refuse boxes, those of a data set or of a sample of it, if no number of them exceeds 1: they
    are fractions of their images."""
    if max(map(float, chain.from_iterable(boxes)), default=2.0) <= 1:
        raise ValueError(
            f"box {short(boxes[0])} looks like fractions of its image, and so do the others; "
            "give x, y, width and height in pixels"
        )
