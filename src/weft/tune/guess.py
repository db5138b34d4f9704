"""What a file asks: which columns are read, which is the label, and so which task it is."""
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.columns import MANY, endings_of, given, row_for, typical_first
from ..data.files import expand
from ..data.lines import Found
from ..data.load import Entries, Fields, checked, load, tagged, with_header
from ..data.quarantine import MAX_BAD_ROWS, allowed, class_names, enforce, set_aside, sorted_classes
from ..data.sniff import format_of, is_number
from ..values import suggest

TASKS = ("classify", "pair", "regress", "choose", "tag", "answer", "similarity", "text2text")
NUMBERS = 0.8                              # of the labels: then the others are broken numbers, not classes
RARE = 5                                   # classes of one row, which are more than half of all, are no classes


class Guess(NamedTuple):
    """What was understood, and the lines that say so."""
    task: str
    train: R.Source
    dev: R.Source | None
    row: R.Row
    rows: list[Fields]                     # of training, without those that are set aside
    dev_rows: list[Fields]
    line: str
    notes: tuple[str, ...] = ()            # about rows that are set aside

    @property
    def labels(self) -> tuple[str, ...] | None:
        return getattr(self.row, "labels", None)


def guess(paths: Sequence[str], dev: Sequence[str] = (), task: str | None = None, names: Sequence[str] = (), columns: Sequence[str] = (),
          label: str | None = None, max_bad_rows: float = MAX_BAD_ROWS) -> Guess:
    """`columns` are those to read, the label last unless `label` names it."""
    if task is not None and task not in TASKS:
        raise ValueError(f"--task {task}: {suggest(task, list(TASKS))}")
    found = expand(tuple(paths))
    kind = "squad" if task == "answer" and format_of(found[0]) in ("json", "jsonl") else format_of(found[0])
    if (kind == "squad") != (task == "answer") and task is not None:
        raise ValueError(f"{found[0]} is {'' if kind == 'squad' else 'not '}SQuAD's JSON, which is what the task answer reads")
    wanted = [*columns, *([label] if label else [])]
    train = source_of(found, kind, names, wanted)
    rows, bad = load(train)
    beside = same_columns(train, rows, expand(tuple(dev)), wanted) if dev else None
    other, worse = load(beside) if beside else ([], [])
    if not rows:
        enforce(0, bad, max_bad_rows)
        raise ValueError(f"{', '.join(paths)}: there is not one {'question' if kind == 'squad' else 'row'}")
    try:
        given(rows[0].fields, wanted)
        task, row = ("answer", R.Questions()) if kind == "squad" else understood(
            [item.fields for item in rows], [item.fields for item in other], task, list(columns), label, max_bad_rows)
    except ValueError as error:
        raise ValueError(f"{found[0]}: {error}") from None
    held, note = sound(rows, bad, row, train, max_bad_rows, "")
    valid, more = sound(other, worse, row, beside, max_bad_rows, "dev ") if beside else ([], ())
    return Guess(task, train, beside, row, held, valid, f"{found[0]}: {said(task, row, held, train)}", (*note, *more))


def source_of(paths: Sequence[str], kind: str, names: Sequence[str], asked: Sequence[str]) -> R.Source:
    source = R.Source(paths=tuple(paths), format=kind, names=tuple(names))         # type: ignore[arg-type]
    return tagged(source) if kind == "conll" and not names else with_header(source, asked)


def same_columns(train: R.Source, rows: list[Found], paths: list[str], asked: Sequence[str]) -> R.Source:
    """Columns of another name at the same place are the same: headers of published splits differ."""
    if train.format == "conll":
        return replace(train, paths=tuple(paths))
    dev = source_of(paths, format_of(paths[0]), () if train.header else train.names, asked)
    if dev.format in ("csv", "tsv") and train.format in ("csv", "tsv") and rows:
        first = next((item.fields for item in load(dev)[0]), {})
        if first and not set(rows[0].fields) <= set(first):
            return replace(dev, names=tuple(rows[0].fields))
    return dev


def sound(rows: list[Found], bad: Entries, row: R.Row, source: R.Source, share: float, what: str) -> tuple[list[Fields], tuple[str, ...]]:
    """The rows that can be used, by the rule of `weft prepare`, and a line about the others."""
    good, wrong = checked(rows, row, getattr(row, "labels", None), source.format)
    aside = sorted([*bad, *wrong], key=lambda entry: (entry["file"], entry["offset"]))
    enforce(len(good), aside, share)
    return [item.fields for item in good], (set_aside(len(good), aside, what.strip()),) if aside else ()


