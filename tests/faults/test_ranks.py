"""When one rank under torchrun dies, all others exit soon, no process remains, and the run resumes
bit for bit.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from weft import recipe as R
from weft.runs import run

from . import runs
from .runs import Whole, ranks, told, train, whole

__all__ = ["whole"]
LIMIT = 30.0  # seconds
PATIENCE = 400.0  # seconds: many times what a machine that is not busy needs to start ranks


def fall(made: run.Run, phase: str, step: int, note: Path) -> None:
    """Makes this process die at a phase of a step."""

    def now() -> bool:
        return made.trainer.step == step

    def die() -> None:
        note.touch()
        runs.die()

    if phase == "forward":
        embed = made.loss.model.embed
        made.loss.model.embed = lambda *a, **k: die() if now() else embed(*a, **k)  # type: ignore[method-assign]
    elif phase == "backward":  # the others wait in the engine's all-reduce
        next(made.loss.parameters()).register_hook(lambda grad: die() if now() else None)
    elif phase == "reduce":  # in the midst of one
        reduce = dist.all_reduce

        def half(tensor: torch.Tensor, **more: Any) -> Any:
            if now():
                reduce(tensor, async_op=True)
                die()
            return reduce(tensor, **more)

        dist.all_reduce = half
    else:  # in the thread that saves
        from weft.support import storage

        rename = storage.rename
        storage.rename = lambda path, to: (
            die() if to.name == f"step-{step:09d}" else rename(path, to)
        )  # type: ignore[assignment]


def fallen(out: Path) -> Path:
    return out.with_suffix(".fallen")


def main() -> None:
    """What torchrun starts: recipe, run folder, the phase and step at which a rank falls."""
    file, out, phase, step, rank = sys.argv[1:]

    def plot(made: run.Run, event: Any) -> None:
        if event is None and made.trainer.ranks.world_rank == int(rank):
            fall(made, phase, int(step), fallen(Path(out)))

    torch.set_num_threads(1)
    train(R.load_recipe(file), Path(out), plot)


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


def test_a_killed_rank_stops_all_and_the_run_resumes_bit_for_bit(
    whole: Whole, expected: Any, tmp_path: Path, long: bool
) -> None:
    cases = PHASES
    if long:
        anywhere = product(("forward", "backward", "reduce"), range(2, 16, 2), (0, 1))
        cases = [*anywhere, *product(("save",), (4, 8, 12), (0,))]
    for i, (phase, step, rank) in enumerate(cases):
        out = tmp_path / f"run-{i}"
        file = tmp_path / "recipe.json"
        file.write_text(two(whole).to_json())
        process = start(file, out, phase, str(step), str(rank))
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            end(out)
            raise
        since = fallen(out).stat().st_mtime
        while (left := members(out)) and time.time() < since + LIMIT:
            time.sleep(0.1)
        assert not left, f"{phase}: still there: {left}"
        assert time.time() < since + LIMIT, said
        assert process.returncode != 0, said
        assert "Signal 9 (SIGKILL)" in said, said
        assert (
            ranks(two(whole), out, 2, lambda out=out: train(two(whole), out)),
            told(out),
        ) == expected, f"{phase} at {step}"


def start(file: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--master-port",
            "0",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "localhost:0",
            "-m",
            "tests.faults.test_ranks",
            str(file),
            str(out),
            *words,
        ],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def members(out: Path) -> dict[int, int]:
    """The processes that name a run folder, torchrun, ranks and data workers, each with its parent.
    Each rank has a session of its own.
    """
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if (
                str(out).encode() in (path / "cmdline").read_bytes().split(b"\0")
                and fields[0] != "Z"
            ):
                found[int(path.name)] = int(fields[1])
        except OSError:  # gone meanwhile
            continue
    return found


def end(out: Path) -> None:
    for pid in members(out):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", ["stopped", "killed early", "parent killed"])
def test_no_process_is_left_thirty_seconds_after_a_rank_stops_or_torchrun_is_killed(
    how: str, whole: Whole, tmp_path: Path, long: bool
) -> None:
    """A stopped rank held the others for the time of a collective operation and torchrun's
    patience; a killed torchrun left all.
    """
    for i in range(17 if long else 1):
        leaves_no_process(how, whole, tmp_path / f"{i}", 1 + i % 5)


def leaves_no_process(how: str, whole: Whole, folder: Path, patience: float) -> None:
    folder.mkdir()
    file = folder / "recipe.json"
    out = folder / "run"
    file.write_text(
        replace(two(whole), steps=100_000, checkpoints=R.Checkpoints(every_steps=50_000)).to_json()
    )
    process = start(file, out, "never", "0", "0")
    try:
        ranks_ = []
        limit = time.time() + PATIENCE
        while len(ranks_) < 2 or not (how == "killed early" or (out / "log.jsonl").exists()):
            assert process.poll() is None
            assert time.time() < limit
            ranks_ = [pid for pid, parent in members(out).items() if parent == process.pid]
            time.sleep(0.05)
        time.sleep(patience)
        since = time.time()
        os.kill(
            process.pid if how == "parent killed" else max(ranks_),
            signal.SIGSTOP if how == "stopped" else signal.SIGKILL,
        )
        while (left := set(members(out)) - {process.pid}) and time.time() < since + LIMIT:
            process.poll()
            time.sleep(0.1)
        assert not left
    finally:
        end(out)
        said = process.communicate()[0]
    if how == "stopped":
        assert "SIGSTOP" in said


@pytest.mark.parametrize(
    ("nodes", "own_store", "warns"), [(2, "0", True), (2, "1", False), (1, "0", False)]
)
def test_a_start_on_several_nodes_warns_where_torchrun_could_not_start_again(
    nodes: int,
    own_store: str,
    warns: bool,
    whole: Whole,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GROUP_WORLD_SIZE", str(nodes))
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", own_store)
    lines: list[str] = []
    train(replace(whole.recipes["causal"], steps=1), tmp_path / "run", None, lines.append)
    assert ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in line for line in lines].count(True) == warns


if __name__ == "__main__":
    main()
