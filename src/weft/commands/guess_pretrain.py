"""`weft new pretrain`: a first model of plain text, by one of five objectives."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from glob import escape
from math import log2
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.files import expand, find, strip_compression_suffix
from ..data.formats.lines import read_head
from ..data.reading.table import Table
from ..data.source import split_source
from .first_recipe import (
    COMMENTS,
    Guess,
    NewOptions,
    count_steps,
    join_names,
    named_columns,
    open_data,
    plan_fields,
    quoted_columns,
    vocabulary_size,
    with_valid,
)
from .recipe_code import Call, Name

CHARACTERS_PER_TOKEN = 3.5  # of subwords, about
DEPTH, WIDTH, HEADS = 4, 256, 4
ENCODER = {"depth": DEPTH, "width": WIDTH, "heads": HEADS, "hidden": 4 * WIDTH}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
SENTINELS = 32  # more than the spans of one row of 128 tokens
# What ends a document: `Source.document_boundary`, its bytes, its name
BOUNDARIES: dict[Literal["blank", "line", "file"], tuple[bytes, str]] = {
    "blank": (b"\n\n", "a blank line"),
    "line": (b"\n", "the end of a line"),
    "file": (b"", "the end of the file"),
}
ADAM = R.AdamW(lr=1e-3, betas=(0.9, 0.98), eps=1e-6)


class Objective(NamedTuple):
    """What a first recipe of one objective has, for a vocabulary and a row of so many tokens."""

    title: str
    architecture: str
    model: Call
    task: Any
    optimiser: R.AdamW | R.Muon | R.Adafactor
    use: str  # of the trained model, where {} is its run
    rows: R.Documents = R.Documents(sentence_boundaries=True)
    sentinels: int = 0
    constants: dict[str, Any] = {}


def causal_lm(vocab: int, length: int) -> Objective:
    sizes = {"depth": DEPTH, "width": WIDTH, "heads": HEADS}
    return Objective(
        "A language model",
        "GPT-2's architecture",
        Call("weft.gpt2", sizes | {"vocab_size": vocab, "positions": length}),
        R.CausalLM(),
        R.AdamW(lr=2e-3),
        'weft generate {} "The" --temperature 0.8',
        R.Documents(),
    )


def masked_lm(vocab: int, length: int) -> Objective:
    sizes = ENCODER | {"vocab_size": vocab, "positions": length} | NO_DROPOUT
    return Objective(
        "A masked language model",
        "RoBERTa's architecture",
        Call("weft.roberta", sizes),
        R.MaskedLM(),
        R.Muon(lr=5e-3, other=ADAM),
        'weft fill {} "The [MASK]"',
    )


def replaced_tokens(vocab: int, length: int) -> Objective:
    common: dict[str, Any] = {"depth": DEPTH, "heads": HEADS, "embedding": 128}
    common |= {"vocab_size": vocab, "positions": length} | NO_DROPOUT
    head = S.LMHead(bias="trained", transform=S.HeadTransform(norm=S.LayerNorm(eps=1e-12)))
    narrow = {"width": WIDTH // 4, "hidden": WIDTH, "head": head}
    return Objective(
        "A detector of replaced tokens",
        "ELECTRA's architecture",
        Call("weft.electra", {"width": WIDTH, "hidden": 4 * WIDTH} | common),
        Call("ReplacedTokenDetection", {"generator": Name("GENERATOR")}),
        R.Muon(lr=2e-3, weight_decay=0.1, other=ADAM),
        "weft tune {} --data LABELLED.csv",
        constants={"GENERATOR": Call("weft.electra", narrow | common)},
    )


def span_corruption(vocab: int, length: int) -> Objective:
    sizes = ENCODER | {"depth": DEPTH // 2, "vocab_size": vocab, "dropout": 0.0}
    return Objective(
        "An encoder-decoder that writes hidden spans",
        "T5's architecture",
        Call("weft.t5", sizes),
        R.SpanCorruption(),
        R.Adafactor(lr=3e-2),
        "weft tune {} --data PAIRS.tsv --task text2text",
        R.Documents(),
        SENTINELS,
    )


def denoising(vocab: int, length: int) -> Objective:
    sizes = ENCODER | {"depth": DEPTH // 2, "vocab_size": vocab, "positions": length}
    return Objective(
        "An encoder-decoder that restores damaged text",
        "BART's architecture",
        Call("weft.bart", sizes | {"dropout": 0.0}),
        R.Denoising(),
        R.Muon(lr=5e-3, other=ADAM),
        "weft tune {} --data PAIRS.tsv --task text2text",
    )


OBJECTIVES: dict[str, Callable[[int, int], Objective]] = {
    "causal-lm": causal_lm,
    "masked-lm": masked_lm,
    "span-corruption": span_corruption,
    "denoising": denoising,
    "replaced-tokens": replaced_tokens,
}


# Files, folders and patterns


def files_of_folder(folder: str) -> list[str]:
    """Return a pattern for all files of a folder, or the files where no pattern matches exactly these."""
    root = Path(find(folder)[0])
    names = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    if not names:
        raise ValueError(f"{folder} holds no file; give files, or a folder with text")
    kinds = Counter(suffix_of(name.name) for name in names)
    base = escape(folder.rstrip("/") or "/")
    nested = any(len(name.parts) > 1 for name in names)
    (suffix, _), *others = kinds.most_common()
    pattern = f"{base}/{'**/' if nested else ''}*{suffix}"
    if others:
        counts = ", ".join(f"{n:,} {kind or 'without a suffix'}" for kind, n in kinds.most_common())
        raise ValueError(
            f"{folder} holds files of several kinds ({counts}); give one kind, such as '{pattern}'"
        )
    files = [str(root / name) for name in names]
    same = sorted(map(os.path.realpath, find(pattern))) == sorted(map(os.path.realpath, files))
    return [pattern] if same else files


def suffix_of(name: str) -> str:
    """Return the last suffix of a file's name, with that of its compression."""
    plain = strip_compression_suffix(name)
    return os.path.splitext(plain)[1] + name[len(plain) :]


