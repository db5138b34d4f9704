"""One run: a folder with a recipe, checkpoints, a log and the trained model. Running it again resumes it."""

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from .. import recipe as R
from .. import storage
from ..addresses import Location, is_remote
from ..console import report_on_first_rank
from ..data.batching import build_planner
from ..data.filtering import report_lines
from ..data.loader import Loader
from ..data.mixture import MixtureSamples, MixtureStore, open_split
from ..data.prepare import PrepareProgress, find_difference, prepare, prepared_location
from ..data.quarantine import quarantine_notes
from ..data.store import Store
from ..interop.loading import load
from ..interop.manifest import check_model_of_run, find_damage
from ..interop.saving import read_as_saved
from ..kernels.devices import has_fast_bf16
from ..layers.lora import merged_reader
from ..model.model import build_on_meta
from ..ranks import Ranks
from ..recipe.cost import checkpoint_bytes, estimate_memory
from ..recipe.recipe import warmup_warning
from ..tasks import build_task
from ..tasks.base import LengthLimitedSamples, Loss, Preprocess
from ..tasks.task import EvaluationData, TaskImplementation
from ..training.averages import BestWeights, average_states, averaged_steps, checkpoints_kept
from ..training.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    Writers,
    all_checkpoints,
    check_free_space,
    latest_checkpoint,
)
from ..training.checkpoint_copies import CheckpointCopies
from ..training.checkpoint_parts import SavedGroups, load_weights, read_into, read_like
from ..training.compatibility import refuse_other, saved_recipe, store_recipe
from ..training.environment import (
    configured_environment,
    describe_environment,
    environment_changes,
    restored_random_state,
)
from ..training.interpreter_exit import close_at_exit
from ..training.loop import Trainer, TrainStep, state_digest
from ..training.memory import available_bytes, check_memory, keep_large_allocations
from ..training.parallel import DistributedRanks, init_ranks, torchrun_notes
from ..training.sharded_writer import ShardedCheckpointWriter
from ..training.sharding import full_tensor
from ..training.signals import stop_on_signal
from ..training.trainable import freeze_untrained, initialise_from
from ..training.validation import PredictionCollector, Progress, ignore_progress, validate
from ..user_code import LOADED, load_code_of_run, store_code
from .export import ModelFiles
from .lock import RunLock
from .log import RunLog, check_finished_log, is_finished, lines_until, restore_log
from .teachers import check_teacher_pixels

Report = Callable[[str], None]
COMPLETE = "complete"


class RunStopped(Exception):
    """A signal stopped a run before its end; the steps so far are saved, and running it again continues it."""


class RunState(NamedTuple):
    """Everything a recipe describes, built: data, task, trainer."""

    recipe: R.Recipe
    prepared_folder: Location  # the folder of the shards
    store: Store | MixtureStore
    valid_store: Store | MixtureStore | None
    task: TaskImplementation
    trainer: Trainer
    fingerprints: dict[
        str, str
    ]  # what a run may not change: SHA-256 of its data and of its teacher
    validation_progress: Progress = ignore_progress

    @property
    def preprocess(self) -> Preprocess:
        return self.task.preprocess

    @property
    def loss(self) -> Loss:
        return self.task.loss


def ignore_message(_: str) -> None:
    """Ignore a line of progress."""


def prepared_folder(
    data: R.Data, ranks: Ranks, progress: Callable[[PrepareProgress], None] | None = None
) -> Location:
    """Return the folder of the shards, preparing the data if needed."""
    if ranks.world == 1 and not is_remote(data.prepared_folder or ""):
        return prepare(data, report=progress)
    folder = prepared_location(data)
    if problem := ranks.from_first(partial(find_difference, data, folder)):
        raise ValueError(problem)
    return folder


