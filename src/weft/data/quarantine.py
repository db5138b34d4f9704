"""Rows that are set aside: which, why, and how many are too many."""
import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from math import ceil
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from .. import recipe as R
from .files import blocks, update
from .lines import Bad, Found, Item
from .sniff import is_number

MAX_BAD_ROWS = 0.001                       # of the rows; above it the files are wrong, not a row
HANDFUL, ONE_IN = 10, 20                   # bad rows of a small file: at most ten, at most one in twenty, always one
FLOAT32 = float(np.finfo(np.float32).max)
SHOWN = 5                                  # places that are named
UNITS = {"folder": "file", **dict.fromkeys(("parquet", "hub", "squad", "coco", "json"), "row")}      # of an offset; else bytes


def text_columns(row: R.Row) -> tuple[str, ...]:
    """The columns that hold text, for a tokenizer to learn from."""
    match row:
        case R.Documents():
            return (row.text,)
        case R.Pairs():
            return row.source, row.target
        case R.Templated():
            return (*row.columns, row.target) if row.labels is None else row.columns
        case R.Examples():
            return (row.first, row.second) if row.second else (row.first,)
        case R.Choices():
            return row.context, *row.endings
        case R.Tagged():
            return (row.words,)
        case R.Questions():
            return "context", "question"
    return ()


def columns(row: R.Row) -> tuple[str, ...]:
    """All that are read."""
    if isinstance(row, R.Images | R.Boxed):
        return "image", "boxes", "label", "labels"
    if isinstance(row, R.Templated):
        return *row.columns, row.target
    label = getattr(row, "tags", None) or getattr(row, "label", None)
    return (*text_columns(row), *([label] if label else []))


def label_column(row: R.Row) -> str | None:
    """The column whose values are the classes, unless the recipe names them."""
    if isinstance(row, R.Examples):
        return None if row.number else row.label
    if isinstance(row, R.Tagged):
        return row.tags
    return "label" if isinstance(row, R.Images) else "labels" if isinstance(row, R.Boxed) else None


def need(fields: dict[str, Any], name: str, kind: type = str, each: type = object) -> Any:
    """A cell that is there, of its kind and not empty; `each`: what the elements of a list are."""
    if name not in fields:
        raise ValueError(f"no column {name!r} among {', '.join(map(repr, fields))}")
    cell = fields[name]
    if cell is None or (isinstance(cell, str | list) and not (cell.strip() if isinstance(cell, str) else cell)):
        raise ValueError(f"empty {name}")
    if not isinstance(cell, kind):
        raise ValueError(f"{name} is {type(cell).__name__}, not {kind.__name__}")
    for text in cell if isinstance(cell, list) else [cell]:
        if isinstance(cell, list) and not isinstance(text, each):
            raise ValueError(f"{name} holds {short(text)}, which is {type(text).__name__}, not {each.__name__}")
        if isinstance(text, str) and not text.isascii():
            text.encode()                  # JSON can name half a character; this raises, as a ValueError
    return cell


def class_name(label: Any) -> str:
    """The name of a class, as it is stored: a text, or a finite number."""
    if not (isinstance(label, str) and label.strip()) and not (isinstance(label, Number) and is_number(label)):
        raise ValueError(f"label {short(label)} is not the name of a class")
    return str(label)


def class_names(cell: Any) -> list[str]:
    """The classes that a cell names, one or a list; what is no name is left out, for `check` sets its row aside."""
    found = []
    for label in cell if isinstance(cell, list) else [cell]:
        with suppress(ValueError):
            found.append(class_name(label))
    return found


def sorted_classes(names: Iterable[str]) -> list[str]:
    """Whole numbers by size, else by name."""
    names = list(names)
    whole = all(name.isdecimal() and is_number(name) for name in names)
    return sorted(names, key=(lambda name: (int(name), name)) if whole else None)


def known(labels: tuple[str, ...], label: Any) -> int:
    name = class_name(label)
    if name not in labels:
        raise ValueError(f"label {short(name)} is not one of {', '.join(labels[:8])}")
    return labels.index(name)


def number(name: str, label: Any) -> float:
    """A label that float32 can hold: the shard's column is of that kind."""
    if not is_number(label):
        raise ValueError(f"{name} is {short(label)}, not a number")
    if abs(float(label)) > FLOAT32:
        raise ValueError(f"{name} is {short(label)}, beyond float32's largest number")
    return float(label)


def short(value: Any) -> str:
    """A value in a message."""
    try:
        text = repr(value)
    except ValueError:                     # an integer of more digits than Python prints
        return f"an integer of {value.bit_length():,} bits"
    return text if len(text) <= 60 else f"{text[:60]}…"


def check(row: R.Row, found: Found, labels: tuple[str, ...]) -> Bad | None:
    """Why this row cannot be one, if so: asked of each row before it is tokenised."""
    try:
        checks(row, found.fields, labels)
    except (ValueError, TypeError, OverflowError) as error:
        return Bad(found.offset, str(error).splitlines()[0] if str(error) else type(error).__name__)
    return None


