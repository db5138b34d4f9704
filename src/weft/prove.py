"""Proof that a run goes on exactly: its last interval is trained again."""
import time
from pathlib import Path
from typing import NamedTuple

from . import recipe as R
from .run import due, look, make, recognise, silent
from .train.checkpoint import checkpoints
from .train.environment import configured
from .train.lock import Lock
from .train.same import recipe_of


class Proof(NamedTuple):
    begin: int
    end: int
    kept: str
    again: str
    seconds: float


def check(out: str | Path) -> Proof:
    """Train the last interval again, from the checkpoint before it, and compare every bit with the newest."""
    folder, started = Path(out), time.perf_counter()
    recipe = recipe_of(folder, silent)
    found = checkpoints(folder / "checkpoints")
    if not found:
        raise ValueError(f"{folder} has no good checkpoint yet; train it first")
    if found[-1].facts["world"] > 1:
        raise ValueError(f"{folder} was trained by {found[-1].facts['world']} ranks, whose sums one process does not repeat bit by bit")
    with Lock(folder), configured(recipe):
        made = make(recipe, fresh=False)
        for one in found[-2:]:
            recognise(made, one, folder)
        made.trainer.restore(found[-1].groups(), found[-1].facts)
        kept = made.trainer.digest()
        made = make(recipe, fresh=len(found) == 1)             # as another process would begin
        if len(found) > 1:
            made.trainer.restore(found[-2].groups(), found[-2].facts)
        begin = made.trainer.step
        for event in made.trainer:
            if isinstance(recipe.average, R.Best) and due(recipe, event.step):
                look(made)
            if event.step == found[-1].step:
                break
        return Proof(begin, found[-1].step, kept, made.trainer.digest(), time.perf_counter() - started)
