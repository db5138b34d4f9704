"""Recipes for texts from random weights: labelled texts, and pairs of texts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..data.reading.examples import Examples, find_examples
from ..data.reading.labels import format_labels
from ..data.reading.table import Table
from ..families import family
from ..recipe.cells import EXCERPT
from ..recipe.formats import SourceRow
from .lengths import COVERED, PIECES_PER_WORD, WINDOW, estimated_length
from .recipe_code import Call
from .split import Split, split_table
from .suggestion import (
    COMMENTS,
    RUN,
    Budget,
    FineTuning,
    Suggestion,
    count_steps,
    plan_fields,
    quoted_columns,
    vocabulary_size,
    warnings_of,
)
from .text_to_text import find_text_to_text

BATCH_SIZE = 32
TOKENS_PER_STEP = 2048  # of pairs, on each side
SMALL_TRANSFORMER = {"depth": 3, "width": 256, "heads": 4, "hidden": 1024}
FINE_TUNE = "nothing is pre-trained; weft new --from and weft tune start from a published model"


def shorten(text: str) -> str:
    """Return the first words, without what a shell or a docstring would take for its own."""
    words = " ".join(text.split(maxsplit=6)[:6])[:EXCERPT]
    return "".join(c for c in words if c.isprintable() and c not in '"`$!\\')


def text_of_row(fields: dict[str, Any], row: R.RowSchema) -> str:
    """Return all text of a row, of several endings the longest."""
    cells = [fields[name] for name in row.text_columns]
    if isinstance(row, R.ChoiceQuestions):
        endings = cells[1] if isinstance(cells[1], list) else cells[1:]
        cells = [cells[0], max(map(str, endings), key=len, default="")]
    parts = (cell if isinstance(cell, list) else [cell] for cell in cells)
    return " ".join(str(part) for cell in parts for part in cell)


def check_pairs(table: Table, row: R.RowSchema) -> None:
    """Raise ValueError for rows of similarity without two texts."""
    if not isinstance(row, R.LabelledTexts) or row.second_text is None:
        raise ValueError(
            f"{table.path}: similarity reads two texts and a label; name them: --columns TEXT TEXT LABEL"
        )


# Labels


def suggest_labelled_texts(
    table: Table, valid: Table | None, task: str | None, budget: Budget, seed: int
) -> Suggestion:
    """Return a small BERT for what `weft tune` fine-tunes: classes, numbers, endings, tags and answers."""
    examples = find_examples(table, valid, task)
    row = examples.row
    if task == "similarity":
        check_pairs(table, row)
    texts = [text_of_row(fields, row) for fields in examples.rows]
    length = budget.max_length or estimated_length([len(text.split()) for text in texts])
    if isinstance(row, R.ContextQuestions):
        length = min(length, WINDOW)
        row = R.ContextQuestions(max_length=length, stride=min(128, length // 2))
    vocab = vocabulary_size(sum(map(len, texts)))
    split = split_table(table, valid, row, examples.usable, seed)
    return Suggestion(
        examples.task,
        title_of(examples, row),
        {
            "rows": f"{len(texts):,} ({examples.train.format})",
            "text": quoted_columns(row),
            **label_fact(row),
            "longest row": f"{length} tokens hold {COVERED:.0%} of the rows",
            "vocabulary": f"{vocab:,} pieces of words",
            "validation": split.description,
            **warnings_of(*examples.notes),
        },
        {
            "model": small_bert(examples, vocab, length),
            "task": examples.kind(),
            "data": R.Data(
                rows=row,
                tokenizer=R.WordPiece(vocab_size=vocab),
                train=split.train,
                valid=split.valid,
                max_bad_row_fraction=split.max_bad_rows,
            ),
            "batch": R.FixedBatch(size=budget.batch_size or BATCH_SIZE, length=length),
            **plan_fields(
                count_steps(budget.epochs or 5, len(texts), budget.batch_size or BATCH_SIZE, 5000)
            ),
        },
        COMMENTS | {"model": FINE_TUNE},
        use_of(examples, texts[0]),
        summary=examples.summary,
        notes=examples.notes,
    )


def title_of(examples: Examples, row: R.RowSchema) -> str:
    count = f" into {len(row.labels)} classes" if row.labels else ""
    name = "Classification" if examples.task == "classify" else examples.kind.__name__
    return f"{name} of {examples.train.paths[0]}: {quoted_columns(row)}{count}."


def label_fact(row: R.RowSchema) -> dict[str, str]:
    column = row.label_column or row.number_column
    if row.labels:
        return {"label": f"{column!r}, {len(row.labels)} classes: {format_labels(row.labels)}"}
    return {"label": f"numbers in {column!r}"} if column else {}


def small_bert(examples: Examples, vocab: int, length: int) -> Call:
    """Return a BERT with the head of a task. Without pre-training the mean of all tokens learns faster than the first token."""
    sizes = {"vocab_size": vocab, "positions": length, "init": S.NormalInit(std=0.05)}
    outputs = len(examples.labels or ()) or 1
    head = examples.kind.default_head(family("bert")("tiny", **sizes), examples.labels, 0.1)
    if isinstance(head, S.ClassifierHead):
        head = S.ClassifierHead(num_labels=outputs, pooling="mean", dropout=0.1)
    return Call("weft.bert", sizes | {"head": head}, "tiny")


def use_of(examples: Examples, text: str) -> str:
    """Return the command that uses the trained model."""
    one_text = isinstance(examples.row, R.LabelledTexts) and examples.row.second_text is None
    if one_text or isinstance(examples.row, R.TaggedWords):
        return f'weft {examples.kind.verb} {RUN} "{shorten(text)}"'
    return f"weft evaluate {RUN}"


# Pairs


def suggest_translation(table: Table, valid: Table | None, budget: Budget, seed: int) -> Suggestion:
    """Return the Transformer of 2017, made small, for sources and their targets."""
    assert table.examined
    try:
        row = table.row_schema(R.Translation)
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}") from None
    assert isinstance(row, R.SourceTargetPairs)
    usable = table.usable(row)
    if not usable.rows:
        raise ValueError(f"{', '.join(table.source.paths)}: there is no pair")
    facts = {
        "pairs": f"{len(usable.rows):,} ({table.format})",
        "source": f"{row.source!r}, such as {shorten(usable.rows[0].fields[row.source])!r}; its language is not looked at",
        "target": f"{row.target!r}, such as {shorten(usable.rows[0].fields[row.target])!r}",
    }
    split = split_table(table, valid, row, usable, seed)
    task = R.Translation(label_smoothing=0.1)
    suggestion = suggest_pairs("translate", task, row, usable.rows, split, budget)
    return with_facts(suggestion, facts, usable.notes())


def suggest_text_to_text(
    table: Table, valid: Table | None, budget: Budget, seed: int
) -> Suggestion:
    """Return the Transformer of 2017, made small, for texts to write for other texts or for classes."""
    examples = find_text_to_text(table, valid, "text2text", FineTuning())
    assert examples is not None
    row = examples.row
    assert isinstance(row, R.TemplatedPairs)
    split = split_table(table, valid, row, examples.usable, seed)
    task = R.TextToText(label_smoothing=0.1)
    suggestion = suggest_pairs("text2text", task, row, examples.usable.rows, split, budget)
    return with_facts(suggestion, {"data": examples.summary}, examples.notes)


def with_facts(suggestion: Suggestion, facts: dict[str, str], notes: tuple[str, ...]) -> Suggestion:
    """Return a suggestion with facts about its table before its own."""
    facts = facts | suggestion.facts | warnings_of(*notes)
    return replace(suggestion, facts=facts, notes=notes)


def suggest_pairs(
    name: str,
    task: R.Task,
    row: R.SourceTargetPairs | R.TemplatedPairs,
    items: Sequence[SourceRow],
    split: Split,
    budget: Budget,
) -> Suggestion:
    pairs = [(row.source_text(item.fields), row.target_text(item.fields)) for item in items]
    words = [(len(source.split()), len(target.split())) for source, target in pairs]
    length = budget.max_length or estimated_length([max(both) for both in words])
    vocab = vocabulary_size(sum(len(source) + len(target) for source, target in pairs) / 2)
    per_step = max(TOKENS_PER_STEP, length)
    tokens = sum(PIECES_PER_WORD * count for _, count in words)
    sizes = SMALL_TRANSFORMER | {"vocab_size": vocab, "dropout": 0.1}
    title = "Translation" if name == "translate" else "Text to text"
    return Suggestion(
        name,
        f"{title} of {', '.join(split.train.paths)}: the Transformer of 2017, made small.",
        {
            "longest row": f"{length} tokens hold {COVERED:.0%} of the pairs",
            "vocabulary": f"{vocab:,} pieces, shared by both sides",
            "validation": split.description,
        },
        {
            "model": Call("weft.transformer", sizes),
            "task": task,
            "data": R.Data(
                rows=row,
                tokenizer=R.BPE(vocab_size=vocab),
                train=split.train,
                valid=split.valid,
                max_bad_row_fraction=split.max_bad_rows,
            ),
            "batch": R.TokenBudget(tokens=per_step, length=length),
            **plan_fields(count_steps(budget.epochs or 20, tokens, TOKENS_PER_STEP, 20_000)),
        },
        COMMENTS | {"batch": "about this many tokens per step on each side"},
        f'weft translate {RUN} "{shorten(pairs[0][0])}"',
    )
