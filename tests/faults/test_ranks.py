"""One rank of a real torchrun dies: all others leave soon, nothing is left running, and the run goes on as if nothing had happened."""
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from weft import recipe as R
from weft import run

from . import runs
from .runs import Whole, ranks, told, train, whole

__all__ = ["whole"]
LIMIT = 30.0                               # seconds


def fall(made: run.Made, phase: str, step: int, note: Path) -> None:
    """Makes this process die at a phase of a step."""
    def now() -> bool:
        return made.trainer.step == step

    def die() -> None:
        note.touch()
        runs.die()

    if phase == "forward":
        embed = made.objective.model.embed
        made.objective.model.embed = lambda *a, **k: die() if now() else embed(*a, **k)     # type: ignore[method-assign]
    elif phase == "backward":              # the others wait in the engine's all-reduce
        next(made.objective.parameters()).register_hook(lambda grad: die() if now() else None)
    elif phase == "reduce":                # in the midst of one
        reduce = dist.all_reduce

        def half(tensor: torch.Tensor, **more: Any) -> Any:
            if now():
                reduce(tensor, async_op=True)
                die()
            return reduce(tensor, **more)
        dist.all_reduce = half
    else:                                  # in the thread that saves
        from weft.train import disk
        rename = disk.rename
        disk.rename = lambda path, to: die() if to.name == f"step-{step:09d}" else rename(path, to)   # type: ignore[assignment]


def fallen(out: Path) -> Path:
    return out.with_suffix(".fallen")


def main() -> None:
    """What torchrun starts: recipe, run folder, the phase and step at which a rank falls."""
    file, out, phase, step, rank = sys.argv[1:]

    def plot(made: run.Made, event: Any) -> None:
        if event is None and made.trainer.world.rank == int(rank):
            fall(made, phase, int(step), fallen(Path(out)))
    torch.set_num_threads(1)
    train(R.read(file), Path(out), plot)


def alive(session: int) -> list[str]:
    """Processes of a session, by name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
            fields = rest.split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(name)
        except OSError:                    # gone meanwhile
            continue
    return found


PHASES = [("forward", 7, 1), ("reduce", 9, 1), ("save", 12, 0)]


def two(whole: Whole) -> R.Recipe:
    return replace(whole.recipes["translation, packed"], steps=16)


@pytest.fixture(scope="module")
def expected(whole: Whole) -> Any:
    """What two ranks leave when nothing happens."""
    out = whole.folder / "two ranks"
    digests = ranks(two(whole), out, 2, lambda: train(two(whole), out))
    assert all(isinstance(digest, str) for digest in digests), digests
    return digests, told(out)


def test_a_rank_that_dies_takes_all_down_soon_and_the_run_goes_on_bit_for_bit(whole: Whole, expected: Any, tmp_path: Path,
                                                                              long: bool) -> None:
    cases = PHASES if not long else [(phase, step, rank) for phase in ("forward", "backward", "reduce", "save") for rank in (0, 1)
                                     for step in ((4, 8, 12) if phase == "save" else range(2, 16, 2)) if phase != "save" or rank == 0]
    for i, (phase, step, rank) in enumerate(cases):
        out, file = tmp_path / f"run-{i}", tmp_path / "recipe.json"
        file.write_text(two(whole).json())
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d",
             "--rdzv-endpoint", "localhost:0", "-m", "tests.faults.test_ranks", str(file), str(out), phase, str(step), str(rank)],
            cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"})
        said, _ = process.communicate(timeout=120)
        since = fallen(out).stat().st_mtime
        while (left := alive(process.pid)) and time.time() < since + LIMIT:
            time.sleep(0.1)
        assert not left, f"{phase}: still there: {left}"
        assert time.time() < since + LIMIT, said
        assert process.returncode != 0, said
        assert "Signal 9 (SIGKILL)" in said, said
        assert (ranks(two(whole), out, 2, lambda out=out: train(two(whole), out)), told(out)) == expected, f"{phase} at {step}"


if __name__ == "__main__":
    main()