def checks(row: R.Row, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
    if isinstance(row, R.Images | R.Boxed):
        from .picture import open_image
        open_image(image_bytes(need(fields, "image", object)))
    elif isinstance(row, R.Tagged):
        words, tags = need(fields, row.words, list, str), need(fields, row.tags, list)
        if len(words) != len(tags):
            raise ValueError(f"{len(words)} words but {len(tags)} tags")
        for tag in tags:
            known(labels, tag)
    elif isinstance(row, R.Choices) and len(row.endings) == 1:
        need(fields, row.context), need(fields, row.endings[0], list, str)
    else:
        for name in text_columns(row):
            need(fields, name)
    if isinstance(row, R.Templated) and row.labels is not None:
        known(row.labels, need(fields, row.target, object))
    elif isinstance(row, R.Examples):
        label = need(fields, row.label, object)
        if row.number:
            number(row.label, label)
        else:
            known(labels, label)
    elif isinstance(row, R.Choices):
        label = need(fields, row.label, object)
        count = len(row.endings) if len(row.endings) > 1 else len(fields[row.endings[0]])
        if not 0 <= (which := number(row.label, label)) < count or not which.is_integer():
            raise ValueError(f"label {short(label)} of {count} endings")
    elif isinstance(row, R.Images):
        known(labels, need(fields, "label", object))
    elif isinstance(row, R.Boxed):
        boxes, names = fields.get("boxes", []), fields.get("labels", [])
        if len(boxes) != len(names) or any(len(box) != 4 or isinstance(box, str) for box in boxes):
            raise ValueError("boxes are four numbers and a label each")
        for side in chain(*boxes):
            number("a box's side", side)
        for name in names:
            known(labels, name)


def image_bytes(cell: Any) -> bytes:
    """Encoded bytes, also where a data set wraps them."""
    held = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(held, bytes) or not held:
        raise ValueError("empty image" if held == b"" else "an image without its bytes")
    return held


# The rule

def allowed(rows: int, share: float) -> float:
    """How many bad rows may be set aside: a share of them all, of a small file a few more; with a share of 0 none."""
    return max(share * rows, min(HANDFUL, rows / ONE_IN), 1) if share else 0


def entry(wrong: Bad, item: Item, path: str, format: str | None) -> dict[str, Any]:
    """A bad row as `quarantine.jsonl` has it."""
    fields = item.fields if isinstance(item, Found) else {}         # images say which file they are; a text's column may be called so too
    file = fields["file"] if "image" in fields else item.path or path
    return {"file": file, "offset": wrong.offset, "unit": UNITS.get(format or "", "byte"), "reason": wrong.reason}


def places(bad: list[dict[str, Any]]) -> str:
    """The file of the first bad row, the first few lines or rows, and the first reason."""
    first = bad[0]
    offsets = [entry["offset"] for entry in bad if entry["file"] == first["file"]][:SHOWN]
    unit = first.get("unit", "byte")
    if unit == "file":
        return f"{first['file']}{' and others' * (len(bad) > 1)}: {first['reason']}"
    counted = unit == "row"
    numbers = [n + 1 for n in offsets] if counted else line_numbers(first["file"], offsets)
    named = ", ".join(f"{n:,}" for n in numbers) + ", …" * (len(bad) > len(numbers))
    return f"{first['file']}, {'row' if counted else 'line'}{'s' * (len(numbers) > 1)} {named}: {first['reason']}"


def line_numbers(path: str, offsets: list[int]) -> list[int]:
    """The lines, counted from 1, that hold these bytes of the unpacked file, in order."""
    found, passed, lines, offsets = list[int](), 0, 1, sorted(offsets)
    try:
        for block in blocks(path):
            while len(found) < len(offsets) and offsets[len(found)] < passed + len(block):
                found.append(lines + block.count(b"\n", 0, offsets[len(found)] - passed))
            passed, lines = passed + len(block), lines + block.count(b"\n")
    except (OSError, ValueError):
        pass                               # the source has gone since, or cannot be unpacked further
    return found or offsets


def set_aside(rows: int, bad: list[dict[str, Any]], what: str = "") -> str:
    """One line about the rows that are left out."""
    return f"{len(bad):,} of {rows + len(bad):,} {what}{' ' * bool(what)}rows set aside ({places(bad)})"


def enforce(rows: int, bad: list[dict[str, Any]], share: float, kept_in: Path | None = None) -> None:
    """Stops where more rows are bad than may be."""
    total = rows + len(bad)
    if not bad or (rows and len(bad) <= allowed(total, share)):
        return
    enough = ceil(1000 * len(bad) / total) / 1000
    listed = f"; all are listed in {kept_in}" if kept_in else ""
    more = f", or allow more with --max-bad-rows {enough:g} (weft train: --set data.max_bad_rows={enough:g})" if rows else ""
    raise ValueError(f"{len(bad):,} of {total:,} rows cannot be read ({places(bad)}){listed}; at most {int(allowed(total, share)):,} may "
                     f"be set aside: mend the file{more}")


def judge(folder: Path, rows: int, bad: list[dict[str, Any]], share: float) -> None:
    """Writes what was set aside, and stops where it is too much."""
    kept_in = folder / "quarantine.jsonl"
    if bad:
        update(kept_in, "".join(json.dumps(entry) + "\n" for entry in bad).encode())
    else:
        kept_in.unlink(missing_ok=True)
    enforce(rows, bad, share, kept_in)
    if not rows:
        raise ValueError(f"there is not one row for {folder}; look at the source's paths, format and part")


def notes(folder: Path) -> list[str]:
    """A line for each split of prepared data of which rows were set aside."""
    found = []
    for index in sorted(folder.glob("*/index.json")):
        rows, path = json.loads(index.read_text())["rows"], index.with_name("quarantine.jsonl")
        if not path.exists():
            continue
        bad = [json.loads(line) for line in path.read_text().splitlines()]
        found.append(f"{set_aside(rows, bad, path.parent.name)}; all are listed in {path}")
    return found
