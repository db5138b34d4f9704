"""In-context scores: `weft evaluate NAME --few-shot FILE` and `weft evaluate NAME --arithmetic`."""
import argparse
import time
from typing import TYPE_CHECKING, Any

from ..say import tell, waiting
from . import Fields, count, say

if TYPE_CHECKING:
    from ..evaluate.incontext import Score

SHOTS, COUNT = (0, 1, 4, 16), 100


def evaluate(args: argparse.Namespace) -> int:
    """Under torchrun the questions are shared between the ranks."""
    from . import evaluating
    from .generating import Left
    path = evaluating.opened_receipts(args)
    with waiting(f"opening {args.name}"):
        from ..evaluate import incontext, report
        from ..evaluate.predict import How
        from ..ready import ready
        from ..train.distribute import world
        sets = [incontext.few_shot(args.few_shot, args.examples, columns=args.columns, names=args.names, label_words=args.label_words,
                                   count=args.count, max_bad_rows=args.max_bad_rows, say=say)] \
            if args.few_shot else incontext.arithmetic(args.count or COUNT, args.seed)
        model = ready(args.name)
    with world() as ranks, Left("scored") as left:
        began, how = time.perf_counter(), How(args.batch, args.bf16, args.seed, ranks)
        precision = "bf16" if args.bf16 else "float32"
        found = list(incontext.in_context(model, sets, shots_of(args), seed=args.seed, how=how, precision=precision, progress=left))
        if ranks.rank:
            return 0
    scores: dict[str, float | str] = {f"{s.metric if args.few_shot else s.questions}, {s.shots}-shot": s.value for s in found}
    if args.arithmetic:
        scores |= {f"mean, {n}-shot": mean(found, n) for n in shots_of(args)}
    written = report.receipt(model, joined(sets), scores, time.perf_counter() - began, args.seed)
    tell(args, written, lambda width: page(found, written, sets[0].choices, path))
    if path is not None:
        evaluating.keep(path, evaluating.kept(path) | {f"few-shot {args.few_shot}" if args.few_shot else "arithmetic": written})
    return 0


def shots_of(args: argparse.Namespace) -> list[int]:
    if wrong := [n for n in args.shots if n < 0]:
        raise ValueError(f"--shots {wrong[0]}: give numbers of examples, 0 or more")
    return list(dict.fromkeys(args.shots))


def mean(found: "list[Score]", shots: int) -> float:
    own = [s.value for s in found if s.shots == shots]
    return sum(own) / len(own)


def joined(sets: Any) -> Any:
    """All questions as one, for the receipt."""
    from ..evaluate.incontext import Questions
    if len(sets) == 1:
        return sets[0]
    return Questions("all", [q for s in sets for q in s.asked], [q for s in sets for q in s.pool])


def page(found: "list[Score]", written: Fields, choices: Any, path: Any) -> Any:
    """A row per task or metric, a column per number of examples."""
    from rich.console import Group
    from rich.table import Table
    shots = list(dict.fromkeys(s.shots for s in found))
    several = len({s.questions for s in found}) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task" if several else "metric")
    for n in shots:
        table.add_column(f"{n}-shot", justify="right")
    cells = {(s.questions if several else s.metric, s.shots): s.value for s in found}
    rows = list(dict.fromkeys(name for name, _ in cells))
    for name in rows:
        table.add_row(name, *(f"{cells[name, n]:.4f}" for n in shots))
    if several:
        table.add_row("mean", *(f"{mean(found, n):.4f}" for n in shots))
    how = f"the likeliest of {len(choices)} answers ({', '.join(choices[:4])}{', …' * (len(choices) > 4)})" if choices else \
        "exact match of the greedy answer"
    lines = [f"{written['samples']:,} questions; {how}; model SHA-256 {written['model'][:16]}…; {written['seconds']} s"]
    return Group(table, "", *lines, *([f"receipt: {path}"] if path is not None else []))


def add(made: argparse.ArgumentParser) -> None:
    kind = made.add_mutually_exclusive_group()
    kind.add_argument("--few-shot", metavar="FILE", help="in-context evaluation of a language model on a table of questions and answers: "
                      "the prompt holds solved examples, nothing is trained")
    kind.add_argument("--arithmetic", action="store_true", help="in-context evaluation on the ten arithmetic tasks of GPT-3")
    made.add_argument("--shots", type=int, nargs="+", default=list(SHOTS), metavar="N",
                      help="in context: numbers of examples in the prompt (default: 0 1 4 16)")
    made.add_argument("--examples", metavar="FILE", help="--few-shot: table to draw the examples from (default: the other rows of FILE)")
    made.add_argument("--label-words", nargs="+", default=[], metavar="WORD",
                      help="--few-shot: the text of each class, in the order of the sorted classes (default: their names)")
    made.add_argument("--count", type=count, metavar="N",
                      help=f"in context: number of questions (default: all rows; --arithmetic: {COUNT} per task)")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="in context: seed of the examples and problems (default: 0)")
