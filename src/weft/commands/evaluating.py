"""Scores."""
import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..say import tell, waiting
from . import Fields, Verb, bad_rows_option, count, incontext, number, say, writable

if TYPE_CHECKING:
    from ..evaluate.data import On
    from ..ready import Ready
    from ..recipe import Objective
    from ..train.distribute import World

TASKS = ("classify", "regress", "choose", "tag", "answer", "translate", "text2text", "perplexity", "fill")


def evaluate(args: argparse.Namespace) -> int:
    if args.few_shot or args.arithmetic:
        if args.on or args.task:
            raise ValueError("--few-shot and --arithmetic bring their own questions; leave --on and --task out")
        return incontext.evaluate(args)
    path = opened_receipts(args)
    with waiting(f"opening {args.name}"):
        from ..evaluate import report
        from ..evaluate.data import objective_of
        from ..evaluate.predict import How
        from ..ready import ready
        from ..train.distribute import world
        model = ready(args.name)
        objective = objective_of(model, args.task)
    with world() as ranks, waiting(f"evaluating {args.name}"):
        began = time.perf_counter()
        on = data(args, model, objective, ranks)
        seed = model.recipe.seed if model.recipe is not None else 0
        wish = report.Wish(How(args.batch, args.bf16, seed, ranks), args.length, args.stride, args.beams, args.alpha, args.language,
                           args.threshold)
        found = dict(report.scores(model, objective, on, wish))
        if ranks.rank:
            return 0
    written = report.receipt(model, on.store, found, time.perf_counter() - began, seed)
    tell(args, written, lambda width: page(written, path))
    if path is not None:
        keep(path, kept(path) | {" ".join(args.on) or args.split: written})
    return 0


def opened_receipts(args: argparse.Namespace) -> Path | None:
    """The file of the receipts, checked before any work: --out, or that of a run."""
    writable(args.out)
    run = Path(args.name) / "recipe.json"
    path = Path(args.out) if args.out else run.with_name("evaluation.json") if run.exists() else None
    kept(path)
    return path


def data(args: argparse.Namespace, model: "Ready", objective: "Objective", ranks: "World") -> "On":
    from ..data.store import open_store
    from ..evaluate.data import On, files
    if args.on:
        return files(model, objective, args.on, names=args.names, columns=args.columns, max_bad_rows=args.max_bad_rows, say=aloud(ranks))
    if model.recipe is None:
        raise ValueError(f"{args.name} has no data of its own; give some with --on")
    from ..run import prepared
    source = {"train": model.recipe.data.train, "valid": model.recipe.data.valid}[args.split]
    if source is None:
        raise ValueError(f"the recipe of {args.name} names no {args.split} data; give some with --on")
    return On(open_store(prepared(model.recipe.data, ranks), args.split), source)


def aloud(ranks: "World") -> Any:
    return say if ranks.rank == 0 else (lambda line: None)


def kept(path: Path | None) -> Fields:
    """The receipts of before; a file of another kind is refused, before there is anything to lose."""
    try:
        held = json.loads(path.read_text("utf-8")) if path is not None and path.exists() else {}
    except ValueError:
        held = None
    if not isinstance(held, dict) or not all(isinstance(one, dict) and "scores" in one for one in held.values()):
        raise ValueError(f"{path} holds no receipts; give another file with --out")
    return held


def keep(path: Path, held: Fields) -> None:
    """One receipt for each data that the model was scored on, the newest."""
    from ..data.files import write
    write(path, (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode())


def page(written: dict[str, Any], path: Path | None) -> str:
    def shown(name: str, value: Any) -> str:
        if isinstance(value, str) or value is None:
            return value or "not defined"
        return f"{value:,.0f}" if name == "tokens" else f"{value:.4f}" if abs(value) <= 1 else f"{value:.2f}"
    rows = {name: shown(name, value) for name, value in written["scores"].items()}
    rows |= {"samples": f"{written['samples']:,}", "model": f"SHA-256 {written['model'][:16]}…",
             "data": f"fingerprint {written['data'][:16]}…", "time": f"{written['seconds']} s"}
    rows |= {"receipt": str(path)} if path is not None else {}
    wide = max(map(len, rows))
    return "\n".join(f"{name:{wide}}  {value}" for name, value in rows.items())


def add(verb: Verb) -> None:
    made = verb(evaluate, "score a model by what it was trained for, each sample once",
                "A run on its validation data, or any model on files: weft evaluate RUN --on test.en test.de.")
    made.add_argument("name", metavar="NAME", help="a run's folder, a model's folder, or a name on the hub")
    made.add_argument("--on", nargs="+", default=[], metavar="FILE", help="other data: a file, or two aligned ones; .gz too")
    made.add_argument("--split", default="valid", choices=("valid", "train"), help="of the run's own data; valid unless given")
    made.add_argument("--task", choices=TASKS, help="what a model without a recipe does")
    made.add_argument("--columns", nargs="+", default=[], metavar="COLUMN", help="those to read, the label last; guessed unless given")
    made.add_argument("--names", nargs="+", default=[], metavar="COLUMN", help="of a table that does not name its columns")
    bad_rows_option(made)
    made.add_argument("--length", type=count, metavar="TOKENS", help="of rows; the recipe's unless given")
    made.add_argument("--stride", type=count, metavar="TOKENS", help="between windows of running text; half the length unless given")
    made.add_argument("--beams", type=count, default=4, help="of a translation; 4 unless given")
    made.add_argument("--alpha", type=number, default=0.6, help="the length penalty; 0.6 unless given")
    made.add_argument("--language", help="of the target, for tokenised BLEU: from the file's ending unless given")
    made.add_argument("--threshold", type=number, default=0.0, metavar="X", help="no answer, where that scores more than X better; 0")
    made.add_argument("--batch", type=count, default=32, metavar="ROWS", help="rows at a time; 32 unless given")
    made.add_argument("--bf16", action="store_true", help="in half the precision, faster where the machine has it")
    incontext.add(made)
    made.add_argument("--out", metavar="FILE", help="where the receipt goes; RUN/evaluation.json unless given")
