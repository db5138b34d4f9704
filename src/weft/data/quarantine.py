"""Rows that are kept out: which, why, and how many are too many."""
import json
from pathlib import Path
from typing import Any

import numpy as np

from .. import recipe as R
from .files import update
from .lines import Bad, Found

TOLERANCE = 0.001                          # of the rows; above it the files are wrong, not a row
HANDFUL = 10                               # of bad rows is borne however few the rows are


def text_columns(row: R.Row) -> tuple[str, ...]:
    """The columns that hold text, for a tokenizer to learn from."""
    match row:
        case R.Documents():
            return (row.text,)
        case R.Pairs():
            return row.source, row.target
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
    label = getattr(row, "tags", None) or getattr(row, "label", None)
    return (*text_columns(row), *([label] if label else []))


def label_column(row: R.Row) -> str | None:
    """The column whose values are the classes, unless the recipe names them."""
    if isinstance(row, R.Examples):
        return None if row.number else row.label
    if isinstance(row, R.Tagged):
        return row.tags
    return "label" if isinstance(row, R.Images) else "labels" if isinstance(row, R.Boxed) else None


def need(fields: dict[str, Any], name: str, kind: type = str) -> Any:
    """A cell that is there, of its kind and not empty."""
    if name not in fields:
        raise ValueError(f"no column {name!r} among {', '.join(map(repr, fields))}")
    cell = fields[name]
    if cell is None or (isinstance(cell, str | list) and not (cell.strip() if isinstance(cell, str) else cell)):
        raise ValueError(f"empty {name}")
    if not isinstance(cell, kind):
        raise ValueError(f"{name} is {type(cell).__name__}, not {kind.__name__}")
    for text in cell if isinstance(cell, list) else [cell]:
        if isinstance(text, str) and not text.isascii():
            text.encode()                  # JSON can name half a character; this raises, as a ValueError
    return cell


def known(labels: tuple[str, ...], name: Any) -> int:
    if str(name) not in labels:
        raise ValueError(f"label {str(name)!r} is not one of {', '.join(labels[:8])}")
    return labels.index(str(name))


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
        words, tags = need(fields, row.words, list), need(fields, row.tags, list)
        if len(words) != len(tags):
            raise ValueError(f"{len(words)} words but {len(tags)} tags")
        for tag in tags:
            known(labels, tag)
    elif isinstance(row, R.Choices) and len(row.endings) == 1:
        need(fields, row.context), need(fields, row.endings[0], list)
    else:
        for name in text_columns(row):
            need(fields, name)
    if isinstance(row, R.Examples):
        label = need(fields, row.label, object)
        if row.number and not np.isfinite(float(label)):
            raise ValueError(f"label {label!r} is not a number")
        if not row.number:
            known(labels, label)
    elif isinstance(row, R.Choices):
        label = int(need(fields, row.label, object))
        count = len(row.endings) if len(row.endings) > 1 else len(fields[row.endings[0]])
        if not 0 <= label < count:
            raise ValueError(f"label {label} of {count} endings")
    elif isinstance(row, R.Images):
        known(labels, need(fields, "label", object))
    elif isinstance(row, R.Boxed):
        boxes, names = fields.get("boxes", []), fields.get("labels", [])
        if len(boxes) != len(names) or any(len(box) != 4 or not np.isfinite(box).all() for box in boxes):
            raise ValueError("boxes are four numbers and a label each")
        for name in names:
            known(labels, name)


def image_bytes(cell: Any) -> bytes:
    """Encoded bytes, also where a data set wraps them."""
    held = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(held, bytes) or not held:
        raise ValueError("empty image" if held == b"" else "an image without its bytes")
    return held


def allowed(rows: int, tolerance: float) -> float:
    return max(HANDFUL, tolerance * rows) if tolerance else 0


def judge(folder: Path, rows: int, bad: list[dict[str, Any]], tolerance: float) -> None:
    """Writes what was kept out, and stops where it is too much."""
    if bad:
        update(folder / "quarantine.jsonl", "".join(json.dumps(entry) + "\n" for entry in bad).encode())
    else:
        (folder / "quarantine.jsonl").unlink(missing_ok=True)
    if bad and (not rows or len(bad) > allowed(rows + len(bad), tolerance)):
        first = bad[0]
        raise ValueError(f"{len(bad)} of {rows + len(bad)} rows for {folder} cannot be read, "
                         f"the first in {first['file']} at {first['offset']}: {first['reason']}; "
                         f"{HANDFUL} rows or {tolerance:.1%} may be bad; all are in {folder / 'quarantine.jsonl'}: mend them")
    if not rows:
        raise ValueError(f"there is not one row for {folder}; look at the source's paths, format and part")
