"""One run: a folder that holds a recipe, its checkpoints, its log and its result. Running it again goes on."""
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from . import recipe as R
from . import spec as S
from .cost import checkpoint_bytes, memory
from .data.loader import Loader
from .data.plan import planner
from .data.prepare import Progress, fingerprint, prepare
from .data.quarantine import notes
from .data.store import Folder, Store, open_store
from .data.tokenizer import with_marks
from .evaluate.measured import Measured
from .interop.beside import special_ids
from .interop.folder import load, save
from .interop.manifest import damage
from .layers.lowrank import merged
from .model.model import Model
from .objectives import Corruption, Objective, Reader, build
from .train.adapt import adapt, begin_from
from .train.average import BestWeights, averaged, keep_of, mean_of
from .train.checkpoint import Checkpoint, Saver, checkpoints, free_space, newest
from .train.distribute import World, world
from .train.environment import changes, configured, environment
from .train.lock import Lock
from .train.log import Log, finished
from .train.loop import Event, Trainer, digest
from .train.memory import available, keep_blocks, refuse_what_cannot_fit
from .train.same import FREE as FREE
from .train.same import refuse_other, remember
from .train.signals import signals
from .train.validate import validate

Say = Callable[[str], None]


class Made(NamedTuple):
    """All that a recipe stands for, in memory."""
    recipe: R.Recipe
    data: Path | str                       # the folder of the shards
    store: Store
    valid: Store | None
    corruption: Corruption
    objective: Objective
    trainer: Trainer
    identity: dict[str, str]               # what a run may not change: SHA-256 of its data and of its teacher


def silent(_: str) -> None:
    """Says nothing."""


def prepared(data: R.Data, ranks: World, progress: Callable[[Progress], None] | None = None) -> Path | str:
    """The folder of the shards, made now if need be."""
    if data.folder is not None and "://" in data.folder:
        return data.folder
    if ranks.size == 1:
        return prepare(data, say=progress)
    folder = Path(data.folder or Path("prepared") / fingerprint(data))
    if not (folder / "train" / "index.json").exists():
        raise ValueError(f"{folder} is not prepared yet; run weft prepare with this recipe first, so that no rank waits for another")
    return folder


def make(recipe: R.Recipe, ranks: World | None = None, progress: Callable[[Progress], None] | None = None, fresh: bool = True) -> Made:
    """Data prepared, model built, everything checked: what is wrong is said here, before the first step.
    A run that is not `fresh` has its weights in a checkpoint."""
    ranks = ranks or World()
    folder = prepared(recipe.data, ranks, progress)
    store = open_store(folder, "train")
    valid = open_store(folder, "valid") if recipe.data.valid else None
    older = teacher(recipe.objective)
    corruption, objective = build(recipe.objective, recipe.model, store.meta, seed=recipe.seed, teacher=older)
    if recipe.start is not None and fresh:
        begin_from(objective.model, recipe.start)
    adapt(objective.model, recipe.trained, recipe.seed)

    def rows(length: int) -> Reader:
        samples = corruption.samples(store, length)
        if len(samples) == 0:
            raise ValueError(f"{folder} holds too little text for one row of {length} tokens")
        return samples

    for length in {*(length for _, length in recipe.lengths), recipe.batch.length} if recipe.lengths else ():
        rows(length)                       # of a phase to come, and of validation

    def loader(length: int) -> Loader:
        samples = rows(length)
        return Loader(planner(at_length(recipe, length), samples, recipe.seed, length), samples, corruption, recipe.seed,
                      ranks.rank, ranks.size, recipe.micro, recipe.workers)

    identity = {"data": store.fingerprint} | ({"teacher": digest({"teacher": dict(older.state_dict())})} if older else {})
    return Made(recipe, folder, store, valid, corruption, objective, Trainer(recipe, objective, loader, ranks), identity)


