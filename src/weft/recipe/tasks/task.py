"""What every task says without torch: what it reads, how it is judged, what it costs."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from ...spec import LMHead, Spec, Tokens
from ...support.registry import members, resolve
from ...support.synonyms import suggest
from ..data.rows import Documents, RowSchema

LossWeight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
INFER = "weft.data.reading.columns:infer_row_schema"  # imported when a table is read


class TableFacts(NamedTuple):
    """What a file of examples looks like, for the detection in `weft tune`."""

    format: str  # such as "csv" or "squad"
    lists: int  # columns whose cells are lists
    endings: int  # columns that look like endings to choose between
    columns: tuple[str, ...] = ()


class Task:
    """Base of every task.

    Class attributes and methods say what the task fits and how it is judged; the fields of a member
    say how it is done. What preprocesses, scores, predicts and evaluates is registered with
    `implements`: one file per task.
    """

    name: ClassVar[str] = ""  # on the command line; "": it is not offered there
    variants: ClassVar[tuple[str, ...]] = ()  # further names of `weft tune`, for certain rows
    row_schemas: ClassVar[tuple[type, ...]] = (Documents,)  # that it reads, the usual one first
    file_format: ClassVar[str | None] = None  # of its examples, where no other can hold them
    head: ClassVar[type] = LMHead  # that the model needs
    hf_class_suffix: ClassVar[str] = (
        ""  # of the Hugging Face class, such as "ForTokenClassification"
    )
    verb: ClassVar[str | None] = None  # of the command that does it, such as "tag"
    metrics: ClassVar[tuple[str, ...]] = ()  # of validation beside the loss; the first one selects
    loss_unit: ClassVar[str] = "nats"
    packable: ClassVar[bool] = True  # may several samples share a row?
    numeric_task: ClassVar[str | None] = (
        None  # name of the task for the same rows with numbers as labels
    )
    keeps_decoder: ClassVar[bool] = (
        False  # tuned with the whole encoder-decoder and its head, not with its encoder alone
    )
    metric_packages: ClassVar[
        dict[str, str]
    ] = {}  # that its metrics import, and the extra that installs each
    model_folders: ClassVar[
        tuple[str, ...]
    ] = ()  # fields that name a model's folder, read before training

    @classmethod
    def for_model(cls, spec: Spec, **options: Any) -> "Task":
        """Return the task as it suits a model that no recipe describes."""
        return cls(**options)

    @classmethod
    def matches(cls, table: TableFacts) -> float:
        """Return how much a table looks like this task's examples; 0: `weft tune` does not offer
        the task.
        """
        return 0.0

    def validation_metrics(self, rows: RowSchema) -> tuple[str, ...]:
        """Return the metrics of validation on such rows beside the loss; the first one selects."""
        return self.metrics

    def select_by(self, rows: RowSchema) -> str:
        """Return the metric that chooses the best checkpoint."""
        return next(iter(self.validation_metrics(rows)), "loss")

    @classmethod
    def default_rows(cls) -> RowSchema:
        """Return the rows that a file holds, where nothing says otherwise."""
        rows: RowSchema = cls.row_schemas[0]()
        return rows

    @classmethod
    def infer_rows(
        cls,
        rows: Sequence[dict[str, Any]],
        columns: Sequence[str] = (),
        label: str | None = None,
        name: str = "",
        row: RowSchema | None = None,
    ) -> RowSchema:
        """Return which columns of a table this task reads: by their names, then by what they hold.

        Args:
            rows: of the table.
            columns: those to read, in the order of the row schema, the label last unless it is
                named.
            label: the column of the label.
            name: one of the task's names on the command line.
            row: what a row is, with the usual names of its columns (default: `default_rows`).
        """
        row = row or cls.default_rows()
        schema: RowSchema = resolve(INFER)(row, rows, columns, label, **cls.infer_options(name))
        return schema

    @classmethod
    def infer_options(cls, name: str) -> dict[str, Any]:
        """Return what a name of the task says of its rows: `numeric`, whether labels are numbers
        (None: unknown), and `pair`, whether there are two texts.
        """
        return {}

    @classmethod
    def default_head(cls, spec: Spec, labels: tuple[str, ...] | None, dropout: float) -> Any:
        """Return a new head for a model whose family has none for this task."""
        return spec.head

    def for_inference(self, rows: RowSchema) -> "Task":
        """Return what the trained model does: what only training needs is left out."""
        return self

    def extra_models(self) -> tuple[Spec, ...]:
        """Return the specs of what is trained beside the model and thrown away afterwards."""
        return ()

    def sequences_per_row(self) -> int:
        """Return how many sequences the model reads for a row of the data."""
        return 1

    def reference_models(self) -> int:
        """Return how many frozen models of the same size only read forward."""
        return 0

    def source_frame(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the special tokens before and after a text that is read; None: as the tokenizer's
        file says.
        """
        return None

    def decoder_start(self) -> str:
        """Return the special token that a decoder beside an encoder reads first, where the model
        names none.
        """
        return "bos"

    def visible_fraction(self) -> float:
        """Return the fraction of the input that the model's blocks see."""
        return 1.0

    def scored_fraction(self) -> float:
        """Return the fraction of the tokens whose logits are computed."""
        return 1.0

    def decoder_ratio(self) -> float:
        """Return the number of tokens that a decoder reads per token that its encoder reads."""
        return 1.0

    def base_rate(self) -> float | None:
        """Return the expected share of positive labels before training, whose log-odds are the
        output bias of a binary head at the start; None: the bias starts at 0.
        """
        return None


def task_names() -> list[str]:
    """Return every task's name on the command line."""
    return [task.name for task in members(Task) if task.name]


def task_named(name: str) -> type[Task]:
    """Return the task of a name on the command line.

    Raises:
        ValueError: if there is none; the message says which name is nearest.
    """
    for task in members(Task):
        if name in (task.name, *task.variants):
            return task
    raise ValueError(f"--task {name}: {suggest(name, task_names())}")


def verb_for(spec: Spec) -> str | None:
    """Return the verb of the first task that needs such a head and reads what the model reads; None
    if there is none.
    """
    reads_images = not isinstance(spec.source, Tokens)
    for task in members(Task):
        fits = any(bool(rows().image_columns) == reads_images for rows in task.row_schemas)
        if task.verb and fits and isinstance(spec.head, task.head):
            return task.verb
    return None


def tunable_names() -> list[str]:
    """Return the names that `weft tune --task` takes."""
    nothing = TableFacts("", 0, 0)
    tunable = [task for task in members(Task) if task.matches(nothing)]
    return [name for task in tunable for name in (task.name, *task.variants)]


def best_match(table: TableFacts) -> type[Task]:
    """Return the task whose examples a file looks most like."""
    return max(members(Task), key=lambda task: task.matches(table))
