"""The suggestion value: a recipe with the facts and comments behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, log2
from typing import Any

from .. import recipe as R
from .. import spec as S
from .recipe_code import evaluate

NAMED_PATHS = 4  # paths to print in a sentence
RUN = "{run}"  # placeholder of the run in `Suggestion.use`


@dataclass(frozen=True)
class Budget:
    """The training budget; None: from the task and the data.

    Attributes:
        epochs: passes over the data.
        batch_size: rows per step.
        max_length: tokens per row.
        evals_per_epoch: validations per epoch.
    """

    epochs: float | None = None
    batch_size: int | None = None
    max_length: int | None = None
    evals_per_epoch: int | None = None


@dataclass(frozen=True)
class FineTuning:
    """The settings of fine-tuning; None: from the data and the checkpoint.

    Attributes:
        source_prefix: the text before each source text, such as T5's name of a task.
        label_texts: the text of each class, if a class is decoded as text.
        metric: the metric that selects the best checkpoint.
        dropout: the dropout probability.
        layer_mix: the layers that the head reads.
        layer_decay: the ratio of a block's learning rate to the next block's.
        lm_weight: the weight of GPT's auxiliary next-token loss.
        trainable: the trained part of the model.
        image_size: pixels per side (default: the checkpoint's).
    """

    source_prefix: str = ""
    label_texts: tuple[str, ...] = ()
    metric: str | None = None
    dropout: float | None = None
    layer_mix: S.LayerMix | None = None
    layer_decay: float | None = None
    lm_weight: float = 0.0
    trainable: R.HeadOnly | R.LoRA | None = None
    image_size: int | None = None


@dataclass(frozen=True)
class Suggestion:
    """A recipe with the facts and comments behind it.

    Attributes:
        task: the name of the task or of the pre-training objective.
        title: one sentence.
        facts: facts about the data and the model, by name.
        fields: the fields of the recipe; a `Call` or a `Name` where code is shorter than the value.
        comments: comments on the fields.
        use: the command that uses the trained model, with `RUN` as its run.
        constants: variables that the fields reference.
        summary: one sentence about the data.
        notes: lines about skipped rows.
        learning_rates: rates to try, the largest first.
    """

    task: str
    title: str
    facts: dict[str, str]
    fields: dict[str, Any]
    comments: dict[str, str]
    use: str
    constants: dict[str, Any] = field(default_factory=dict)
    summary: str = ""
    notes: tuple[str, ...] = ()
    learning_rates: tuple[float, ...] = ()

    @cached_property
    def recipe(self) -> R.Recipe:
        """The recipe as a value; if unnamed, its run is called mine."""
        values = {name: evaluate(part, self.constants) for name, part in self.fields.items()}
        return R.Recipe(**{"name": "mine", **values})

    def named(self, name: str) -> "Suggestion":
        """Return the suggestion with the name of its run."""
        use = self.use.replace(RUN, f"runs/{name}")
        return replace(self, fields={"name": name} | self.fields, use=use)


def rounded_up(number: float, multiple: int, maximum: int) -> int:
    return min(maximum, max(multiple, multiple * ceil(number / multiple)))


def vocabulary_size(characters: float) -> int:
    """Return a vocabulary size with about one token per 200 characters, so that tokens are frequent
    enough to be learned.
    """
    return min(32_768, max(512, 1 << max(0, round(log2(max(characters, 1) / 200)))))


def quoted_columns(row: R.RowSchema) -> str:
    return " and ".join(map(repr, row.text_columns))


def join_names(paths: Sequence[str]) -> str:
    """Join the first few paths."""
    more = f" and {len(paths) - NAMED_PATHS:,} more" if len(paths) > NAMED_PATHS else ""
    return ", ".join(paths[:NAMED_PATHS]) + more


def count_steps(epochs: float, samples: float, per_step: float, max_steps: int) -> int:
    return int(min(max_steps, max(50, ceil(epochs * samples / per_step))))


def first_fields(model: Any, task: Any, data: R.Data, batch: Any, steps: int) -> dict[str, Any]:
    """Return the common fields of a recipe from random weights: a short warm-up, precision by
    device, ten validations.
    """
    return {
        "model": model,
        "task": task,
        "data": data,
        "batch": batch,
        "steps": steps,
        "optimiser": R.AdamW(lr=1e-3),
        "schedule": R.CosineSchedule(warmup_steps=max(1, steps // 10), final_fraction=0.1),
        "precision": "auto",
        "eval_every": max(10, steps // 10),
        "checkpoints": R.Checkpoints(every_steps=max(10, steps // 10)),
    }


COMMENTS = {
    "task": "the objective; weft.recipe documents its fields",
    "data": "prepared once under prepared/; relative paths start at the working directory",
    "steps": "increase for more data; weft show on this file prints the cost",
    "precision": "bf16 where the processor computes it fast, else fp32",
}
