"""`weft tune`."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import count_of, print_result, report
from ..interop.hub import check_model_folder
from . import EXIT_STOPPED, AddCommand, export_hint
from .options import (
    TRAINING_PRECISIONS,
    add_batch_size,
    add_column_names,
    add_columns_option,
    add_device,
    add_label_texts,
    add_max_bad_rows,
    add_max_length,
    add_model_name,
    add_precision,
    add_seed,
    positive_int,
)
from .rows import check_input_files

if TYPE_CHECKING:
    from ..tuning.options import TuneOptions
    from ..tuning.plan import TunePlan
    from ..tuning.search import TrialStep

LAYER_MIXES = (
    "embeddings",
    "second-to-last",
    "last",
    "sum-last-four",
    "weighted-last-four",
    "concat-last-four",
)


def tune(args: argparse.Namespace) -> int:
    check_input_files("--data", args.data)
    check_input_files("--valid", args.valid)
    check_model_folder(args.checkpoint)
    from ..runs import progress
    from ..runs.train import RunStopped
    from ..tuning.plan import RESULTS_FILE, plan_tuning
    from ..tuning.search import run_trials

    with progress.PrepareProgressLine("reading the data") as preparing:
        plan = plan_tuning(tune_options(args), report, preparing.show)
    report(plan_line(plan))
    loss = 0.0
    try:
        with (
            progress.ProgressLine() as line,
            progress.CountProgressLine("validated", "samples") as validation,
        ):
            for tick in run_trials(plan, report, validation):
                event = tick.event
                loss = event.loss if event.step == 1 else loss + 0.1 * (event.loss - loss)
                if line.is_due:
                    line.print(trial_line(plan, tick, loss))
    except RunStopped:
        report("stopped and saved; run it again to continue")
        return EXIT_STOPPED
    results = json.loads((plan.folder / RESULTS_FILE).read_text())
    print_result(args, results, lambda width: page(results))
    if command := export_hint(str(plan.folder)):
        report(command)
    return 0


def plan_line(plan: "TunePlan") -> str:
    row = "image" if plan.recipe.data.rows.image_columns else "row"
    return (
        f"{count_of(plan.train_rows, f'training {row}')}, {count_of(plan.valid_rows, f'validation {row}')}; "
        f"{count_of(plan.recipe.steps, 'step')} per trial, at most {plan.recipe.batch.length} tokens per {row}, {plan.recipe.precision}"
    )


def tune_options(args: argparse.Namespace) -> "TuneOptions":
    from ..recipe import HeadOnly, LoRA
    from ..tuning.options import TuneOptions

    if args.freeze_body and args.lora_rank:
        raise ValueError(
            "--freeze-body trains the head alone and --lora-rank more than it; give one of them"
        )
    for name, least in (("epochs", 0), ("max_length", 4)):
        if (value := getattr(args, name)) is not None and not least < value < float("inf"):
            raise ValueError(f"--{name.replace('_', '-')} {value}: give a number above {least}")
    if not 0 <= args.lm_weight < float("inf"):
        raise ValueError(f"--lm-weight {args.lm_weight}: give 0 or more, such as 0.5")
    if wrong := [rate for rate in args.learning_rates if not 0 < rate < float("inf")]:
        raise ValueError(f"--learning-rates {wrong[0]}: give numbers above 0, such as 5e-5")
    trained = (
        HeadOnly()
        if args.freeze_body
        else LoRA(rank=args.lora_rank, alpha=2.0 * args.lora_rank)
        if args.lora_rank
        else None
    )
    return TuneOptions(
        checkpoint=args.checkpoint,
        data=tuple(args.data),
        valid=tuple(args.valid),
        output=args.output,
        task=args.task,
        column_names=tuple(args.column_names),
        columns=tuple(args.columns),
        label=args.label,
        source_prefix=args.source_prefix,
        label_texts=tuple(args.label_texts),
        metric=args.metric,
        learning_rates=tuple(args.learning_rates),
        seeds=args.seeds,
        epochs=args.epochs,
        batch_size=args.batch_size,
        max_length=args.max_length,
        dropout=args.dropout,
        layer_decay=args.layer_decay,
        lm_weight=args.lm_weight,
        layer_mix=layer_mix_of(args.head_layers),
        trainable=trained,
        image_size=args.image_size,
        device=args.device,
        precision=args.precision,
        seed=args.seed,
        max_bad_row_fraction=args.max_bad_row_fraction,
    )


def layer_mix_of(name: str | None) -> Any:
    from ..spec import LayerMix

    last = (-4, -3, -2, -1)
    layer_mixes = {
        "embeddings": LayerMix(layers=(0,)),
        "second-to-last": LayerMix(layers=(-2,)),
        "last": LayerMix(layers=(-1,)),
        "sum-last-four": LayerMix(layers=last, combine="sum"),
        "weighted-last-four": LayerMix(layers=last, combine="weighted"),
        "concat-last-four": LayerMix(layers=last),
    }
    return layer_mixes[name] if name else None


def trial_line(plan: "TunePlan", t: "TrialStep", loss: float) -> str:
    from ..console import format_duration

    trials = len(plan.learning_rates) + plan.seeds - 1
    best = "" if t.best is None else f", best {plan.metric} {t.best:.4f}"
    return (
        f"trial {t.number} of {trials} (lr {t.lr:g}, seed {t.seed}): step {t.event.step:,}/{plan.recipe.steps:,}, "
        f"loss {loss:.4f}{best}, about {format_duration(t.seconds_left)} left"
    )


def page(scores: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trial", "lr", "seed", f"valid {scores['metric']}", "at step", "seconds", ""):
        table.add_column(name, justify="left" if name in ("trial", "") else "right")
    for one in scores["trials"]:
        mark = "← best" if one["trial"] == scores["best"] else ""
        table.add_row(
            one["trial"],
            f"{one['lr']:g}",
            str(one["seed"]),
            f"{one[scores['metric']]:.4f}",
            f"{one['step']:,}",
            f"{one['seconds']:.0f}",
            mark,
        )
    return Group(
        table,
        *majority_lines(scores.get("majority")),
        "",
        f"{Path(scores['run']) / 'model'} is the best by its validation score; for an unbiased score use other data:",
        f"weft evaluate {scores['run']} --data FILE",
    )


def majority_lines(majority: dict[str, Any] | None) -> list[str]:
    """Return what the scores of a classifier are compared with."""
    if majority is None:
        return []
    return [
        "",
        f"always answering {majority['class']!r}, the most frequent class of validation: accuracy {majority['share']:.4f}",
    ]


def add(verb: AddCommand) -> None:
    parser = verb(
        tune,
        "fine-tune a model on labelled data",
        "Detects format, columns and task, and prints what it detected. Tries several learning rates, and several seeds on "
        "small data; RUN/model is the best on the validation data. Run it again to resume. Example: weft tune bert-base-uncased --data reviews.csv --valid valid.csv",
    )
    add_model_name(parser, "checkpoint")
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILE",
        help="training files: CSV, TSV, JSON lines or array, Parquet, CoNLL or SQuAD, also as .gz; for an image model a folder with one "
        "sub-folder per class, a table that names images and their folder, Parquet, npz or idx files",
    )
    add_max_bad_rows(parser)
    parser.add_argument(
        "--valid",
        nargs="+",
        default=[],
        metavar="FILE",
        help="validation files (default: a tenth of the data)",
    )
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="such as classify, pair, regress, similarity (a pair in both orders), choose, tag, answer or "
        "text2text (encoder-decoders: text in, text out) (default: detected)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="RUN",
        help="folder of the run (default: runs/<checkpoint>-<data>)",
    )
    add_column_names(parser)
    add_columns_option(parser)
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        help="column of the label (default: the last of --columns, else detected)",
    )
    parser.add_argument(
        "--source-prefix",
        default="",
        metavar="TEXT",
        help='text2text: prefix of every source text, such as "sst2 sentence: "',
    )
    add_label_texts(parser)
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="metric that selects the best model: loss or one of the task's, such as accuracy, f1 or pearson",
    )
    parser.add_argument(
        "--learning-rates",
        nargs="+",
        type=float,
        default=[],
        metavar="RATE",
        help="learning rates to try (default: 5e-5 4e-5 3e-5 2e-5 with AdamW; ten times that with --lora-rank, a hundred "
        "times with --freeze-body; 1e-2 3e-3 1e-3 with T5's Adafactor; for images 1e-3 3e-4 1e-4 3e-5, ten times that with either)",
    )
    parser.add_argument(
        "--seeds",
        type=positive_int,
        metavar="N",
        help="number of seeds at the best learning rate (default: 3 below 10,000 rows, else 1)",
    )
    parser.add_argument(
        "--epochs", type=float, default=3, metavar="N", help="passes over the data (default: 3)"
    )
    add_batch_size(parser, "step")
    add_max_length(parser, "from the data")
    parser.add_argument(
        "--image-size",
        type=positive_int,
        metavar="PIXELS",
        help="side of an image; another one than the checkpoint's stretches its grid of positions (default: the checkpoint's)",
    )
    parser.add_argument(
        "--dropout", type=float, metavar="P", help="dropout probability (default: 0.1)"
    )
    parser.add_argument("--freeze-body", action="store_true", help="train only the head")
    parser.add_argument(
        "--head-layers",
        choices=LAYER_MIXES,
        help="layers whose outputs the head reads (BERT, table 7) (default: the last one, through the model's pooler if "
        "it has one)",
    )
    parser.add_argument(
        "--lora-rank",
        type=positive_int,
        metavar="RANK",
        help="train LoRA updates of this rank for queries and values, and the head",
    )
    parser.add_argument(
        "--layer-decay",
        type=float,
        metavar="X",
        help="learning rate of each block relative to the one above it, such as 0.9 (default: 1)",
    )
    parser.add_argument(
        "--lm-weight",
        type=float,
        default=0.0,
        metavar="X",
        help="decoders: weight of the auxiliary language-modelling loss (default: 0; GPT's paper: 0.5)",
    )
    add_device(parser)
    add_precision(parser, default="auto", note="auto", choices=TRAINING_PRECISIONS)
    add_seed(parser)
