"""In-context evaluation: `weft evaluate NAME --few-shot FILE` and `--arithmetic`."""

import time
from typing import TYPE_CHECKING, Any

from ..support.console import print_result, report, spinner
from . import Fields
from .evaluate_options import COUNT, EvaluateOptions

if TYPE_CHECKING:
    from ..evaluation.in_context import InContextScore, QuestionSet


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate in context; under torchrun the ranks share the questions."""
    from ..runs.logs.progress import CountProgressLine
    from . import receipts

    path = receipts.receipts_file(options)
    shots = list(dict.fromkeys(options.shots))
    with spinner(f"opening {options.name}"):
        from ..evaluation import in_context
        from ..evaluation.receipts import receipt
        from ..inference.open_model import open_model
        from ..nn.kernels.devices import resolve_dtype
        from ..tasks.predict import PredictOptions
        from ..training.parallel.ranks import init_ranks

        sets = question_sets(options)
        model = open_model(
            options.name, dtype=resolve_dtype(options.precision), device=options.device
        )
    with (
        init_ranks(device=options.device) as ranks,
        CountProgressLine("scored", "questions") as progress,
    ):
        began = time.perf_counter()
        in_context_scores = list(
            in_context.evaluate_in_context(
                model,
                sets,
                shots,
                seed=options.seed,
                options=PredictOptions(options.batch_size, seed=options.seed, ranks=ranks),
                progress=progress,
            )
        )
        if ranks.rank:
            return 0
    scores = named_scores(options, in_context_scores)
    written = receipt(model, joined(sets), scores, time.perf_counter() - began, options.seed)
    written["options"] = receipts.options_of(options)
    print_result(
        options.json, written, lambda width: page(in_context_scores, written, sets[0].choices, path)
    )
    if path is not None:
        receipts.add_receipt(
            path, f"few-shot {options.few_shot}" if options.few_shot else "arithmetic", written
        )
    return 0


def question_sets(options: EvaluateOptions) -> "list[QuestionSet]":
    """Return the questions of a file, or of every arithmetic task."""
    from ..evaluation import in_context

    if not options.few_shot:
        return list(in_context.arithmetic(options.num_questions or COUNT, options.seed))
    questions = in_context.few_shot(
        options.few_shot,
        options.examples,
        columns=options.columns,
        names=options.column_names,
        label_words=options.label_texts,
        count=options.num_questions,
        max_bad_rows=options.max_bad_row_fraction,
        report=report,
    )
    return [questions]


def named_scores(
    options: EvaluateOptions, scores: "list[InContextScore]"
) -> dict[str, float | str]:
    """Return the scores by their name in the receipt."""
    values: dict[str, float | str] = {
        f"{s.metric if options.few_shot else s.questions}, {s.shots}-shot": s.value for s in scores
    }
    if options.arithmetic:
        shots = dict.fromkeys(options.shots)
        values |= {f"mean, {n}-shot": mean(scores, n) for n in shots}
    return values


def mean(scores: "list[InContextScore]", shots: int) -> float:
    values = [s.value for s in scores if s.shots == shots]
    return sum(values) / len(values)


def joined(sets: Any) -> Any:
    """Return all questions as one set, for the receipt."""
    from ..evaluation.in_context import QuestionSet

    if len(sets) == 1:
        return sets[0]
    return QuestionSet(
        "all", [q for s in sets for q in s.questions], [q for s in sets for q in s.pool]
    )


def page(scores: "list[InContextScore]", written: Fields, choices: Any, path: Any) -> Any:
    """Return a table with a row per task or metric and a column per number of examples."""
    from rich.console import Group
    from rich.table import Table

    shots = list(dict.fromkeys(s.shots for s in scores))
    several = len({s.questions for s in scores}) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task" if several else "metric")
    for n in shots:
        table.add_column(f"{n}-shot", justify="right")
    cells = {(s.questions if several else s.metric, s.shots): s.value for s in scores}
    rows = list(dict.fromkeys(name for name, _ in cells))
    for name in rows:
        table.add_row(name, *(f"{cells[name, n]:.4f}" for n in shots))
    if several:
        table.add_row("mean", *(f"{mean(scores, n):.4f}" for n in shots))
    scoring = "exact match of the greedy answer"
    if choices:
        first = ", ".join([*choices[:4], "…"] if len(choices) > 4 else choices)
        scoring = f"most likely of {len(choices)} answers ({first})"
    model = f"model SHA-256 {written['model'][:16]}…"
    line = f"{written['samples']:,} questions; {scoring}; {model}; {written['seconds']} s"
    return Group(table, "", line, *([f"receipt: {path}"] if path is not None else []))
