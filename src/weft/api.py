"""Public functions of `weft`: open, train, tune and evaluate a model, named like the commands."""

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
    """Prepare the data of a recipe as shards; finished shards are reused.

    Args:
        data: `recipe.data`; `data.prepared_folder` is the folder of the shards (default:
            prepared/<fingerprint>).
        workers: the number of processes (default: the number of cores).
        report: called with progress (default: not called).

    Returns:
        The prepared data for `weft.train`. Under torchrun, or with shards in object storage, this
        opens the data that `weft prepare` wrote.

    Raises:
        ValueError: if the data cannot be read, or if the folder has shards of other data.
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
    """Open a model by name, with its tokenizer and its task.

    Returns:
        The opened model.

    Raises:
        ValueError: if the model, device or precision does not exist.
    """
    name = options.name
    if not isinstance(name, str | Path):
        raise ValueError(f"name = {excerpt(name)}; give the folder or name of a model as a string")
    return open_model(
        name, device=resolve_device(options.device), dtype=resolve_dtype(options.precision)
    )


@python_errors(set="")
def load_recipe(name: str, overrides: str | Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        name: `file.py` (its first recipe), `file.py:name`, a JSON file, or a run directory.
        overrides: one or several changes such as "steps=20" or "optimiser.lr=3e-4", in the format
            of `--set` (default: none).

    Returns:
        The recipe.

    Raises:
        ValueError: if the recipe does not exist, or a change is invalid; the message suggests the
            closest path.
    """
    changes = [overrides] if isinstance(overrides, str) else list(overrides)
    return apply_overrides(read_recipe(name), changes)


AnyModel = Annotated[
    str | Path | OpenModel, Option("an opened model, or a name for `weft.open`", only="python")
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
        Option("called with each line about how the files are read", only="python"),
    ] = print


@python_errors()
@python_call(EvaluateCall)
def evaluate(options: EvaluateCall) -> dict[str, float | str]:
    """Score a model on its task.

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
            raise ValueError(f"{model.name} has no evaluation data; give files with --data")
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
    """Observe a model on one input: attention maps, rollout, the logit lens; for an image also the
    attention on the image.

    Returns:
        The maps by kind in `panels`, each a tensor (heads, queries, keys) per layer, and the other
        views of the page.
    """
    observation, _ = observe(opened(options.model, options.device), options.example, options)
    if options.output is not None:
        save_observation(observation, options.output, options)
    return observation


@dataclass(frozen=True, kw_only=True)
class TuneCall(TuneOptions):
    """The arguments of `weft.tune`."""

    report: Annotated[
        Callable[[str], None], Option("called with each line of progress", only="python")
    ] = print


@python_reports
@python_errors()
@python_call(TuneCall)
def tune(options: TuneCall) -> OpenModel:
    """Fine-tune a model on labelled data: detect the task, try learning rates and seeds, keep the
    best model.

    Returns:
        The best model, opened.

    Raises:
        ValueError: for an unknown option, or for unsuitable data or an unsuitable checkpoint.
    """
    plan = plan_tuning(options, options.report)
    for _ in run_trials(plan, options.report, launcher_for(options.at_a_time, options.report)):
        pass
    return open(plan.folder, device=plan.recipe.device)