def build_run(
    recipe: R.Recipe,
    ranks: DistributedRanks | None = None,
    progress: Callable[[PrepareProgress], None] | None = None,
    is_new: bool = True,
) -> RunState:
    """Prepare the data, build the model and check everything before the first step.

    Args:
        recipe: of the run.
        ranks: of this process (default: one process on the recipe's device).
        progress: called while the data is prepared.
        is_new: whether the weights are initialised; a resumed run takes them from a checkpoint.
    """
    ranks = (ranks or DistributedRanks(device=recipe.device)).arrange(recipe.parallel)
    recipe = resolve_recipe_precision(recipe, ranks)
    folder = prepared_folder(recipe.data, ranks, progress)
    store, valid = (
        open_split(folder, recipe.data, "train"),
        open_split(folder, recipe.data, "valid"),
    )
    assert store is not None
    folders = {name: getattr(recipe.task, name) for name in recipe.task.model_folders}
    others = {name: load(path).eval() for name, path in folders.items()}
    for other in others.values():
        check_teacher_pixels(recipe.task, other)
    task = build_task(
        recipe.task,
        recipe.model,
        store.meta,
        seed=recipe.seed,
        teacher=next(iter(others.values()), None),
        model=build_on_meta(recipe.model) if ranks.splits_weights else None,
    )
    preprocess, loss = task.preprocess, task.loss
    starts_from = recipe.init_from if is_new else None
    if starts_from is not None and not ranks.splits_weights:
        initialise_from(loss.model, starts_from)
    freeze_untrained(loss.model, recipe.trainable, recipe.seed)

    def initialise_parts(loss: Loss) -> None:
        if starts_from is not None and ranks.splits_weights:
            initialise_from(loss.model, starts_from)

    def rows(length: int) -> LengthLimitedSamples | MixtureSamples:
        samples = open_training_samples(preprocess, store, length)
        if len(samples) == 0:
            raise ValueError(f"{folder} holds too little text for one row of {length} tokens")
        return samples

    for length in (
        {*(length for _, length in recipe.length_schedule), recipe.batch.length}
        if recipe.length_schedule
        else ()
    ):
        rows(length)  # of a phase to come, and of validation

    def loader(length: int) -> Loader:
        samples = rows(length)
        return Loader(
            build_planner(batch_at_length(recipe, length), samples, recipe.seed, length),
            samples,
            preprocess,
            recipe.seed,
            ranks.rank,
            ranks.size,
            recipe.micro_batch_size,
            recipe.workers,
            recipe.exact,
        )

    identity = {"data": store.fingerprint} | {
        name: state_digest({name: dict(model.state_dict())}) for name, model in others.items()
    }
    return RunState(
        recipe,
        folder,
        store,
        valid,
        task,
        Trainer(recipe, loss, loader, ranks, initialise_parts),
        identity,
    )


def open_training_samples(
    preprocess: Preprocess, store: Store | MixtureStore, length: int
) -> LengthLimitedSamples | MixtureSamples:
    if isinstance(store, Store):
        return preprocess.open_samples(store, length)
    parts = []
    for name, part in store.parts.items():
        try:
            samples = preprocess.open_samples(part, length)
            if len(samples) == 0:
                raise ValueError(f"it holds too little text for one row of {length} tokens")
        except ValueError as error:
            raise ValueError(f"source {name}: {error}; give more, or leave it out") from None
        parts.append(samples)
    return MixtureSamples(parts, store.mixture.rates)


def resolve_recipe_precision(
    recipe: R.Recipe, ranks: DistributedRanks, checkpoint: Checkpoint | None = None
) -> R.Recipe:
    """Replace the precision "auto" by that of the checkpoint, else by the one that every rank's device is fast at."""
    if recipe.precision != "auto":
        return recipe
    if checkpoint is not None:
        return replace(recipe, precision=saved_recipe(checkpoint).precision)
    fast_ranks = ranks.sum([float(has_fast_bf16(ranks.device))])[0]
    return replace(recipe, precision="bf16" if fast_ranks == ranks.size else "fp32")


def batch_at_length(recipe: R.Recipe, length: int) -> R.Batching:
    """Return the batching at another row length with the same number of tokens."""
    return recipe.batch if length == recipe.batch.length else recipe.batch.at_length(length)


# The folder


def run_folder(recipe: R.Recipe, out: str | Path | None) -> Path:
    return Path(out) if out is not None else Path("runs") / recipe.name


def restore_latest(run: RunState, checkpoint: Checkpoint, folder: Path, report: Report) -> None:
    """Restore the newest checkpoint."""
    check_fingerprints(run, checkpoint, folder)
    restore_state(run, checkpoint)
    before, now = checkpoint.state["world"], run.trainer.ranks.world
    if before != now:
        dropout = "other attention dropout and " if run.trainer.fused_dropout else ""
        report(
            f"ranks changed from {before} to {now}: the same samples, but {dropout}other rounding"
        )
    if changed := environment_changes(
        checkpoint.state.get("environment", {}), describe_environment(run.trainer.ranks.device)
    ):
        report(changed)
    report(
        f"resuming after step {run.trainer.step:,} of {run.recipe.steps:,} ({checkpoint.path.name})"
    )


