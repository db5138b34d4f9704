"""Recipes for pre-training a small model on plain text, with one of five objectives."""

from collections.abc import Callable
from dataclasses import replace
from math import log2
from typing import Any, Literal, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.reading.column_names import check_columns_exist
from ..data.reading.files import expand
from ..data.reading.formats.lines import read_head
from ..data.reading.source import split_source
from ..data.reading.table import Table, Tables, UsableRows
from .recipe_code import Call, Name
from .split import split_tables
from .suggestion import (
    COMMENTS,
    RUN,
    Budget,
    Suggestion,
    count_steps,
    first_fields,
    join_names,
    quoted_columns,
    vocabulary_size,
)

CHARACTERS_PER_TOKEN = 3.5  # approximate characters per subword
DEPTH = 4
WIDTH = 256
HEADS = 4
ENCODER = {"depth": DEPTH, "width": WIDTH, "heads": HEADS, "hidden": 4 * WIDTH}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
SENTINELS = 32  # more than the spans in a row of 128 tokens
# The boundary of documents: `Source.document_boundary`, its bytes, its name
BOUNDARIES: dict[Literal["blank", "line", "file"], tuple[bytes, str]] = {
    "blank": (b"\n\n", "a blank line"),
    "line": (b"\n", "the end of a line"),
    "file": (b"", "the end of the file"),
}
ADAM = R.AdamW(lr=1e-3, betas=(0.9, 0.98), eps=1e-6)


class Objective(NamedTuple):
    """The parts of a recipe that depend on the objective, for a vocabulary and a row length."""

    title: str
    architecture: str
    model: Call
    task: Any
    optimiser: R.AdamW | R.Muon | R.Adafactor
    use: str  # the command that uses the trained model
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
        f'weft generate {RUN} "The" --temperature 0.8',
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
        f'weft fill {RUN} "The [MASK]"',
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
        f"weft tune {RUN} --data LABELLED.csv",
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
        f"weft tune {RUN} --data PAIRS.tsv --task text2text",
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
        f"weft tune {RUN} --data PAIRS.tsv --task text2text",
    )


# The first one is the default of pre-training
OBJECTIVES: dict[str, Callable[[int, int], Objective]] = {
    "pretrain": causal_lm,
    "causal-lm": causal_lm,
    "masked-lm": masked_lm,
    "span-corruption": span_corruption,
    "denoising": denoising,
    "replaced-tokens": replaced_tokens,
}


# The recipe


def with_boundary(table: Table) -> tuple[Table, R.Documents, str]:
    """Return the table of texts with its document boundary, the row schema, and a phrase."""
    if table.format == "text":
        check_columns_exist({"text": ""}, table.requested)
        head = read_head(expand(table.source.paths)[0]).replace(b"\r\n", b"\n").strip()
        # A part of a file with one line has no complete line
        boundary = next(name for name, (mark, _) in BOUNDARIES.items() if mark in head)
        table = table.with_source(replace(table.source, document_boundary=boundary))
        table.sample()
        return table, R.Documents(), BOUNDARIES[boundary][1]
    assert table.examined
    try:
        row = table.row_schema(R.CausalLM, row=R.Documents())
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}") from None
    assert isinstance(row, R.Documents)
    return table, row, f"the end of a row, with the text in {quoted_columns(row)}"


def suggest_pretraining(tables: Tables, objective_name: str, budget: Budget) -> Suggestion:
    """Return a suggestion for a small model with an objective, a key of `OBJECTIVES`."""
    table, row, unit = with_boundary(tables.train)
    files = table.source.paths
    size = sum(piece.size for piece in split_source(table.source))
    tokens = size / CHARACTERS_PER_TOKEN
    vocab = vocabulary_size(size)
    length = 1 << int(min(7, max(4, log2(max(tokens, 1) / 200))))
    if tokens < 20 * length:
        raise ValueError(
            f"{join_names(files)} has about {size:,} bytes, too few for pre-training; give more "
            "text, or fine-tune with weft tune"
        )
    length = budget.max_length or length
    rows = budget.batch_size or 32
    objective = OBJECTIVES[objective_name](vocab, length)
    tables = tables._replace(train=table)
    split = split_tables(tables, row, UsableRows([], []), int(tokens / length))
    tokenizer = R.ByteBPE(vocab_size=vocab, sentinels=objective.sentinels)
    return Suggestion(
        objective_name,
        f"{objective.title} of {join_names(files)}: {objective.architecture}, small.",
        {
            "text": f"{size:,} bytes ({table.format}), about {tokens:,.0f} tokens",
            "documents": f"end at {unit}",
            "row": f"{length} tokens",
            "vocabulary": f"{vocab:,} pieces of bytes",
            **split.facts(),
        },
        first_fields(
            objective.model,
            objective.task,
            split.data(replace(objective.rows, text=row.text), tokenizer),
            R.FixedBatch(size=rows, length=length),
            count_steps(budget.epochs or 10, tokens, rows * length, 20_000),
        )
        | {"optimiser": objective.optimiser},
        COMMENTS
        | {"model": "weft families lists more architectures, such as weft.llama and weft.bert"},
        objective.use,
        objective.constants,
    )
