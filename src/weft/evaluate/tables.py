"""Rows of files, in and out, and which of their columns are meant."""
import csv
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .. import recipe as R
from ..data.files import bare, find
from ..data.lines import Bad, decoded
from ..data.records import load_json
from ..data.source import SUFFIXES, pieces, read

Fields = dict[str, Any]
SNIFF = 200                                # rows that tell what a file is
FIRST = ("text", "sentence", "sentence1", "premise", "first", "question1", "sentence_a", "#1 string", "review", "content", "question")
SECOND = ("sentence2", "hypothesis", "second", "question2", "sentence_b", "#2 string", "text2", "text_b")
LABEL = ("label", "labels", "class", "category", "gold_label", "score", "similarity", "sentiment", "relatedness_score", "quality", "target")
WORDS, TAGS = ("words", "tokens"), ("tags", "ner_tags", "ner", "pos_tags", "labels")
USUAL = {*FIRST, *SECOND, *LABEL, *WORDS, *TAGS, "rating", "stars", "intent", "polarity", "relatedness"}
CONTEXT, LISTS = ("context", "ctx", "question", "sent1", "premise"), ("endings", "choices", "options", "answers")
ENDING = re.compile(r"(ending|choice|option|answer)[_ ]?\d+", re.IGNORECASE)
SOURCE, TARGET = ("source", "src", "en"), ("target", "tgt", "trg", "de", "fr")


def rows_of(path: str, names: Sequence[str] = (), format: str | None = None) -> list[Fields]:
    """All rows of a file: JSON, JSON lines, CSV, TSV, Parquet, CoNLL, or text, a row a line. `-` is standard input: JSON lines or text."""
    if path == "-":
        return rows_of_lines(lines_of(sys.stdin.read()))
    suffix = os.path.splitext(bare(path))[1].lower()
    kind = format or SUFFIXES.get(suffix)
    if kind is None:
        held = [readable(path, line) for _, line in decoded(find(path)[0], (0, None))]
        return array_of(path) if suffix == ".json" and opening(held) == "[" else rows_of_lines(held)
    source = R.Source(paths=(path,), format=kind, names=tuple(names), header=not names)     # type: ignore[arg-type]
    found = []
    for item in (item for piece in pieces(source) for item in read(source, piece)):
        found.append(readable(path, item).fields)
    return found


def is_header(first: Sequence[str], rest: Sequence[Fields], asked: Sequence[str] = ()) -> bool:
    """Short names, each once, none a number; and one of them asked for, or a usual one that does not stand below it as well, or, where
    what follows is long or a number, neither."""
    if set(asked) & set(first):
        return True
    if not rest or len(set(first)) < len(first) or any(not c.strip() or len(c) > 40 or is_number(c) for c in first):
        return False
    columns = list(zip(*(list(row.values())[:len(first)] for row in rest if len(row) >= len(first)), strict=False))
    if any(name.lower().strip("#_ ") in USUAL and name not in column for name, column in zip(first, columns, strict=False)):
        return True
    below = [all(map(is_number, column)) or sum(len(c.split()) for c in column) > 3 * len(column) for column in columns]
    return any(found and len(name.split()) <= 3 for name, found in zip(first, below, strict=False)) and first[0] not in columns[0]


def is_number(cell: Any) -> bool:
    try:
        return float(cell) == float(cell)
    except (TypeError, ValueError):
        return False


def columns_without_header(data: R.Data, rows: list[Fields]) -> list[str]:
    """Of a table whose first line is a row, as it was where the run learned: that of its files, or where columns have numbers for names."""
    numbered = getattr(data.row, "first", "").isdecimal()
    if (data.train.header and not numbered) or is_header(list(rows[0]), rows):
        return []
    names = list(data.train.names) or [str(i) for i in range(len(rows[0]))]
    return names[:len(rows[0])]


def readable(path: str, item: Any) -> Any:
    if isinstance(item, Bad):
        raise ValueError(f"{path}, at {item.offset}: {item.reason}")
    return item


def lines_of(text: str) -> list[str]:
    """Cut at line ends alone: `str.splitlines` also cuts at a form feed and at Unicode's own, which stand inside texts."""
    held = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    return held[:-1] if not held[-1] else held


def opening(lines: list[str]) -> str:
    return next((line for line in lines if line.strip()), "").lstrip()[:1]


def array_of(path: str) -> list[Fields]:
    held: list[Fields] = load_json(find(path)[0])
    wrong = next((i for i, row in enumerate(held) if not isinstance(row, dict)), None)
    if wrong is not None:
        raise ValueError(f"{path}: element {wrong} of the array is not an object")
    return held


def rows_of_lines(lines: list[str]) -> list[Fields]:
    """JSON, if the first line is an object."""
    if opening(lines) != "{":
        return [{"text": line} for line in lines]
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                held = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None
            if not isinstance(held, dict):
                raise ValueError(f"line {number} is not an object, as the first is")
            found.append(held)
    return found


