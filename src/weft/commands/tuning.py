"""Fine-tuning."""
import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..say import tell
from . import STOPPED, Verb, bad_rows_option, say, way_out

if TYPE_CHECKING:
    from ..tune.plan import Plan, Wish
    from ..tune.search import Tick

FEATURES = ("embeddings", "second-to-last", "last", "sum-last-four", "weighted-last-four", "concat-last-four")


def tune(args: argparse.Namespace) -> int:
    from .. import watch
    from ..tune.plan import TABLE, plan
    from ..tune.search import search
    with watch.Preparing("reading the data") as preparing:
        made = plan(wish(args), say, preparing.show)
    say(f"{made.train:,} rows to train on, {made.dev:,} to choose by; {made.recipe.steps:,} steps a try, rows of at most "
        f"{made.recipe.batch.length} tokens, {made.recipe.precision}")
    with Line(made) as line:
        for tick in search(made, say):
            line.show(tick)
    if not (made.folder / "model").is_dir() or not line.over:
        say("stopped and saved; to go on, run it again")
        return STOPPED
    found = json.loads((made.folder / TABLE).read_text())
    tell(args, found, lambda width: page(found))
    if command := way_out(str(made.folder)):
        say(command)
    return 0


def wish(args: argparse.Namespace) -> "Wish":
    from ..recipe import HeadOnly, LoRA
    from ..tune.plan import Wish
    if args.frozen and args.lora:
        raise ValueError("--frozen trains the head alone and --lora more than it; give one of them")
    for name, least in (("epochs", 0), ("batch", 0), ("restarts", 0), ("lora", 0), ("length", 4)):
        if (given := getattr(args, name)) is not None and not least < given < float("inf"):
            raise ValueError(f"--{name} {given}: give a number above {least}")
    if not 0 <= args.lm_weight < float("inf"):
        raise ValueError(f"--lm-weight {args.lm_weight}: give 0 or more, such as 0.5")
    if wrong := [rate for rate in args.rates if not 0 < rate < float("inf")]:
        raise ValueError(f"--rates {wrong[0]}: give numbers above 0, such as 5e-5")
    trained = HeadOnly() if args.frozen else LoRA(rank=args.lora, alpha=2.0 * args.lora) if args.lora else None
    return Wish(checkpoint=args.checkpoint, data=tuple(args.data), dev=tuple(args.dev), out=args.out, task=args.task,
                names=tuple(args.names), columns=tuple(args.columns), label=args.label, prefix=args.prefix,
                words=tuple(args.label_words), metric=args.metric, rates=tuple(args.rates),
                restarts=args.restarts, epochs=args.epochs, batch=args.batch, length=args.length, dropout=args.dropout,
                layers=args.layer_decay, lm_weight=args.lm_weight, features=features_of(args.features),
                trained=trained, precision=args.precision, seed=args.seed,
                max_bad_rows=args.max_bad_rows)


def features_of(name: str | None) -> Any:
    from ..spec import Layers
    last = (-4, -3, -2, -1)
    known = {"embeddings": Layers(layers=(0,)), "second-to-last": Layers(layers=(-2,)), "last": Layers(layers=(-1,)),
             "sum-last-four": Layers(layers=last, combine="sum"), "weighted-last-four": Layers(layers=last, combine="weighted"),
             "concat-last-four": Layers(layers=last)}
    return known[name] if name else None


class Line:
    """One line on a terminal; elsewhere one now and then."""

    def __init__(self, plan: "Plan") -> None:
        self.plan, self.live, self.said, self.over = plan, sys.stderr.isatty(), time.monotonic(), True
        self.loss: float | None = None

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, t: "Tick") -> None:
        from ..say import clock
        plan, e, now = self.plan, t.event, time.monotonic()
        self.over = e.step == plan.recipe.steps
        self.loss = e.loss if self.loss is None or e.step == 1 else self.loss + 0.1 * (e.loss - self.loss)
        if now - self.said < (0.2 if self.live else 10):
            return
        self.said = now
        best = "" if t.best is None else f", best {plan.metric} {t.best:.4f}"
        line = (f"try {t.number} of {len(plan.rates) + plan.restarts - 1} (rate {t.rate:g}, seed {t.seed}): step {e.step:,}/"
                f"{plan.recipe.steps:,}, loss {self.loss:.4f}{best}, about {clock(t.left)} left")
        print(f"\r\x1b[K{line}" if self.live else f"weft: {line}", end="" if self.live else "\n", file=sys.stderr, flush=True)