def restore_state(run: RunState, checkpoint: Checkpoint) -> None:
    in_parts = run.trainer.ranks.splits_weights
    groups: SavedGroups = checkpoint.saved() if in_parts else checkpoint.all_tensors()
    run.trainer.restore(groups, checkpoint.state)
    run.trainer.last_validated_step = validated_step(checkpoint)


def validated_step(checkpoint: Checkpoint) -> int:
    """Return the last step whose validation the checkpoint knows of: a signal may have interrupted that of its own step."""
    step: int = checkpoint.state.get("validated", checkpoint.step)
    return step


def check_fingerprints(run: RunState, checkpoint: Checkpoint, folder: Path) -> None:
    """Raise ValueError for a checkpoint of another recipe, other data or another teacher."""
    refuse_other(checkpoint, run.recipe)
    for name, now in run.fingerprints.items():
        if (before := checkpoint.state[name]) != now:
            raise ValueError(
                f"{folder}: the {name} changed since this run began (fingerprint {before[:12]}, now {now[:12]}); "
                f"bring the old {name} back, or start another run with --output"
            )


def checkpoint_state(run: RunState) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    groups, facts = run.trainer.state()
    return groups, facts | run.fingerprints | {
        "recipe": run.recipe.to_json(),
        "world": run.trainer.ranks.world,
        "validated": run.trainer.last_validated_step,
        "environment": describe_environment(run.trainer.ranks.device)
        | {"precision": run.recipe.precision},
        "code": {name: code.sha256 for name, code in LOADED.items()},
    }


def check_metric_packages(recipe: R.Recipe) -> None:
    """Raise ValueError before the first step, not at the first validation, if a package is missing."""
    if not recipe.metric or recipe.data.valid is None:
        return
    for package, extra in recipe.task.metric_packages.items():
        if find_spec(package) is None:
            raise ValueError(
                f"validation of {type(recipe.task).__name__} needs {package}; pip install 'weft[{extra}]', or leave data.valid out"
            )


def open_copies(recipe: R.Recipe, folder: Path, report: Report) -> CheckpointCopies | None:
    """Return what copies checkpoints to object storage, if the recipe names an address."""
    saved = recipe.checkpoints
    if saved.copy_to is None:
        return None
    log = partial(lines_until, folder / "log.jsonl")
    return CheckpointCopies(saved.copy_to, saved.keep, averaged_steps(recipe), report, log)


def fetch_checkpoint(
    folder: Path, copies: CheckpointCopies, ranks: DistributedRanks, report: Report
) -> None:
    """Download the newest copy of the run's checkpoints if this folder has none as new. On every disk one rank downloads: the one that
    creates a file there, which is the first rank where all share one disk."""
    root = folder / "checkpoints"
    storage.make_folder(root)
    token = ranks.common_token()
    claim = root / f".new-fetch-{token}"
    if not ranks.is_first:
        ranks.barrier()
    downloads = claims(claim)
    if ranks.is_first:
        ranks.barrier()
    try:
        if downloads and (step := copies.fetch_newest(root)) is not None:
            report(f"continuing from the copy of step {step:,} in {copies.root}")
            if ranks.is_first:
                restore_log(folder / "log.jsonl", step, copies.fetch_log(step))
    finally:
        ranks.wait_for_all(f"checkpoint-fetched/{token}")
        if downloads:
            claim.unlink(missing_ok=True)


