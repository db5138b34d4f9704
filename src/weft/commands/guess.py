"""`weft new`: what a data file holds, and the first recipe for it. Every reader and every rule is that of `data` and `tuning`."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from math import ceil, log2
from pathlib import Path
from typing import Any, NamedTuple, cast

from .. import recipe as R
from .. import spec as S
from ..data.columns import check_columns_exist, infer_row_schema
from ..data.files import find, size_and_mtime
from ..data.formats.coco import load_coco, read_coco
from ..data.formats.lines import read_head
from ..data.formats.sniff import detect_format
from ..data.images import displayed_size
from ..data.load import load_source, split_bad_rows
from ..data.quarantine import MAX_BAD_ROWS, check_bad_row_limit
from ..data.source import read_piece, resolve_source, split_source
from ..recipe.formats import SourceRow
from ..tuning.detect import build_source, detect_data, format_labels, usable_rows
from .recipe_code import Call, Name

SAMPLE_ROWS, SAMPLE_IMAGES = 2000, 100
PIECES_PER_WORD, CHARACTERS_PER_TOKEN = 1.4, 3.5  # of subwords, about
COMMON_STEMS = {"train", "training", "data", "dataset", "all", "input", "corpus", "annotations"}
LONGEST, COVERED = 512, 0.99  # tokens of a row, and the fraction of rows that fit whole


class TableOptions(NamedTuple):
    """How the user says that a table is read."""

    columns: Sequence[str] = ()
    column_names: Sequence[str] = ()
    max_bad_row_fraction: float = MAX_BAD_ROWS


class Guess(NamedTuple):
    """A recipe, and what was guessed on the way."""

    title: str
    facts: dict[str, str]  # what is printed
    values: dict[str, Any]  # fields of the recipe
    comments: dict[str, str]
    use: str  # the command that uses the trained model
    constants: dict[str, Any] = {}


def recipe_name(path: str) -> str:
    """Return the name of the file or, where many files are called so, of its folder."""
    stem = Path(path).name.split(".")[0] or "mine"
    folder = Path(path).resolve().parent.name
    if stem.lower() in COMMON_STEMS and folder:
        stem = folder
    return re.sub(r"[^A-Za-z0-9_.-]", "-", stem).lstrip("-._") or "mine"


def rounded_up(number: float, multiple: int, most: int) -> int:
    return min(most, max(multiple, multiple * ceil(number / multiple)))


def row_length(words: Sequence[int]) -> int:
    """Return the number of tokens that almost all rows fit into."""
    ordered = sorted(words)
    usual = ordered[min(len(ordered) - 1, int(COVERED * len(ordered)))]
    return rounded_up(PIECES_PER_WORD * usual + 2, 16, LONGEST)


def vocabulary_size(characters: float) -> int:
    """Return a vocabulary whose tokens occur often enough to be learned: about one per 200 characters."""
    return min(32_768, max(512, 1 << max(0, round(log2(max(characters, 1) / 200)))))


def count_steps(epochs: float, samples: float, per_step: float, most: int) -> int:
    return int(min(most, max(50, ceil(epochs * samples / per_step))))


def split_source_at(source: R.Source, rows: int) -> tuple[R.Source, R.Source]:
    """Return the first nine tenths and the last tenth; of few rows more, so that some are left to validate on."""
    share = round(1 - max(0.1, min(0.5, 5 / max(rows, 1))), 2)
    return replace(source, fraction=(0.0, share)), replace(source, fraction=(share, 1.0))


def with_valid(source: R.Source, valid: Sequence[str], rows: int) -> tuple[R.Source, R.Source, str]:
    if valid:
        return source, replace(source, paths=tuple(valid)), ", ".join(valid)
    train, valid_source = split_source_at(source, rows)
    return (
        train,
        valid_source,
        f"the last {1 - train.fraction[1]:.0%} of the file; shuffle a sorted file first",
    )


def plan_fields(steps: int, lr: float) -> dict[str, Any]:
    """Return what every first recipe has: a short warm-up, precision by the machine, ten validations."""
    return {
        "steps": steps,
        "optimiser": R.AdamW(lr=lr),
        "schedule": R.CosineSchedule(warmup_steps=max(1, steps // 10), final_fraction=0.1),
        "precision": "auto",
        "eval_every": max(10, steps // 10),
        "checkpoints": R.Checkpoints(every_steps=max(10, steps // 10)),
    }


COMMENTS = {
    "task": "the objective; its fields are in weft.recipe",
    "data": "read once and prepared under prepared/; relative paths start where weft is called",
    "steps": "more steps for more data; weft show on this file prints their cost",
    "precision": "bf16 where the processor is fast at it, else fp32",
}


# One function per kind


def guess_classify(files: list[str], valid: list[str], table: TableOptions) -> Guess:
    if os.path.isdir(find(files[0])[0]):
        raise ValueError(f"{files[0]} is a folder; classify reads a table of texts and labels")
    names, share = table.column_names, table.max_bad_row_fraction
    detected = detect_data(files, valid, "classify", names, table.columns, max_bad_rows=share)
    row = detected.row
    if not isinstance(row, R.LabelledTexts):
        raise ValueError(f"{files[0]} is no table of texts and labels; give such a table")
    texts = [" ".join(str(fields[name]) for name in row.text_columns) for fields in detected.rows]
    length = row_length([len(text.split()) for text in texts])
    vocab = vocabulary_size(sum(map(len, texts)))
    labels = row.labels or ()
    source = replace(detected.train, paths=tuple(files))  # as the user wrote them
    train, valid_source, validation_text = with_valid(source, valid, len(texts))
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
            **(
                {}
                if valid
                else warn_if_sorted([str(fields[row.label]) for fields in detected.rows])
            ),
        },
        {
            "name": recipe_name(files[0]),
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
        f'weft classify runs/{recipe_name(files[0])} "{shorten(texts[0])}"',
    )


def warn_if_sorted(labels: Sequence[str]) -> dict[str, str]:
    """Return a warning where the label changes far less often along the rows than in random order: then the last rows are of few classes."""
    changes = sum(label != following for label, following in pairwise(labels))
    squares = sum((count / len(labels)) ** 2 for count in Counter(labels).values())
    if changes > 0.1 * len(labels) * (1 - squares):
        return {}
    return {
        "warning": "the rows are sorted by label, and the last ones are no fair validation; shuffle the file, or give --valid"
    }


def quoted_columns(row: R.RowSchema) -> str:
    return " and ".join(map(repr, row.text_columns))


def shorten(text: str) -> str:
    """Return the first words, without what a shell or a docstring would take for its own."""
    words = " ".join(text.split()[:6])
    return "".join(c for c in words if c.isprintable() and c not in '"`$!\\')


def guess_translate(files: list[str], valid: list[str], table: TableOptions) -> Guess:
    row = R.SourceTargetPairs()
    if len(files) == 2:
        source = R.Source(paths=tuple(files), format="parallel")
    elif len(files) == 1:
        try:
            kind = detect_format(files[0])
        except ValueError as error:
            raise ValueError(
                f"{error}; translate reads two files with one sentence per line, or a table with two columns"
            ) from None
        source = build_source(files, kind, table.column_names, table.columns)
        first = [item.fields for item in sample_rows(source, table)]
        row = cast(R.SourceTargetPairs, named_columns(files[0], row, first, table))
    else:
        raise ValueError(f"{len(files)} files: translate reads two parallel files, or one table")
    pairs, _ = usable_rows(*load_source(source), row, source, table.max_bad_row_fraction, "")
    if not pairs:
        raise ValueError(f"{', '.join(files)}: there is no pair")
    texts = [(fields[row.source], fields[row.target]) for fields in pairs]
    length = row_length([max(len(a.split()), len(b.split())) for a, b in texts])
    vocab = vocabulary_size(sum(len(a) + len(b) for a, b in texts) / 2)
    train, valid_source, validation_text = with_valid(source, valid, len(texts))
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
            "pairs": f"{len(texts):,} ({source.format})",
            "source": f"{row.source!r}, such as {shorten(texts[0][0])!r}; its language is not looked at",
            "target": f"{row.target!r}, such as {shorten(texts[0][1])!r}",
            "longest row": f"{length} tokens hold {COVERED:.0%} of the pairs",
            "vocabulary": f"{vocab:,} pieces, shared by both sides",
            "validation": validation_text,
        },
        {
            "name": recipe_name(files[0]),
            "model": Call("weft.transformer", sizes),
            "task": R.Translation(label_smoothing=0.1),
            "data": R.Data(
                rows=row, tokenizer=R.BPE(vocab_size=vocab), train=train, valid=valid_source
            ),
            "batch": R.TokenBudget(tokens=max(2048, length), length=length),
            **plan_fields(count_steps(20, tokens, 2048, 20_000), 1e-3),
        },
        COMMENTS | {"batch": "about this many tokens per step on each side"},
        f'weft translate runs/{recipe_name(files[0])} "{shorten(texts[0][0])}"',
    )


def named_columns(
    path: str, row: R.RowSchema, rows: Sequence[dict[str, Any]], table: TableOptions
) -> R.RowSchema:
    try:
        return infer_row_schema(row, rows, table.columns)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def sample_rows(source: R.Source, table: TableOptions, count: int = SAMPLE_ROWS) -> list[SourceRow]:
    """Return the first rows; ValueError if there is none, or if too many of them cannot be read."""
    items = (
        (item, piece.paths[0])
        for piece in split_source(source)
        for item in read_piece(source, piece, ())
    )
    rows, bad = split_bad_rows(islice(items, count), source.format)
    check_bad_row_limit(len(rows), bad, table.max_bad_row_fraction)
    if not rows:
        raise ValueError(f"{', '.join(source.paths)}: there is no row that can be read")
    return rows


def guess_pretrain(files: list[str], valid: list[str], table: TableOptions) -> Guess:
    row: R.RowSchema = R.Documents()
    source = resolve_source(R.Source(paths=tuple(files)), row)
    kind = str(source.format)
    if kind == "text":
        has_blank = b"\n\n" in read_head(find(files[0])[0]).replace(b"\r\n", b"\n")
        source = replace(source, document_boundary="blank" if has_blank else "line")
        unit = "a blank line" if has_blank else "the end of a line"
        sample_rows(source, table)
    else:
        source = build_source(files, kind, table.column_names, table.columns)
        first = [item.fields for item in sample_rows(source, table)]
        row = named_columns(files[0], row, first, table)
        unit = f"the end of a row, whose text is in {quoted_columns(row)}"
    size = sum(piece.size for piece in split_source(source))
    tokens, vocab = size / CHARACTERS_PER_TOKEN, vocabulary_size(size)
    length = 1 << int(min(7, max(4, log2(max(tokens, 1) / 200))))
    if tokens < 20 * length:
        raise ValueError(
            f"{', '.join(files)} holds about {size:,} bytes, too few to pre-train on; give more text, or fine-tune with weft tune"
        )
    train, valid_source, validation_text = with_valid(source, valid, int(tokens / length))
    sizes = {"depth": 4, "width": 256, "heads": 4, "vocab_size": vocab, "positions": length}
    return Guess(
        f"A language model of {', '.join(files)}: GPT-2's architecture, made small.",
        {
            "text": f"{size:,} bytes ({kind}), about {tokens:,.0f} tokens",
            "documents": f"end at {unit}",
            "row": f"{length} tokens",
            "vocabulary": f"{vocab:,} pieces of bytes",
            "validation": validation_text,
        },
        {
            "name": recipe_name(files[0]),
            "model": Call("weft.gpt2", sizes),
            "task": R.CausalLM(),
            "data": R.Data(
                rows=row, tokenizer=R.ByteBPE(vocab_size=vocab), train=train, valid=valid_source
            ),
            "batch": R.FixedBatch(size=32, length=length),
            **plan_fields(count_steps(10, tokens, 32 * length, 20_000), 2e-3),
        },
        COMMENTS
        | {"model": "weft families lists other architectures, such as weft.llama and weft.bert"},
        f'weft generate runs/{recipe_name(files[0])} "The" --temperature 0.8',
    )


def guess_detect(files: list[str], valid: list[str], table: TableOptions) -> Guess:
    if len(files) != 2 or not os.path.isdir(find(files[1])[0]):
        raise ValueError(
            "detect reads COCO's layout: give the JSON of the annotations and the folder of the images"
        )
    path, folder = (find(file)[0] for file in files)
    coco = load_coco(path, size_and_mtime(path))
    names = [name for name in coco.files if name]
    boxes = [len(notes) for notes in coco.boxes.values()]
    if not names or not boxes:
        raise ValueError(f"{files[0]} lists no {'image' if not names else 'box'}")
    sizes = image_sizes(path, folder)
    if not sizes:
        raise ValueError(
            f"{folder} holds no image of {files[0]} that can be read, such as {names[0]}; give their folder"
        )
    classes = tuple(dict.fromkeys(coco.names.values()))
    side = rounded_up(min(256, sorted(max(size) for size in sizes)[len(sizes) // 2]), 32, 256)
    source = R.Source(paths=tuple(files), format="coco")
    train, valid_source, validation_text = with_valid(source, valid, len(names))
    queries = rounded_up(1.5 * max(boxes), 10, 300)
    shape: dict[str, Any] = {
        "depth": 2,
        "decoder_depth": 3,
        "width": 128,
        "heads": 8,
        "hidden": 384,
    }
    shape |= {"queries": queries, "depths": (1, 1, 2), "widths": (32, 64, 128), "stem": 32}
    shape |= {"activation": "relu", "dropout": 0.0, "classes": len(classes)}
    resnet = {"block": "basic", "norm": S.GroupNorm(groups=8), "padding": "masked"}
    return Guess(
        f"Detection in the images of {files[1]}: DAB-DETR with denoising queries, made small.",
        {
            "images": f"{len(names):,}, the usual one {'{} × {}'.format(*sorted(sizes)[len(sizes) // 2])} pixels",
            "boxes": f"{sum(boxes):,}, at most {max(boxes)} in an image: {queries} queries",
            "classes": f"{len(classes)}: {format_labels(classes)}",
            "longest side": f"{side} pixels after resizing",
            "validation": validation_text,
        },
        {
            "name": recipe_name(files[0]),
            "model": Name("MODEL"),
            "task": R.Detection(
                class_cost=2.0,
                transforms=(
                    R.RandomHorizontalFlip(),
                    R.Resize(size=side, max_size=side),
                    R.Normalize(),
                ),
                denoising=R.DenoisingQueries(groups=5),
            ),
            "data": R.Data(rows=R.ImagesWithBoxes(labels=classes), train=train, valid=valid_source),
            "batch": R.FixedBatch(size=16, length=(side // 16) ** 2),
            **plan_fields(count_steps(60, len(names), 16, 20_000), 5e-4),
            "grad_clip": 0.1,
        },
        COMMENTS | {"batch": "images per step, and cells of the last feature map in one of them"},
        f"weft detect runs/{recipe_name(files[0])} {shlex.quote(files[1])} --draw boxes",
        {
            "DETR": Call("weft.dab_detr", shape),
            "MODEL": Call(
                "replace", {"source": Call("replace", resnet, Name("DETR.source"))}, Name("DETR")
            ),
        },
    )


def image_sizes(table: str, folder: str) -> list[tuple[int, int]]:
    """Return width and height of the first images, without those that training would skip."""
    sizes = []
    for item in read_coco((table, folder), (0, SAMPLE_IMAGES)):
        if isinstance(item, SourceRow):
            with suppress(Exception):  # damaged bytes make Pillow raise errors of every kind
                sizes.append(displayed_size(item.fields["image"]))
    return sizes


KINDS = {
    "translate": guess_translate,
    "classify": guess_classify,
    "pretrain": guess_pretrain,
    "detect": guess_detect,
}


def guess(kind: str, paths: Sequence[str], valid: Sequence[str], table: TableOptions) -> Guess:
    """Return the recipe for files of one kind: a key of `KINDS`."""
    for path in (*paths, *valid):
        find(path)
    first = KINDS[kind](list(paths), list(valid), table)
    data = replace(first.values["data"], max_bad_row_fraction=table.max_bad_row_fraction)
    if valid:
        fields = sample_rows(data.valid, table, 100)[0].fields
        try:
            check_columns_exist(fields, data.rows.columns)
        except ValueError as error:
            raise ValueError(f"--valid {valid[0]}: {error}") from None
    return first._replace(values=first.values | {"data": data})