def page(found: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("try", "rate", "seed", f"dev {found['metric']}", "at step", "seconds", ""):
        table.add_column(name, justify="left" if name in ("try", "") else "right")
    for one in found["tries"]:
        mark = "← best" if one["try"] == found["best"] else ""
        table.add_row(one["try"], f"{one['rate']:g}", str(one["seed"]), f"{one[found['metric']]:.4f}", f"{one['step']:,}",
                      f"{one['seconds']:.0f}", mark)
    return Group(table, "", f"{Path(found['run']) / 'model'} is the best. Its dev score chose it; an honest one needs other data:",
                 f"weft evaluate {found['run']} --on FILE")


def add(verb: Verb) -> None:
    made = verb(tune, "fine-tune a checkpoint on a task of your own; again, it goes on where it was",
                "Guesses format, columns and task, and says what it guessed. Tries several rates, and several seeds on small data; "
                "RUN/model is the best on the dev data. Example: weft tune bert-base-uncased --data reviews.csv --dev held.csv")
    made.add_argument("checkpoint", metavar="CHECKPOINT", help="a run, a model's folder (Weft's or Hugging Face's), or a name on the hub")
    made.add_argument("--data", nargs="+", required=True, metavar="FILE",
                      help="CSV, TSV, JSON lines or array, Parquet, CoNLL or SQuAD's JSON; .gz too")
    bad_rows_option(made)
    made.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="to choose by; a tenth of the data unless given")
    made.add_argument("--task", metavar="TASK", help="classify, pair, regress, similarity (a pair in both orders), choose, tag, answer or "
                      "text2text (encoder-decoders: text in, text out); guessed if in no doubt")
    made.add_argument("--out", metavar="RUN", help="runs/<checkpoint>-<data> unless given")
    made.add_argument("--names", nargs="+", default=[], metavar="COLUMN", help="of a table that does not name its columns")
    made.add_argument("--columns", nargs="+", default=[], metavar="COLUMN", help="those to read, the label last unless --label names it")
    made.add_argument("--label", metavar="COLUMN")
    made.add_argument("--prefix", default="", metavar="TEXT",
                      help='text2text: what stands before every source text, such as "sst2 sentence: "')
    made.add_argument("--label-words", nargs="+", default=[], metavar="WORD",
                      help="text2text: the text to decode for each class, in the order of the classes (default: their names)")
    made.add_argument("--metric", metavar="NAME", help="to choose by: accuracy, f1, matthews, pearson, spearman, exact or loss")
    made.add_argument("--rates", nargs="+", type=float, default=[], metavar="RATE",
                      help="AdamW's 5e-5 4e-5 3e-5 2e-5 unless given; with --lora ten, with --frozen a hundred times that; for T5 "
                           "Adafactor's 1e-2 3e-3 1e-3, relative to the size of the weights")
    made.add_argument("--restarts", type=int, metavar="N", help="seeds at the best rate; 3 below 10,000 rows, else 1")
    made.add_argument("--epochs", type=float, default=3, help="3 unless given")
    made.add_argument("--batch", type=int, default=32, help="rows a step; 32 unless given")
    made.add_argument("--length", type=int, help="tokens of a row; from the data unless given")
    made.add_argument("--dropout", type=float, help="0.1 unless given")
    made.add_argument("--frozen", action="store_true", help="train the head alone")
    made.add_argument("--features", choices=FEATURES, help="the layers whose outputs the head reads (BERT, table 7), with --frozen as "
                      "features that stay as they are (default: the last layer's, through the model's own pooler if it has one)")
    made.add_argument("--lora", type=int, metavar="RANK", help="train low-rank updates of queries and values, and the head")
    made.add_argument("--layer-decay", type=float, metavar="X", help="each block learns at X times the next one's rate, such as 0.9")
    made.add_argument("--lm-weight", type=float, default=0.0, metavar="X",
                      help="decoders: weight of the auxiliary next-token loss beside the task's (default: 0; GPT's paper: 0.5)")
    made.add_argument("--precision", choices=("fp32", "bf16"), help="bf16 where the processor is fast at it, else fp32")
    made.add_argument("--seed", type=int, default=0)
