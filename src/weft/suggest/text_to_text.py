"""Text-to-text data: the columns of source and target, and templates that write a labelled row as
text (T5, arXiv:1910.10683, section 2.4 and appendix D).
"""

from collections.abc import Sequence

from .. import recipe as R
from ..data.reading.column_names import (
    SOURCE_COLUMNS,
    TARGET_COLUMNS,
    check_columns_exist,
    find_column,
)
from ..data.reading.columns import MAX_CLASSES, column_values, looks_like_text
from ..data.reading.examples import Examples, build_examples, find_examples
from ..data.reading.labels import detect_classes, format_labels
from ..data.reading.quarantine import allowed_bad_rows
from ..data.reading.table import Table, Tables
from ..recipe.data.formats import Fields
from ..support.synonyms import suggest
from .checkpoint import Checkpoint
from .suggestion import FineTuning

TASK = "text2text"
SOURCE_TARGET_COLUMNS = (
    ("source", "target"),
    ("input", "output"),
    ("document", "summary"),
    ("article", "highlights"),
    ("text", "summary"),
)


def is_text_to_text(task: str | None, checkpoint: Checkpoint, wording: FineTuning) -> bool:
    """Return whether to read the data as text-to-text: if `task` requests it, or for an
    encoder-decoder without a task.
    """
    if task in (None, TASK) and checkpoint.is_text_to_text:
        return True
    if task == TASK:
        raise ValueError(
            f"--task {TASK} needs an encoder-decoder with a language modelling head, such as T5 or "
            f"BART; {checkpoint.name} has another architecture"
        )
    if wording.source_prefix or wording.label_texts:
        raise ValueError(f"--source-prefix and --label-texts need --task {TASK}")
    return False


def find_text_to_text(tables: Tables, task: str | None, wording: FineTuning) -> Examples | None:
    """Return the rows of a table as text-to-text: source and target texts, or texts and classes;
    None if they are neither.
    """
    if (columns := source_target_columns(tables.train, task)) is not None:
        return find_pairs(tables, columns, wording)
    detected = find_examples(tables)
    row = detected.row
    if isinstance(row, R.LabelledTexts) and row.labels is not None:
        texts = [name for name in (row.text, row.second_text) if name]
        first = detected.usable.rows[0].fields
        return with_summary(detected, build_template(wording, texts, row.label, row.labels, first))
    if task == TASK:
        raise ValueError(
            f"{tables.path}: cannot infer the columns of source and target; give --columns SOURCE "
            "[SOURCE …] TARGET"
        )
    return None


def find_pairs(tables: Tables, columns: list[str], wording: FineTuning) -> Examples:
    """Return the rows of a table with known columns of source and target; repeated targets are
    labels.
    """
    table, valid, _ = tables
    *texts, target = columns
    rows = [*table.rows, *(valid.rows if valid else ())]
    cells = [cell for item in rows if (cell := item.fields.get(target)) not in (None, "")]
    free = looks_like_text(cells) or len(set(map(str, cells))) > min(MAX_CLASSES, len(cells) // 2)
    allowed = allowed_bad_rows(len(table.rows), table.max_bad_rows)
    labels = None if free else detect_classes(cells, target, TASK, allowed)
    row = build_template(wording, texts, target, labels, table.rows[0].fields if rows else {})
    return with_summary(build_examples(tables, TASK, row, summary="-"), row)


def source_target_columns(table: Table, task: str | None) -> list[str] | None:
    """Return the columns of the source, then the target; None if the table lacks them."""
    if table.format == "parallel":
        return ["source", "target"]
    rows = [item.fields for item in table.rows]
    if table.format in ("squad", "conll") or not rows:
        return None
    requested = [*table.requested, *([table.label] if table.label else [])]
    if table.requested:
        check_columns_exist(rows[0], requested)
        is_pair = task == TASK or looks_like_text(column_values(rows, requested[-1]))
        return requested if len(requested) > 1 and is_pair else None
    for source, target in (
        *SOURCE_TARGET_COLUMNS,
        *((source, target) for source in SOURCE_COLUMNS for target in TARGET_COLUMNS),
    ):
        both = find_column(rows[0], (source,)), find_column(rows[0], (target,))
        if both[0] and both[1]:
            return [both[0], both[1]]
    names = list(rows[0])
    return (
        names
        if len(names) == 2 and all(looks_like_text(column_values(rows, name)) for name in names)
        else None
    )


def build_template(
    wording: FineTuning,
    texts: Sequence[str],
    target: str,
    labels: tuple[str, ...] | None,
    first: Fields,
) -> R.TemplatedPairs:
    """Return the template: the prefix, then the text; several texts each follow their column name,
    as in T5.
    """
    body = (
        f"{{{texts[0]}}}" if len(texts) == 1 else " ".join(f"{name}: {{{name}}}" for name in texts)
    )
    schema = R.TemplatedPairs(
        template=wording.source_prefix + body,
        target=target,
        labels=labels,
        label_texts=wording.label_texts or None,
    )
    wrong = next((name for name in schema.template_columns if name not in first), None)
    if wrong is not None:
        raise ValueError(
            f"--source-prefix {wording.source_prefix!r}: unknown column {wrong!r}; "
            f"{suggest(wrong, list(map(str, first)))}"
        )
    return schema


def with_summary(detected: Examples, row: R.TemplatedPairs) -> Examples:
    form = detected.train.format
    what = (
        f"{len(row.labels)} labels in {row.target!r} ({format_labels(row.targets)})"
        if row.labels
        else f"target text in {row.target!r}"
    )
    line = (
        f"{detected.train.paths[0]}: {len(detected.rows):,} rows ({form}), source "
        f"{row.template!r}, {what}: {TASK}"
    )
    return detected._replace(task=TASK, row=row, summary=line)
