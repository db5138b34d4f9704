"""Recipes for texts from random weights: labelled texts and pairs of texts."""

from typing import Any, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.reading.examples import Examples, find_examples
from ..data.reading.labels import format_labels
from ..data.reading.table import Tables, UsableRows
from ..families import family
from ..recipe.data.cells import EXCERPT
from .lengths import COVERED, PIECES_PER_WORD, WINDOW, estimated_length
from .recipe_code import Call
from .split import Split, split_tables
from .suggestion import (
    COMMENTS,
    RUN,
    Budget,
    FineTuning,
    Suggestion,
    count_steps,
    first_fields,
    quoted_columns,
    vocabulary_size,
)
from .text_to_text import find_text_to_text

BATCH_SIZE = 32
TOKENS_PER_STEP = 2048  # of pairs, per side
SMALL_TRANSFORMER = {"depth": 3, "width": 256, "heads": 4, "hidden": 1024}
FINE_TUNE = "random weights; weft new --from and weft tune start from a published model"


def shorten(text: str) -> str:
    """Return the first words, without characters special to a shell or a docstring."""
    words = " ".join(text.split(maxsplit=6)[:6])[:EXCERPT]
    return "".join(c for c in words if c.isprintable() and c not in '"`$!\\')


def text_of_row(fields: dict[str, Any], row: R.RowSchema) -> str:
    """Return all text of a row; of several endings, the longest."""
    cells = [fields[name] for name in row.text_columns]
    if isinstance(row, R.ChoiceQuestions):
        endings = cells[1] if isinstance(cells[1], list) else cells[1:]
        cells = [cells[0], max(map(str, endings), key=len, default="")]
    parts = (cell if isinstance(cell, list) else [cell] for cell in cells)
    return " ".join(str(part) for cell in parts for part in cell)


def check_pairs(path: str, row: R.RowSchema) -> None:
    """Raise ValueError for similarity rows without two texts."""
    if not isinstance(row, R.LabelledTexts) or row.second_text is None:
        raise ValueError(
            f"{path}: similarity needs two texts and a label; give --columns TEXT TEXT LABEL"
        )


# Labels


def suggest_labelled_texts(tables: Tables, task: str | None, budget: Budget) -> Suggestion:
    """Return a suggestion for a small BERT on a task of `weft tune`: classes, numbers, endings,
    tags or answers.
    """
    examples = find_examples(tables, task)
    row = examples.row
    if task == "similarity":
        check_pairs(tables.path, row)
    texts = [text_of_row(fields, row) for fields in examples.rows]
    length = budget.max_length or estimated_length([len(text.split()) for text in texts])
    if isinstance(row, R.ContextQuestions):
        length = min(length, WINDOW)
        row = R.ContextQuestions(max_length=length, stride=min(128, length // 2))
    vocab = vocabulary_size(sum(map(len, texts)))
    split = split_tables(tables, row, examples.usable)
    size = budget.batch_size or BATCH_SIZE
    return Suggestion(
        examples.task,
        title_of(examples, row),
        {
            "rows": f"{len(texts):,} ({examples.train.format})",
            "text": quoted_columns(row),
            **label_fact(row),
            "longest row": f"{length} tokens cover {COVERED:.0%} of the rows",
            "vocabulary": f"{vocab:,} pieces of words",
            **split.facts(*examples.notes),
        },
        first_fields(
            small_bert(examples, vocab, length),
            examples.kind(),
            split.data(row, R.WordPiece(vocab_size=vocab)),
            R.FixedBatch(size=size, length=length),
            count_steps(budget.epochs or 5, len(texts), size, 5000),
        ),
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
    """Return a BERT with the head of a task. Without pre-training, mean pooling learns faster than
    the first token.
    """
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


class Pairs(NamedTuple):
    """Sources and targets, with facts about them."""

    row: R.SourceTargetPairs | R.TemplatedPairs
    split: Split
    texts: list[tuple[str, str]]
    facts: dict[str, str]
    notes: tuple[str, ...]


def suggest_translation(tables: Tables, budget: Budget) -> Suggestion:
    """Return a suggestion for a small Transformer of 2017 on sources and targets."""
    table = tables.train
    assert table.examined
    try:
        row = table.row_schema(R.Translation)
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}") from None
    assert isinstance(row, R.SourceTargetPairs)
    usable = table.usable(row)
    if not usable.rows:
        raise ValueError(f"{', '.join(table.source.paths)}: no pair of texts; give files with text")
    texts = texts_of(row, usable)
    source, target = map(shorten, texts[0])
    facts = {
        "pairs": f"{len(texts):,} ({table.format})",
        "source": f"{row.source!r}, such as {source!r}; the language is not detected",
        "target": f"{row.target!r}, such as {target!r}",
    }
    pairs = Pairs(row, split_tables(tables, row, usable), texts, facts, usable.notes())
    return suggest_pairs("translate", R.Translation(label_smoothing=0.1), pairs, budget)


def suggest_text_to_text(tables: Tables, budget: Budget) -> Suggestion:
    """Return a suggestion for a small Transformer of 2017 that writes target texts or classes."""
    examples = find_text_to_text(tables, "text2text", FineTuning())
    assert examples is not None
    row = examples.row
    assert isinstance(row, R.TemplatedPairs)
    split = split_tables(tables, row, examples.usable)
    texts = texts_of(row, examples.usable)
    pairs = Pairs(row, split, texts, {"data": examples.summary}, examples.notes)
    return suggest_pairs("text2text", R.TextToText(label_smoothing=0.1), pairs, budget)


def texts_of(
    row: R.SourceTargetPairs | R.TemplatedPairs, usable: UsableRows
) -> list[tuple[str, str]]:
    rows = [item.fields for item in usable.rows]
    return [(row.source_text(fields), row.target_text(fields)) for fields in rows]


def suggest_pairs(name: str, task: R.Task, pairs: Pairs, budget: Budget) -> Suggestion:
    split = pairs.split
    words = [(len(source.split()), len(target.split())) for source, target in pairs.texts]
    length = budget.max_length or estimated_length([max(both) for both in words])
    vocab = vocabulary_size(sum(len(source) + len(target) for source, target in pairs.texts) / 2)
    tokens = sum(PIECES_PER_WORD * count for _, count in words)
    sizes = SMALL_TRANSFORMER | {"vocab_size": vocab, "dropout": 0.1}
    title = "Translation" if name == "translate" else "Text to text"
    return Suggestion(
        name,
        f"{title} of {', '.join(split.train.paths)}: a small Transformer of 2017.",
        {
            **pairs.facts,
            "longest row": f"{length} tokens cover {COVERED:.0%} of the pairs",
            "vocabulary": f"{vocab:,} pieces, shared by both sides",
            **split.facts(*pairs.notes),
        },
        first_fields(
            Call("weft.transformer", sizes),
            task,
            split.data(pairs.row, R.BPE(vocab_size=vocab)),
            R.TokenBudget(tokens=max(TOKENS_PER_STEP, length), length=length),
            count_steps(budget.epochs or 20, tokens, TOKENS_PER_STEP, 20_000),
        ),
        COMMENTS | {"batch": "approximate tokens per step and side"},
        f'weft translate {RUN} "{shorten(pairs.texts[0][0])}"',
        notes=pairs.notes,
    )
