"""Which columns of a table are meant: by their names, then by what they hold."""
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .. import recipe as R
from .sniff import CONTEXTS, ENDINGS, FIRST, LABELS, MOST, SECOND, SOURCE, TAGS, TARGET, WORDS, is_number, mostly_numbers

Fields = dict[str, Any]
ENDING = re.compile(r"(ending|choice|option|answer)[_ ]?\d+", re.IGNORECASE)
ID = re.compile(r"(^|[\s_#])(id|idx|index|guid|uid)$", re.IGNORECASE)
MANY = 20                                  # more classes than this are more likely numbers, or names that nobody meant
SOME = 1000                                # rows that tell what a column holds


def row_for(task: str, rows: Sequence[Fields], columns: Sequence[str] = (), label: str | None = None) -> R.Row:
    """What a row with these columns is for a task. `columns` are those to read in the row's order, the label last unless it is named."""
    rows = typical_first(rows)
    fields, names = rows[0], list(columns)
    given(fields, [*names, *([label] if label else [])])
    if task == "answer":
        return R.Questions()
    if task in ("perplexity", "fill"):
        return R.Documents(text=names[0] if names else need(fields, pick(fields, ("text", "document", "content")), "text"))
    if task in ("translate", "text2text"):
        return pairs(fields, names)
    if label is None and len(names) > 1:
        *names, label = names
    if task == "tag":
        return tagged(fields, names, label)
    if task == "choose":
        return choices(rows, names, label)
    label = label or label_of(rows, names, {"regress": True, "classify": False, "pair": False}.get(task))
    first, second, *more = [*(names or texts_of(rows, [label])), None]
    if first is None or (second and more[1:]) or (task == "pair" and second is None):
        texts = ", ".join(repr(name) for name in (first, second, *more) if name)
        raise ValueError(f"{task} reads {'two texts' if task == 'pair' else 'one text or two'}, not {texts or 'none'}; "
                         "name them: --columns TEXT [TEXT] LABEL")
    return R.Examples(first=first, second=second, label=label, number=task == "regress")


def typical_first(rows: Sequence[Fields]) -> list[Fields]:
    """The rows after one that is like most of them: the first of a file may be a broken one."""
    kinds = [tuple((name, type(cell)) for name, cell in row.items()) for row in rows[:SOME]]
    usual = Counter(kinds).most_common(1)[0][0]
    return [rows[kinds.index(usual)], *rows]


def pairs(fields: Fields, names: list[str]) -> R.Pairs:
    source, target = names if len(names) == 2 else (pick(fields, SOURCE), pick(fields, TARGET))
    if source is None and target is None and len(fields) == 2:
        source, target = fields
    return R.Pairs(source=need(fields, source, "source"), target=need(fields, target, "target"))


def tagged(fields: Fields, names: list[str], tags: str | None) -> R.Tagged:
    lists = [name for name, cell in fields.items() if isinstance(cell, list)]
    among = {name: fields[name] for name in lists}
    tags = tags or pick(among, TAGS) or (lists[-1] if len(lists) > 1 else None)
    words = names[0] if names else pick(among, WORDS, [tags]) or next((name for name in lists if name != tags), None)
    if tags is None or words is None:
        raise ValueError("tagging reads a list of words and a list of tags a row; say --columns WORDS TAGS, or give a CoNLL file")
    return R.Tagged(words=words, tags=tags)


def endings_of(fields: Fields) -> list[str]:
    """In the file's order: a label counts them."""
    found = [name for name in fields if ENDING.fullmatch(name)]
    lists = pick({name: cell for name, cell in fields.items() if isinstance(cell, list)}, ENDINGS)
    return found if len(found) > 1 else [lists] if lists else []


def choices(rows: Sequence[Fields], names: list[str], label: str | None) -> R.Choices:
    context, endings = (names[0], names[1:]) if names else (pick(rows[0], CONTEXTS), endings_of(rows[0]))
    if context is None or not endings:
        raise ValueError("which columns are the context and its endings? Say --columns CONTEXT ENDING ENDING … LABEL")
    return R.Choices(context=context, endings=tuple(endings), label=label or label_of(rows, [context, *endings]))


# By name

