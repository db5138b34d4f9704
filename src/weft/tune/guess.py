"""What a file asks: which columns are read, which is the label, and so which task it is."""
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.files import expand
from ..evaluate.tables import ENDING, is_number
from ..values import suggest
from .table import Row, format_of, rows, table

TASKS = ("classify", "pair", "regress", "choose", "tag", "answer", "similarity", "text2text")
CONTEXTS = ("context", "startphrase", "question", "premise", "sent1", "text")
LABELS = ("label", "labels", "gold_label", "class", "category", "target", "score", "similarity", "relatedness", "sentiment", "quality",
          "rating", "stars", "intent", "polarity", "y", "tags", "ner_tags", "answer")
MANY = 20                                  # more classes than this are more likely numbers, or names that nobody meant


class Guess(NamedTuple):
    """What was understood, and the line that says so."""
    task: str
    train: R.Source
    dev: R.Source | None
    row: R.Row
    rows: list[Row]                        # of training
    dev_rows: list[Row]
    line: str

    @property
    def labels(self) -> tuple[str, ...] | None:
        return getattr(self.row, "labels", None)


def guess(paths: Sequence[str], dev: Sequence[str] = (), task: str | None = None, names: Sequence[str] = (), columns: Sequence[str] = (),
          label: str | None = None) -> Guess:
    """`columns` are those to read, the label last unless `label` names it."""
    if task is not None and task not in TASKS:
        raise ValueError(f"--task {task}: {suggest(task, list(TASKS))}")
    found = expand(tuple(paths))
    kind = format_of(found[0], task)
    if kind == "squad" or task == "answer":
        return answering(found, expand(tuple(dev)), kind, task)
    wanted = [*columns, *([label] if label else [])]
    train, held = table(found, kind, names, wanted)
    beside, other = same_columns(train, expand(tuple(dev)), kind, names, wanted) if dev else (None, [])
    if not held:
        raise ValueError(f"{', '.join(paths)}: there is not one row")
    if columns and label is None:
        *columns, label = columns
    for name in wanted:
        if name not in held[0]:
            raise ValueError(f"{found[0]} has no column {name!r}; {suggest(name, list(map(str, held[0])))}")
    task, row = understood(held, other, task, list(columns), label, found[0])
    form = f"{kind}, no header" if kind in ("csv", "tsv") and not train.header else kind
    return Guess(task, train, beside, row, held, other, f"{found[0]}: {len(held):,} rows ({form}), {said(task, row)}")


def same_columns(train: R.Source, paths: list[str], kind: str, names: Sequence[str], asked: Sequence[str]) -> tuple[R.Source, list[Row]]:
    """Columns of another name at the same place are the same: headers of published splits differ."""
    names, format = names or (train.names if kind == "conll" else ()), format_of(paths[0], "tag" if kind == "conll" else None)
    dev, held = table(paths, format, names, asked)
    if kind in ("csv", "tsv") and set(dev.names) != set(train.names) and not set(train.names) <= set(dev.names):
        return table(paths, str(dev.format), train.names, asked)
    return dev, held


def understood(held: list[Row], other: list[Row], task: str | None, texts: list[str], label: str | None,
               path: str) -> tuple[str, R.Row]:
    lists = [name for name, cell in held[0].items() if isinstance(cell, list)]
    if task == "tag" or (task is None and len(lists) >= 2):
        return "tag", words_and_tags(held, other, lists, texts, label, path)
    if task == "choose" or (task is None and (endings_of(held[0]))):
        return "choose", choices(held, texts, label, path)
    label = label or label_of(held, texts, path, task)
    texts = texts or texts_of(held, label, path)
    if not 1 <= len(texts) <= 2 or (task == "pair" and len(texts) != 2):
        raise ValueError(f"{path}: {task or 'this'} reads {'two texts' if task == 'pair' else 'one text or two'}, not "
                         f"{', '.join(map(repr, texts)) or 'none'}; name them: --columns TEXT [TEXT] LABEL")
    cells = [row[label] for row in (*held, *other) if row.get(label) not in (None, "")]
    if not cells:
        raise ValueError(f"{path}: {label} is empty in every row; name the column of the labels with --label")
    number = task == "regress" or (task is None and is_score(cells, label, path))
    if number and not all(map(is_number, cells)):
        raise ValueError(f"{path}: {label} is {next(c for c in cells if not is_number(c))!r} in a row, not a number; "
                         "regress needs numbers, classify does not")
    second = texts[1] if len(texts) == 2 else None
    row = R.Examples(first=texts[0], second=second, label=label, number=number, labels=None if number else classes(cells))
    if row.labels is not None and len(row.labels) < 2:
        raise ValueError(f"{path}: every row has {label} = {row.labels[0]!r}; name the column of the classes with --label")
    return task or ("regress" if number else "pair" if second else "classify"), row


def classes(cells: list[Any]) -> tuple[str, ...]:
    """Numbers by size, as `weft prepare` has them."""
    seen = {str(cell) for cell in cells}
    return tuple(sorted(seen, key=(lambda name: (int(name), name)) if all(name.isdecimal() for name in seen) else None))


def is_score(cells: list[Any], label: str, path: str) -> bool:
    if not all(map(is_number, cells)):
        return False
    if any(float(cell) % 1 for cell in cells):
        return True
    if len(set(map(float, cells))) > MANY:
        raise ValueError(f"{path}: {label} has {len(set(map(float, cells)))} whole numbers, which may be classes or a measure; "
                         "say --task classify or --task regress")
    return False


# Which columns

def column(held: list[Row], name: str) -> list[Any]:
    """A row of JSON may lack a column that the first has."""
    return [row.get(name) for row in held]


