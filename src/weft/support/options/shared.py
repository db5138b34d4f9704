"""Options that several commands share, each declared once: annotated types and groups of fields."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from .declare import Option, Options

COLUMN_PREFIX = "weft_"
COLUMN_PREFIX_HELP = f"a column whose name is taken gets the prefix {COLUMN_PREFIX}"

MODEL = Option(
    "run directory, model folder, demo (included in Weft), or name on the Hugging Face hub",
    metavar="NAME",
    positional=True,
)
COLUMNS = Option(
    "columns to read; a label comes last",
    default="detected by name, image columns by content",
    metavar="COLUMN",
)
BAD_ROWS = Option(
    "maximum fraction of unreadable rows to skip",
    metavar="FRACTION",
    least=0,
    most=1,
)
DEVICE = Option(
    "device: auto (an accelerator if available, else the CPU), cpu, or, as untested "
    "experiments, cuda, cuda:1 or mps",
    metavar="DEVICE",
)
PRECISION = Option("precision of the computation")
TRAINING_PRECISION = Option(
    "precision of the computation; auto is bf16 if the device computes it fast, else fp32"
)
BATCH_SIZE = Option("number of rows per forward pass", metavar="ROWS", least=1)
MAX_LENGTH = Option("maximum number of tokens per row", metavar="TOKENS", least=1)
SEED = Option("random seed", metavar="N", least=0)
NUM_BEAMS = Option("number of beams of beam search", metavar="N", least=1)
NO_ANSWER_THRESHOLD = Option(
    "return no answer if its score exceeds that of the best span by more than X", metavar="X"
)
POOLING = Option("pooling of token vectors into one vector")
RUN = Option("run directory", metavar="RUN", short="-o")
VALID = Option("validation files", metavar="FILE")
ROWS_OUTPUT = Option(
    "output file: .jsonl, .json, .csv, .tsv or .parquet for the rows with their predictions; "
    f"{COLUMN_PREFIX_HELP}",
    metavar="FILE",
    short="-o",
)
IMAGES = Option("image files, or folders of images", metavar="IMAGE", positional=True)

Device = Annotated[str, DEVICE]
Precision = Annotated[Literal["fp32", "bf16"], PRECISION]
TrainingPrecision = Annotated[Literal["auto", "fp32", "bf16"], TRAINING_PRECISION]
BatchSize = Annotated[int, BATCH_SIZE]
LengthPenalty = Annotated[float, Option("length penalty of beam search", metavar="X")]
Overwrite = Annotated[bool, Option("replace the contents of the output folder")]
Images = Annotated[Sequence[str], IMAGES]
Texts = Annotated[
    Sequence[str],
    Option("input text", default="--input or standard input", metavar="TEXT", positional=True),
]
Pooling = Literal["mean", "max", "cls", "last"]
LabelTexts = Annotated[
    Sequence[str],
    Option(
        "text of each class, in sorted order of the classes, if classes are written as text",
        default="the class names",
        metavar="TEXT",
    ),
]
Overrides = Annotated[
    Sequence[str],
    Option(
        "change a field of the recipe (repeatable): optimiser.lr=3e-4, model.decoder.depth=6, "
        "model.decoder.blocks.*.norm=post",
        metavar="PATH=VALUE",
        repeat=True,
    ),
]


@dataclass(frozen=True, kw_only=True)
class VerbOptions(Options):
    """Options of every command."""

    json: Annotated[bool, Option("print the result as JSON", only="command")] = False
    code: Annotated[
        Sequence[str],
        Option(
            "Python file with user-defined parts, imported first (repeatable)",
            metavar="FILE",
            repeat=True,
            only="command",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The model of a command."""

    name: Annotated[str, MODEL]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """The device of a model."""

    precision: Precision = "fp32"
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """Options for reading a table."""

    columns: Annotated[Sequence[str], COLUMNS] = ()
    column_names: Annotated[
        Sequence[str], Option("column names, for files without a header", metavar="COLUMN")
    ] = ()
    max_bad_row_fraction: Annotated[
        float, replace(BAD_ROWS, default="0.001, or 10 rows for a small file")
    ] = 0.001


@dataclass(frozen=True, kw_only=True)
class RowOptions(ModelOptions, TableOptions):
    """Input rows of a model, and the output of the rows with its predictions. Every input row gets
    a prediction, so no row is skipped."""

    input: Annotated[
        str | None,
        Option(
            "input file: .jsonl, .csv, .tsv, .parquet, or text with one row per line; "
            "- for standard input",
            metavar="FILE",
            short="-i",
        ),
    ] = None
    output: Annotated[
        str | None,
        ROWS_OUTPUT,
    ] = None
    max_bad_row_fraction: Annotated[float, BAD_ROWS] = 0.0


@dataclass(frozen=True, kw_only=True)
class BeamSearchOptions(Options):
    """Options of beam search."""

    num_beams: Annotated[int, NUM_BEAMS] = 4
    length_penalty: LengthPenalty = 0.6


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Options):
    """Options of sampling, the fields of `weft.Sampling`; without any, decoding is greedy."""

    temperature: Annotated[
        float | None,
        Option(
            "sampling temperature; 0 selects greedy decoding",
            default="0, or 1 when any sampling option is given",
            metavar="T",
            least=0,
        ),
    ] = None
    top_k: Annotated[
        int | None, Option("sample from the K most likely tokens", metavar="K", least=1)
    ] = None
    top_p: Annotated[
        float | None,
        Option(
            "sample from the smallest set of tokens with total probability P",
            metavar="P",
            above=0,
            most=1,
        ),
    ] = None
    min_p: Annotated[
        float | None,
        Option(
            "sample from tokens at least P times as likely as the most likely one",
            metavar="P",
            least=0,
            most=1,
        ),
    ] = None
    repetition_penalty: Annotated[
        float,
        Option("penalty on tokens that occurred before; 1 has no effect", metavar="R", above=0),
    ] = 1.0
    seed: Annotated[int | None, replace(SEED, default="0")] = None
