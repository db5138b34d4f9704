"""Fine-tuning recipes: optimiser, learning rates and steps, with the settings of BERT
(arXiv:1810.04805, appendix A.3).
"""

from typing import NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.reading.table import Tables
from .checkpoint import Checkpoint
from .image_samples import IMAGE_COMMENTS
from .split import Split
from .suggestion import RUN, Budget, FineTuning, Suggestion

EPOCHS = 3
BATCH_SIZE = 32
EVALS_PER_EPOCH = 2
ADAMW_LEARNING_RATES = (5e-5, 4e-5, 3e-5, 2e-5)
# For Adafactor, whose steps are relative to the weights; T5 was fine-tuned at 1e-3
ADAFACTOR_LEARNING_RATES = (1e-2, 3e-3, 1e-3)
# A wide range, since image checkpoints differ in size by a factor of a thousand
IMAGE_LEARNING_RATES = (1e-3, 3e-4, 1e-4, 3e-5)
FEW_IMAGE_WEIGHTS = 10  # factor on these rates for a new head or LoRA only
COMMENTS = {
    "model": "the checkpoint with a head for this data",
    "data": "prepared once under prepared/; relative paths start at the working directory",
    "optimiser": "weft tune tries several learning rates and seeds on the same data",
    "average": "the checkpoint with the best validation becomes the model",
    "precision": "bf16 where the processor computes it fast, else fp32",
}


class Trained(NamedTuple):
    """A fine-tuning task with its model and data.

    Attributes:
        name: the name of the task.
        title: one sentence.
        spec: the model, with a head for the task.
        task: the task value, configured for the model.
        split: the training and validation data.
        data: the data of the recipe.
        length: tokens per row.
        rows: the approximate number of training rows.
        summary: one sentence about the data.
        notes: lines about skipped rows.
    """

    name: str
    title: str
    spec: S.Spec
    task: R.Task
    split: Split
    data: R.Data
    length: int
    rows: int
    summary: str
    notes: tuple[str, ...] = ()


def suggest_fine_tuning(
    trained: Trained, tables: Tables, checkpoint: Checkpoint, tuning: FineTuning, budget: Budget
) -> Suggestion:
    """Return the recipe that fine-tunes a checkpoint."""
    split = trained.split
    size = budget.batch_size or BATCH_SIZE
    epoch = -(-trained.rows // size)
    steps = max(1, round((budget.epochs or EPOCHS) * epoch))
    of_images = checkpoint.reads_images
    length_fact = {} if of_images else {"longest row": f"{trained.length} tokens"}
    held_out = "" if tables.valid else f"; {split.description}"
    rates = learning_rates(trained.spec, tuning)
    fields = {
        "model": trained.spec,
        "task": trained.task,
        "data": trained.data,
        # Batches of images are not sorted by length
        "batch": R.FixedBatch(
            size=size, length=trained.length, sort_pool=None if of_images else 32 * size
        ),
        "steps": steps,
        "init_from": str(checkpoint.folder),
        "optimiser": choose_optimiser(trained.spec, tuning, rates[1]),
        "schedule": R.LinearSchedule(warmup_steps=steps // 10),
        "trainable": tuning.trainable,
        "average": R.BestCheckpoint(
            metric=tuning.metric or trained.task.select_by(trained.data.rows)
        ),
        "eval_every": max(1, epoch // (budget.evals_per_epoch or EVALS_PER_EPOCH)),
        "checkpoints": R.Checkpoints(keep=1),
        "precision": "auto",
        "seed": tables.seed,
        "workers": int(of_images),
    }
    return Suggestion(
        trained.name,
        trained.title,
        {
            "data": trained.summary,
            "checkpoint": checkpoint.name,
            **length_fact,
            **split.facts(*trained.notes),
        },
        fields,
        COMMENTS | (IMAGE_COMMENTS if of_images else {}),
        f"weft evaluate {RUN}",
        summary=trained.summary + held_out,
        notes=trained.notes,
        learning_rates=rates,
    )


def choose_optimiser(spec: S.Spec, tuning: FineTuning, rate: float) -> R.AdamW | R.Adafactor:
    """Return AdamW, or Adafactor for T5, which has the second of the usual learning rates.

    T5's weights differ in size by a factor of 50, with the largest in the token table, which
    AdamW's equal steps hardly change (docs/log.md). T5 was fine-tuned with Adafactor, whose steps
    are relative (arXiv:1910.10683, section 3.1.2). Low-rank updates start at zero, and layer-wise
    rates need AdamW, so both use AdamW.
    """
    if uses_adafactor(spec, tuning):
        return R.Adafactor(lr=rate)
    return R.AdamW(lr=rate, layer_decay=tuning.layer_decay)


def uses_adafactor(spec: S.Spec, tuning: FineTuning) -> bool:
    plain = tuning.trainable is None and tuning.layer_decay is None
    return isinstance(spec.init, S.T5Init) and plain


def learning_rates(spec: S.Spec, tuning: FineTuning) -> tuple[float, ...]:
    """Return learning rates to try, the largest first."""
    if not isinstance(spec.source, S.Tokens):
        factor = FEW_IMAGE_WEIGHTS if tuning.trainable else 1
        return tuple(factor * rate for rate in IMAGE_LEARNING_RATES)
    if uses_adafactor(spec, tuning):
        return ADAFACTOR_LEARNING_RATES
    return tuple(rate * lr_factor(tuning.trainable) for rate in ADAMW_LEARNING_RATES)


def lr_factor(trained: R.HeadOnly | R.LoRA | None) -> float:
    """Return the factor on the learning rates: a few new weights tolerate higher rates than a full
    model (LoRA's table D.9: 4e-4 and 5e-4; a linear head more).
    """
    if isinstance(trained, R.HeadOnly):
        return 100.0
    return 10.0 if trained else 1.0
