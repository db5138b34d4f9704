"""Options that several verbs share, each declared once:
types that carry their help, and groups of fields."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from .declare import Option, Options

COLUMN_PREFIX = "weft_"
COLUMN_PREFIX_HELP = f"a column whose name is taken gets the prefix {COLUMN_PREFIX}"

MODEL = Option(
    "folder of a run, folder of a model, demo (ships with Weft), or name on the Hugging Face hub",
    metavar="NAME",
    positional=True,
)
COLUMNS = Option(
    "columns to read, with labels the label last",
    default="detected by their names, columns of images by their content",
    metavar="COLUMN",
)
BAD_ROWS = Option(
    "largest fraction of rows that may be skipped because they cannot be read",
    metavar="FRACTION",
    least=0,
    most=1,
)
DEVICE = Option(
    "auto (an accelerator if available, else the CPU), cpu, or, "
    "experimental because Weft has not been run on them yet, "
    "cuda, cuda:1 or mps",
    metavar="DEVICE",
)
PRECISION = Option("precision of the computation")
TRAINING_PRECISION = Option(
    "precision of the computation; auto is bf16 where the device is fast at it, else fp32"
)
BATCH_SIZE = Option("number of rows per forward pass", metavar="ROWS", least=1)
MAX_LENGTH = Option("maximum number of tokens per row", metavar="TOKENS", least=1)
SEED = Option("random seed", metavar="N", least=0)
NUM_BEAMS = Option("number of beams of beam search", metavar="N", least=1)
NO_ANSWER_THRESHOLD = Option(
    "give no answer where that scores more than X above the best span", metavar="X"
)
POOLING = Option("how the vectors of the tokens become one")
RUN = Option("folder of the run", metavar="RUN", short="-o")
VALID = Option("validation files", metavar="FILE")
ROWS_OUTPUT = Option(
    "output file: .jsonl, .json, .csv, .tsv or .parquet, the rows with their predictions; "
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
Overwrite = Annotated[bool, Option("replace what the output folder holds")]
Images = Annotated[Sequence[str], IMAGES]
Texts = Annotated[
    Sequence[str],
    Option("input text", default="read --input or standard input", metavar="TEXT", positional=True),
]
Pooling = Literal["mean", "max", "cls", "last"]
LabelTexts = Annotated[
    Sequence[str],
    Option(
        "text of each class, where a class is written as text, in the sorted order of the classes",
        default="their names",
        metavar="TEXT",
    ),
]
Overrides = Annotated[
    Sequence[str],
    Option(
        "change the recipe (repeatable): optimiser.lr=3e-4, model.decoder.depth=6, "
        "model.decoder.blocks.*.norm=post",
        metavar="PATH=VALUE",
        repeat=True,
    ),
]


@dataclass(frozen=True, kw_only=True)
class VerbOptions(Options):
    """The options of every verb."""

    json: Annotated[bool, Option("print JSON", only="command")] = False
    code: Annotated[
        Sequence[str],
        Option(
            "Python file with parts of your own, imported first (repeatable)",
            metavar="FILE",
            repeat=True,
            only="command",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """The model of a verb."""

    name: Annotated[str, MODEL]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(Options):
    """Where a model runs."""

    precision: Precision = "fp32"
    device: Device = "auto"


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """How a table is read."""

    columns: Annotated[Sequence[str], COLUMNS] = ()
    column_names: Annotated[
        Sequence[str], Option("column names of files without a header", metavar="COLUMN")
    ] = ()
    max_bad_row_fraction: Annotated[
        float, replace(BAD_ROWS, default="0.001, or 10 rows of a small file")
    ] = 0.001


@dataclass(frozen=True, kw_only=True)
class RowOptions(ModelOptions, TableOptions):
    """Rows that a model reads, and where they are written with its answers. Every row of a file
    gets an answer, so none is skipped."""

    input: Annotated[
        str | None,
        Option(
            "input file: .jsonl, .csv, .tsv, .parquet, or text with one row per line; "
            "- is standard input",
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
    """How a sequence is searched for."""

    num_beams: Annotated[int, NUM_BEAMS] = 4
    length_penalty: LengthPenalty = 0.6


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Options):
    """How a token is sampled: the fields of `weft.Sampling`; without any, decoding is greedy."""

    temperature: Annotated[
        float | None,
        Option(
            "sampling temperature; 0 is greedy decoding",
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
            "sample from the smallest set of tokens whose probabilities sum to P",
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
        Option("above 1, tokens that occurred before become less likely", metavar="R", above=0),
    ] = 1.0
    seed: Annotated[int | None, replace(SEED, default="0")] = None
