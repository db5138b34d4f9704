"""The command `weft evaluate`: metrics of a model on its task or in context."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..interop.huggingface.hub import check_model_folder
from ..support.console import print_result, report, spinner
from . import evaluate_in_context
from .evaluate_options import EvaluateOptions, ScoreOptions
from .files import check_input_files
from .receipts import add_receipt, options_of, receipts_file

if TYPE_CHECKING:
    from ..evaluation.evaluate import MixtureEvaluationData
    from ..inference.open_model import OpenModel
    from ..recipe import Task
    from ..tasks.predict import PredictOptions
    from ..tasks.task import EvaluateOptions as TaskOptions
    from ..tasks.task import EvaluationData
    from ..training.parallel.ranks import DistributedRanks


def evaluate(options: EvaluateOptions) -> int:
    """Evaluate a model with the metrics of its task.

    Evaluates a run on its validation data, or any model on files.
    Example: weft evaluate RUN --data test.en test.de
    """
    if options.few_shot and options.arithmetic:
        raise ValueError("--few-shot and --arithmetic cannot be combined; give one of them")
    in_context = options.few_shot or options.arithmetic
    if in_context and (options.data or options.task):
        raise ValueError(
            "--few-shot and --arithmetic have their own questions; remove --data and --task"
        )
    check_input_files("--data", options.data)
    check_input_files("--few-shot", [options.few_shot] if options.few_shot else [])
    check_input_files("--examples", [options.examples] if options.examples else [])
    check_model_folder(options.name)
    if in_context:
        return evaluate_in_context.evaluate(options)
    path = receipts_file(options)
    from ..runs.logs.progress import CountProgressLine

    with spinner(f"opening {options.name}"):
        from ..evaluation import receipts
        from ..evaluation.data import task_of
        from ..evaluation.evaluate import evaluate_model
        from ..inference.open_model import open_model
        from ..observe.spread import output_states
        from ..tasks.predict import PredictOptions
        from ..training.parallel.ranks import init_ranks

        model = open_model(options.name, device=options.device)
        task = task_of(model, options.task)
    text = f"evaluating {options.name}"
    with (
        init_ranks(device=options.device) as ranks,
        CountProgressLine("evaluated", text=text) as progress,
    ):
        began = time.perf_counter()
        on = data(options, model, task, ranks)
        seed = model.recipe.seed if model.recipe is not None else 0
        predicting = PredictOptions(
            options.batch_size,
            options.precision == "bf16",
            seed,
            ranks,
            None if ranks.rank else progress,
        )
        with output_states(model.model) as states:
            metrics = dict(evaluate_model(model, task, on, task_options(options, predicting)))
        if ranks.rank:
            return 0
    written = receipts.receipt(model, on.store, metrics, time.perf_counter() - began, seed)
    written["options"] = options_of(options)
    try:
        written |= receipts.spread_of_states(states)
    except ValueError as error:  # of a diverged model
        report(f"the receipt omits the spread of the hidden states: {error}")
    print_result(options.json, written, lambda width: receipt_page(written, path))
    if path is not None:
        add_receipt(path, " ".join(options.data) or options.split, written)
    return 0


def task_options(options: ScoreOptions, predicting: "PredictOptions") -> "TaskOptions":
    """Return the task options from the command-line options."""
    from ..tasks.task import EvaluateOptions

    return EvaluateOptions(
        predicting,
        options.max_length,
        options.stride,
        options.num_beams,
        options.length_penalty,
        options.language,
        options.no_answer_threshold,
    )


def data(
    options: EvaluateOptions, model: "OpenModel", task: "Task", ranks: "DistributedRanks"
) -> "EvaluationData | MixtureEvaluationData":
    from ..evaluation.data import load_files
    from ..evaluation.evaluate import data_of_run

    if options.data:
        return load_files(
            model,
            task,
            options.data,
            names=options.column_names,
            columns=options.columns,
            max_bad_rows=options.max_bad_row_fraction,
            report=report_on_first_rank(ranks),
        )
    if model.recipe is None:
        raise ValueError(f"{options.name} has no evaluation data; give files with --data")
    return data_of_run(model.recipe.data, options.split, ranks)


def report_on_first_rank(ranks: "DistributedRanks") -> Any:
    return report if ranks.rank == 0 else (lambda line: None)


def receipt_page(written: dict[str, Any], path: Path | None) -> str:
    def shown(name: str, value: Any) -> str:
        if isinstance(value, str) or value is None:
            return value or "not defined"
        if name == "tokens":
            return f"{value:,.0f}"
        return f"{value:.4f}" if abs(value) <= 1 else f"{value:.2f}"

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
    if path is not None:
        rows["receipt"] = str(path)
    wide = max(map(len, rows))
    return "\n".join(f"{name:{wide}}  {value}" for name, value in rows.items())
