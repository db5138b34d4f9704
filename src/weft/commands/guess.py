"""`weft new`: what a data file holds, and the first recipe for it. Every reader and every rule is that of `data` and `tuning`."""

from collections.abc import Sequence
from dataclasses import replace

from .. import recipe as R
from .. import spec as S
from ..data.files import find
from ..data.formats.sniff import UnknownFormat
from ..data.reading.examples import find_examples
from ..data.reading.labels import format_labels
from ..recipe.cells import EXCERPT
from .first_recipe import (
    COMMENTS,
    Guess,
    NewOptions,
    count_steps,
    named_columns,
    open_data,
    plan_fields,
    quoted_columns,
    rounded_up,
    vocabulary_size,
    warn_if_sorted,
    warnings_of,
    with_valid,
)
from .guess_images import guess_detect, guess_image_classes
from .guess_pretrain import guess_pretrain
from .recipe_code import Call

PIECES_PER_WORD = 1.4  # of subwords, about
LONGEST, COVERED = 512, 0.99  # tokens of a row, and the fraction of rows that fit whole


def row_length(words: Sequence[int]) -> int:
    """Return the number of tokens that almost all rows fit into."""
    ordered = sorted(words)
    usual = ordered[min(len(ordered) - 1, int(COVERED * len(ordered)))]
    return rounded_up(PIECES_PER_WORD * usual + 2, 16, LONGEST)


# One function per kind


def guess_classify(files: list[str], valid: list[str], options: NewOptions) -> Guess:
    table = open_data(files, options)
    if table.holds_images:
        return guess_image_classes(table, valid, options)
    valid_table = table.open_like(valid) if valid else None
    detected = find_examples(table, valid_table, "classify")
    row = detected.row
    if not isinstance(row, R.LabelledTexts):
        raise ValueError(f"{files[0]} is no table of texts and labels; give such a table")
    texts = [" ".join(str(fields[name]) for name in row.text_columns) for fields in detected.rows]
    length = row_length([len(text.split()) for text in texts])
    vocab = vocabulary_size(sum(map(len, texts)))
    labels = row.labels or ()
    train, valid_source, validation_text = with_valid(table, valid_table, row, len(texts))
    head = S.ClassifierHead(num_labels=len(labels), pooling="mean", dropout=0.1)
    model = Call(
        "weft.bert",
        {
            "vocab_size": vocab,
            "positions": length,
            "init": S.NormalInit(std=0.05),
            "head": head,
        },
        "tiny",
    )
    return Guess(
        f"Classification of {files[0]}: {quoted_columns(row)} into {len(labels)} classes.",
        {
            "rows": f"{len(texts):,} ({detected.train.format})",
            "text": quoted_columns(row),
            "label": f"{row.label!r}, {len(labels)} classes: {format_labels(labels)}",
            "longest row": f"{length} tokens hold {COVERED:.0%} of the rows",
            "vocabulary": f"{vocab:,} pieces of words",
            "validation": validation_text,
            **warnings_of(
                ""
                if valid
                else warn_if_sorted([str(fields[row.label]) for fields in detected.rows])
            ),
        },
        {
            "name": options.name,
            "model": model,
            "task": R.Classification(),
            "data": R.Data(
                rows=row, tokenizer=R.WordPiece(vocab_size=vocab), train=train, valid=valid_source
            ),
            "batch": R.FixedBatch(size=32, length=length),
            **plan_fields(count_steps(5, len(texts), 32, 5000), 1e-3),
        },
        COMMENTS
        | {
            "model": "nothing is pre-trained; weft tune fine-tunes a published model on the same file"
        },
        f'weft classify runs/{options.name} "{shorten(texts[0])}"',
    )


def shorten(text: str) -> str:
    """Return the first words, without what a shell or a docstring would take for its own."""
    words = " ".join(text.split(maxsplit=6)[:6])[:EXCERPT]
    return "".join(c for c in words if c.isprintable() and c not in '"`$!\\')


def guess_translate(files: list[str], valid: list[str], options: NewOptions) -> Guess:
    if len(files) > 2:
        raise ValueError(f"{len(files)} files: translate reads two parallel files, or one table")
    try:
        table = open_data(files, options, R.SourceTargetPairs())
    except UnknownFormat as error:
        raise ValueError(
            f"{error}; translate reads two files with one sentence per line, or a table with two columns"
        ) from None
    row = named_columns(table, R.Translation)
    assert isinstance(row, R.SourceTargetPairs)
    pairs = [item.fields for item in table.usable(row).rows]
    if not pairs:
        raise ValueError(f"{', '.join(files)}: there is no pair")
    texts = [(fields[row.source], fields[row.target]) for fields in pairs]
    length = row_length([max(len(a.split()), len(b.split())) for a, b in texts])
    vocab = vocabulary_size(sum(len(a) + len(b) for a, b in texts) / 2)
    valid_table = table.open_like(valid) if valid else None
    train, valid_source, validation_text = with_valid(table, valid_table, row, len(texts))
    tokens = sum(PIECES_PER_WORD * len(b.split()) for _, b in texts)
    sizes = {
        "depth": 3,
        "width": 256,
        "heads": 4,
        "hidden": 1024,
        "vocab_size": vocab,
        "dropout": 0.1,
    }
    return Guess(
        f"Translation of {', '.join(files)}: the Transformer of 2017, made small.",
        {
            "pairs": f"{len(texts):,} ({table.format})",
            "source": f"{row.source!r}, such as {shorten(texts[0][0])!r}; its language is not looked at",
            "target": f"{row.target!r}, such as {shorten(texts[0][1])!r}",
            "longest row": f"{length} tokens hold {COVERED:.0%} of the pairs",
            "vocabulary": f"{vocab:,} pieces, shared by both sides",
            "validation": validation_text,
        },
        {
            "name": options.name,
            "model": Call("weft.transformer", sizes),
            "task": R.Translation(label_smoothing=0.1),
            "data": R.Data(
                rows=row, tokenizer=R.BPE(vocab_size=vocab), train=train, valid=valid_source
            ),
            "batch": R.TokenBudget(tokens=max(2048, length), length=length),
            **plan_fields(count_steps(20, tokens, 2048, 20_000), 1e-3),
        },
        COMMENTS | {"batch": "about this many tokens per step on each side"},
        f'weft translate runs/{options.name} "{shorten(texts[0][0])}"',
    )


KINDS = {
    "translate": guess_translate,
    "classify": guess_classify,
    "pretrain": guess_pretrain,
    "detect": guess_detect,
}


def guess(kind: str, paths: Sequence[str], valid: Sequence[str], options: NewOptions) -> Guess:
    """Return the recipe for files of one kind: a key of `KINDS`."""
    for path in (*paths, *valid):
        find(path)
    first = KINDS[kind](list(paths), list(valid), options)
    data = replace(first.values["data"], max_bad_row_fraction=options.max_bad_row_fraction)
    return first._replace(values=first.values | {"data": data})
