"""Tries, one after another, each an ordinary run; then the best of them as the run's own model."""
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import recipe as R
from ..data.files import write
from ..interop.beside import carry
from ..interop.manifest import MANIFEST, damage, write_manifest
from ..run import train
from ..train.log import finished, read
from ..train.loop import Event
from ..train.same import recipe_of
from ..values import paths
from .plan import TABLE, Plan


class Tick(NamedTuple):
    """A step of a try."""
    number: int                            # of the try, from 1
    rate: float
    seed: int
    event: Event
    best: float | None                     # so far in this try
    left: float                            # seconds, of all tries


def search(plan: Plan, say: Callable[[str], None]) -> Iterator[Tick]:
    """First every rate with the first seed, then the best rate with further seeds (BERT, arXiv:1810.04805, section 4.1).
    Ends early where a run is asked to stop; only the end writes the folder's own model."""
    refuse_others(plan, say)
    asked, done = [(rate, plan.recipe.seed) for rate in plan.rates], list[dict[str, Any]]()
    pace = Pace((len(plan.rates) + plan.restarts - 1) * plan.recipe.steps)
    while asked:
        rate, seed = asked.pop(0)
        recipe = plan.at(rate, seed)
        folder = plan.folder / recipe.name
        if not complete(folder, recipe):
            best = so_far(folder, plan.metric)
            for event in train(recipe, folder, say=say):
                if event.step % (recipe.evaluate or 1) == 0:
                    best = so_far(folder, plan.metric)
                yield Tick(len(done) + 1, rate, seed, event, best, pace.left(len(done) * recipe.steps + event.step))
            if not complete(folder, recipe):
                return
        done.append(result_of(folder, plan.metric, rate, seed))
        tidy(plan, done)
        if len(done) == len(plan.rates):
            asked = [(choose(done, plan.metric)["rate"], plan.recipe.seed + i) for i in range(1, plan.restarts)]
    keep(plan, done)


def refuse_others(plan: Plan, say: Callable[[str], None]) -> None:
    """Every try that can come is made once, so that a bad rate, or a try of other settings, is found before the first."""
    for recipe in [plan.at(rate, plan.recipe.seed + i) for rate in plan.rates for i in range(plan.restarts)]:
        folder = plan.folder / recipe.name
        begun = finished(folder) or any((folder / "checkpoints").glob("step-*"))
        if begun and (old := recipe_of(folder, say)) != recipe:
            before, now = (paths(json.loads(one.json())) for one in (old, recipe))
            changed = next(name for name in now | before if now.get(name) != before.get(name))
            raise ValueError(f"{folder} was begun with another recipe: {changed} was {before.get(changed)!r}; "
                             "undo the change, or give another --out")


class Pace:
    """Time left, from the steps that this process took."""

    def __init__(self, total: int) -> None:
        self.total, self.taken, self.begun = total, 0, time.monotonic()

    def left(self, step: int) -> float:
        self.taken += 1
        return (time.monotonic() - self.begun) / self.taken * (self.total - step)


def complete(folder: Path, recipe: R.Recipe) -> bool:
    """Finished, and with this very recipe; with another one, `train` says what differs."""
    model = folder / "model"
    whole = model.is_dir() and (not (model / MANIFEST).exists() or damage(model) is None)
    return finished(folder) and whole and R.of_run(folder) == recipe


def so_far(folder: Path, metric: str) -> float | None:
    """The best look until now."""
    looks = [line["valid"][metric] for line in read(folder / "log.jsonl") if "valid" in line]
    return (min if metric == "loss" else max)(looks) if looks else None


def better(a: float, b: float, metric: str) -> bool:
    return a < b if metric == "loss" else a > b


def result_of(folder: Path, metric: str, rate: float, seed: int) -> dict[str, Any]:
    lines = read(folder / "log.jsonl")
    best = next(line["best"] for line in reversed(lines) if "best" in line)
    seconds = sum(line["seconds"] for line in lines if "seconds" in line)
    return {"try": folder.name, "rate": rate, "seed": seed, metric: best[metric], "step": best["step"], "seconds": round(seconds, 1),
            "dev": {name: number for name, number in best.items() if name != "step"}}


def choose(done: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """The first of the best."""
    best = done[0]
    for one in done[1:]:
        best = one if better(one[metric], best[metric], metric) else best
    return best


def tidy(plan: Plan, done: list[dict[str, Any]]) -> None:
    """A try that is finished needs its model alone; only the best keeps its checkpoint, to go on from. The table grows by a row."""
    best = choose(done, plan.metric)
    for one in done:
        if one is not best:
            shutil.rmtree(plan.folder / one["try"] / "checkpoints", ignore_errors=True)
    write(plan.folder / TABLE, (json.dumps(table(plan, done), indent=1) + "\n").encode())


def table(plan: Plan, done: list[dict[str, Any]]) -> dict[str, Any]:
    return {"run": str(plan.folder), "checkpoint": plan.recipe.start, "task": plan.task, "data": plan.line, "metric": plan.metric,
            "rows": plan.train, "dev_rows": plan.dev, "length": plan.recipe.batch.length, "steps": plan.recipe.steps,
            "precision": plan.recipe.precision, "tries": done, "best": choose(done, plan.metric)["try"]}


def keep(plan: Plan, done: list[dict[str, Any]]) -> None:
    """The best try's model, recipe and log as the whole's own: the folder then opens like any finished run."""
    best = plan.folder / choose(done, plan.metric)["try"]
    fresh = plan.folder / ".model"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(best / "model", fresh)
    carry(Path(str(plan.recipe.start)), fresh, plan.recipe.model)
    write_manifest(fresh)
    shutil.rmtree(plan.folder / "model", ignore_errors=True)
    fresh.rename(plan.folder / "model")
    for file in ("log.jsonl", "recipe.json", "curve.svg"):
        shutil.copyfile(best / file, plan.folder / file)
