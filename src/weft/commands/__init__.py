"""The verbs of `weft`, a file a kind. Nothing heavy is imported before its verb needs it."""
import argparse
import json
import os
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

STOPPED = 75                               # asked to stop, saved, not finished: run it again (EX_TEMPFAIL)
OURS = "weft_"
TAKEN = f"where a column has the name already, {OURS} comes before it"
Fields = dict[str, Any]


class Verb(Protocol):
    """Adds a verb to the command; what it returns takes the verb's own arguments."""

    def __call__(self, run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser: ...


def count(text: str) -> int:
    found = int(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"{found} is less than 1")
    return found


def number(text: str) -> float:
    found = float(text)
    if not isfinite(found):
        raise argparse.ArgumentTypeError(f"{text} is not finite")
    return found


def put(rows: Sequence[Fields], found: Sequence[Fields]) -> None:
    """What was found goes into the rows; a column of theirs stays as it is, and in every row its namesake gets another name."""
    taken = {name.partition(".")[0] for row in rows for name in row}       # a table writes an object as NAME.PART
    for row, own in zip(rows, found, strict=True):
        row |= {OURS * (name in taken) + name: held for name, held in own.items()}


def writable(path: str | None, never: tuple[str, ...] = ()) -> None:
    """Refuses before the work what could not be written after it."""
    if path is None:
        return
    file = Path(path)
    if file.suffix in (".gz", ".zst", ".xls", ".xlsx", *never):
        raise ValueError(f"--out {path}: {file.suffix} is not written; see --help for the endings that are")
    if file.is_dir():
        raise ValueError(f"--out {path} is a folder; name a file in it")
    if not file.parent.is_dir():
        raise ValueError(f"--out {path}: there is no folder {file.parent}; make it first")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ValueError(f"--out {path} cannot be written; give a file that can")


def way_out(run: str) -> str:
    """How the model of a finished run opens in other libraries; "" where no family of theirs can say it."""
    from ..interop.describe import describe
    from ..interop.rewrite import find_family
    try:
        family = find_family(describe(Path(run) / "model")[1]).family.name
    except (ValueError, OSError):
        return ""
    return f"to open {Path(run) / 'model'} in transformers (as {family}): weft convert {run} OUT --to hf"


def write(path: str, rows: list[Fields]) -> None:
    """Rows that cannot be written are not lost: they are printed."""
    from ..evaluate.tables import write_rows
    try:
        write_rows(path, rows)
    except (OSError, ValueError):
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        raise
