"""From a checkpoint and data to a plan of trials: the head of the family's fine-tuning class, lengths from the data, the settings of
BERT's authors (arXiv:1810.04805, appendix A.3)."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.files import find, strip_compression_suffix
from ..data.ownership import refuse_strange
from ..data.store import Store, open_store
from ..inference.images import evaluation_transforms
from ..inference.open_model import open_model
from ..interop.describe import read_folder
from ..interop.hub import local_folder
from ..interop.manifest import MANIFEST_FILE
from ..interop.saving import save
from ..kernels.devices import resolve_device, resolve_precision
from ..recipe.metrics import greater_is_better
from . import images
from .data import MARK, PreparedData, claim, prepare_images, prepare_texts
from .options import TuneOptions

RESULTS_FILE = "tune.json"
ADAMW_LEARNING_RATES = (5e-5, 4e-5, 3e-5, 2e-5)
ADAFACTOR_LEARNING_RATES = (
    1e-2,
    3e-3,
    1e-3,
)  # of Adafactor, whose steps are relative to the weights: T5's authors fine-tune at 1e-3
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
    """Detect the task, prepare the data and return the plan.

    Args:
        options: of `weft tune`.
        report: takes each line about what was detected.
        progress: called while the data is prepared.
    """
    resolve_device(options.device)  # before the work that takes time
    folder = Path(options.output or Path("runs") / default_run_name(options))
    refuse_strange(folder, MARK, RESULTS_FILE, "recipe.json")
    if (folder / "recipe.json").exists() and not (folder / RESULTS_FILE).exists():
        raise ValueError(
            f"{folder} is another run, which would be overwritten; give another --output"
        )
    start = resolve_checkpoint(options.checkpoint, folder)
    reads_images = images.reads_images(read_folder(start)[1])
    prepared = (prepare_images if reads_images else prepare_texts)(
        options, folder, start, report or (lambda line: None), progress
    )
    train_store, valid_store = (open_store(folder / "prepared", s) for s in ("train", "valid"))
    rows = len(train_store), len(valid_store)
    metric = options.metric or prepared.task.select_by(prepared.data.rows)
    recipe = build_recipe(options, prepared, rows[0], str(start), metric)
    usual = (
        ADAFACTOR_LEARNING_RATES
        if isinstance(recipe.optimiser, R.Adafactor)
        else tuple(rate * lr_factor(options.trainable) for rate in ADAMW_LEARNING_RATES)
    )
    if reads_images:
        factor = images.FEW_WEIGHTS if options.trainable else 1
        usual = tuple(factor * rate for rate in images.LEARNING_RATES)
    rates = tuple(dict.fromkeys(options.learning_rates)) or usual
    seeds = options.seeds or (SEEDS if rows[0] < SMALL else 1)
    plan = TunePlan(folder, prepared.summary, prepared.name, metric, rates, seeds, recipe, *rows)
    return plan._replace(majority=majority_class(valid_store))


def majority_class(store: Store) -> dict[str, Any] | None:
    """Return the most frequent class and its share of the rows, the accuracy of always answering it; None of rows without a class."""
    if store.meta.labels is None or "label" not in store.shard(0).batch.schema.names:
        return None
    labels = store.column("label")
    label, count = Counter(map(int, labels)).most_common(1)[0]
    return {"class": store.meta.labels[label], "share": count / len(labels)}


def lr_factor(trained: R.HeadOnly | R.LoRA | None) -> float:
    """A few new weights tolerate a higher learning rate than many trained ones: LoRA's table D.9 has 4e-4 and 5e-4; a linear head on features more."""
    return 100.0 if isinstance(trained, R.HeadOnly) else 10.0 if trained else 1.0


def choose_optimiser(options: TuneOptions, spec: S.Spec) -> R.AdamW | R.Adafactor:
    """T5's weights differ in size by a factor of 50, the token table's are the largest: AdamW's steps, equally large for all, hardly move
    the table (docs/log.md). Its authors fine-tune with Adafactor, whose steps are relative (arXiv:1910.10683, section 3.1.2). Low-rank
    updates start at zero, and layer-wise rates need AdamW: both keep it."""
    if (
        isinstance(spec.init, S.T5Init)
        and options.trainable is None
        and options.layer_decay is None
    ):
        return R.Adafactor(lr=ADAFACTOR_LEARNING_RATES[0])
    return R.AdamW(lr=ADAMW_LEARNING_RATES[0], layer_decay=options.layer_decay)


def build_recipe(
    options: TuneOptions, prepared: PreparedData, rows: int, start: str, metric: str
) -> R.Recipe:
    batch = prepared.batch
    epoch = -(-rows // batch.size)
    steps = max(1, round(options.epochs * epoch))
    eval_every = max(1, epoch // options.evals_per_epoch)
    return R.Recipe(
        name="trial",
        model=prepared.model,
        task=prepared.task,
        data=prepared.data,
        batch=batch,
        steps=steps,
        init_from=start,
        optimiser=choose_optimiser(options, prepared.model),
        schedule=R.LinearSchedule(warmup_steps=steps // 10),
        trainable=options.trainable,
        average=R.BestCheckpoint(metric=metric),
        eval_every=eval_every,
        checkpoints=R.Checkpoints(keep=1),
        device=options.device,
        precision=resolve_precision(options.precision, resolve_device(options.device)),  # type: ignore[arg-type]
        seed=options.seed,
        workers=prepared.workers,
    )


def default_run_name(options: TuneOptions) -> str:
    """Return <checkpoint>-<data>; for a file called train, the name of its folder."""
    path = Path(strip_compression_suffix(find(options.data[0])[0]))
    data_name = path.parent.name if path.stem.lower() in ("train", "data") else path.stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{Path(options.checkpoint).name}-{data_name}").strip(
        "-."
    )


# The checkpoint


def resolve_checkpoint(checkpoint: str, folder: Path) -> Path:
    """Return the model folder to start from. For an unfinished run, the newest checkpoint is exported next to the trials."""
    there = local_folder(checkpoint)
    if (there / "recipe.json").is_file():
        there = (
            there / "model"
            if (there / "model").is_dir()
            else export_unfinished_run(checkpoint, folder / "start")
        )
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
