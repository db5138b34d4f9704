"""What a model is scored on: a split of its own data, or files."""
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.columns import row_for
from ..data.lines import Found
from ..data.load import checked, learned_from, load, settle_bad, with_header
from ..data.quarantine import MAX_BAD_ROWS, label_column
from ..data.quarantine import columns as columns_of
from ..data.source import settled
from ..data.store import Store
from .ask import Known, class_names, needs, style
from .memory import Held

Say = Callable[[str], None]
ROWS: dict[str, R.Row] = {"classify": R.Examples(), "regress": R.Examples(number=True), "choose": R.Choices(), "tag": R.Tagged(),
                          "answer": R.Questions(), "translate": R.Pairs(), "text2text": R.Pairs(),
                          "perplexity": R.Documents(), "fill": R.Documents(sentences=True)}
HEADS = {"classify": S.Classes, "tag": S.Tags, "answer": S.Spans}
TASKS: dict[type, str] = {R.Classification: "classify", R.Regression: "regress", R.MultipleChoice: "choose", R.Tagging: "tag",
                          R.Answering: "answer", R.Translation: "translate", R.TextToText: "text2text",
                          R.NextToken: "perplexity", R.MaskedTokens: "fill"}


class On(NamedTuple):
    """Prepared data, or rows in memory; and where the words themselves can be read."""
    store: Store
    source: R.Source | None


def objective_of(ready: Known, task: str | None) -> R.Objective:
    """By the run's recipe, or by a task."""
    if task is None and ready.recipe is None:
        raise ValueError(f"{ready.name} is a model without a recipe; say what it does with --task {'|'.join(ROWS)}, and --on FILE")
    if task is None and ready.recipe is not None:
        if not isinstance(ready.recipe.objective, R.Distillation):
            return ready.recipe.objective
        return R.Classification() if isinstance(ready.recipe.data.row, R.Examples | R.Images) else R.NextToken()
    how = style(ready)
    made: dict[str, R.Objective] = {
        "classify": R.Classification(input=how), "regress": R.Regression(input=how), "choose": R.MultipleChoice(input=how),
        "tag": R.Tagging(), "answer": R.Answering(), "translate": R.Translation(), "text2text": R.TextToText(),
        "perplexity": R.NextToken(), "fill": R.MaskedTokens()}
    assert task is not None
    if task in HEADS and isinstance(ready.model.spec.source, S.Tokens):
        needs(ready, HEADS[task], task)
    return made[task]


def files(ready: Known, objective: R.Objective, paths: Sequence[str], *, names: Sequence[str] = (), columns: Sequence[str] = (),
          max_bad_rows: float = MAX_BAD_ROWS, say: Say) -> On:
    """Files as the run's own data are read, where it has some; columns that are not those are guessed, aloud."""
    task = TASKS.get(type(objective))
    known = ready.recipe.data if ready.recipe is not None and TASKS.get(type(ready.recipe.objective)) == task else None
    row = known.row if known is not None else ROWS[task or "perplexity"]
    source = settled(R.Source(paths=tuple(paths), names=tuple(names)), row)
    alike = learned_from(replace(known, train=settled(known.train, row))) if known is not None else None
    if alike is not None and alike.format == source.format and not names:
        keeps = alike.header or alike.format not in ("csv", "tsv")             # without a header, names are for tables without one
        source = replace(source, document=alike.document, names=alike.names if keeps else ())
    source = with_header(source, [*columns, *columns_of(row)], alike, otherwise=True)
    rows, bad = load(source)
    if task is not None and rows and not isinstance(row, R.Questions | R.Images | R.Boxed):
        row = fitting(row, task, [item.fields for item in rows], columns, say)
    labels = class_names(ready) if label_column(row) else None
    if labels:
        rows = numbered(rows, label_column(row) or "", labels)
    good, wrong = checked(rows, row, labels, source.format)
    settle_bad(len(good), [*bad, *wrong], max_bad_rows, say)
    if not good:
        raise ValueError(f"{', '.join(source.paths)}: not one row can be read; give a file with rows")
    return On(Held(good, row, ready.text, labels), source)


def fitting(row: R.Row, task: str, rows: list[dict[str, Any]], columns: Sequence[str], say: Say) -> R.Row:
    """The row, if its columns are there; else what these columns are for the task."""
    if not columns and all(name in rows[0] for name in columns_of(row)):
        return row
    made = row_for(task, rows, columns)
    if isinstance(made, R.Documents) and isinstance(row, R.Documents):
        made = replace(made, sentences=row.sentences)
    if not columns:
        say(said(made))
    return made


def said(row: R.Row) -> str:
    """What was guessed, in one line."""
    parts = {"first": "text", "second": "second text", "label": "label", "words": "words", "tags": "tags", "source": "source",
             "target": "target", "context": "context", "text": "text"}
    return "reading " + ", ".join(f"{getattr(row, name)!r} as {what}" for name, what in parts.items() if getattr(row, name, None))


def numbered(rows: list[Found], column: str, labels: tuple[str, ...]) -> list[Found]:
    """Classes by their numbers, in a file where not one is by its name."""
    cells = [str(item.fields.get(column)) for item in rows]
    if not set(cells).isdisjoint(labels):
        return rows
    names = {str(i): name for i, name in enumerate(labels)}
    return [item._replace(fields=item.fields | {column: names[cell]}) if cell in names else item
            for item, cell in zip(rows, cells, strict=True)]


def words(on: On) -> list[dict[str, Any]]:
    """The rows of the store as they were written; what is left out was said when it was made."""
    if on.source is None:
        raise ValueError("this score needs the words themselves, not only their tokens; give the files with --on")
    row = on.store.meta.row
    source = settled(on.source, row)
    return [item.fields for item in checked(load(source, columns_of(row))[0], row, on.store.meta.labels, source.format)[0]]