def pick(fields: Fields, names: Iterable[str], but: Sequence[str | None] = ()) -> str | None:
    """The first of these names that is a column, whatever its case."""
    lower = {name.strip().lower(): name for name in reversed(list(fields)) if name not in but}
    return next((lower[name] for name in names if name in lower), None)


def need(fields: Fields, found: str | None, what: str, option: str = "--columns") -> str:
    if found is None:
        raise ValueError(f"which column is the {what}? There are {', '.join(map(repr, fields))}; name it with {option}")
    return found


def given(fields: Fields, columns: Sequence[str]) -> None:
    from ..values import suggest
    wrong = next((name for name in columns if name not in fields), None)
    if wrong is not None:
        raise ValueError(f"no column {wrong!r} among {', '.join(map(repr, fields))}; {suggest(wrong, list(map(str, fields)))}")


def text_columns(rows: Sequence[Fields], columns: Sequence[str] = ()) -> tuple[str, str | None]:
    """The one or two columns of text to ask a model about."""
    given(rows[0], columns)
    if columns:
        return columns[0], columns[1] if len(columns) > 1 else None
    first = pick(rows[0], FIRST) or max(texts_of(rows, [pick(rows[0], LABELS)]), key=lambda name: len(str(rows[0][name])))
    return first, pick(rows[0], SECOND, [first])


# By what they hold

def column(rows: Sequence[Fields], name: str) -> list[Any]:
    """A row of JSON may lack a column that the first has."""
    return [row.get(name) for row in rows]


def label_of(rows: Sequence[Fields], texts: Sequence[str], number: bool | None = None) -> str:
    """A column with a label's name; else the likeliest of those with few values, next to a text if there are several. `number`: only
    measures, or none."""
    fields = rows[0]
    free = [name for name in fields if name not in texts]
    if number is not None:
        free = [name for name in free if likelihood(column(rows, name), number)] or free
    named = [name for wanted in LABELS for name in free if name.lower().strip("#_ ") == wanted]
    if named:
        return named[0]
    likely = {name: rank for name in free if (rank := likelihood(column(rows, name)))}
    best = [name for name, rank in likely.items() if rank == max(likely.values())]
    if len(best) > 1:
        long = [place for place, name in enumerate(fields) if is_text(column(rows, name))]
        places = {name: min(abs(list(fields).index(name) - place) for place in long) for name in best} if long else {}
        best = [name for name in best if places.get(name) == min(places.values(), default=None)]
    if len(best) != 1:
        raise ValueError(f"which of {', '.join(map(repr, fields))} is the label? Name the columns: --columns TEXT [TEXT] LABEL")
    return best[0]


def likelihood(cells: list[Any], number: bool | None = None) -> int:
    """How much like a label: 0 for what never changes, is often empty, or is about a name a row."""
    full = [cell for cell in cells if cell is not None and str(cell).strip() and not isinstance(cell, list | dict)]
    few, numbers = len(set(map(str, full))), mostly_numbers(full)
    if few < 2 or len(full) < MOST * len(cells) or (number is True and not numbers) or (number is False and numbers and few > MANY):
        return 0
    if numbers:
        return 3 if few <= MANY or (any("." in str(cell) for cell in full) and few < len(cells)) else 0
    return 2 if few <= MANY and few < len(cells) / 2 else 0


def texts_of(rows: Sequence[Fields], but: Sequence[str | None]) -> list[str]:
    """Columns of text, in the file's order: those with a text's name, and those whose cells are texts."""
    free = [name for name in rows[0] if name not in but and not ID.search(name)]
    found = [name for name in free if is_text(column(rows, name), usual=pick({name: 0}, (*FIRST, *SECOND)) is not None)]
    if not found:
        raise ValueError(f"none of {', '.join(map(repr, rows[0]))} holds text; name it: --columns TEXT LABEL")
    return found


def is_text(cells: list[Any], usual: bool = False) -> bool:
    some = [cell for cell in cells[:SOME] if cell is not None]
    if not all(isinstance(cell, str) for cell in some):
        return False
    return usual or (sum(len(cell.split()) for cell in some) >= 1.5 * len(some) and len(set(some)) > len(some) / 4
                     and not all(map(is_number, some)))
