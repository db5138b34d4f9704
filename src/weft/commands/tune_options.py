"""The options of a fine-tuning."""

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
    """The options of `weft tune` and of `weft.tune`; None: from the data and the checkpoint."""

    checkpoint: Annotated[str, replace(MODEL, metavar="CHECKPOINT")]
    data: Annotated[
        Sequence[str],
        Option(
            "training files: CSV, TSV, JSON lines or array, Parquet, CoNLL or SQuAD, also as .gz; "
            "for an image model a folder with one "
            "sub-folder per class, a table that names images and their folder, Parquet, npz or idx "
            "files",
            metavar="FILE",
        ),
    ]
    _: KW_ONLY
    valid: Annotated[Sequence[str], replace(VALID, default="a tenth of the data")] = ()
    task: Annotated[
        str | None,
        Option(
            "such as classify, pair, regress, similarity (a pair in both orders), choose, tag, "
            "answer or "
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
            "metric that selects the best model: loss or one of the task's, such as accuracy, f1 "
            "or pearson",
            metavar="NAME",
        ),
    ] = None
    learning_rates: Annotated[
        Sequence[float],
        Option(
            "learning rates to try",
            default="5e-5 4e-5 3e-5 2e-5 with AdamW; ten times that with --lora-rank, a hundred "
            "times with --freeze-body; 1e-2 3e-3 1e-3 with T5's Adafactor; for images 1e-3 3e-4 "
            "1e-4 3e-5, ten times that with either",
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
    epochs: Annotated[float, Option("passes over the data", metavar="N", above=0)] = 3
    evals_per_epoch: Annotated[
        int, Option("number of validations per epoch", metavar="N", least=1)
    ] = 2
    batch_size: Annotated[int, replace(BATCH_SIZE, help="number of rows per step")] = 32
    max_length: Annotated[int | None, replace(MAX_LENGTH, default="from the data", least=5)] = None
    image_size: Annotated[
        int | None,
        Option(
            "side of an image; another one than the checkpoint's stretches its grid of positions",
            default="the checkpoint's",
            metavar="PIXELS",
            least=1,
        ),
    ] = None
    dropout: Annotated[
        float | None,
        Option("dropout probability", default="0.1", metavar="P", least=0, most=1),
    ] = None
    freeze_body: Annotated[bool, Option("train only the head")] = False
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
            default="the last one, through the model's pooler if it has one",
        ),
    ] = None
    lora_rank: Annotated[
        int | None,
        Option(
            "train LoRA updates of this rank for queries and values, and the head",
            metavar="RANK",
            least=1,
        ),
    ] = None
    layer_decay: Annotated[
        float | None,
        Option(
            "learning rate of each block relative to the one above it, such as 0.9",
            default="1",
            metavar="X",
        ),
    ] = None
    lm_weight: Annotated[
        float,
        Option(
            "decoders: weight of the auxiliary language-modelling loss",
            default="0; GPT's paper: 0.5",
            metavar="X",
            least=0,
            example="0.5",
        ),
    ] = 0.0
    layer_mix: Annotated[
        "LayerMix | None",
        Option(
            "the layers that the head reads, as a value instead of --head-layers", only="python"
        ),
    ] = None
    trainable: Annotated[
        "HeadOnly | LoRA | None",
        Option(
            "what is trained, as a value instead of --freeze-body and --lora-rank", only="python"
        ),
    ] = None
    at_a_time: Annotated[
        int,
        Option(
            "number of trials that run at a time, each in a process of its own with its share of "
            "the cores",
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
            raise ValueError(
                "--freeze-body trains the head alone and --lora-rank more than it; give one of them"
            )
        object.__setattr__(self, "trainable", self.trainable or self.named_trainable())
        object.__setattr__(self, "layer_mix", self.layer_mix or self.named_layer_mix())

    def named_trainable(self) -> "HeadOnly | LoRA | None":
        """Return what `--freeze-body` or `--lora-rank` trains."""
        if not self.freeze_body and not self.lora_rank:
            return None
        from ..recipe import HeadOnly, LoRA

        if self.freeze_body:
            return HeadOnly()
        rank = self.lora_rank or 0
        return LoRA(rank=rank, alpha=2.0 * rank)

    def named_layer_mix(self) -> "LayerMix | None":
        """Return the layers that `--head-layers` names."""
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
        """How the files are read."""
        from ..suggest.opening import Reading

        return Reading(
            self.columns, self.column_names, self.label, self.max_bad_row_fraction, self.seed
        )

    @property
    def budget(self) -> "Budget":
        """How long a trial is trained."""
        from ..suggest.suggestion import Budget

        return Budget(self.epochs, self.batch_size, self.max_length, self.evals_per_epoch)

    @property
    def tuning(self) -> "FineTuning":
        """How the checkpoint is fine-tuned."""
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