def understood(rows: list[Fields], other: list[Fields], task: str | None, texts: list[str], label: str | None,
               max_bad_rows: float) -> tuple[str, R.Row]:
    rows = typical_first(rows)
    lists = [name for name, cell in rows[0].items() if isinstance(cell, list)]
    if task is None:
        task = "tag" if len(lists) >= 2 else "choose" if len(endings_of(rows[0])) > 1 else None
    row = row_for(task or "this", rows, texts, label)
    if isinstance(row, R.Tagged):
        tags = {tag for own in (*rows, *other) for tag in class_names(own.get(row.tags))}
        seen = sorted(tags, key=lambda tag: (tag != "O", tag[2:], tag))
        if not seen:
            raise ValueError(f"{row.tags} is empty in every row; say --columns WORDS TAGS")
        return "tag", replace(row, labels=tuple(seen))
    if not isinstance(row, R.Examples):
        return task or "choose", row
    cells = [cell for cell in (own.get(row.label) for own in (*rows, *other)) if not isinstance(cell, list) and class_names(cell)]
    if not cells:
        raise ValueError(f"{row.label} is empty in every row; name the column of the labels with --label")
    if row.number or (task is None and is_score(cells, row.label)):
        if not any(map(is_number, cells)):
            raise ValueError(f"{row.label} is {cells[0]!r} in a row, not a number; regress needs numbers, classify does not")
        return "regress", replace(row, number=True)
    row = replace(row, labels=classes(cells, row.label, task, allowed(len(rows), max_bad_rows)))
    return task or ("pair" if row.second else "classify"), row


def is_score(cells: list[Any], label: str) -> bool:
    """Most are numbers, and not all of these are whole."""
    numbers = [float(cell) for cell in cells if is_number(cell)]
    if len(numbers) < NUMBERS * len(cells):
        return False
    if any(number % 1 for number in numbers):
        return True
    if len(set(numbers)) > MANY:
        raise ValueError(f"{label} has {len(set(numbers))} whole numbers, which may be classes or a measure; "
                         "say --task classify or --task regress")
    return False


def classes(cells: list[Any], label: str, task: str | None, few: float) -> tuple[str, ...]:
    """Numbers by size, as `weft prepare` has them; among whole numbers a few other words are broken, unless classes are asked for."""
    seen = Counter(map(str, cells))
    broken = [name for name in seen if not is_number(name)]
    if task is None and 0 < sum(seen[name] for name in broken) <= few and len(seen) > len(broken) + 1:
        seen = Counter({name: count for name, count in seen.items() if name not in broken})
    once = [name for name, count in seen.items() if count == 1]
    if task is None and len(once) >= RARE and len(once) > len(seen) / 2:
        raise ValueError(f"{label} has {len(seen)} classes, of which {len(once)} occur once ({short(once)}); is it the label? Name another "
                         "with --label, or say --task classify, or --task regress for numbers")
    if len(seen) < 2:
        raise ValueError(f"every row has {label} = {next(iter(seen))!r}; name the column of the classes with --label")
    return tuple(sorted_classes(seen))


def said(task: str, row: R.Row, rows: list[Fields], source: R.Source) -> str:
    """What is read, in words."""
    if isinstance(row, R.Questions):
        without = sum(own["begin"] < 0 for own in rows)
        return f"{len(rows):,} questions (SQuAD), {f'{without:,} without' if without else 'each with'} an answer: answer"
    form = str(source.format) + (f" by {source.delimiter!r}" if source.delimiter not in (None, ",") else "")
    counted = f"{len(rows):,} rows ({form}{', no header' * (source.format in ('csv', 'tsv') and not source.header)}), "
    match row:
        case R.Examples():
            texts = f"{row.first!r} and {row.second!r}" if row.second else f"{row.first!r}"
            labels = row.labels or ()
            what = f"numbers in {row.label!r}" if row.number else f"{len(labels)} classes in {row.label!r} ({short(labels)})"
            return f"{counted}text in {texts}, {what}: {task}"
        case R.Choices():
            return f"{counted}context in {row.context!r}, {len(row.endings)} endings, the right one's number in {row.label!r}: {task}"
        case R.Tagged():
            return f"{counted}words in {row.words!r}, {len(row.labels or ())} tags in {row.tags!r} ({short(row.labels or ())}): {task}"
    return counted + task


def short(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
