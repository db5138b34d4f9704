"""In-context scores: `weft evaluate NAME --few-shot FILE` and `weft evaluate NAME --arithmetic`."""

import argparse
import time
from typing import TYPE_CHECKING, Any

from ..console import print_result, report, spinner
from . import Fields
from .options import add_label_texts, add_seed, positive_int

if TYPE_CHECKING:
    from ..inference.in_context import InContextScore

SHOTS, COUNT = (0, 1, 4, 16), 100


def evaluate(args: argparse.Namespace) -> int:
    """Under torchrun the questions are shared between the ranks."""
    from ..runs.progress import CountProgressLine
    from . import receipts

    path = receipts.receipts_file(args)
    with spinner(f"opening {args.name}"):
        from ..inference import in_context
        from ..inference.open_model import open_model
        from ..inference.receipts import receipt
        from ..tasks.predict import PredictOptions
        from ..training.parallel import init_ranks

        sets = (
            [
                in_context.few_shot(
                    args.few_shot,
                    args.examples,
                    columns=args.columns,
                    names=args.column_names,
                    label_words=args.label_texts,
                    count=args.num_questions,
                    max_bad_rows=args.max_bad_row_fraction,
                    report=report,
                )
            ]
            if args.few_shot
            else in_context.arithmetic(args.num_questions or COUNT, args.seed)
        )
        model = open_model(args.name, device=args.device)
    with (
        init_ranks(device=args.device) as ranks,
        CountProgressLine("scored", "questions") as progress,
    ):
        began, options = (
            time.perf_counter(),
            PredictOptions(args.batch_size, args.precision == "bf16", args.seed, ranks),
        )
        in_context_scores = list(
            in_context.evaluate_in_context(
                model,
                sets,
                shots_of(args),
                seed=args.seed,
                options=options,
                precision=args.precision,
                progress=progress,
            )
        )
        if ranks.rank:
            return 0
    scores: dict[str, float | str] = {
        f"{s.metric if args.few_shot else s.questions}, {s.shots}-shot": s.value
        for s in in_context_scores
    }
    if args.arithmetic:
        scores |= {f"mean, {n}-shot": mean(in_context_scores, n) for n in shots_of(args)}
    written = receipt(model, joined(sets), scores, time.perf_counter() - began, args.seed)
    written["options"] = receipts.options_of(args)
    print_result(
        args, written, lambda width: page(in_context_scores, written, sets[0].choices, path)
    )
    if path is not None:
        receipts.add_receipt(
            path, f"few-shot {args.few_shot}" if args.few_shot else "arithmetic", written
        )
    return 0


def shots_of(args: argparse.Namespace) -> list[int]:
    if wrong := [n for n in args.shots if n < 0]:
        raise ValueError(f"--shots {wrong[0]}: give numbers of examples, 0 or more")
    return list(dict.fromkeys(args.shots))


def mean(scores: "list[InContextScore]", shots: int) -> float:
    values = [s.value for s in scores if s.shots == shots]
    return sum(values) / len(values)


def joined(sets: Any) -> Any:
    """Return all questions as one set, for the receipt."""
    from ..inference.in_context import QuestionSet

    if len(sets) == 1:
        return sets[0]
    return QuestionSet(
        "all", [q for s in sets for q in s.questions], [q for s in sets for q in s.pool]
    )


def page(scores: "list[InContextScore]", written: Fields, choices: Any, path: Any) -> Any:
    """A row per task or metric, a column per number of examples."""
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
    scoring = (
        f"the most likely of {len(choices)} answers ({', '.join(choices[:4])}{', …' * (len(choices) > 4)})"
        if choices
        else "exact match of the greedy answer"
    )
    lines = [
        f"{written['samples']:,} questions; {scoring}; model SHA-256 {written['model'][:16]}…; {written['seconds']} s"
    ]
    return Group(table, "", *lines, *([f"receipt: {path}"] if path is not None else []))


def add(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--few-shot",
        metavar="FILE",
        help="in-context evaluation of a language model on a table of questions and answers: "
        "the prompt holds solved examples, nothing is trained",
    )
    kind.add_argument(
        "--arithmetic",
        action="store_true",
        help="in-context evaluation on the ten arithmetic tasks of GPT-3",
    )
    parser.add_argument(
        "--shots",
        type=int,
        nargs="+",
        default=list(SHOTS),
        metavar="N",
        help="in context: numbers of examples in the prompt (default: 0 1 4 16)",
    )
    parser.add_argument(
        "--examples",
        metavar="FILE",
        help="--few-shot: table to draw the examples from (default: the other rows of FILE)",
    )
    add_label_texts(parser)
    parser.add_argument(
        "--num-questions",
        type=positive_int,
        metavar="N",
        help=f"in context: number of questions (default: all rows; --arithmetic: {COUNT} per task)",
    )
    add_seed(parser)
