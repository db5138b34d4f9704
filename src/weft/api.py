"""What `weft` offers in one call: open a model, train, tune, evaluate. Each is the verb of the
command of the same name.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import torch

from .commands.evaluate import task_options
from .commands.evaluate_options import EvaluationFiles, ScoreOptions
from .commands.look import EXAMPLE, OUTPUT, ViewOptions, observe
from .commands.look import save as save_observation
from .commands.tune import plan_tuning
from .commands.tune_options import TuneOptions
from .data.preparing.prepare import PrepareProgress, prepare_for_run
from .data.preparing.prepared import PreparedData
from .data.preparing.prepared import open_prepared as open_prepared_data
from .evaluation.data import load_files, task_of
from .evaluation.evaluate import MixtureEvaluationData, data_of_run, evaluate_model
from .inference.images import ImageInput
from .inference.open_model import OpenModel, open_model
from .nn.kernels.devices import resolve_device, resolve_dtype
from .observe.panels import Observation
from .recipe import Data, Recipe, apply_overrides
from .recipe import load_recipe as read_recipe
from .runs.train import train as train_run
from .studies.launchers import launcher_for
from .studies.search import run_trials
from .support.options.declare import Option, excerpt
from .support.options.python_call import python_call
from .support.options.shared import MODEL, DeviceOptions
from .support.python_messages import python_errors, python_reports
from .tasks.predict import PredictOptions
from .tasks.task import EvaluationData

train = python_reports(python_errors(output="directory")(train_run))
open_prepared = python_errors()(open_prepared_data)


@python_errors()
def prepare(
    data: Data,
    *,
    workers: int | None = None,
    report: Callable[[PrepareProgress], None] | None = None,
) -> PreparedData:
    """Prepare the data of a recipe as shards, once: finished shards are used again.

    Args:
        data: `recipe.data`; `data.prepared_folder` says where the shards are (default:
            prepared/<fingerprint>).
        workers: number of processes (default: the number of cores).
        report: takes the progress.

    Returns:
        What `weft.train` takes. One of several processes, which torchrun started, and a run whose
        shards are in object storage, use what `weft prepare` has written.

    Raises:
        ValueError: if the data cannot be read, or the folder has shards of other data.
    """
    if not isinstance(data, Data):
        raise ValueError(f"prepare takes the data of a recipe: recipe.data, not {data!r}"[:200])
    return prepare_for_run(data, report, workers)


@dataclass(frozen=True)
class OpenCall(DeviceOptions):
    """The arguments of `weft.open`."""

    name: Annotated[str | Path, MODEL]
    _: KW_ONLY
    precision: Annotated[Literal["fp32", "bf16"], Option("precision of the weights")] = "fp32"


@python_errors()
@python_call(OpenCall)
def open(options: OpenCall) -> OpenModel:
    """Open a model by any name, with its tokenizer and what it was trained for.

    Raises:
        ValueError: if there is no such model, device or precision.
    """
    name = options.name
    if not isinstance(name, str | Path):
        raise ValueError(f"name = {excerpt(name)}; give the folder or the name of a model as text")
    return open_model(
        name, device=resolve_device(options.device), dtype=resolve_dtype(options.precision)
    )


@python_errors(set="")
def load_recipe(name: str, overrides: str | Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        name: `file.py` (its first recipe), `file.py:name`, a JSON file, or the folder of a run.
        overrides: changes such as "steps=20" or "optimiser.lr=3e-4", one or several, as `--set`
            takes them.

    Raises:
        ValueError: if there is no such recipe, or a change does not fit it; the message names the
            path that was meant.
    """
    changes = [overrides] if isinstance(overrides, str) else list(overrides)
    return apply_overrides(read_recipe(name), changes)


AnyModel = Annotated[
    str | Path | OpenModel, Option("an opened model, or what `weft.open` takes", only="python")
]


def opened(model: str | Path | OpenModel, device: str) -> OpenModel:
    return model if isinstance(model, OpenModel) else open(model, device=device)


@dataclass(frozen=True)
class EvaluateCall(ScoreOptions):
    """The arguments of `weft.evaluate`."""

    model: AnyModel
    data: EvaluationFiles = ()
    _: KW_ONLY
    report: Annotated[
        Callable[[str], None],
        Option("takes each line that says how the files were read", only="python"),
    ] = print


@python_errors()
@python_call(EvaluateCall)
def evaluate(options: EvaluateCall) -> dict[str, float | str]:
    """Score a model by what it was trained for.

    Returns:
        The metrics by name.
    """
    model = opened(options.model, options.device)
    task = task_of(model, options.task)
    data: EvaluationData | MixtureEvaluationData
    if options.data:
        data = load_files(
            model,
            task,
            options.data,
            names=options.column_names,
            columns=options.columns,
            max_bad_rows=options.max_bad_row_fraction,
            report=options.report,
        )
    else:
        if model.recipe is None:
            raise ValueError(f"{model.name} has no data of its own; give some with --data")
        data = data_of_run(model.recipe.data, options.split)
    bf16 = resolve_dtype(options.precision) == torch.bfloat16
    predicting = PredictOptions(options.batch_size, bf16=bf16)
    return dict(evaluate_model(model, task, data, task_options(options, predicting)))


@dataclass(frozen=True)
class LookCall(ViewOptions):
    """The arguments of `weft.look`."""

    model: AnyModel
    example: Annotated[str | ImageInput | None, EXAMPLE] = None
    _: KW_ONLY
    output: Annotated[str | Path | None, replace(OUTPUT, default="none")] = None


@python_errors()
@python_call(LookCall)
def look(options: LookCall) -> Observation:
    """Observe a model on one input: attention maps, rollout, the logit lens; of an image also where
    it looks.

    Returns:
        The maps by kind in `panels`, each a tensor (heads, queries, keys) per layer, and what else
        the page shows.
    """
    observation, _ = observe(opened(options.model, options.device), options.example, options)
    if options.output is not None:
        save_observation(observation, options.output, options)
    return observation


@dataclass(frozen=True, kw_only=True)
class TuneCall(TuneOptions):
    """The arguments of `weft.tune`."""

    report: Annotated[
        Callable[[str], None], Option("takes each line of progress", only="python")
    ] = print


@python_reports
@python_errors()
@python_call(TuneCall)
def tune(options: TuneCall) -> OpenModel:
    """Fine-tune a model on labelled data: detect the task, try learning rates and seeds, keep the
    best.

    Returns:
        The best model, opened.

    Raises:
        ValueError: for an unknown option, and for data or a checkpoint that do not fit.
    """
    plan = plan_tuning(options, options.report)
    for _ in run_trials(plan, options.report, launcher_for(options.at_a_time, options.report)):
        pass
    return open(plan.folder, device=plan.recipe.device)