def claims(path: Path) -> bool:
    """Return whether this process is the first one to create a file."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def check_same_step(checkpoint: Checkpoint | None, folder: Path, ranks: DistributedRanks) -> None:
    """Raise ValueError on all ranks if they would continue after different steps."""
    step = 0 if checkpoint is None else checkpoint.step
    mean = ranks.sum([float(step)])[0] / ranks.size
    if ranks.sum([abs(step - mean)])[0]:
        raise ValueError(
            f"{folder}: rank {ranks.world_rank} would continue after step {step:,}, but not all others; put run folders on storage "
            "that all ranks share, or remove the checkpoints that only some machines have"
        )


def result_of(folder: Path) -> str:
    """Return "complete" for a finished run, what is damaged in its model, or "" for one that is not finished. Only the first rank
    knows: others may have another disk."""
    return (find_damage(folder / "model") or COMPLETE) if is_finished(folder) else ""


def open_writer(
    folder: Path, recipe: R.Recipe, ranks: DistributedRanks, copies: CheckpointCopies | None
) -> CheckpointWriter | None:
    """Return what saves checkpoints: on every rank if each has only parts of the weights, else on the first one."""
    root, keep, pinned = folder / "checkpoints", recipe.checkpoints.keep, averaged_steps(recipe)
    on_saved = None if copies is None else copies.submit
    if not ranks.splits_weights:
        return CheckpointWriter(root, keep, pinned, on_saved) if ranks.is_first else None
    if ranks.is_first:
        storage.make_folder(root)
    writers = Writers(ranks.world_rank, ranks.world, ranks.common_token())
    if copies is not None:
        copies.writers = writers
    return ShardedCheckpointWriter(
        root, keep, pinned, on_saved, writers=writers, timeout=recipe.timeouts.collective
    )


# Training


@close_at_exit
def train(
    recipe: R.Recipe,
    out: str | Path | None = None,
    *,
    report: Report = report_on_first_rank,
    progress: Callable[[PrepareProgress], None] | None = None,
    validation_progress: Progress = ignore_progress,
    on_start: Callable[[RunState, float, int], None] | None = None,
    code_changed: bool = False,
) -> Generator[TrainStep, None, None]:
    """Train a recipe, or resume it: yield its steps, save checkpoints, and write the model to `<out>/model` after the last step. A caller
    may stop at any step, also by the end of the program: the last step is saved.

    Args:
        recipe: what to train, and on which device.
        out: folder of the run (default: runs/<name>).
        report: takes each line about what happens (default: stderr, on the first rank).
        progress: called while the data is prepared.
        validation_progress: called while the run validates, with the number of samples that are done and of all.
        on_start: called before the first step with the run, the seconds of one step and its tokens.
        code_changed: continue although a file of the user's own parts has changed since the run began.

    Raises:
        RunStopped: after Ctrl-C or SIGTERM, once the step at hand is done and saved. The handlers of both signals are
            those of the caller again by then.
    """
    if not isinstance(recipe, R.Recipe):
        raise ValueError(f'train takes a recipe: weft.load_recipe("FILE"), not {recipe!r}'[:200])
    folder = run_folder(recipe, out)
    with ExitStack() as stack:
        check_metric_packages(recipe)
        if warning := warmup_warning(recipe):
            report(warning)
        copies = open_copies(recipe, folder, report)
        if copies is not None:  # entered first: ranks do not wait for each other's copies
            stack.enter_context(copies)
        stack.enter_context(keep_large_allocations())
        stack.enter_context(configured_environment(recipe))
        ranks = stack.enter_context(init_ranks(recipe.timeouts, recipe.device)).arrange(
            recipe.parallel
        )
        stack.enter_context(restored_random_state(ranks.device))
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        on_device = resolve_recipe_precision(recipe, ranks)
        need = estimate_memory(on_device, ranks.size, ranks.weight_parts)
        check_memory(on_device, need, available_bytes(ranks.device, here))
        if ranks.is_first:
            stack.enter_context(RunLock(folder))
            check_model_of_run(folder / "model")
        if copies is not None:
            fetch_checkpoint(folder, copies, ranks, report)
        checkpoint = latest_checkpoint(
            folder / "checkpoints", report, ranks if ranks.splits_weights else Ranks()
        )
        check_same_step(checkpoint, folder, ranks)
        recipe = resolve_recipe_precision(recipe, ranks, checkpoint)
        if recipe.precision != on_device.precision:
            report(
                f"precision stays {recipe.precision}, as the run began; here auto is {on_device.precision}"
            )
        if checkpoint is not None:
            load_code_of_run(folder, code_changed)
            refuse_other(checkpoint, recipe)  # before anything is written
        if ranks.is_first:
            store_recipe(folder, recipe, report if checkpoint else ignore_message)
            store_code(folder)
        run = build_run(recipe, ranks, progress, is_new=checkpoint is None)
        run = run._replace(validation_progress=validation_progress)
        trainer = run.trainer
        shards = run.prepared_folder
        notes = *torchrun_notes(), *trainer.notes()
        for line in (*quarantine_notes(shards), *report_lines(shards), *notes):
            report(line)
        stack.callback(trainer.drop_ddp)
        if checkpoint is not None:
            restore_latest(run, checkpoint, folder, report)
        ranks.barrier()
        result = (
            ranks.from_first(partial(result_of, folder)) if trainer.step == recipe.steps else ""
        )
        if result:
            if result == COMPLETE:
                report(
                    f"{folder} is finished: all {recipe.steps:,} steps are done; its model is in {folder / 'model'}"
                )
                if ranks.is_first:
                    check_finished_log(folder, report)
                return
            report(f"{result}; exporting the model again from the checkpoint")
        saved_bytes = checkpoint_bytes(recipe, sum(p.numel() for p in run.loss.parameters()))
        check_free_space(folder / "checkpoints", saved_bytes * (checkpoints_kept(recipe) + 1))
        saver = open_writer(folder, recipe, ranks, copies)
        if saver is not None:
            stack.enter_context(saver)
            saver.whole |= {checkpoint.path} if checkpoint is not None else set()
        log = (
            stack.enter_context(
                RunLog(folder, trainer.step, trainer.last_validated_step, recipe, report)
            )
            if ranks.is_first
            else None
        )
        if on_start is not None:
            on_start(
                run, *trainer.time_one_step()
            )  # nothing can be lost yet, so a signal ends it at once
        stack.enter_context(stop_on_signal(trainer))
        yield from train_and_save(run, saver, log)
        finished = trainer.step == recipe.steps and finish_run(run, folder, log, report)
    if not finished:  # raised once everything is saved, closed and restored
        raise RunStopped(
            f"stopped after step {trainer.step:,} of {recipe.steps:,}; run it again to continue"
        )


def train_and_save(
    run: RunState, saver: CheckpointWriter | None, log: RunLog | None
) -> Iterator[TrainStep]:
    """Log each step, validate and save where due, then yield it."""
    recipe, saved = run.recipe, run.trainer.step
    if validation_pending(run):
        log_validation(log, "valid", saved, validate_run(run))
    pause = None  # seconds for which the last save held up training
    for event in run.trainer:
        if log is not None:
            log.step(event, pause)
        pause = None
        if is_validation_step(recipe, event.step):
            validation = validate_run(run)
            log_validation(log, "valid", event.step, validation)
            event = event._replace(validation=validation)
        if saver is not None and event.step % recipe.checkpoints.every_steps == 0:
            if log is not None:
                log.sync()
            begin = time.perf_counter()
            saver.submit(event.step, *checkpoint_state(run))
            saved, pause = event.step, time.perf_counter() - begin
        try:
            yield event
        except GeneratorExit:  # the caller has seen enough
            save_latest(saver, run, saved)
            raise
    save_on_all_ranks(saver, run, saved)


def save_on_all_ranks(saver: CheckpointWriter | None, run: RunState, saved: int) -> None:
    """Save the last step; all ranks wait until the first one has it on disk, which may outlast a collective operation."""
    token = run.trainer.ranks.common_token()
    save_latest(saver, run, saved)
    run.trainer.ranks.wait_for_all(f"last-save/{token}")


def save_latest(saver: CheckpointWriter | None, run: RunState, saved: int) -> None:
    """Save the current step if it is not saved yet, and wait until it is on disk."""
    if saver is not None:
        if run.trainer.step > saved:
            saver.submit(run.trainer.step, *checkpoint_state(run))
        saver.wait()


def is_validation_step(recipe: R.Recipe, step: int) -> bool:
    return bool(
        recipe.eval_every and step and step % recipe.eval_every == 0 and step < recipe.steps
    )


def validation_pending(run: RunState) -> bool:
    """Return whether a stop interrupted the validation of this step."""
    return (
        is_validation_step(run.recipe, run.trainer.step)
        and run.trainer.last_validated_step < run.trainer.step
    )


def validate_run(run: RunState) -> dict[str, float] | None:
    """Return the validation loss, its terms and the task's metrics; None without validation data, or if interrupted. Of a mixture every
    source counts the same."""
    valid, results = run.valid_store, dict[str, dict[str, float]]()
    stores = (
        valid.parts if isinstance(valid, MixtureStore) else {"": valid} if valid is not None else {}
    )
    for (name, store), part in zip(stores.items(), run.recipe.data.parts("valid"), strict=True):
        result = validate_source(run, EvaluationData(store, part.source))
        if result is None:
            return None
        results[name] = result
    if not results:
        return None
    validation = mean_over_sources(results)
    run.trainer.last_validated_step = run.trainer.step
    if isinstance(best := run.trainer.average, BestWeights):
        best.update_best(run.trainer.step, validation)
    return validation


def validate_source(run: RunState, data: EvaluationData) -> dict[str, float] | None:
    collector = PredictionCollector(run.task, data) if run.recipe.metric else None
    validation = validate(
        run.trainer, run.preprocess, data.store, collector, run.validation_progress
    )
    if validation is None:
        return None
    return validation | (collector.metrics(run.trainer.ranks) if collector else {})


def mean_over_sources(results: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return what one source gave or, of a mixture, the means over its sources and then each source's own, after its name."""
    first, *others = results.values()
    if not others:
        return first
    means = {key: fmean(result[key] for result in results.values()) for key in first}
    return means | {
        f"{name} {key}": value for name, result in results.items() for key, value in result.items()
    }


