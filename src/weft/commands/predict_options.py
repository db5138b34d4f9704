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
    """A model that predicts in batches."""

    batch_size: BatchSize = 32


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(RowOptions, BatchOptions, VerbOptions):
    """A model and the rows of a file, or of standard input, that it predicts."""

    columns: Annotated[Sequence[str], replace(COLUMNS, help="column of the text")] = ()


@dataclass(frozen=True, kw_only=True)
class TextOptions(PredictionOptions):
    """Texts of the command line, or rows."""

    texts: Texts = ()


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(TextOptions):
    """The options of `weft classify`."""

    columns: Annotated[
        Sequence[str], replace(COLUMNS, help="column of the text, or both columns of a pair")
    ] = ()
    pairs: Annotated[bool, Option("take the texts in pairs")] = False


@dataclass(frozen=True, kw_only=True)
class TagOptions(TextOptions):
    """The options of `weft tag`."""

    columns: Annotated[
        Sequence[str], replace(COLUMNS, help="column of the text or of the words")
    ] = ()
    pre_split: Annotated[bool, Option("the text is already tokenised: split at spaces only")] = (
        False
    )
    language: Annotated[str, Option("language whose rules split words and punctuation")] = "en"


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(PredictionOptions):
    """The options of `weft answer`."""

    question: Annotated[str | None, Option("question to answer", metavar="TEXT")] = None
    context: Annotated[str | None, Option("text that contains the answer", metavar="TEXT")] = None
    no_answer_threshold: Annotated[
        float | None, replace(NO_ANSWER_THRESHOLD, default="always answer")
    ] = None
    columns: Annotated[
        Sequence[str], replace(COLUMNS, help="columns of the question and the context")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(TextOptions):
    """The options of `weft embed`."""

    pooling: Annotated[
        Pooling | None,
        replace(
            POOLING,
            default="as modules.json says, else the mean; of images the class token",
        ),
    ] = None
    normalise: Annotated[
        bool | None,
        Option("scale vectors to length 1", default="as the folder's modules.json says, else no"),
    ] = None
    output: Annotated[
        str | None, replace(ROWS_OUTPUT, help=f"{ROWS_OUTPUT.help}; or .npy, the vectors alone")
    ] = None


@dataclass(frozen=True, kw_only=True)
class FillOptions(TextOptions):
    """The options of `weft fill`."""

    top_k: Annotated[int, Option("number of predictions per mask", metavar="N", least=1)] = 5
