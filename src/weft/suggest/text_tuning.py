"""A recipe that fine-tunes a checkpoint on texts."""

from dataclasses import fields
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..data.reading.examples import Examples, find_examples
from ..data.reading.table import Table
from ..data.tokenizer import Tokenizer
from ..spec.spec import max_row_length
from .checkpoint import Checkpoint, with_layer_mix, with_text_head
from .fine_tuning import COMMENTS, Trained, fine_tuning_fields, learning_rates
from .lengths import LONGEST, question_rows, row_length
from .split import Split, split_table
from .suggestion import RUN, Budget, FineTuning, Suggestion
from .text_to_text import find_text_to_text, is_text_to_text
from .texts import check_pairs


def suggest_text_tuning(
    table: Table,
    valid: Table | None,
    task: str | None,
    checkpoint: Checkpoint,
    *,
    tuning: FineTuning,
    budget: Budget,
    seed: int,
) -> Suggestion:
    """Return the recipe that fine-tunes a checkpoint on texts, as `suggest` does."""
    if tuning.image_size is not None:
        raise ValueError(
            f"--image-size is for images, and {checkpoint.name} reads text; leave it out"
        )
    examples = find_for_model(table, valid, task, checkpoint, tuning)
    spec = with_text_head(checkpoint, examples.kind, examples.labels, tuning.dropout)
    spec = with_layer_mix(spec, tuning.layer_mix)
    value = task_value(examples, spec, checkpoint, tuning.lm_weight)
    split = split_table(table, valid, examples.row, examples.usable, seed)
    trained = trained_on(examples, split, checkpoint, spec, value, budget.max_length)
    summary = examples.summary if valid else f"{examples.summary}; {split.description}"
    return Suggestion(
        examples.task,
        f"Fine-tuning of {checkpoint.name} on {table.path}: {examples.task}.",
        {
            "data": examples.summary,
            "checkpoint": checkpoint.name,
            "longest row": f"{trained.length} tokens",
            "validation": split.description,
            **({"warning": "; ".join(examples.notes)} if examples.notes else {}),
        },
        fine_tuning_fields(trained, checkpoint, tuning, budget, seed),
        COMMENTS,
        f"weft evaluate {RUN}",
        summary=summary,
        notes=examples.notes,
        learning_rates=learning_rates(spec, tuning),
    )


def find_for_model(
    table: Table, valid: Table | None, task: str | None, checkpoint: Checkpoint, wording: FineTuning
) -> Examples:
    """Find the task for this model. A decoder reads two texts and a score in both orders: GPT's similarity."""
    if is_text_to_text(task, checkpoint, wording):
        examples = find_text_to_text(table, valid, task, wording)
        if examples is not None:
            return examples
    is_similarity = task == "similarity"
    examples = find_examples(table, valid, None if is_similarity else task)
    is_pair = isinstance(examples.row, R.LabelledTexts) and examples.row.second_text is not None
    if is_similarity:
        check_pairs(table, examples.row)
    detected = task is None and examples.task == "regress" and checkpoint.spec.encoder is None
    if not is_similarity and not (is_pair and detected):
        return examples
    hint = "" if is_similarity else "; --task regress reads one order"
    about = examples.summary.rpartition(": ")[0]
    summary = f"{about}: similarity, read in both orders{hint}"
    return examples._replace(task="similarity", summary=summary)


def task_value(
    examples: Examples, spec: S.Spec, checkpoint: Checkpoint, lm_weight: float
) -> R.Task:
    """Return the task as the checkpoint does it."""
    options = dict[str, Any]()
    names = {field.name for field in fields(examples.kind)}  # type: ignore[arg-type]
    if examples.kind.keeps_decoder and "input_format" in names:
        options["input_format"] = checkpoint.input_format
    if examples.task == "similarity":
        options["both_orders"] = True
    if lm_weight:
        options["lm_weight"] = lm_weight
        auxiliary = "lm_weight" in names and spec.decoder is not None
        if not auxiliary or checkpoint.spec.head != S.LMHead(tied=True):
            raise ValueError(
                f"--lm-weight {lm_weight:g} is for texts, pairs and endings of a decoder whose language modelling head is "
                "its token table, such as GPT-2; leave it out"
            )
    return examples.kind.for_model(spec, **options)


def trained_on(
    examples: Examples,
    split: Split,
    checkpoint: Checkpoint,
    spec: S.Spec,
    task: R.Task,
    max_length: int | None,
) -> Trained:
    """Return what is trained: lengths are from the data, or `max_length`."""
    tokenizer = Tokenizer.load(checkpoint.tokenizer_file)
    most = min(max_length or LONGEST, max_row_length(spec) or LONGEST)
    row = examples.row
    rows = split.train_rows
    if isinstance(row, R.ContextQuestions):
        row, windows = question_rows(examples.usable.rows, tokenizer, most, max_length is not None)
        rows = round(rows * windows / len(examples.usable.rows))
        length = row.max_length
    else:
        length = max_length or row_length(examples.usable.rows, row, tokenizer, most)
    data = R.Data(
        rows=row,
        train=split.train,
        valid=split.valid,
        tokenizer=R.TokenizerFile(path=checkpoint.tokenizer_file),
        max_bad_row_fraction=split.max_bad_rows,
    )
    return Trained(spec, task, data, length, rows)