def log_validation(
    log: RunLog | None, name: str, step: int, metrics: dict[str, float] | None
) -> None:
    if log is not None and metrics is not None:
        log.validation(step, name, metrics)


def finish_run(run: RunState, folder: Path, log: RunLog | None, report: Report) -> bool:
    """Validate, average the weights and export the model; return False if a signal interrupts it. The log is written last, so that
    the next start does all of it again."""
    trainer, plain = run.trainer, validate_run(run)
    best = trainer.average.best if isinstance(trainer.average, BestWeights) else None
    weights, better = selected_weights(run, folder, report), None
    if weights is not None:
        load_weights(run.loss, weights, strict=False)
        better = best or validate_run(run)
    if trainer.stop_requested and trainer.ranks.world == 1:
        return False
    export_model(run, folder)
    if log is not None:
        log_validation(log, "valid", trainer.step, plain)
        log_validation(log, "best" if best else "averaged", trainer.step, better)
        log.finish()
    return True


def selected_weights(run: RunState, folder: Path, report: Report) -> dict[str, torch.Tensor] | None:
    """Return the weights of the final model if they are not the last ones."""
    if isinstance(best := run.trainer.average, BestWeights) and best.best is None:
        report(f"no validation gave a finite {best.metric}: the model is that of the last step")
        return None
    if run.trainer.average is not None:
        return run.trainer.average.copies
    if not averaged_steps(run.recipe):
        return None
    ranks = run.trainer.ranks
    if ranks.splits_weights:
        return average_checkpoints(run, folder, report)
    weights = {name: tensor.clone() for name, tensor in run.loss.state_dict().items()}

    def fill_weights() -> str:
        for name, tensor in average_checkpoints(run, folder, report).items():
            read_into(weights[name], tensor)
        return ""

    ranks.from_first(fill_weights)  # others may have a disk without checkpoints
    ranks.broadcast(weights.values())
    return weights


