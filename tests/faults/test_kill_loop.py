"""A machine that fails again and again: kills at random times, on two or three ranks, and one hash
at the end.
"""

import os
import random
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R

from .runs import Whole, fork, ranks, told, train, wait, whole

__all__ = ["whole"]


def started(recipe: R.Recipe, out: Path, world: int) -> list[int]:
    """The ranks of a run, at work."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    notes = [out.with_name(f"{out.name}-{rank}.json") for rank in range(world)]
    where = {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return [
        fork(lambda: train(recipe, out), note, **where, RANK=str(rank))
        for rank, note in enumerate(notes)
    ]


def fail(pids: list[int], draw: random.Random, after: float) -> bool:
    """Kill all ranks, as a power failure does, or one of them; False where they ended before."""
    until = time.monotonic() + after
    left = dict.fromkeys(pids, True)
    while time.monotonic() < until:
        for pid in [pid for pid, here in left.items() if here]:
            left[pid] = os.waitpid(pid, os.WNOHANG) == (0, 0)
        if not any(left.values()):
            return False
        time.sleep(0.005)
    alive = [pid for pid, here in left.items() if here]
    for pid in alive if draw.random() < 0.8 else [draw.choice(alive)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pid in alive:
        # The others wait a minute for a rank that was killed before it joined
        wait(pid, 150.0)
    return True


@pytest.mark.parametrize("world", [2, 3])
def test_kills_with_any_mean_time_between_them_end_in_one_hash(
    world: int, whole: Whole, tmp_path: Path, long: bool
) -> None:
    recipe = whole.recipes["translation, packed"]
    aim = 100 if long else 3

    def whole_run(out: Path) -> tuple[list[Any], Any]:
        return ranks(recipe, out, world, lambda: train(recipe, out)), told(out)

    began = time.monotonic()
    expected = whole_run(tmp_path / "whole")
    seconds = time.monotonic() - began
    draw = random.Random(world)
    kills = 0
    runs = 0
    while kills < aim:
        out = tmp_path / f"run-{runs}"
        between = draw.uniform(0.2, 1.5) * seconds
        runs = runs + 1
        while kills < aim and fail(
            started(recipe, out, world), draw, draw.expovariate(1 / between)
        ):
            kills += 1
        assert whole_run(out) == expected
    print(f"{world} ranks: {kills} kills in {runs} runs, one hash {expected[0][0][:12]}")
