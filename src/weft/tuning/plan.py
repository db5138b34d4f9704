"""The plan of a search: a suggested recipe, its data prepared, over learning rates and seeds."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.files import find, strip_compression_suffix
from ..data.ownership import OTHER, refuse_strange
from ..data.prepare import prepare
from ..data.store import Store, open_store
from ..inference.images import evaluation_transforms
from ..inference.open_model import open_model
from ..interop.hub import local_folder
from ..interop.manifest import MANIFEST_FILE, model_of_run
from ..interop.saving import save
from ..kernels.devices import resolve_device, resolve_precision
from ..recipe.metrics import greater_is_better
from ..suggest.checkpoint import open_checkpoint
from ..suggest.opening import open_tables
from ..suggest.suggest import suggest
from ..synonyms import suggest as closest
from .options import TuneOptions

RESULTS_FILE = "tune.json"
MARK = ".tune"  # an empty file in a folder that a search made
SMALL, SEEDS = 10_000, 3  # on fewer rows than this, several seeds


class TunePlan(NamedTuple):
    """Everything that is decided before the first step. A trial is this recipe with another learning rate and seed."""

    folder: Path
    summary: str
    task: str
    metric: str
    learning_rates: tuple[float, ...]
    seeds: int
    recipe: R.Recipe
    train_rows: int
    valid_rows: int
    majority: dict[str, Any] | None = None  # the most frequent class of validation, and its share

    @property
    def best_of(self) -> Callable[..., Any]:
        """Return `max` or `min`, by the direction of the metric."""
        return max if greater_is_better(self.metric) else min

    def trial_recipe(self, lr: float, seed: int) -> R.Recipe:
        return replace(
            self.recipe,
            name=f"trial-{lr:g}-{seed}",
            seed=seed,
            optimiser=R.replace_path(self.recipe.optimiser, "lr", lr),
        )


def plan_tuning(options: TuneOptions, report: Any = None, progress: Any = None) -> TunePlan:
    """Suggest a recipe for the data and the checkpoint, prepare its data, and return the plan.

    Args:
        options: of `weft tune`.
        report: takes each line about what was detected.
        progress: called while the data is prepared.
    """
    # Before the work that takes time
    if options.task is not None and options.task not in R.tunable_names():
        raise ValueError(f"--task {options.task}: {closest(options.task, R.tunable_names())}")
    device = resolve_device(options.device)
    folder = new_folder(options.output, options.checkpoint, options.data)
    start = resolve_checkpoint(options.checkpoint, folder)
    checkpoint = open_checkpoint(options.checkpoint, start)
    table, valid = open_tables(
        options.data, options.valid, options.reading, options.task, checkpoint
    )
    suggestion = suggest(
        table,
        valid,
        options.task,
        checkpoint,
        budget=options.budget,
        tuning=options.tuning,
        seed=options.seed,
    )
    for line in (suggestion.summary, *suggestion.notes):
        if report is not None:
            report(line)
    precision: Any = resolve_precision(options.precision, device)
    recipe = suggestion.named("trial").recipe
    recipe = replace(recipe, device=options.device, precision=precision)
    recipe = replace(recipe, data=replace(recipe.data, prepared_folder=str(folder / "prepared")))
    claim(folder)
    prepare_trials(recipe.data, folder, progress)
    train_store = open_store(folder / "prepared", "train")
    valid_store = open_store(folder / "prepared", "valid")
    assert isinstance(recipe.average, R.BestCheckpoint)
    return TunePlan(
        folder,
        suggestion.summary,
        suggestion.task,
        recipe.average.metric,
        tuple(dict.fromkeys(options.learning_rates)) or suggestion.learning_rates,
        options.seeds or (SEEDS if len(train_store) < SMALL else 1),
        recipe,
        len(train_store),
        len(valid_store),
        majority_class(valid_store),
    )


def prepare_trials(data: R.Data, folder: Path, progress: Any) -> None:
    """Prepare the data of all trials; ValueError if earlier ones were trained on other data."""
    try:
        prepare(data, report=progress)
    except ValueError as error:
        if OTHER not in str(error):
            raise
        raise ValueError(
            f"{folder} has trials of other rows; undo the change of the data or --seed, or give another --output"
        ) from None


def new_folder(output: str | None, checkpoint: str, data: Sequence[str]) -> Path:
    """Return the folder of the search; ValueError if it holds something else."""
    folder = Path(output or Path("runs") / default_run_name(checkpoint, data[0]))
    refuse_strange(folder, MARK, RESULTS_FILE, "recipe.json")
    if (folder / "recipe.json").exists() and not (folder / RESULTS_FILE).exists():
        raise ValueError(
            f"{folder} is another run, which would be overwritten; give another --output"
        )
    return folder


def claim(folder: Path) -> None:
    """Mark the folder as ours, so that a search stopped before its first result finds it again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def majority_class(store: Store) -> dict[str, Any] | None:
    """Return the most frequent class and its share of the rows, the accuracy of always answering it; None of rows without a class."""
    if store.meta.labels is None or "label" not in store.shard(0).batch.schema.names:
        return None
    labels = store.column("label")
    label, count = Counter(map(int, labels)).most_common(1)[0]
    return {"class": store.meta.labels[label], "share": count / len(labels)}


def default_run_name(checkpoint: str, data: str) -> str:
    """Return <checkpoint>-<data>; for a file called train, the name of its folder."""
    path = Path(strip_compression_suffix(find(data)[0]))
    data_name = path.parent.name if path.stem.lower() in ("train", "data") else path.stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{Path(checkpoint).name}-{data_name}").strip("-.")


# The checkpoint


def resolve_checkpoint(checkpoint: str, folder: Path) -> Path:
    """Return the model folder to start from. For an unfinished run, the newest checkpoint is exported next to the trials."""
    there = local_folder(checkpoint)
    if (there / "recipe.json").is_file():
        there = model_of_run(there) or export_unfinished_run(checkpoint, folder / "start")
    return there.resolve()


def export_unfinished_run(checkpoint: str, start: Path) -> Path:
    if not (start / MANIFEST_FILE).exists():  # of the first time: the run may have gone on since
        model = open_model(checkpoint)
        claim(start.parent)
        if model.reads_images:
            save(model.model, start, to="weft", transforms=evaluation_transforms(model))
        else:
            save(model.model, start, to="weft", tokenizer=model.require_tokenizer.text)
    return start