def average_checkpoints(run: RunState, folder: Path, report: Report) -> dict[str, torch.Tensor]:
    """Return the mean of the weights of the last checkpoints."""
    ranks, steps_to_average = run.trainer.ranks, averaged_steps(run.recipe)
    saved = all_checkpoints(
        folder / "checkpoints", report, ranks if ranks.splits_weights else Ranks()
    )
    last = [c for c in saved if c.step in steps_to_average]
    for checkpoint in last:
        check_fingerprints(run, checkpoint, folder)
    if len(last) < len(steps_to_average):
        report(
            f"averaged over {len(last)} checkpoints, not {len(steps_to_average)}: the others are missing or damaged"
        )
    if not ranks.splits_weights:
        return average_states(c.tensors("model") for c in last)
    state = run.loss.state_dict()
    return average_states(
        {name: read_like(state[name], tensor) for name, tensor in c.saved()["model"].items()}
        for c in last
    )


def export_model(run: RunState, folder: Path) -> None:
    """Write the trained model and its tokenizer to `<folder>/model`. The first rank writes one tensor at a time; ranks that have parts of
    the weights gather it with that one."""
    ranks, model = run.trainer.ranks, build_on_meta(run.recipe.model).to(run.loss.model.dtype)
    state = run.loss.model.state_dict()
    weights = merged_reader(run.loss.model, lambda name: full_tensor(state[name]).detach().cpu())
    if not ranks.is_first:
        if ranks.splits_weights:
            read_as_saved(model, weights)
        return
    files = ModelFiles(run.recipe, run.store.meta, run.preprocess, run.prepared_folder)
    files.save(model, folder / "model", "weft", weights)