def write_rows(path: str, rows: Sequence[Fields]) -> None:
    """By the ending: .csv, .tsv, .json, .parquet; else JSON lines. In .csv and .tsv an object is a column a name, a list is JSON."""
    suffix = Path(path).suffix.lower()
    rows = [flat(row) for row in rows] if suffix in (".csv", ".tsv") else rows
    names = list(dict.fromkeys(name for row in rows for name in row))
    if suffix == ".parquet":
        write_parquet(path, {name: [row.get(name) for row in rows] for name in names})
        return
    cells = [[cell(row.get(name)) for name in names] for row in rows] if suffix in (".csv", ".tsv") else []
    if suffix == ".tsv":
        plain(path, [names, *cells])
    with open(path, "w", encoding="utf-8", newline="") as file:
        if suffix == ".json":
            json.dump(list(rows), file, ensure_ascii=False, indent=1)
        elif suffix == ".csv":
            csv.writer(file, lineterminator="\n").writerows([names, *cells])
        elif suffix == ".tsv":
            file.writelines("\t".join(map(str, row)) + "\n" for row in [names, *cells])
        else:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_parquet(path: str, columns: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    try:
        pq.write_table(pa.table(columns), path)
    except pa.ArrowException as error:
        raise ValueError(f"{path}: Parquet's columns have one kind of value each ({str(error).splitlines()[0]}); write .jsonl") from None


def plain(path: str, rows: Sequence[Sequence[Any]]) -> None:
    """Tabs and line ends part a .tsv, which has no quotes."""
    wrong = next((held for row in rows for held in row if re.search(r"[\t\r\n]", str(held))), None)
    if wrong is not None:
        raise ValueError(f"{path}: {str(wrong)[:60]!r} holds a tab or a line end, which a .tsv cannot; write .csv or .jsonl")


def flat(row: Fields) -> Fields:
    inner = {name: held if isinstance(held, dict) else {"": held} for name, held in row.items()}
    return {f"{name}.{key}" if key else name: held for name, own in inner.items() for key, held in own.items()}


def cell(held: Any) -> Any:
    return json.dumps(held, ensure_ascii=False) if isinstance(held, list | dict) else "" if held is None else held


# Which column is which

def pick(fields: Fields, names: Iterable[str], but: Sequence[str | None] = ()) -> str | None:
    """The first of these names that is a column, whatever its case."""
    lower = {name.strip().lower(): name for name in reversed(list(fields)) if name not in but}
    return next((lower[name] for name in names if name in lower), None)


def texts(fields: Fields, but: Sequence[str | None] = ()) -> list[str]:
    """Columns of text, the longest cells first: labels and numbers are short."""
    held = [name for name, held in fields.items() if isinstance(held, str) and name not in but]
    return sorted(held, key=lambda name: -len(fields[name]))


def need(fields: Fields, found: str | None, what: str, option: str = "--columns") -> str:
    if found is None:
        raise ValueError(f"which column is the {what}? There are {', '.join(map(repr, fields))}; name it with {option}")
    return found


def text_columns(fields: Fields, columns: Sequence[str] = ()) -> tuple[str, str | None]:
    """The one or two columns of text to ask about."""
    given(fields, columns)
    if columns:
        return columns[0], columns[1] if len(columns) > 1 else None
    first = pick(fields, FIRST) or next(iter(texts(fields, [pick(fields, LABEL)])), None)
    return need(fields, first, "text"), pick(fields, SECOND, [first])


def given(fields: Fields, columns: Sequence[str]) -> None:
    wrong = next((name for name in columns if name not in fields), None)
    if wrong is not None:
        raise ValueError(f"no column {wrong!r} among {', '.join(map(repr, fields))}")


def row_value(task: str, fields: Fields, columns: Sequence[str] = ()) -> R.Row:
    """What a row of a file with these columns is for a task; `columns` name them in the order of the row, the label last."""
    given(fields, columns)
    match task:
        case "classify" | "regress":
            label = columns[-1] if len(columns) > 1 else need(fields, pick(fields, LABEL), "label")
            first, second = text_columns({n: f for n, f in fields.items() if n != label}, columns[:-1] if len(columns) > 1 else columns)
            return R.Examples(first=first, second=second, label=label, number=task == "regress")
        case "tag":
            words, tags = columns if len(columns) == 2 else (pick(fields, WORDS), pick(fields, TAGS))
            return R.Tagged(words=need(fields, words, "words"), tags=need(fields, tags, "tags"))
        case "choose":
            label = columns[-1] if columns else need(fields, pick(fields, LABEL), "label")
            context = columns[0] if columns else need(fields, pick(fields, CONTEXT), "context")
            endings = columns[1:-1] or [name for name in fields if ENDING.fullmatch(name)] or [need(fields, pick(fields, LISTS), "ending")]
            return R.Choices(context=context, endings=tuple(endings), label=label)         # in the file's order: a label counts them
        case "translate" | "text2text":
            source, target = columns if len(columns) == 2 else (pick(fields, SOURCE), pick(fields, TARGET))
            left = texts(fields, [source, target]) if source is None and target is None and len(fields) == 2 else []
            source, target = list(fields)[:2] if left else (source, target)
            return R.Pairs(source=need(fields, source, "source"), target=need(fields, target, "target"))
        case "answer":
            return R.Questions()
    return R.Documents(text=columns[0] if columns else need(fields, pick(fields, ("text", "document", "content")), "text"))


def said(row: R.Row) -> str:
    """What was guessed, in one line."""
    parts = {"first": "text", "second": "second text", "label": "label", "words": "words", "tags": "tags", "source": "source",
             "target": "target", "context": "context", "text": "text"}
    return "reading " + ", ".join(f"{getattr(row, name)!r} as {what}" for name, what in parts.items() if getattr(row, name, None))
