"""Recipes that fine-tune a checkpoint on texts."""

from dataclasses import fields
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..data.reading.examples import Examples, find_examples
from ..data.reading.table import Tables
from ..data.tokenizing.tokenizer import Tokenizer
from ..spec.spec import max_row_length
from .checkpoint import Checkpoint, with_layer_mix, with_text_head
from .fine_tuning import Trained, suggest_fine_tuning
from .lengths import LONGEST, question_rows, row_length
from .split import split_tables
from .suggestion import Budget, FineTuning, Suggestion
from .text_to_text import find_text_to_text, is_text_to_text
from .texts import check_pairs


def suggest_text_tuning(
    tables: Tables,
    task: str | None,
    checkpoint: Checkpoint,
    tuning: FineTuning,
    budget: Budget,
) -> Suggestion:
    """Return the recipe that fine-tunes a checkpoint on texts; `suggest` describes the
    arguments."""
    if tuning.image_size is not None:
        raise ValueError(f"--image-size is for images, and {checkpoint.name} reads text; remove it")
    examples = find_for_model(tables, task, checkpoint, tuning)
    spec = with_text_head(checkpoint, examples.kind, examples.labels, tuning.dropout)
    spec = with_layer_mix(spec, tuning.layer_mix)
    value = task_value(examples, spec, checkpoint, tuning.lm_weight)
    split = split_tables(tables, examples.row, examples.usable)
    max_length = max_row_length(spec) or LONGEST
    tokenizer = checkpoint.tokenizer_file
    row, length, windows = row_and_length(examples, tokenizer, budget.max_length, max_length)
    trained = Trained(
        examples.task,
        f"Fine-tuning of {checkpoint.name} on {tables.path}: {examples.task}.",
        spec,
        value,
        split,
        split.data(row, R.TokenizerFile(path=tokenizer)),
        length,
        round(split.train_rows * windows / len(examples.usable.rows)),
        examples.summary,
        examples.notes,
    )
    return suggest_fine_tuning(trained, tables, checkpoint, tuning, budget)


def find_for_model(
    tables: Tables, task: str | None, checkpoint: Checkpoint, wording: FineTuning
) -> Examples:
    """Detect the task for this model. A decoder reads two texts and a score in both orders, as GPT
    does for similarity.
    """
    if is_text_to_text(task, checkpoint, wording):
        examples = find_text_to_text(tables, task, wording)
        if examples is not None:
            return examples
    is_similarity = task == "similarity"
    examples = find_examples(tables, None if is_similarity else task)
    is_pair = isinstance(examples.row, R.LabelledTexts) and examples.row.second_text is not None
    if is_similarity:
        check_pairs(tables.path, examples.row)
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
    """Return the task value, configured for the checkpoint."""
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
                f"--lm-weight {lm_weight:g} is for classify, pair and choose with a decoder whose "
                "language modelling head is its token table, such as GPT-2; remove it"
            )
    return examples.kind.for_model(spec, **options)


def row_and_length(
    examples: Examples, tokenizer_file: str, max_length: int | None, model_length: int
) -> tuple[R.RowSchema, int, int]:
    """Return the row schema, the row length in tokens, and the number of rows; long contexts give
    several rows.

    Args:
        examples: the training data.
        tokenizer_file: the tokenizer of the checkpoint.
        max_length: the length that the user gives (default: from the data).
        most: the maximum length of the model.
    """
    tokenizer = Tokenizer.load(tokenizer_file)
    row = examples.row
    items = examples.usable.rows
    model_length = min(max_length or LONGEST, model_length)
    if not isinstance(row, R.ContextQuestions):
        return row, max_length or row_length(items, row, tokenizer, model_length), len(items)
    row, windows = question_rows(items, tokenizer, model_length, max_length is not None)
    return row, row.max_length, windows
