"""`weft evaluate`."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import print_result, report, spinner
from ..interop.hub import check_model_folder
from . import AddCommand, evaluate_in_context
from .options import (
    add_batch_size,
    add_beam_search,
    add_column_names,
    add_columns_option,
    add_device,
    add_max_bad_rows,
    add_max_length,
    add_model_name,
    add_precision,
    finite_float,
    positive_int,
)
from .receipts import add_receipt, options_of, receipts_file
from .rows import check_input_files

if TYPE_CHECKING:
    from ..inference.evaluate import MixtureEvaluationData
    from ..inference.open_model import OpenModel
    from ..recipe import Task
    from ..tasks.task import EvaluationData
    from ..training.parallel import DistributedRanks


def evaluate(args: argparse.Namespace) -> int:
    in_context = args.few_shot or args.arithmetic
    if in_context and (args.data or args.task):
        raise ValueError(
            "--few-shot and --arithmetic bring their own questions; leave --data and --task out"
        )
    check_input_files("--data", args.data)
    check_input_files("--few-shot", [args.few_shot] if args.few_shot else [])
    check_input_files("--examples", [args.examples] if args.examples else [])
    check_model_folder(args.name)
    if in_context:
        return evaluate_in_context.evaluate(args)
    path = receipts_file(args)
    from ..runs.progress import CountProgressLine

    with spinner(f"opening {args.name}"):
        from ..inference import receipts
        from ..inference.evaluate import evaluate_model
        from ..inference.evaluation_data import task_of
        from ..inference.open_model import open_model
        from ..observe.spread import output_states
        from ..tasks.predict import PredictOptions
        from ..tasks.task import EvaluateOptions
        from ..training.parallel import init_ranks

        model = open_model(args.name, device=args.device)
        task = task_of(model, args.task)
    text = f"evaluating {args.name}"
    with (
        init_ranks(device=args.device) as ranks,
        CountProgressLine("evaluated", text=text) as progress,
    ):
        began = time.perf_counter()
        on = data(args, model, task, ranks)
        seed = model.recipe.seed if model.recipe is not None else 0
        options = EvaluateOptions(
            PredictOptions(
                args.batch_size,
                args.precision == "bf16",
                seed,
                ranks,
                None if ranks.rank else progress,
            ),
            args.max_length,
            args.stride,
            args.num_beams,
            args.length_penalty,
            args.language,
            args.no_answer_threshold,
        )
        with output_states(model.model) as states:
            metrics = dict(evaluate_model(model, task, on, options))
        if ranks.rank:
            return 0
    written = receipts.receipt(model, on.store, metrics, time.perf_counter() - began, seed)
    written["options"] = options_of(args)
    try:
        written |= receipts.spread_of_states(states)
    except ValueError as error:  # of a diverged model
        report(f"the spread of the states is left out: {error}")
    print_result(args, written, lambda width: receipt_page(written, path))
    if path is not None:
        add_receipt(path, " ".join(args.data) or args.split, written)
    return 0


def data(
    args: argparse.Namespace, model: "OpenModel", task: "Task", ranks: "DistributedRanks"
) -> "EvaluationData | MixtureEvaluationData":
    from ..inference.evaluate import data_of_run
    from ..inference.evaluation_data import load_files

    if args.data:
        return load_files(
            model,
            task,
            args.data,
            names=args.column_names,
            columns=args.columns,
            max_bad_rows=args.max_bad_row_fraction,
            report=report_on_first_rank(ranks),
        )
    if model.recipe is None:
        raise ValueError(f"{args.name} has no data of its own; give some with --data")
    return data_of_run(model.recipe.data, args.split, ranks)


def report_on_first_rank(ranks: "DistributedRanks") -> Any:
    return report if ranks.rank == 0 else (lambda line: None)


def receipt_page(written: dict[str, Any], path: Path | None) -> str:
    def shown(name: str, value: Any) -> str:
        if isinstance(value, str) or value is None:
            return value or "not defined"
        return (
            f"{value:,.0f}"
            if name == "tokens"
            else f"{value:.4f}"
            if abs(value) <= 1
            else f"{value:.2f}"
        )

    rows = {name: shown(name, value) for name, value in written["scores"].items()}
    if states := written.get("states"):
        rows["effective rank"] = f"{states['effective_rank']:.1f} of {states['width']}"
        rows["common share"] = f"{states['common_share']:.2f}"
    rows |= {
        "samples": f"{written['samples']:,}",
        "model": f"SHA-256 {written['model'][:16]}…",
        "data": f"fingerprint {written['data'][:16]}…",
        "time": f"{written['seconds']} s",
    }
    rows |= {"receipt": str(path)} if path is not None else {}
    wide = max(map(len, rows))
    return "\n".join(f"{name:{wide}}  {value}" for name, value in rows.items())


def add(verb: AddCommand) -> None:
    parser = verb(
        evaluate,
        "evaluate a model with the metrics of its task",
        "Evaluates a run on its validation data, or any model on files: weft evaluate RUN --data test.en test.de.",
    )
    add_model_name(parser)
    parser.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="FILE",
        help="files to evaluate on: one, or two aligned ones, also as .gz (default: the data of the run)",
    )
    parser.add_argument(
        "--split",
        default="valid",
        choices=("valid", "train"),
        help="split of the run's own data (default: valid)",
    )
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="task of a model without a recipe, such as classify, tag, answer, translate or perplexity",
    )
    add_columns_option(parser)
    add_column_names(parser)
    add_max_bad_rows(parser)
    add_max_length(parser, "the recipe's")
    parser.add_argument(
        "--stride",
        type=positive_int,
        metavar="TOKENS",
        help="distance between windows of running text (default: half the length)",
    )
    add_beam_search(parser)
    parser.add_argument(
        "--language",
        help="target language, for tokenised BLEU (default: from the suffix of the file)",
    )
    parser.add_argument(
        "--no-answer-threshold",
        type=finite_float,
        default=0.0,
        metavar="X",
        help="give no answer where that scores more than X above the best span (default: 0)",
    )
    add_batch_size(parser)
    add_precision(parser)
    add_device(parser)
    evaluate_in_context.add(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file of the receipt (default: RUN/evaluation.json)"
    )