def text_paths(paths: Sequence[str]) -> list[str]:
    """Return paths and patterns that name each file once; a folder becomes a pattern for its files."""
    seen = set[str]()
    unique: list[str] = []
    for path in paths:
        for part in files_of_folder(path) if os.path.isdir(find(path)[0]) else [path]:
            files = find(part)
            fresh = [file for file in files if os.path.realpath(file) not in seen]
            unique += [part] if fresh == files else fresh
            seen.update(map(os.path.realpath, files))
    return unique


# The recipe


class TextFacts(NamedTuple):
    table: Table
    rows: R.Documents
    unit: str  # where a document ends


def read_documents(files: Sequence[str], options: NewOptions) -> TextFacts:
    """Return texts, with what ends a document."""
    table = open_data(files, options, R.Documents())
    if table.format == "text":
        head = read_head(find(files[0])[0]).replace(b"\r\n", b"\n").strip()
        # A part of a file of one line holds no whole line
        boundary = next(name for name, (mark, _) in BOUNDARIES.items() if mark in head)
        table = table.with_source(replace(table.source, document_boundary=boundary))
        table.sample()
        return TextFacts(table, R.Documents(), BOUNDARIES[boundary][1])
    named = named_columns(table, R.CausalLM)
    assert isinstance(named, R.Documents)
    unit = f"the end of a row, whose text is in {quoted_columns(named)}"
    return TextFacts(table, named, unit)


def guess_pretrain(files: list[str], valid: list[str], options: NewOptions) -> Guess:
    files = text_paths(files)
    table, rows, unit = read_documents(files, options)
    valid_table = table.open_like(text_paths(valid)) if valid else None
    size = sum(piece.size for piece in split_source(table.source))
    tokens, vocab = size / CHARACTERS_PER_TOKEN, vocabulary_size(size)
    length = 1 << int(min(7, max(4, log2(max(tokens, 1) / 200))))
    if tokens < 20 * length:
        raise ValueError(
            f"{join_names(files)} holds about {size:,} bytes, too few to pre-train on; give more text, or fine-tune with weft tune"
        )
    objective = OBJECTIVES[options.objective](vocab, length)
    tokenizer = R.ByteBPE(vocab_size=vocab, sentinels=objective.sentinels)
    last_of = "of each file" if len(expand(tuple(files))) > 1 else "of the file"
    train, valid_source, validation_text = with_valid(
        table, valid_table, rows, int(tokens / length), last_of
    )
    return Guess(
        f"{objective.title} of {join_names(files)}: {objective.architecture}, made small.",
        {
            "text": f"{size:,} bytes ({table.format}), about {tokens:,.0f} tokens",
            "documents": f"end at {unit}",
            "row": f"{length} tokens",
            "vocabulary": f"{vocab:,} pieces of bytes",
            "validation": validation_text,
        },
        {
            "name": options.name,
            "model": objective.model,
            "task": objective.task,
            "data": R.Data(
                rows=replace(objective.rows, text=rows.text),
                tokenizer=tokenizer,
                train=train,
                valid=valid_source,
            ),
            "batch": R.FixedBatch(size=32, length=length),
            **plan_fields(count_steps(10, tokens, 32 * length, 20_000), 1e-3),
            "optimiser": objective.optimiser,
        },
        COMMENTS
        | {"model": "weft families lists other architectures, such as weft.llama and weft.bert"},
        objective.use.format(f"runs/{options.name}"),
        objective.constants,
    )