def at_length(recipe: R.Recipe, length: int) -> Any:
    """The batch at another length: as many tokens, so more or fewer rows."""
    batch = recipe.batch
    if isinstance(batch, R.Budget) or length == batch.length:
        return batch
    return type(batch)(**{**vars(batch), "count": max(1, batch.count * batch.length // length), "length": length})


def teacher(objective: R.Objective) -> Model | None:
    return load(objective.teacher).eval() if isinstance(objective, R.Distillation) else None


# The folder

def folder_of(recipe: R.Recipe, out: str | Path | None) -> Path:
    return Path(out) if out is not None else Path("runs") / recipe.name


def restore(made: Made, found: Checkpoint, folder: Path, say: Say) -> None:
    """Go on from a checkpoint."""
    recognise(made, found, folder)
    made.trainer.restore(found.groups(), found.facts)
    made.trainer.validated = found.facts.get("validated", found.step)
    before, now = found.facts["world"], made.trainer.world.size
    if before != now:
        drawn = "another draw of attention dropout and " if made.trainer.fused_dropout else ""
        say(f"{before} ranks until now, {now} from here on: the same samples, but {drawn}other rounding")
    if changed := changes(found.facts.get("environment", {}), environment(made.trainer.world.device)):
        say(changed)
    say(f"going on after step {made.trainer.step:,} of {made.recipe.steps:,} ({found.path.name})")


def recognise(made: Made, found: Checkpoint, folder: Path) -> None:
    """ValueError for a checkpoint of another run: of another recipe, other data or another teacher."""
    refuse_other(found, made.recipe)
    for name, now in made.identity.items():
        if (before := found.facts[name]) != now:
            raise ValueError(f"{folder}: the {name} changed since this run began (fingerprint {before[:12]}, now {now[:12]}); "
                             f"bring the old {name} back, or start another run with --out")


def state_of(made: Made) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    groups, facts = made.trainer.state()
    return groups, facts | made.identity | {"recipe": made.recipe.json(), "world": made.trainer.world.size,
                                            "validated": made.trainer.validated,
                                            "environment": environment(made.trainer.world.device)}


# Training

def train(recipe: R.Recipe, out: str | Path | None = None, *, say: Say = silent, progress: Callable[[Progress], None] | None = None,
          begun: Callable[[Made, float, int], None] | None = None, board: bool = False) -> Iterator[Event]:
    """The steps of a run, from where it stands. Saves as it goes; after the last step the model lies in `<out>/model`."""
    folder = folder_of(recipe, out)
    keep_blocks()
    with ExitStack() as stack:
        stack.enter_context(configured(recipe))
        ranks = stack.enter_context(world(recipe.timeouts))
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        refuse_what_cannot_fit(recipe, memory(recipe, ranks.size), available(ranks.device, here))
        if ranks.rank == 0:
            stack.enter_context(Lock(folder))
        found = newest(folder / "checkpoints", say)
        if found is not None:
            refuse_other(found, recipe)                # before anything is written
        if ranks.rank == 0:
            remember(folder, recipe, say if found else silent)
        made = make(recipe, ranks, progress, fresh=found is None)
        trainer = made.trainer
        for line in (*notes(Path(made.data)), *trainer.notes()):
            say(line)
        stack.callback(trainer.let_go)
        if found is not None:
            restore(made, found, folder, say)
        ranks.wait()
        if trainer.step == recipe.steps and finished(folder):
            if (wrong := damage(folder / "model")) is None:
                say(f"{folder} is finished: all {recipe.steps:,} steps are done; its model lies in {folder / 'model'}")
                return
            say(f"{wrong}; the model is made again from the checkpoint")
        saver = stack.enter_context(Saver(folder / "checkpoints", recipe.save.keep, averaged(recipe))) if ranks.rank == 0 else None
        log = stack.enter_context(Log(folder, trainer.step, trainer.validated, recipe, board, say)) if ranks.rank == 0 else None
        need = checkpoint_bytes(recipe, sum(p.numel() for p in made.objective.parameters()))
        free_space(folder / "checkpoints", need * (keep_of(recipe) + 1))
        if begun is not None:
            begun(made, *trainer.probe())  # nothing can be lost yet, so a signal ends it at once
        stack.enter_context(signals(trainer))
        yield from walk(made, saver, log)
        if trainer.step == recipe.steps:
            finish(made, folder, log, say)


def walk(made: Made, saver: Saver | None, log: Log | None) -> Iterator[Event]:
    """Each step is logged, then looked at and saved where that is due, then shown."""
    recipe, saved = made.recipe, made.trainer.step
    if owed(made):
        note(log, "valid", saved, look(made))
    for event in made.trainer:
        if log is not None:
            log.step(event)
        if due(recipe, event.step):
            found = look(made)
            note(log, "valid", event.step, found)
            event = event._replace(valid=found)
        if saver is not None and log is not None and event.step % recipe.save.every == 0:
            log.sync()
            saver.submit(event.step, *state_of(made))
            saved = event.step
        try:
            yield event
        except GeneratorExit:              # the caller has seen enough
            keep(saver, made, saved)
            raise
    keep(saver, made, saved)


def keep(saver: Saver | None, made: Made, saved: int) -> None:
    """What is not saved yet, on the disk when this returns."""
    if saver is not None:
        if made.trainer.step > saved:
            saver.submit(made.trainer.step, *state_of(made))
        saver.wait()


def due(recipe: R.Recipe, step: int) -> bool:
    return bool(recipe.evaluate and step and step % recipe.evaluate == 0 and step < recipe.steps)


def owed(made: Made) -> bool:
    """Did a stop break off the validation of this step?"""
    return due(made.recipe, made.trainer.step) and made.trainer.validated < made.trainer.step


def look(made: Made) -> dict[str, float] | None:
    """The validation loss, its terms, and the task's own measures; None without such data, or where a stop came meanwhile."""
    if made.valid is None:
        return None
    best = made.trainer.average
    own = Measured(made.recipe, made.valid) if R.metric(made.recipe) else None
    found = validate(made.trainer, made.corruption, made.valid, *([own] if own else []))
    if found is not None:
        made.trainer.validated = made.trainer.step
        found |= own.scores(made.trainer.world) if own else {}
        if isinstance(best, BestWeights):
            best.consider(made.trainer.step, found)
    return found


def note(log: Log | None, name: str, step: int, found: dict[str, float] | None) -> None:
    if log is not None and found is not None:
        log.valid(step, name, found)


def finish(made: Made, folder: Path, log: Log | None, say: Say) -> None:
    """The last look at the validation data, the averaged weights in place, and the model's own folder. The log comes last: what is
    broken off here is done again as a whole."""
    trainer, plain = made.trainer, look(made)
    best = trainer.average.best if isinstance(trainer.average, BestWeights) else None
    weights, better = kept(made, folder, say), None
    if weights is not None:
        made.objective.load_state_dict(weights, strict=False)
        better = best or look(made)
    if trainer.stop and trainer.world.size == 1:
        return                             # the next start finishes
    if log is not None:
        export(made, folder)
        note(log, "valid", trainer.step, plain)
        note(log, "best" if best else "averaged", trainer.step, better)
        log.finish()


def kept(made: Made, folder: Path, say: Say) -> dict[str, torch.Tensor] | None:
    """The weights that the model shall have, where not the last."""
    if made.trainer.average is not None:
        return made.trainer.average.held
    if not (wanted := averaged(made.recipe)):
        return None
    last = [c for c in checkpoints(folder / "checkpoints", say) if c.step in wanted]
    for found in last:
        recognise(made, found, folder)
    if len(last) < len(wanted):
        say(f"averaged over {len(last)} checkpoints, not {len(wanted)}: the others are missing or damaged")
    return mean_of(c.group("model") for c in last)


def export(made: Made, folder: Path) -> Path:
    """The trained model beside its tokenizer."""
    model = merged(made.objective.model)
    meta, corruption = made.store.meta, made.corruption
    model.spec = special_ids(S.named(model.spec, meta.labels), meta.special, corruption.start)
    text = Folder(str(made.data)).tokenizer() if meta.tokenizer else None
    return save(model, folder / "model", to="weft", tokenizer=with_marks(text, corruption.marks) if text and corruption.marks else text)
