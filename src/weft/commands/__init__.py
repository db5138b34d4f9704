"""The verbs of `weft`, a file a kind. Nothing heavy is imported before its verb needs it."""
import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..recipe import Source

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


def share(text: str) -> float:
    found = float(text)
    if not 0 <= found <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share between 0 and 1")
    return found


def bad_rows_option(made: argparse.ArgumentParser, default: float = 0.001) -> None:
    few = "; of a small file up to 10 rows" if default else ""
    made.add_argument("--max-bad-rows", type=share, default=default, metavar="SHARE",
                      help=f"largest share of rows that may be set aside because they cannot be read (default: {default:g}{few})")


def say(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr, flush=True)


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
    if file.is_fifo():
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            raise ValueError(f"--out {path} is a pipe that nobody reads") from None
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
    from ..data.save import write_rows
    try:
        write_rows(path, rows)
    except (OSError, ValueError):
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        raise


def rows_in(args: argparse.Namespace, texts: Sequence[str], never: tuple[str, ...] = (".npy",)) -> list[Fields]:
    """Texts on the command line, a file, or standard input."""
    from ..data.load import rows_of
    writable(args.out, never)
    if texts and args.file:
        raise ValueError("give a text or --in, not both")
    if texts:
        return [{"text": text} for text in texts]
    if not args.file and sys.stdin.isatty():
        raise ValueError("there is nothing to read; give a text, --in FILE, or standard input")
    rows = rows_of(args.file or "-", getattr(args, "names", ()), learned(args.name), args.max_bad_rows, say,
                   whole=args.verb == "generate" and not args.file)
    if not rows:
        raise ValueError(f"{args.file or 'standard input'} holds no row; give at least one text")
    return rows


def learned(run: str) -> "Source | None":
    """The table that a run learned from, where the model is a run."""
    if not (Path(run) / "recipe.json").is_file():
        return None
    from ..data.load import learned_from
    from ..train.same import recipe_of
    return learned_from(recipe_of(Path(run), lambda line: None).data)


def written(count: int, path: str) -> int:
    say(f"{count:,} row{'s' * (count != 1)} in {path}")
    return 0
