"""A suggested recipe, what it was suggested for, and what every suggestion has in common."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, log2
from typing import Any

from .. import recipe as R
from .. import spec as S
from .recipe_code import evaluate

NAMED_PATHS = 4  # of many, in a sentence
RUN = "{run}"  # in the command that uses a trained model


@dataclass(frozen=True)
class Budget:
    """How long a model is trained, on how much at once; None: from the task and the data.

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
    """How a checkpoint is fine-tuned; None: from the data and the checkpoint.

    Attributes:
        source_prefix: text before every source text, such as T5's name of a task.
        label_texts: the text of each class, where a class is decoded as text.
        metric: selects the best checkpoint.
        dropout: probability of dropout.
        layer_mix: the layers that the head reads.
        layer_decay: learning rate of each block relative to the one above it.
        lm_weight: weight of GPT's auxiliary next-token loss.
        trainable: the part that is trained.
        image_size: pixels per side, if not those of the checkpoint.
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
    """A recipe, and why it is this one.

    Attributes:
        task: the name of the task, or of the objective of pre-training.
        title: one sentence.
        facts: what the data and the model are, by name.
        fields: of the recipe; a `Call` or a `Name` where code is shorter than the value.
        comments: on fields of the recipe.
        use: the command that uses the trained model, with `RUN` for its run.
        constants: variables that the fields name.
        summary: one sentence about the data.
        notes: lines about rows that are set aside.
        learning_rates: those worth trying, the largest first.
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
        """The recipe as a value; without a name, its run is called mine."""
        values = {name: evaluate(part, self.constants) for name, part in self.fields.items()}
        return R.Recipe(**{"name": "mine", **values})

    def named(self, name: str) -> "Suggestion":
        """Return the suggestion with the name of its run."""
        use = self.use.replace(RUN, f"runs/{name}")
        return replace(self, fields={"name": name} | self.fields, use=use)


def rounded_up(number: float, multiple: int, maximum: int) -> int:
    return min(maximum, max(multiple, multiple * ceil(number / multiple)))


def vocabulary_size(characters: float) -> int:
    """Return a vocabulary whose tokens occur often enough to be learned: about one per 200
    characters.
    """
    return min(32_768, max(512, 1 << max(0, round(log2(max(characters, 1) / 200)))))


def quoted_columns(row: R.RowSchema) -> str:
    return " and ".join(map(repr, row.text_columns))


def join_names(paths: Sequence[str]) -> str:
    """Join the first of many paths."""
    more = f" and {len(paths) - NAMED_PATHS:,} more" if len(paths) > NAMED_PATHS else ""
    return ", ".join(paths[:NAMED_PATHS]) + more


def count_steps(epochs: float, samples: float, per_step: float, max_steps: int) -> int:
    return int(min(max_steps, max(50, ceil(epochs * samples / per_step))))


def first_fields(model: Any, task: Any, data: R.Data, batch: Any, steps: int) -> dict[str, Any]:
    """Return the fields of a recipe from random weights: a short warm-up, precision by the machine,
    ten validations.
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
    "task": "the objective; its fields are in weft.recipe",
    "data": "read once and prepared under prepared/; relative paths start where weft is called",
    "steps": "more steps for more data; weft show on this file prints their cost",
    "precision": "bf16 where the processor is fast at it, else fp32",
}
