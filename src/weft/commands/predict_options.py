"""The options of `weft classify`, `tag`, `answer`, `embed`, `fill` and `detect`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from ..support.options.declare import Option
from ..support.options.shared import (
    COLUMNS,
    NO_ANSWER_THRESHOLD,
    POOLING,
    ROWS_OUTPUT,
    BatchSize,
    DeviceOptions,
    ModelOptions,
    Pooling,
    RowOptions,
    Texts,
    VerbOptions,
)


@dataclass(frozen=True, kw_only=True)
class BatchOptions(ModelOptions, DeviceOptions):
    """Options of a model that predicts in batches."""

    batch_size: BatchSize = 32


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(RowOptions, BatchOptions, VerbOptions):
    """Options of a model that predicts rows of a file or of standard input."""

    columns: Annotated[Sequence[str], replace(COLUMNS, help="column with the text")] = ()


@dataclass(frozen=True, kw_only=True)
class TextOptions(PredictionOptions):
    """Options for texts on the command line, or rows."""

    texts: Texts = ()


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(TextOptions):
    """The options of `weft classify`."""

    columns: Annotated[
        Sequence[str], replace(COLUMNS, help="column with the text, or both columns of a pair")
    ] = ()
    pairs: Annotated[bool, Option("read the texts as pairs")] = False


@dataclass(frozen=True, kw_only=True)
class TagOptions(TextOptions):
    """The options of `weft tag`."""

    columns: Annotated[
        Sequence[str], replace(COLUMNS, help="column with the text or the words")
    ] = ()
    pre_split: Annotated[bool, Option("split the text at spaces only, for tokenised text")] = False
    language: Annotated[str, Option("language of the word-splitting rules")] = "en"


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(PredictionOptions):
    """The options of `weft answer`."""

    question: Annotated[str | None, Option("question to answer", metavar="TEXT")] = None
    context: Annotated[str | None, Option("text to find the answer in", metavar="TEXT")] = None
    no_answer_threshold: Annotated[
        float | None, replace(NO_ANSWER_THRESHOLD, default="always answer")
    ] = None
    columns: Annotated[
        Sequence[str], replace(COLUMNS, help="columns with the question and the context")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(TextOptions):
    """The options of `weft embed`."""

    pooling: Annotated[
        Pooling | None,
        replace(
            POOLING,
            default="from modules.json, else the mean; for images the class token",
        ),
    ] = None
    normalise: Annotated[
        bool | None,
        Option("scale vectors to length 1", default="from modules.json, else no"),
    ] = None
    output: Annotated[
        str | None, replace(ROWS_OUTPUT, help=f"{ROWS_OUTPUT.help}; or .npy for the vectors only")
    ] = None


@dataclass(frozen=True, kw_only=True)
class FillOptions(TextOptions):
    """The options of `weft fill`."""

    top_k: Annotated[int, Option("number of predictions per mask", metavar="N", least=1)] = 5
