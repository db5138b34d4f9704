"""What `weft` offers in one call: open a model, train, tune, evaluate. Each is the verb of the command of the same name."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from .data.prepare import PrepareProgress, prepare_for_run
from .data.prepared import PreparedData
from .data.prepared import open_prepared as open_prepared_data
from .inference.evaluate import MixtureEvaluationData, data_of_run, evaluate_model
from .inference.evaluation_data import load_files, task_of
from .inference.images import ImageInput
from .inference.look import look as observe_input
from .inference.open_model import OpenModel, open_model
from .kernels.devices import resolve_device, resolve_dtype
from .observe.figure import save_observation
from .observe.panels import Observation
from .python_messages import python_errors
from .recipe import Data, Recipe, apply_overrides
from .recipe import load_recipe as read_recipe
from .runs.train import train as train_run
from .synonyms import suggest
from .tasks.predict import PredictOptions
from .tasks.task import EvaluateOptions, EvaluationData
from .tuning.options import TuneOptions
from .tuning.plan import plan_tuning
from .tuning.search import run_trials

train = python_errors(output="directory")(train_run)
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
        data: `recipe.data`; `data.prepared_folder` says where the shards are (default: prepared/<fingerprint>).
        workers: number of processes (default: the number of cores).
        report: takes the progress.

    Returns:
        What `weft.train` takes. One of several processes, which torchrun started, and a run whose shards are in object storage,
        use what `weft prepare` has written.

    Raises:
        ValueError: if the data cannot be read, or the folder has shards of other data.
    """
    if not isinstance(data, Data):
        raise ValueError(f"prepare takes the data of a recipe: recipe.data, not {data!r}"[:200])
    return prepare_for_run(data, report, workers)


@python_errors()
def open(name: str | Path, *, device: str = "auto", precision: str = "fp32") -> OpenModel:
    """Open a model by any name, with its tokenizer and what it was trained for.

    Args:
        name: the folder of a run, the folder of a model, "demo" (ships with Weft), or a name on the Hugging Face hub.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for an accelerator if available, else the CPU.
        precision: "fp32" or "bf16", of the weights.

    Raises:
        ValueError: if there is no such model, device or precision.
    """
    if not isinstance(name, str | Path):
        raise ValueError(f"name = {name!r}; give the folder or the name of a model as text"[:200])
    return open_model(name, device=resolve_device(device), dtype=resolve_dtype(precision))


@python_errors(set="")
def load_recipe(name: str, overrides: str | Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        name: `file.py` (its first recipe), `file.py:name`, a JSON file, or the folder of a run.
        overrides: changes such as "steps=20" or "optimiser.lr=3e-4", one or several, as `--set` takes them.

    Raises:
        ValueError: if there is no such recipe, or a change does not fit it; the message names the path that was meant.
    """
    changes = [overrides] if isinstance(overrides, str) else list(overrides)
    return apply_overrides(read_recipe(name), changes)


@python_errors(data="on")
def evaluate(
    model: str | Path | OpenModel,
    on: str | Sequence[str] | None = None,
    *,
    task: str | None = None,
    split: str = "valid",
    batch_size: int = 32,
    device: str = "auto",
    precision: str = "fp32",
    report: Callable[[str], None] = print,
) -> dict[str, float | str]:
    """Score a model by what it was trained for.

    Args:
        model: an opened model, or what `weft.open` takes.
        on: files to evaluate on (default: the data of the run).
        task: the name of the task (default: that of the run, or the one that fits the head).
        split: "train" or "valid", of the run's own data.
        batch_size: the number of rows per forward pass.
        device: of a model that is not open yet: what `weft.open` takes.
        precision: "fp32" or "bf16", of the computation.
        report: takes each line that says how the files were read.

    Returns:
        The metrics by name.
    """
    opened = model if isinstance(model, OpenModel) else open(model, device=device)
    value = task_of(opened, task)
    data: EvaluationData | MixtureEvaluationData
    if on is not None:
        files = [on] if isinstance(on, str) else list(on)
        data = load_files(opened, value, files, report=report)
    else:
        if opened.recipe is None:
            raise ValueError(f"{opened.name} has no data of its own; give some with on=")
        data = data_of_run(opened.recipe.data, split)
    options = PredictOptions(batch_size, bf16=resolve_dtype(precision) == torch.bfloat16)
    return dict(evaluate_model(opened, value, data, EvaluateOptions(options)))


@python_errors()
def look(
    model: str | Path | OpenModel,
    example: str | ImageInput | None = None,
    *,
    target: str | None = None,
    output: str | Path | None = None,
    device: str = "auto",
    precision: str = "fp32",
) -> Observation:
    """Observe a model on one input: attention maps, rollout, the logit lens; of an image also where it looks.

    Args:
        model: an opened model, or what `weft.open` takes.
        example: a text, or an image (default: a sentence; of a model of images, only filters and positions).
        target: what a decoder beside an encoder reads (default: what the model generates).
        output: file to write: a page (.html), or a picture of every head (.png, .svg, .pdf).
        device: of a model that is not open yet: what `weft.open` takes.
        precision: "fp32" or "bf16", of the computation.

    Returns:
        The maps by kind in `panels`, each a tensor (heads, queries, keys) per layer, and what else the page shows.
    """
    opened = model if isinstance(model, OpenModel) else open(model, device=device)
    bf16 = resolve_dtype(precision) == torch.bfloat16
    observation = observe_input(opened, example, target, bf16)
    if output is not None:
        save_observation(observation, output)
    return observation


@python_errors()
def tune(
    checkpoint: str,
    data: str | Sequence[str],
    *,
    valid: str | Sequence[str] = (),
    report: Callable[[str], None] = print,
    **options: Any,
) -> OpenModel:
    """Fine-tune a model on labelled data: detect the task, try learning rates and seeds, keep the best.

    Args:
        checkpoint: what `weft.open` takes.
        data: the files to train on.
        valid: the files to select by (default: a part of `data` that is held out).
        report: takes each line of progress.
        options: fields of `weft.tuning.options.TuneOptions`, such as epochs, learning_rates, task, label, output.

    Returns:
        The best model, opened.

    Raises:
        ValueError: for an unknown option, and for data or a checkpoint that do not fit.
    """
    known = [f.name for f in fields(TuneOptions)]
    for name in options.keys() - set(known):
        raise ValueError(f"tune has no option {name!r}; {suggest(name, known)}")

    def files(paths: str | Sequence[str]) -> tuple[str, ...]:
        return (paths,) if isinstance(paths, str) else tuple(paths)

    plan = plan_tuning(
        TuneOptions(checkpoint=checkpoint, data=files(data), valid=files(valid), **options), report
    )
    for _ in run_trials(plan, report):
        pass
    return open(plan.folder, device=plan.recipe.device)
