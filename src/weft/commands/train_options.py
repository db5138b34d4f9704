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
            "image_table, or a user-defined format",
            default="inferred from --rows, the file name and the first lines",
        ),
    ] = None
    document_boundary: Annotated[
        Literal["file", "line", "blank", "heading"],
        Option("end of a document in a text file", default="blank"),
    ] = "blank"
    tokenizer: Annotated[
        str,
        Option(
            "tokenizer to train: byte-bpe, bpe, wordpiece, unigram, bytes, characters, "
            "or the path of a tokenizer.json"
        ),
    ] = "byte-bpe"
    vocab_size: Annotated[
        int, Option("number of tokens in the vocabulary", metavar="N", least=1)
    ] = 32_000
    lowercase: Annotated[
        bool | None,
        Option("lower-case the text before tokenising", default="the tokenizer's own setting"),
    ] = None
    sentence_boundaries: Annotated[
        bool, Option("store sentence starts, for next-sentence prediction")
    ] = False
    valid: Annotated[Sequence[str], replace(VALID, default="none")] = ()
    numeric_label: Annotated[bool, Option("read the label as a number, for regression")] = False
    filters: Annotated[
        Sequence[str],
        Option(
            "filters of the training rows, applied in the given order: length, characters, lines, "
            "repetition, forbidden, exact, near, "
            "or user-defined filters; a recipe sets their thresholds",
            default="none",
            metavar="FILTER",
        ),
    ] = ()
    on: Annotated[
        Literal["processes", "ray"],
        Option("run in processes on this machine, or on a Ray cluster"),
    ] = "processes"


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Options that may change each time a run starts or resumes."""

    device: Annotated[
        str | None, replace(DEVICE, default="the recipe's device, which defaults to auto")
    ] = None
    precision: Annotated[
        Literal["auto", "fp32", "bf16"] | None,
        replace(TRAINING_PRECISION, default="the recipe's precision"),
    ] = None
    code_changed: Annotated[
        bool,
        Option("resume a run although a --code file changed since the run began"),
    ] = False
    log_to: Annotated[
        Sequence[str],
        Option(
            "experiment trackers that also receive the values of log.jsonl: tensorboard, "
            "wandb (offline), mlflow, trackio, or a user-defined logger",
            default="the recipe's loggers",
            metavar="LOGGER",
        ),
    ] = ()

    def overrides(self) -> list[str]:
        """Return the options that change a recipe field, in the format of --set."""
        values = {"device": self.device, "precision": self.precision}
        return [f"{name}={value}" for name, value in values.items() if value is not None]


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions, VerbOptions):
    """The options of `weft train`."""

    recipe: Annotated[
        str,
        Option(
            "recipe file such as recipes/gpt_char.py or recipes/gpt_char.py:name, recipe.json, "
            "or run directory",
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
        replace(TRAINING_PRECISION, default="the precision of the run"),
    ] = None
    verify: Annotated[
        bool, Option("repeat the steps before the last checkpoint and compare every bit")
    ] = False


@dataclass(frozen=True, kw_only=True)
class StatusOptions(VerbOptions):
    """The options of `weft status`."""

    run_folders: Annotated[
        Sequence[str],
        Option(
            "run directories, or directories of runs",
            default="runs",
            metavar="RUN",
            positional=True,
        ),
    ] = ()
