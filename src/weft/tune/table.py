"""Files of rows, read before anything is known of them: which format, and what the columns are called."""
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from .. import recipe as R
from ..data.files import bare, blocks, expand
from ..data.lines import Found
from ..data.source import SUFFIXES, pieces, read
from ..evaluate.tables import SNIFF, is_header

SHORT = 1 << 16                            # characters of a file that is read to its end
Row = dict[str, Any]


def head_of(path: str) -> list[str]:
    """The first lines; of a file that is one long line, its start."""
    text = next(blocks(path), b"").decode("utf-8-sig", errors="replace")
    found = text.splitlines()
    return found[:min(SNIFF, max(1, len(found) - 1))] if len(text) > SHORT else found[:SNIFF]


def format_of(path: str, task: str | None) -> str:
    """From the first lines, then from the name: a table in a .csv may have tabs."""
    suffix = re.search(r"\.[^./]*$", bare(path))
    named = SUFFIXES.get(suffix[0] if suffix else "")
    if named in ("parquet", "jsonl"):
        return named
    first = head_of(path)
    full = [line for line in first if line.strip()]
    if not full:
        raise ValueError(f"{path} is empty")
    if full[0].lstrip().startswith("{"):
        return "squad" if task == "answer" or any('"paragraphs"' in line for line in full) else "jsonl"
    if named == "conll" or looks_tagged(first):
        return "conll"
    if sum("\t" in line for line in full) > 0.9 * len(full):
        return "tsv"
    if named == "csv" or sum("," in line for line in full) > 0.9 * len(full):
        return "csv"
    raise ValueError(f"{path}: neither a table (tabs or commas), nor JSON lines, Parquet, CoNLL or SQuAD's JSON; "
                     "save it as one of these")


def looks_tagged(first: Sequence[str]) -> bool:
    """A word a line with its columns, blank lines between sentences."""
    full = [line.split() for line in first if line.strip()]
    return any(not line.strip() for line in first[:-1]) and len({len(row) for row in full}) == 1 and 2 <= len(full[0]) <= 6


def rows(source: R.Source) -> Iterator[Row]:
    """All that can be read; what cannot, `prepare` puts into quarantine."""
    for piece in pieces(source):
        yield from (item.fields for item in read(source, piece) if isinstance(item, Found))


def table(paths: Sequence[str], kind: str, names: Sequence[str] = (), asked: Sequence[str] = ()) -> tuple[R.Source, list[Row]]:
    """The source with its columns named, and its rows. `names` are for files that do not name them; `asked` are columns that one may."""
    source: R.Source = R.Source(paths=tuple(expand(tuple(paths))), format=kind)  # type: ignore[arg-type]
    if kind == "conll":
        return tagged(source, names)
    if kind not in ("csv", "tsv"):
        return source, list(rows(source))
    held = list(rows(replace(source, header=False)))
    if not held:
        raise ValueError(f"{', '.join(paths)}: there is not one row")
    header = is_header([str(cell) for cell in held[0].values()], held[1:SNIFF], asked)
    columns = tuple(names) or tuple(map(str, held[0].values() if header else range(min(len(row) for row in held[:SNIFF]))))
    if len(set(columns)) < len(columns):
        raise ValueError(f"{paths[0]}: two columns are called {next(c for c in columns if columns.count(c) > 1)!r}; name them with --names")
    full = [row for row in held[header:] if len(row) >= len(columns)]
    return replace(source, names=columns, header=header), [dict(zip(columns, row.values(), strict=False)) for row in full]


def tagged(source: R.Source, names: Sequence[str]) -> tuple[R.Source, list[Row]]:
    """The first column are words, the last that looks like tags are theirs."""
    if not names:
        width = min(len(line.split()) for line in head_of(source.paths[0]) if line.strip())
        numbered = tuple(f"column{i}" for i in range(width))
        some = list(islice(rows(replace(source, names=numbered)), SNIFF))
        marked = [name for name in numbered[1:] if any(tag[1:2] == "-" for row in some for tag in row[name])]
        told = [name for name in numbered[1:] if len({tag for row in some for tag in row[name]}) > 1]
        best = (marked or told or [numbered[-1]])[-1]
        names = ["words", *("tags" if name == best else name for name in numbered[1:numbered.index(best) + 1])]
    source = replace(source, names=tuple(names))
    return source, list(rows(source))