def label_of(held: list[Row], texts: list[str], path: str, task: str | None = None) -> str:
    """A column with a label's name; else the likeliest of those with few values, next to a text if there are several."""
    free = [name for name in held[0] if name not in texts]
    if task in ("classify", "pair", "regress"):
        free = [name for name in free if likelihood(column(held, name), number=task == "regress")] or free
    named = [name for wanted in LABELS for name in free if name.lower().strip("#_ ") == wanted]
    if named:
        return named[0]
    likely = {name: rank for name in free if (rank := likelihood(column(held, name)))}
    best = [name for name, rank in likely.items() if rank == max(likely.values())]
    if len(best) > 1:
        long = [place for place, name in enumerate(held[0]) if is_text(column(held, name))]
        places = {name: min(abs(list(held[0]).index(name) - place) for place in long) for name in best} if long else {}
        best = [name for name in best if places.get(name) == min(places.values(), default=None)]
    if len(best) != 1:
        raise ValueError(f"{path}: which of {', '.join(map(repr, held[0]))} is the label? Say --label NAME")
    return best[0]


def likelihood(cells: list[Any], number: bool | None = None) -> int:
    """How much like a label: 0 for what never changes, is empty at times, or is about a name a row; `number`: only measures, or none."""
    few = len(set(map(str, cells)))
    if few < 2 or any(cell is None or str(cell).strip() == "" or isinstance(cell, list | dict) for cell in cells):
        return 0
    if (number is True and not all(map(is_number, cells))) or (number is False and all(map(is_number, cells)) and few > MANY):
        return 0
    if all(map(is_number, cells)):
        return 3 if few <= MANY or (any("." in str(cell) for cell in cells) and few < len(cells)) else 0
    return 2 if few <= MANY and few < len(cells) / 2 else 0


def texts_of(held: list[Row], label: str, path: str) -> list[str]:
    found = [name for name in held[0] if name != label and not re.search(r"(^|[\s_#])(id|idx|index|guid|uid)$", name.lower())
             and is_text(column(held, name))]
    if not found:
        raise ValueError(f"{path}: none of {', '.join(map(repr, held[0]))} holds text; name it: --columns TEXT LABEL")
    return found


def is_text(cells: list[Any]) -> bool:
    some = [cell for cell in cells[:1000] if cell is not None]
    return all(isinstance(cell, str) for cell in some) and sum(len(cell.split()) for cell in some) >= 1.5 * len(some) \
        and len(set(some)) > len(some) / 4 and not all(map(is_number, some))


def endings_of(row: Row) -> list[str]:
    found = [name for name in row if ENDING.fullmatch(name)]
    return found if len(found) > 1 else []


def choices(held: list[Row], texts: list[str], label: str | None, path: str) -> R.Choices:
    context, endings = (texts[0], texts[1:]) if texts else \
        (next((n for wanted in CONTEXTS for n in held[0] if n.lower() == wanted), None), endings_of(held[0]))
    if context is None or len(endings) < 2:
        raise ValueError(f"{path}: which columns are the context and its endings? Say --columns CONTEXT ENDING ENDING … LABEL")
    return R.Choices(context=context, endings=tuple(endings), label=label or label_of(held, [context, *endings], path))


def words_and_tags(held: list[Row], other: list[Row], lists: list[str], texts: list[str], label: str | None, path: str) -> R.Tagged:
    tags = label or next((name for name in lists if name.lower() in LABELS), lists[-1] if len(lists) > 1 else None)
    words = texts[0] if texts else next((name for name in lists if name != tags), None)
    if tags is None or words is None:
        raise ValueError(f"{path}: tagging reads a list of words and a list of tags a row; say --columns WORDS TAGS, or give a CoNLL file")
    seen = sorted({str(tag) for row in (*held, *other) for tag in row.get(tags) or ()}, key=lambda tag: (tag != "O", tag[2:], tag))
    if not seen:
        raise ValueError(f"{path}: {tags} is empty in every row; say --columns WORDS TAGS")
    return R.Tagged(words=words, tags=tags, labels=tuple(seen))


def answering(paths: list[str], dev: list[str], kind: str, task: str | None) -> Guess:
    if kind != "squad" or task not in ("answer", None):
        raise ValueError(f"{paths[0]} is {'' if kind == 'squad' else 'not '}SQuAD's JSON, which is what the task answer reads")
    source, beside = R.Source(paths=tuple(paths), format="squad"), R.Source(paths=tuple(dev), format="squad") if dev else None
    held = list(rows(source))
    if not held:
        raise ValueError(f"{', '.join(paths)}: there is not one question")
    without = sum(row["begin"] < 0 for row in held)
    line = f"{paths[0]}: {len(held):,} questions (SQuAD), {f'{without:,} without' if without else 'each with'} an answer: answer"
    return Guess("answer", source, beside, R.Questions(), held, list(rows(beside)) if beside else [], line)


def said(task: str, row: R.Row) -> str:
    """What is read, in words."""
    match row:
        case R.Examples():
            texts = f"{row.first!r} and {row.second!r}" if row.second else f"{row.first!r}"
            labels = row.labels or ()
            what = f"numbers in {row.label!r}" if row.number else f"{len(labels)} classes in {row.label!r} ({short(labels)})"
            return f"text in {texts}, {what}: {task}"
        case R.Choices():
            return f"context in {row.context!r}, {len(row.endings)} endings, the right one's number in {row.label!r}: {task}"
        case R.Tagged():
            return f"words in {row.words!r}, {len(row.labels or ())} tags in {row.tags!r} ({short(row.labels or ())}): {task}"
    return task


def short(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
