"""What a model is scored on: a split of its own data, or files."""
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.lines import Bad, Found
from ..data.quarantine import columns as columns_of
from ..data.quarantine import label_column
from ..data.source import pieces, read, settled
from ..data.store import Store
from .ask import Known, class_names, needs, style
from .memory import Held, sound
from .tables import SNIFF, SOURCE, TARGET, columns_without_header, row_value, said

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
          say: Say) -> On:
    """Files as the run's own data are read, where it has some; columns that are not those are guessed, aloud."""
    task = TASKS.get(type(objective))
    known = ready.recipe.data if ready.recipe is not None and TASKS.get(type(ready.recipe.objective)) == task else None
    row = known.row if known is not None else ROWS[task or "perplexity"]
    source = settled(R.Source(paths=tuple(paths), names=tuple(names), header=not names), row)
    alike = settled(known.train, row) if known is not None else None
    if alike is not None and alike.format == source.format and not names:
        source = replace(source, names=alike.names, header=alike.header, document=alike.document)
    source = headless(source, known)
    if task is not None and not isinstance(row, R.Questions | R.Images | R.Boxed):
        row = fitting(row, task, source, columns, say)
    labels = class_names(ready) if label_column(row) else None
    rows = found(source, row, say)
    if labels:
        rows = numbered(rows, label_column(row) or "", labels)
    return On(Held(sound(rows, row, labels, say), row, ready.text, labels), source)


def headless(source: R.Source, known: R.Data | None) -> R.Source:
    """A table of two languages often has no line that names its columns; nor has one such as a run learned from."""
    if source.format not in ("tsv", "csv") or source.names:
        return source
    some = [item.fields for piece in pieces(source)[:1] for item in islice(read(source, piece), SNIFF) if isinstance(item, Found)]
    if not some:
        return source
    if known is not None and (columns := columns_without_header(known, some)):
        return replace(source, names=tuple(columns), header=False)
    named = {name.lower() for name in some[0]} & {*SOURCE, *TARGET}
    bare = len(some[0]) == 2 and all(" " in name.strip() for name in some[0])
    return replace(source, names=("source", "target"), header=False) if bare and not named else source


def fitting(row: R.Row, task: str, source: R.Source, columns: Sequence[str], say: Say) -> R.Row:
    """The row, if its columns are there; else what these columns are for the task."""
    first = next((item.fields for piece in pieces(source) for item in read(source, piece) if isinstance(item, Found)), {})
    if not first:
        raise ValueError(f"{', '.join(source.paths)}: not one row can be read; give a file with rows")
    if not columns and all(name in first for name in columns_of(row)):
        return row
    made = row_value(task, first, columns)
    if isinstance(made, R.Documents) and isinstance(row, R.Documents):
        made = replace(made, sentences=row.sentences)
    if not columns:
        say(said(made))
    return made


def found(source: R.Source, row: R.Row, say: Say) -> list[Found]:
    """All rows that can be read."""
    items = [item for piece in pieces(source) for item in read(source, piece, columns_of(row))]
    bad = [item for item in items if isinstance(item, Bad)]
    if bad:
        say(f"{len(bad)} of {len(items)} rows cannot be read, the first at {bad[0].offset}: {bad[0].reason}")
    return [item for item in items if isinstance(item, Found)]


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
    return [item.fields for item in sound(found(settled(on.source, row), row, silent), row, None, silent)]


def silent(_: str) -> None:
    """Says nothing."""
