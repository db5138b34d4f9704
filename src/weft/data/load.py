"""Files of rows read into memory: one reader and one rule for bad rows, for fine-tuning, scores and questions."""
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from .. import recipe as R
from .files import find, refuse_endless
from .lines import Bad, Found, Item, decoded, json_rows
from .quarantine import check, enforce, entry, set_aside
from .sniff import SNIFF, SUFFIXES, delimiter_of, format_of, head_of, is_header, suffix_of
from .source import pieces, read

Fields = dict[str, Any]
Entries = list[dict[str, Any]]
Say = Callable[[str], None]
FEW = 5                                    # lines that tell JSON from text


def load(source: R.Source, columns: tuple[str, ...] = ()) -> tuple[list[Found], Entries]:
    """All rows, and those that cannot be read."""
    return parted(((item, piece.paths[0]) for piece in pieces(source) for item in read(source, piece, columns)), source.format)


def parted(items: Iterable[tuple[Item, str]], format: str | None) -> tuple[list[Found], Entries]:
    found, bad = list[Found](), Entries()
    for item, path in items:
        if isinstance(item, Bad):
            bad.append(entry(item, item, path, format))
        else:
            found.append(item if item.path else item._replace(path=path))
    return found, bad


def checked(rows: Sequence[Found], row: R.Row, labels: Sequence[str] | None, format: str | None) -> tuple[list[Found], Entries]:
    """The rows that a task can use, and the others."""
    wrong = [check(row, found, tuple(labels or ())) for found in rows]
    good = [found for found, bad in zip(rows, wrong, strict=True) if bad is None]
    return good, [entry(bad, found, found.path or "", format) for found, bad in zip(rows, wrong, strict=True) if bad is not None]


def settle_bad(rows: int, bad: Entries, share: float, say: Say) -> None:
    """Stops above the share, else says what is set aside."""
    bad.sort(key=lambda entry: (entry["file"], entry["offset"]))
    enforce(rows, bad, share)
    if bad:
        say(set_aside(rows, bad))


# Tables

def with_header(source: R.Source, asked: Sequence[str] = (), like: R.Source | None = None, otherwise: bool = False) -> R.Source:
    """A csv or tsv with what its columns are called: `Source.names`, its header's names, those of `like`, a table without a header that a
    model learned from, or numbers. `asked` are names that a header may hold; `otherwise` says what a first line is that nothing tells."""
    if source.format not in ("csv", "tsv"):
        return source
    if source.format == "csv" and source.delimiter is None:
        source = replace(source, delimiter=delimiter_of(source.paths[0]))      # type: ignore[arg-type]
    raw = replace(source, names=(), header=False, part=(0.0, 1.0))
    rows = [list(item.fields.values()) for item in islice(read(raw, pieces(raw)[0]), SNIFF) if isinstance(item, Found)]
    if not rows:
        return source
    if is_header(rows[0], rows[1:], [*asked, *source.names], otherwise and not source.names and (like is None or like.header)):
        return replace(source, header=True)
    widths = Counter(map(len, rows))
    width = min(widths) if source.format == "tsv" else widths.most_common(1)[0][0]
    known = like.names if like is not None and not like.header else ()
    return replace(source, names=source.names or known[:width] or tuple(map(str, range(width))), header=False)


def learned_from(data: R.Data) -> R.Source:
    """The table that a run read. Columns that have numbers for names are of one without a header, even if it was split into other files."""
    return replace(data.train, header=False, names=()) if getattr(data.row, "first", "").isdecimal() else data.train


def tagged(source: R.Source) -> R.Source:
    """CoNLL's columns: the first are words, the last that looks like tags are theirs."""
    width = min(len(line.split()) for line in head_of(find(source.paths[0])[0]) if line.strip())
    numbered = tuple(f"column{i}" for i in range(width))
    some = [found.fields for found in load(replace(source, names=numbered))[0][:SNIFF]]
    marked = [name for name in numbered[1:] if any(tag[1:2] == "-" for row in some for tag in row[name])]
    told = [name for name in numbered[1:] if len({tag for row in some for tag in row[name]}) > 1]
    best = (marked or told or [numbered[-1]])[-1]
    return replace(source, names=("words", *("tags" if name == best else name for name in numbered[1:numbered.index(best) + 1])))


# What is asked of a model

def rows_of(path: str, names: Sequence[str] = (), like: R.Source | None = None, share: float = 0.0, say: Say = print,
            whole: bool = False) -> list[Fields]:
    """The rows of a file that can be read; where more than a share cannot, ValueError."""
    found, bad = items_of(path, names, like, whole)
    settle_bad(len(found), bad, share, say)
    return [item.fields for item in found]


def items_of(path: str, names: Sequence[str] = (), like: R.Source | None = None, whole: bool = False) -> tuple[list[Found], Entries]:
    """All rows of a file: JSON lines or an array, CSV, TSV, Parquet, CoNLL, or text, a row a line. `-` is standard input: JSON lines or
    text, with `whole` one text."""
    if path == "-":
        text = sys.stdin.read().removeprefix("\ufeff")
        items = rows_of_lines(lines_of(text), [Found(0, {"text": text.removesuffix("\n")})] if whole and text else None)
        return parted(((item, "standard input") for item in items), "json")
    if suffix_of(path) in SUFFIXES:
        kind = format_of(path)
        source = with_header(R.Source(paths=(path,), format=kind, names=tuple(names)), like=like, otherwise=True)      # type: ignore[arg-type]
        return load(source)
    where = find(path)[0]
    if os.path.isdir(where):
        raise ValueError(f"{path} is a folder; give a file")
    refuse_endless(where)
    return parted(((item, where) for item in rows_of_lines(decoded(where, (0, None)))), "text")


def lines_of(text: str) -> list[tuple[int, str | Bad]]:
    """Cut at line ends alone: `str.splitlines` also cuts at a form feed and at Unicode's own, which stand inside texts."""
    held = [line.removesuffix("\r") for line in text.split("\n")]
    return list(enumerate(held[:-1] if not held[-1] else held))


def rows_of_lines(lines: Iterable[tuple[int, str | Bad]], otherwise: list[Item] | None = None) -> list[Item]:
    """JSON, if one of the first lines is an object; else a text a line, or `otherwise`."""
    lines = list(lines)
    if any(map(is_object, islice((line for _, line in lines if isinstance(line, str) and line.strip()), FEW))):
        return list(json_rows(lines))
    return otherwise or [line if isinstance(line, Bad) else Found(offset, {"text": line}) for offset, line in lines]


def is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
