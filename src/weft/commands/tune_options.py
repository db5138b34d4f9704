"""The options of fine-tuning."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from ..support.options.declare import Option
from ..support.options.shared import (
    BATCH_SIZE,
    MAX_LENGTH,
    MODEL,
    RUN,
    SEED,
    VALID,
    Device,
    LabelTexts,
    TableOptions,
    TrainingPrecision,
)

if TYPE_CHECKING:
    from ..recipe import HeadOnly, LoRA
    from ..spec import LayerMix
    from ..suggest.opening import Reading
    from ..suggest.suggestion import Budget, FineTuning

LAST_FOUR = (-4, -3, -2, -1)


@dataclass(frozen=True)
class TuneOptions(TableOptions):
    """The options of `weft tune` and `weft.tune`; None: from data and checkpoint."""

    checkpoint: Annotated[str, replace(MODEL, metavar="CHECKPOINT")]
    data: Annotated[
        Sequence[str],
        Option(
            "training files: CSV, TSV, JSON lines or array, Parquet, CoNLL or SQuAD, "
            "optionally .gz; for an image model a folder with one "
            "sub-folder per class, a table of image names and their folder, Parquet, npz or idx "
            "files",
            metavar="FILE",
        ),
    ]
    _: KW_ONLY
    valid: Annotated[Sequence[str], replace(VALID, default="a tenth of the data")] = ()
    task: Annotated[
        str | None,
        Option(
            "task to learn: classify, pair, regress, similarity (a pair in both orders), choose, "
            "tag, answer or "
            "text2text (encoder-decoders: text in, text out)",
            default="detected",
            metavar="TASK",
        ),
    ] = None
    output: Annotated[
        str | None,
        replace(RUN, default="runs/<checkpoint>-<data>"),
    ] = None
    label: Annotated[
        str | None,
        Option(
            "column of the label", default="the last of --columns, else detected", metavar="COLUMN"
        ),
    ] = None
    source_prefix: Annotated[
        str,
        Option('text2text: prefix of every source text, such as "sst2 sentence: "', metavar="TEXT"),
    ] = ""
    label_texts: LabelTexts = ()
    metric: Annotated[
        str | None,
        Option(
            "metric that selects the best model: loss or a metric of the task, such as accuracy, "
            "f1 or pearson",
            metavar="NAME",
        ),
    ] = None
    learning_rates: Annotated[
        Sequence[float],
        Option(
            "learning rates to try",
            default="with AdamW 5e-5 4e-5 3e-5 2e-5, times 10 with --lora-rank, times 100 with "
            "--freeze-body; with T5's Adafactor 1e-2 3e-3 1e-3; for images 1e-3 3e-4 1e-4 3e-5, "
            "times 10 with --lora-rank or --freeze-body",
            metavar="RATE",
            above=0,
            example="5e-5",
        ),
    ] = ()
    seeds: Annotated[
        int | None,
        Option(
            "number of seeds at the best learning rate",
            default="3 below 10,000 rows, else 1",
            metavar="N",
            least=1,
        ),
    ] = None
    epochs: Annotated[float, Option("number of passes over the data", metavar="N", above=0)] = 3
    evals_per_epoch: Annotated[
        int, Option("number of validations per epoch", metavar="N", least=1)
    ] = 2
    batch_size: Annotated[int, replace(BATCH_SIZE, help="number of rows per step")] = 32
    max_length: Annotated[int | None, replace(MAX_LENGTH, default="from the data", least=5)] = None
    image_size: Annotated[
        int | None,
        Option(
            "image side; if it differs from the checkpoint's, the position grid is interpolated",
            default="the checkpoint's",
            metavar="PIXELS",
            least=1,
        ),
    ] = None
    dropout: Annotated[
        float | None,
        Option("dropout probability", default="0.1", metavar="P", least=0, most=1),
    ] = None
    freeze_body: Annotated[bool, Option("train only the head, with the body frozen")] = False
    head_layers: Annotated[
        Literal[
            "embeddings",
            "second-to-last",
            "last",
            "sum-last-four",
            "weighted-last-four",
            "concat-last-four",
        ]
        | None,
        Option(
            "layers whose outputs the head reads (BERT, table 7)",
            default="the last layer, through the model's pooler if present",
        ),
    ] = None
    lora_rank: Annotated[
        int | None,
        Option(
            "rank of LoRA updates for queries and values; trains only these and the head",
            metavar="RANK",
            least=1,
        ),
    ] = None
    layer_decay: Annotated[
        float | None,
        Option(
            "ratio of each block's learning rate to the next block's, such as 0.9",
            default="1",
            metavar="X",
        ),
    ] = None
    lm_weight: Annotated[
        float,
        Option(
            "weight of the auxiliary language-modelling loss, for decoders",
            default="0; the GPT paper uses 0.5",
            metavar="X",
            least=0,
            example="0.5",
        ),
    ] = 0.0
    layer_mix: Annotated[
        "LayerMix | None",
        Option(
            "layers whose outputs the head reads, as a value in place of --head-layers",
            only="python",
        ),
    ] = None
    trainable: Annotated[
        "HeadOnly | LoRA | None",
        Option(
            "trained parameters, as a value in place of --freeze-body and --lora-rank",
            only="python",
        ),
    ] = None
    at_a_time: Annotated[
        int,
        Option(
            "number of concurrent trials; each runs in its own process with its share of "
            "the CPU cores",
            metavar="N",
            least=1,
        ),
    ] = 1
    precision: TrainingPrecision = "auto"
    device: Device = "auto"
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.freeze_body and self.lora_rank:
            raise ValueError("--freeze-body and --lora-rank cannot be combined; give one of them")
        object.__setattr__(self, "trainable", self.trainable or self.named_trainable())
        object.__setattr__(self, "layer_mix", self.layer_mix or self.named_layer_mix())

    def named_trainable(self) -> "HeadOnly | LoRA | None":
        """Return the trained part that `--freeze-body` or `--lora-rank` selects."""
        if not self.freeze_body and not self.lora_rank:
            return None
        from ..recipe import HeadOnly, LoRA

        if self.freeze_body:
            return HeadOnly()
        rank = self.lora_rank or 0
        return LoRA(rank=rank, alpha=2.0 * rank)

    def named_layer_mix(self) -> "LayerMix | None":
        """Return the layer mix that `--head-layers` selects."""
        if self.head_layers is None:
            return None
        from ..spec import LayerMix

        layer_mixes = {
            "embeddings": LayerMix(layers=(0,)),
            "second-to-last": LayerMix(layers=(-2,)),
            "last": LayerMix(layers=(-1,)),
            "sum-last-four": LayerMix(layers=LAST_FOUR, combine="sum"),
            "weighted-last-four": LayerMix(layers=LAST_FOUR, combine="weighted"),
            "concat-last-four": LayerMix(layers=LAST_FOUR),
        }
        return layer_mixes[self.head_layers]

    @property
    def reading(self) -> "Reading":
        """Return the options for reading the files."""
        from ..suggest.opening import Reading

        return Reading(
            self.columns, self.column_names, self.label, self.max_bad_row_fraction, self.seed
        )

    @property
    def budget(self) -> "Budget":
        """Return the training budget of a trial."""
        from ..suggest.suggestion import Budget

        return Budget(self.epochs, self.batch_size, self.max_length, self.evals_per_epoch)

    @property
    def tuning(self) -> "FineTuning":
        """Return the fine-tuning settings."""
        from ..suggest.suggestion import FineTuning

        return FineTuning(
            source_prefix=self.source_prefix,
            label_texts=tuple(self.label_texts),
            metric=self.metric,
            dropout=self.dropout,
            layer_mix=self.layer_mix,
            layer_decay=self.layer_decay,
            lm_weight=self.lm_weight,
            trainable=self.trainable,
            image_size=self.image_size,
        )
