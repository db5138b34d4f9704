"""Quarantine of bad rows: which rows are skipped, why, and when there are too many."""

import json
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from typing import Any

from ... import recipe as R
from ...recipe.data.cells import UNKNOWN_CLASS, require_cell
from ...recipe.data.formats import BadRow, Format, SourceItem, SourceRow
from ...support.addresses import Location, matching
from ...support.registry import named
from ...support.storage import unseal_json, write_if_changed
from .files import read_blocks

MAX_BAD_ROWS = 0.001  # the largest fraction of bad rows; above it the whole file is likely wrong
# Bad rows of a small file: at most ten, at most one in twenty, always one
SMALL_FILE_BAD_ROWS = 10
ONE_IN = 20
SHOWN = 5  # places that are named
ImageSize = Callable[[bytes], tuple[int, int]]


def check_row(
    row: R.RowSchema,
    source_row: SourceRow,
    labels: tuple[str, ...],
    image_size: ImageSize | None = None,
) -> BadRow | None:
    """Return why a row is unusable, or None; called for each row before it is tokenised.
    `image_size` checks an image and returns its size (default: after decoding it).
    """
    from ..images.images import decoded_size

    read_size = image_size or decoded_size
    try:
        sizes = [
            read_size(image_bytes(require_cell(source_row.fields, name, object)))
            for name in row.image_columns
        ]
        row.check(source_row.fields, labels)
        for size in sizes:
            row.check_image(source_row.fields, size)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return BadRow(source_row.offset, reason)
    return None


def image_bytes(cell: Any) -> bytes:
    """Return encoded bytes, also if a data set wraps them."""
    encoded = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(encoded, bytes) or not encoded:
        raise ValueError(
            "empty image"
            if encoded == b""
            else "an image without its bytes; embed the files, or give their directory"
        )
    return encoded


def image_path(cell: Any) -> str | None:
    """Return the file name of an image, also if a data set stores it with the bytes; None without
    one.
    """
    path = cell.get("path") if isinstance(cell, dict) else cell
    return path if path and isinstance(path, str) else None


# The rule


def allowed_bad_rows(rows: int, share: float) -> float:
    """Return how many bad rows are allowed: a fraction of all rows, a few more for a small file,
    none for a fraction of 0.
    """
    return max(share * rows, min(SMALL_FILE_BAD_ROWS, rows / ONE_IN), 1) if share else 0


def bad_row_entry(wrong: BadRow, item: SourceItem, path: str, format: str | None) -> dict[str, Any]:
    """Return the entry of a bad row in `quarantine.jsonl`."""
    return {
        "file": item.path or path,
        "offset": wrong.offset,
        "unit": named(Format, format).offset_unit if format else "byte",
        "reason": wrong.reason,
    }


def describe_bad_rows(bad: list[dict[str, Any]]) -> str:
    """Describe bad rows: the file of the first, the first few lines or rows, and the first
    reason.
    """
    first = bad[0]
    file = first["file"]
    unit = first.get("unit", "byte")
    if unit == "file":
        others = " and others" if len(bad) > 1 else ""
        return f"{file}{others}: {first['reason']}"
    offsets = [entry["offset"] for entry in bad if entry["file"] == file][:SHOWN]
    if unit == "row":
        what = "row"
        numbers = [offset + 1 for offset in offsets]
    else:
        what = "line"
        numbers = line_numbers(file, offsets)
    plural = "s" if len(numbers) > 1 else ""
    more = ", …" if len(bad) > len(numbers) else ""
    listed = ", ".join(f"{n:,}" for n in numbers)
    return f"{file}, {what}{plural} {listed}{more}: {first['reason']}"


def line_numbers(path: str, offsets: list[int]) -> list[int]:
    """Return the numbers, from 1, of the lines that contain these bytes of the unpacked file, in
    order.
    """
    offsets = sorted(offsets)
    numbers: list[int] = []
    passed = 0
    lines = 1
    with suppress(OSError, ValueError):  # the source has gone since, or cannot be unpacked further
        for block in read_blocks(path):
            while len(numbers) < len(offsets) and offsets[len(numbers)] < passed + len(block):
                numbers.append(lines + block.count(b"\n", 0, offsets[len(numbers)] - passed))
            passed += len(block)
            lines += block.count(b"\n")
    return numbers or offsets


def bad_rows_line(rows: int, bad: list[dict[str, Any]], what: str = "") -> str:
    """Return one line about the skipped rows."""
    total = rows + len(bad)
    kind = f"{what} rows" if what else "rows"
    return f"{len(bad):,} of {total:,} {kind} set aside ({describe_bad_rows(bad)})"


def check_bad_row_limit(
    rows: int, bad: list[dict[str, Any]], share: float, kept_in: Location | None = None
) -> None:
    """Raise ValueError if too many rows are bad."""
    total = rows + len(bad)
    if not bad or (rows and len(bad) <= allowed_bad_rows(total, share)):
        return
    enough = ceil(1000 * len(bad) / total) / 1000
    listed = f"; all are listed in {kept_in}" if kept_in else ""
    option = f"--max-bad-row-fraction {enough:g}"
    if kept_in:  # preparing, which three verbs do
        option += (
            f" (weft prepare and tune) or --set data.max_bad_row_fraction={enough:g} (weft train)"
        )
    if not rows and all(UNKNOWN_CLASS in entry["reason"] for entry in bad):
        raise ValueError(
            f"no row has one of the expected classes ({describe_bad_rows(bad)}); give data with "
            "these classes, or fine-tune on the new classes with weft tune"
        )
    more = f", or allow more with {option}" if rows else ""
    raise ValueError(
        f"{len(bad):,} of {total:,} rows cannot be read ({describe_bad_rows(bad)}){listed}; at "
        f"most {int(allowed_bad_rows(total, share)):,} may "
        f"be skipped: repair the file{more}"
    )


def write_quarantine(folder: Location, rows: int, bad: list[dict[str, Any]], share: float) -> None:
    """Write the bad rows to a file, and raise ValueError if there are too many."""
    kept_in = folder / "quarantine.jsonl"
    if bad:
        write_if_changed(kept_in, "".join(json.dumps(entry) + "\n" for entry in bad).encode())
    else:
        kept_in.unlink(missing_ok=True)
    check_bad_row_limit(rows, bad, share, kept_in)
    if not rows:
        raise ValueError(
            f"the source has no rows for {folder}; check Source.paths, format and fraction"
        )


def quarantine_notes(folder: Location) -> list[str]:
    """Return a line for each split of prepared data with bad rows."""
    notes = []
    for split, index in split_indexes(folder):
        path = split / "quarantine.jsonl"
        if not path.exists():
            continue
        bad = [json.loads(line) for line in path.read_text().splitlines()]
        notes.append(f"{bad_rows_line(index['rows'], bad, split.name)}; all are listed in {path}")
    return notes


def split_indexes(folder: Location) -> list[tuple[Location, dict[str, Any]]]:
    """Return each split of prepared data with its index. Sub-folders with an index.json of another
    program are none."""
    splits = []
    for path in matching(folder, "*/index.json"):
        with suppress(ValueError, TypeError, LookupError, OSError):
            index = unseal_json(path.read_text())
            if {"fingerprint", "rows", "shards"} <= index.keys():
                splits.append((path.parent, index))
    return splits
