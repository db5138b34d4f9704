"""Fine-tuning of a checkpoint: optimiser, learning rates and steps, with the settings of BERT's authors (arXiv:1810.04805, appendix
A.3)."""

from typing import Any, NamedTuple

from .. import recipe as R
from .. import spec as S
from .checkpoint import Checkpoint
from .suggestion import Budget, FineTuning

EPOCHS, BATCH_SIZE, EVALS_PER_EPOCH = 3, 32, 2
ADAMW_LEARNING_RATES = (5e-5, 4e-5, 3e-5, 2e-5)
# Of Adafactor, whose steps are relative to the weights: T5's authors fine-tune at 1e-3
ADAFACTOR_LEARNING_RATES = (1e-2, 3e-3, 1e-3)
# A wide range, since checkpoints of images differ in size a thousandfold
IMAGE_LEARNING_RATES = (1e-3, 3e-4, 1e-4, 3e-5)
FEW_IMAGE_WEIGHTS = 10  # times these rates for a new head or LoRA alone
COMMENTS = {
    "model": "that of the checkpoint, with a head for these data",
    "data": "read once and prepared under prepared/; relative paths start where weft is called",
    "optimiser": "weft tune tries several learning rates and seeds on the same data",
    "average": "the checkpoint with the best validation becomes the model",
    "precision": "bf16 where the processor is fast at it, else fp32",
}


class Trained(NamedTuple):
    """What is trained: a model for a task on data, with this many training rows."""

    spec: S.Spec
    task: R.Task
    data: R.Data
    length: int
    rows: int


def fine_tuning_fields(
    trained: Trained, checkpoint: Checkpoint, tuning: FineTuning, budget: Budget, seed: int
) -> dict[str, Any]:
    """Return the fields of a recipe that fine-tunes a checkpoint."""
    size = budget.batch_size or BATCH_SIZE
    epoch = -(-trained.rows // size)
    steps = max(1, round((budget.epochs or EPOCHS) * epoch))
    metric = tuning.metric or trained.task.select_by(trained.data.rows)
    # Batches of images are not sorted by length
    pool = None if checkpoint.reads_images else 32 * size
    return {
        "model": trained.spec,
        "task": trained.task,
        "data": trained.data,
        "batch": R.FixedBatch(size=size, length=trained.length, sort_pool=pool),
        "steps": steps,
        "init_from": str(checkpoint.folder),
        "optimiser": choose_optimiser(trained.spec, tuning),
        "schedule": R.LinearSchedule(warmup_steps=steps // 10),
        "trainable": tuning.trainable,
        "average": R.BestCheckpoint(metric=metric),
        "eval_every": max(1, epoch // (budget.evals_per_epoch or EVALS_PER_EPOCH)),
        "checkpoints": R.Checkpoints(keep=1),
        "precision": "auto",
        "seed": seed,
        "workers": int(checkpoint.reads_images),
    }


def choose_optimiser(spec: S.Spec, tuning: FineTuning) -> R.AdamW | R.Adafactor:
    """T5's weights differ in size by a factor of 50, the token table's are the largest: AdamW's steps, equally large for all, hardly move
    the table (docs/log.md). Its authors fine-tune with Adafactor, whose steps are relative (arXiv:1910.10683, section 3.1.2). Low-rank
    updates start at zero, and layer-wise rates need AdamW: both keep it. Of the usual learning rates it has the second."""
    rate = learning_rates(spec, tuning)[1]
    if uses_adafactor(spec, tuning):
        return R.Adafactor(lr=rate)
    return R.AdamW(lr=rate, layer_decay=tuning.layer_decay)


def uses_adafactor(spec: S.Spec, tuning: FineTuning) -> bool:
    plain = tuning.trainable is None and tuning.layer_decay is None
    return isinstance(spec.init, S.T5Init) and plain


def learning_rates(spec: S.Spec, tuning: FineTuning) -> tuple[float, ...]:
    """Return the learning rates worth trying, the largest first."""
    if not isinstance(spec.source, S.Tokens):
        factor = FEW_IMAGE_WEIGHTS if tuning.trainable else 1
        return tuple(factor * rate for rate in IMAGE_LEARNING_RATES)
    if uses_adafactor(spec, tuning):
        return ADAFACTOR_LEARNING_RATES
    return tuple(rate * lr_factor(tuning.trainable) for rate in ADAMW_LEARNING_RATES)


def lr_factor(trained: R.HeadOnly | R.LoRA | None) -> float:
    """A few new weights tolerate a higher learning rate than many trained ones: LoRA's table D.9 has 4e-4 and 5e-4; a linear head on features more."""
    return 100.0 if isinstance(trained, R.HeadOnly) else 10.0 if trained else 1.0
