"""The plan of a search: one recipe with prepared data over learning rates and seeds."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.preparing.ownership import OTHER, refuse_strange
from ..data.preparing.prepare import prepare
from ..data.preparing.prepared import PreparedData
from ..data.reading.files import find, strip_compression_suffix
from ..inference.images import evaluation_transforms
from ..inference.open_model import open_model
from ..interop.huggingface.hub import local_folder
from ..interop.manifest import MANIFEST_FILE, model_of_run
from ..interop.saving import save
from ..recipe.metrics import greater_is_better
from ..runs.directory import RUNS, RunDirectory

RESULTS_FILE = "tune.json"
MARK = ".tune"  # an empty file that marks the folder of a search
# Below this number of rows, several seeds run
SMALL = 10_000
SEEDS = 3


class TunePlan(NamedTuple):
    """The plan of a search. Each trial is the recipe with its own learning rate and seed.

    Attributes:
        folder: the folder of the search, with a directory per trial.
        summary: one sentence about the data.
        task: the name of the task.
        recipe: the recipe of all trials.
        prepared: the prepared data of the recipe.
        learning_rates: the rates to try with the first seed.
        seeds: the number of seeds at the best learning rate.
    """

    folder: Path
    summary: str
    task: str
    recipe: R.Recipe
    prepared: PreparedData
    learning_rates: tuple[float, ...]
    seeds: int

    @property
    def metric(self) -> str:
        """The metric that selects the best trial."""
        assert isinstance(self.recipe.average, R.BestCheckpoint)
        return self.recipe.average.metric

    @property
    def best_of(self) -> Callable[..., Any]:
        """Return `max` or `min`, by the direction of the metric."""
        return max if greater_is_better(self.metric) else min

    @property
    def train_rows(self) -> int:
        return len(self.prepared.train)

    @property
    def valid_rows(self) -> int:
        return len(self.prepared.valid or ())

    @property
    def majority(self) -> dict[str, Any] | None:
        """The most frequent class of the validation data and its share, the accuracy of a constant
        answer; None without classes.
        """
        store = self.prepared.open_part(next(self.prepared.data.parts("valid")))
        if store.meta.labels is None or "label" not in store.shard(0).batch.schema.names:
            return None
        labels = store.column("label")
        label, count = Counter(map(int, labels)).most_common(1)[0]
        return {"class": store.meta.labels[label], "share": count / len(labels)}

    def trial_recipe(self, lr: float, seed: int) -> R.Recipe:
        return replace(
            self.recipe,
            name=f"trial-{lr:g}-{seed}",
            seed=seed,
            optimiser=R.replace_path(self.recipe.optimiser, "lr", lr),
        )


def prepare_trials(folder: Path, data: R.Data, progress: Any = None) -> PreparedData:
    """Prepare the data of all trials in the folder of a search and mark the folder. A lock keeps
    other processes out.

    Raises:
        ValueError: if another process uses the folder, or if earlier trials were trained on other
            data.
    """
    with RunDirectory(folder).lock():
        # A search that stops before its first result finds its folder again
        (folder / MARK).touch()
        try:
            return prepare(replace(data, prepared_folder=str(folder / "prepared")), report=progress)
        except ValueError as error:
            if OTHER not in str(error):
                raise
            raise ValueError(
                f"{folder} has trials on other rows; undo the change of the data or --seed, or "
                "give another --output"
            ) from None


def model_of_unfinished_run(checkpoint: str, folder: Path) -> Path | None:
    """Export the newest checkpoint of an unfinished run into the folder of a search and return the
    model folder, for all trials; None for any other checkpoint.
    """
    run = local_folder(checkpoint)
    if not (run / "recipe.json").is_file() or model_of_run(run) is not None:
        return None
    start = folder / "start"
    with RunDirectory(folder).lock():
        # The run may continue during the search
        if not (start / MANIFEST_FILE).exists():
            model = open_model(checkpoint)
            (folder / MARK).touch()
            if model.reads_images:
                save(model.model, start, to="weft", transforms=evaluation_transforms(model))
            else:
                save(model.model, start, to="weft", tokenizer=model.require_tokenizer.text)
    return start


def default_seeds(prepared: PreparedData) -> int:
    """Return the number of seeds at the best learning rate: several for small data, whose results
    vary more.
    """
    return SEEDS if len(prepared.train) < SMALL else 1


def tuning_folder(output: str | None, checkpoint: str, data: str) -> Path:
    """Return the folder of a search (default: runs/<checkpoint>-<data>); raise ValueError if it is
    another run's.
    """
    folder = Path(output or Path(RUNS) / default_run_name(checkpoint, data))
    refuse_strange(folder, MARK, RESULTS_FILE, "recipe.json")
    if (folder / "recipe.json").exists() and not (folder / RESULTS_FILE).exists():
        raise ValueError(f"{folder} is another run and would be overwritten; give another --output")
    return folder


def default_run_name(checkpoint: str, data: str) -> str:
    """Return <checkpoint>-<data>; for a file called train, the name of its folder."""
    path = Path(strip_compression_suffix(find(data)[0]))
    data_name = path.parent.name if path.stem.lower() in ("train", "data") else path.stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{Path(checkpoint).name}-{data_name}").strip("-.")
