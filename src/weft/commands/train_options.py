"""The options of `weft prepare`, `train`, `resume` and `status`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from ..support.options.declare import Option, Options
from ..support.options.shared import (
    DEVICE,
    RUN,
    TRAINING_PRECISION,
    VALID,
    Overrides,
    Overwrite,
    TableOptions,
    VerbOptions,
)


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(TableOptions, VerbOptions):
    """The options of `weft prepare`."""

    paths: Annotated[
        Sequence[str],
        Option(
            "recipe, or files, glob patterns and URLs, optionally compressed (.gz, .zst)",
            metavar="RECIPE|PATH",
            positional=True,
        ),
    ]
    set: Overrides = ()
    output: Annotated[
        str | None,
        Option(
            "folder to write the shards to",
            default="prepared/<fingerprint>",
            metavar="FOLDER",
            short="-o",
        ),
    ] = None
    overwrite: Overwrite = False
    shard: Annotated[
        str | None,
        Option(
            "prepare only part I of N, counted from 0, as one of N jobs with the same result",
            metavar="I/N",
        ),
    ] = None
    workers: Annotated[
        int | None,
        Option("number of worker processes", default="the number of cores", metavar="N", least=1),
    ] = None
    rows: Annotated[
        str,
        Option(
            "kind of rows: documents, pairs, examples, choices, tagged, questions, images or boxed",
            metavar="ROW",
        ),
    ] = "documents"
    format: Annotated[
        str | None,
        Option(
            "data format: text, parallel, jsonl, json, csv, tsv, parquet, hub, conll, squad, "
            "folder, idx, npz, coco, "
            "image_table, or one of your own",
            default="from the rows, the name of the file and its first lines",
        ),
    ] = None
    document_boundary: Annotated[
        Literal["file", "line", "blank", "heading"],
        Option("where a document of a text file ends", default="at a blank line"),
    ] = "blank"
    tokenizer: Annotated[
        str,
        Option(
            "tokenizer to train: byte-bpe, bpe, wordpiece, unigram, bytes, characters, "
            "or a tokenizer.json"
        ),
    ] = "byte-bpe"
    vocab_size: Annotated[int, Option("size of the vocabulary", metavar="N", least=1)] = 32_000
    lowercase: Annotated[
        bool | None, Option("lower-case the text first", default="as the tokenizer does by itself")
    ] = None
    sentence_boundaries: Annotated[
        bool, Option("store where sentences start, for next-sentence prediction")
    ] = False
    valid: Annotated[Sequence[str], replace(VALID, default="none")] = ()
    numeric_label: Annotated[bool, Option("the label is a number")] = False
    filters: Annotated[
        Sequence[str],
        Option(
            "filters of the training rows, in this order: length, characters, lines, repetition, "
            "forbidden, exact, near, "
            "or one of your own; a recipe sets their thresholds",
            default="none",
            metavar="FILTER",
        ),
    ] = ()
    on: Annotated[
        Literal["processes", "ray"],
        Option("where the work is done: in processes here, or on a Ray cluster"),
    ] = "processes"


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """The options of a run that may differ at each start."""

    device: Annotated[
        str | None, replace(DEVICE, default="the recipe's, auto unless it says otherwise")
    ] = None
    precision: Annotated[
        Literal["auto", "fp32", "bf16"] | None,
        replace(TRAINING_PRECISION, default="the recipe's"),
    ] = None
    code_changed: Annotated[
        bool,
        Option(
            "continue a run although a file given with --code differs from the one it began with"
        ),
    ] = False
    log_to: Annotated[
        Sequence[str],
        Option(
            "experiment trackers that also get the numbers of log.jsonl: tensorboard, "
            "wandb (offline), mlflow, trackio, or one of "
            "your own",
            default="the recipe's",
            metavar="LOGGER",
        ),
    ] = ()

    def overrides(self) -> list[str]:
        """Return the options that change a field of the recipe, as --set takes them."""
        values = {"device": self.device, "precision": self.precision}
        return [f"{name}={value}" for name, value in values.items() if value is not None]


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions, VerbOptions):
    """The options of `weft train`."""

    recipe: Annotated[
        str,
        Option(
            "recipe file such as recipes/gpt_char.py or recipes/gpt_char.py:name, recipe.json, "
            "or folder of a run",
            metavar="RECIPE",
            positional=True,
        ),
    ]
    set: Overrides = ()
    output: Annotated[
        str | None,
        replace(RUN, default="runs/<name>"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(RunOptions, VerbOptions):
    """The options of `weft resume`."""

    run_folder: Annotated[str, replace(RUN, short=None, positional=True)]
    precision: Annotated[
        Literal["auto", "fp32", "bf16"] | None,
        replace(TRAINING_PRECISION, default="that of the run, which it keeps"),
    ] = None
    verify: Annotated[
        bool, Option("train again from the last checkpoint but one and compare every bit")
    ] = False


@dataclass(frozen=True, kw_only=True)
class StatusOptions(VerbOptions):
    """The options of `weft status`."""

    run_folders: Annotated[
        Sequence[str],
        Option(
            "folder of a run, or folder of runs", default="runs", metavar="RUN", positional=True
        ),
    ] = ()
