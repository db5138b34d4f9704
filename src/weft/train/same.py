"""Is a recipe that of the run that a folder holds? What may differ, what may not, and how far a run can be extended."""
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import recipe as R
from ..data.files import Missing, find, update
from ..values import from_json, paths, seal, to_plain
from .schedule import scale

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

FILE = "recipe.json"

# What may change between two starts
FREE = {"data.max_bad_rows", "micro", "workers", "recompute", "compile", "evaluate", "save.every", "save.keep", "guard.budget", "paper",
        "timeouts.collective", "timeouts.heartbeat", "threads"}
FILES = re.compile(r"data\.(train|valid)\.paths\.\d+|data\.tokenizer\.path|data\.folder|start|objective\.teacher")


def refuse_other(found: "Checkpoint", recipe: R.Recipe) -> None:
    """ValueError for a recipe that is not that of a checkpoint: another run's, or edited since."""
    before = saved_recipe(found)
    for name, was in differences(before, recipe):
        reason = "" if name != "steps" else cannot_extend(before, recipe, found.step)
        if reason is not None:
            raise ValueError(f"{found.path} was saved with another recipe: {name} was {was!r}; {reason}"
                             "undo the change, or give another --out")


def saved_recipe(found: "Checkpoint") -> R.Recipe:
    try:
        saved = from_json(found.facts["recipe"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{found.path}/state.json holds no recipe that can be read: {error}") from None
    if not isinstance(saved, R.Recipe):
        raise ValueError(f"{found.path}/state.json holds a {type(saved).__name__}, not a Recipe")
    return saved


def recipe_of(folder: Path, say: Callable[[str], None]) -> R.Recipe:
    """The recipe of a run. Where its file is missing or damaged, that of the newest checkpoint; where it was edited, an error."""
    try:
        return R.of_run(folder)
    except ValueError as error:
        from .checkpoint import newest  # torch, which is needed here alone
        found = newest(folder / "checkpoints", say)
        if found is None:
            raise
        saved = saved_recipe(found)
        refuse_edited(folder / FILE, saved, found.path.name)
        say(f"{error}; the recipe of {found.path.name} is used")
        return saved


def refuse_edited(path: Path, saved: R.Recipe, step: str) -> None:
    """ValueError for a file that holds a recipe, but not the one that was saved."""
    try:
        edited = R.of_json(path, sealed=False)
    except (ValueError, OSError):
        return                             # no recipe: it can be restored
    for name, was in differences(saved, edited)[:1]:
        raise ValueError(f"{path} was changed after it was written: {name} was {was!r} in {step}; undo the change, or delete the file "
                         "to restore it")


def remember(folder: Path, recipe: R.Recipe, say: Callable[[str], None]) -> None:
    """The recipe beside the run, with its own SHA-256; `say` hears of one that was missing or damaged."""
    path = folder / FILE
    try:
        R.of_json(path)
    except (ValueError, OSError) as error:
        say(f"{error if path.exists() else f'{path} is missing'}; it is written again")
    update(path, seal(to_plain(recipe)))


def differences(before: R.Recipe, now: R.Recipe) -> list[tuple[str, Any]]:
    """What was and is no more, by path, but for what may change."""
    old, new = (paths(json.loads(recipe.json())) for recipe in (before, now))
    free = FREE - {"save.every" if isinstance(now.average, R.Last) else "evaluate" if isinstance(now.average, R.Best) else ""}
    return [(name, old.get(name)) for name in new | old if name not in free and not same(name, old.get(name), new.get(name))]


def same(name: str, before: Any, now: Any) -> bool:
    """Two spellings of one file or folder are the same."""
    if before == now or not (FILES.fullmatch(name) and isinstance(before, str) and isinstance(now, str)):
        return bool(before == now)
    return places(before) == places(now)


def places(path: str) -> list[str]:
    try:
        return [found if "://" in found else os.path.realpath(found) for found in find(path)]
    except (Missing, OSError):
        return [os.path.realpath(os.path.expanduser(path))]


def cannot_extend(before: R.Recipe, now: R.Recipe, done: int) -> str | None:
    """Why the steps that are done would have been others with this many steps in all; None where they would have been the same."""
    if now.steps < done:
        return f"{done:,} steps are done already; "
    for step in range(done):
        old, new = (scale(recipe.schedule, step, recipe.steps) for recipe in (before, now))
        if old != new:
            peak = now.optimiser.rate
            return (f"with steps={now.steps} the {type(now.schedule).__name__} schedule would have had a learning rate of {peak * new:.3g} "
                    f"at step {step + 1:,}, not {peak * old:.3g}, and a run is extended only if all its past steps stay as they were "
                    "(Constant and InverseRoot always, WarmupStableDecay before its decay); ")
        if before.length(step) != now.length(step):
            return (f"with steps={now.steps} step {step + 1:,} would have had rows of {now.length(step)} tokens, "
                    f"not {before.length(step)}, because `lengths` are shares of the steps; ")
    return None
