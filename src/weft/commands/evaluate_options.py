"""The options of `weft evaluate` and of `weft.evaluate`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from ..support.options.declare import Option, Options
from ..support.options.shared import (
    MAX_LENGTH,
    NO_ANSWER_THRESHOLD,
    SEED,
    BatchSize,
    BeamSearchOptions,
    DeviceOptions,
    LabelTexts,
    ModelOptions,
    TableOptions,
    VerbOptions,
)

# questions per arithmetic task
COUNT = 100


EvaluationFiles = Annotated[
    Sequence[str],
    Option(
        "files to evaluate on: one, or two parallel files, optionally compressed (.gz)",
        default="the run's own data",
        metavar="FILE",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(TableOptions, BeamSearchOptions, DeviceOptions):
    """Options for scoring a model on its task, shared by `weft evaluate` and `weft.evaluate`."""

    split: Annotated[
        Literal["valid", "train"], Option("split of the run's own data to evaluate on")
    ] = "valid"
    task: Annotated[
        str | None,
        Option(
            "task, needed for a model without a recipe, such as classify, tag, answer, "
            "translate or perplexity",
            metavar="TASK",
        ),
    ] = None
    max_length: Annotated[int | None, replace(MAX_LENGTH, default="the recipe's")] = None
    stride: Annotated[
        int | None,
        Option(
            "stride between windows of running text, in tokens",
            default="half of --max-length",
            metavar="TOKENS",
            least=1,
        ),
    ] = None
    language: Annotated[
        str | None,
        Option("target language for tokenised BLEU", default="from the suffix of the file"),
    ] = None
    no_answer_threshold: Annotated[float, NO_ANSWER_THRESHOLD] = 0.0
    batch_size: BatchSize = 32


@dataclass(frozen=True, kw_only=True)
class InContextOptions(Options):
    """Options for scoring a language model on questions with solved examples in the prompt."""

    few_shot: Annotated[
        str | None,
        Option(
            "table of questions and answers for in-context evaluation of a language model; "
            "prompts hold solved examples, and no weights change",
            metavar="FILE",
        ),
    ] = None
    arithmetic: Annotated[
        bool, Option("evaluate in context on the ten arithmetic tasks of GPT-3")
    ] = False
    shots: Annotated[
        Sequence[int],
        Option("in-context evaluation: numbers of examples per prompt", metavar="N", least=0),
    ] = (0, 1, 4, 16)
    examples: Annotated[
        str | None,
        Option(
            "table to sample the examples of --few-shot from",
            default="the other rows of FILE",
            metavar="FILE",
        ),
    ] = None
    label_texts: LabelTexts = ()
    num_questions: Annotated[
        int | None,
        Option(
            "in-context evaluation: number of questions",
            default=f"all rows; --arithmetic: {COUNT} per task",
            metavar="N",
            least=1,
        ),
    ] = None
    seed: Annotated[int, SEED] = 0


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions, ScoreOptions, InContextOptions, VerbOptions):
    """The options of `weft evaluate`."""

    data: EvaluationFiles = ()
    output: Annotated[
        str | None,
        Option(
            "file to write the receipt to",
            default="RUN/evaluation.json",
            metavar="FILE",
            short="-o",
        ),
    ] = None
