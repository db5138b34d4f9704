"""Heartbeats: killed or stopped ranks end all others; busy ranks do not."""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from weft import recipe as R
from weft.training.parallel import heartbeat
from weft.training.parallel.ranks import DistributedRanks, init_ranks

from ...faults.runs import fork, free_port, wait
from ...faults.test_ranks import LIMIT

Work = Callable[[DistributedRanks], Any]
SILENCE = 4.0  # seconds: shorter than by default
LONG = 8.0  # seconds after which a silent rank would be lost


def hold_interpreter(seconds: int) -> None:
    """One call that does not release the interpreter: no other Python thread runs."""
    ctypes.PyDLL(None).sleep(seconds)


def start(
    folder: Path,
    work: Work,
    port: int | None = None,
    timeouts: R.Timeouts = R.Timeouts(heartbeat=SILENCE),
    size: int = 2,
    **environment: str,
) -> list[int]:
    """Ranks without torchrun, which would end one when it sees another end."""
    port = port or free_port()

    def join() -> None:
        with init_ranks(timeouts, device="cpu") as ranks:
            work(ranks)

    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        fork(join, folder / f"rank-{rank}", RANK=str(rank), **shared, **environment)
        for rank in range(size)
    ]


def wait_in_store(ranks: DistributedRanks) -> None:
    """Where no collective operation notices that a rank is lost."""
    ranks.store.wait(["never"], timedelta(days=1))


def descendants(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(int(child) for child in children)]


@pytest.mark.parametrize(
    ("timeouts", "seconds"),
    [
        (R.Timeouts(heartbeat=SILENCE), LONG),
        pytest.param(R.Timeouts(), 40.0, marks=pytest.mark.slow),
    ],
)
def test_a_rank_whose_interpreter_is_blocked_for_longer_than_the_timeout_is_not_lost(
    timeouts: R.Timeouts, seconds: float, tmp_path: Path
) -> None:
    def work(ranks: DistributedRanks) -> None:
        time.sleep(3 * heartbeat.PERIOD)  # all have heard of each other
        if ranks.rank:
            hold_interpreter(int(seconds))
        assert ranks.sum([1.0]) == [2.0]

    started = start(tmp_path, work, timeouts=timeouts)
    assert [wait(rank, 2 * LIMIT + seconds) for rank in started] == [0, 0]


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_killed_or_stopped_ends_those_that_wait_in_the_store(
    how: signal.Signals, lost: int, tmp_path: Path
) -> None:
    """The first rank also serves the store."""

    def work(ranks: DistributedRanks) -> None:
        if ranks.rank == lost:
            os.kill(os.getpid(), how)
        wait_in_store(ranks)

    started = start(tmp_path, work)
    limit = time.monotonic() + LIMIT
    codes = [wait(rank, limit - time.monotonic()) for rank in started]
    assert codes[lost] == -signal.SIGKILL
    assert codes[1 - lost] != 0


def test_every_rank_reports_the_lost_rank(tmp_path: Path) -> None:
    """Not only the one that watches it. The store is in a process of its own, as under torchrun."""
    store = dist.TCPStore("127.0.0.1", 0, None, True)

    def work(ranks: DistributedRanks) -> None:
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        wait_in_store(ranks)

    started = start(tmp_path, work, store.port, size=3, TORCHELASTIC_USE_AGENT_STORE="True")
    assert [wait(rank, LIMIT) for rank in started] == 3 * [-signal.SIGKILL]
    for rank in (0, 2):
        said = (tmp_path / f"rank-{rank}.out").read_text()
        assert said.count("weft: rank 1 has not responded for 4 s; all ranks stop; run ") == 1


def test_a_store_that_does_not_answer_is_named_and_no_rank(tmp_path: Path) -> None:
    port = free_port()

    def serve() -> None:
        store = dist.TCPStore("127.0.0.1", port, None, True)
        store.wait(["never"], timedelta(days=1))

    def work(ranks: DistributedRanks) -> None:
        time.sleep(3 * heartbeat.PERIOD)  # all have heard of each other
        (tmp_path / f"joined-{ranks.rank}").touch()
        time.sleep(LIMIT)

    server = fork(serve, tmp_path / "server")
    started = start(tmp_path, work, port, TORCHELASTIC_USE_AGENT_STORE="True")
    while not all((tmp_path / f"joined-{rank}").exists() for rank in range(2)):
        time.sleep(0.1)
    os.kill(server, signal.SIGSTOP)
    codes = [wait(rank, LIMIT) for rank in started]
    os.kill(server, signal.SIGKILL)
    wait(server)
    assert codes == 2 * [-signal.SIGKILL]
    for rank in range(2):
        said = (tmp_path / f"rank-{rank}.out").read_text()
        assert "weft: the rendezvous store has not responded for 4 s; all ranks stop" in said
        assert "rank 0" not in said
        assert "rank 1" not in said


@pytest.mark.slow
def test_a_suspended_job_continues(tmp_path: Path) -> None:
    def work(ranks: DistributedRanks) -> None:
        (tmp_path / f"joined-{ranks.rank}").touch()
        while not (tmp_path / "resumed").exists():
            time.sleep(0.1)
        assert ranks.sum([1.0]) == [2.0]

    started = start(tmp_path, work)
    while not all((tmp_path / f"joined-{rank}").exists() for rank in range(2)):
        time.sleep(0.1)
    time.sleep(SILENCE)  # all have heard of each other
    processes = [process for rank in started for process in descendants(rank)]
    assert len(processes) == 4
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    time.sleep(LONG)
    for process in reversed(processes):
        os.kill(process, signal.SIGCONT)
    time.sleep(SILENCE)
    (tmp_path / "resumed").touch()
    assert [wait(rank) for rank in started] == [0, 0]


def test_sigterm_ends_a_rank_that_waits_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun sends it and waits for thirty seconds; a handler in Python does not run before the
    waiting is over.
    """
    monkeypatch.setattr(heartbeat, "GRACE", 1.0)

    def work(ranks: DistributedRanks) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        (tmp_path / f"joined-{ranks.rank}").touch()
        wait_in_store(ranks)

    started = start(tmp_path, work)
    while not all((tmp_path / f"joined-{rank}").exists() for rank in range(2)):
        time.sleep(0.1)
    os.kill(started[1], signal.SIGTERM)
    assert wait(started[1], LIMIT) == -signal.SIGKILL
    assert wait(started[0], LIMIT) == -signal.SIGKILL


def test_what_an_earlier_start_left_in_the_store_is_not_read(tmp_path: Path) -> None:
    """torchrun may keep its store when it starts the ranks again."""
    store = dist.TCPStore("127.0.0.1", 0, None, True)
    for key in ("lost", "0", "1"):
        store.set(f"heartbeat/{key}", "earlier 7")

    def work(ranks: DistributedRanks) -> None:
        time.sleep(3 * heartbeat.PERIOD)
        assert ranks.sum([1.0]) == [2.0]

    started = start(tmp_path, work, store.port, TORCHELASTIC_USE_AGENT_STORE="True")
    assert [wait(rank) for rank in started] == [0, 0]
    for rank in range(2):
        assert store.get(f"heartbeat/{rank}").endswith(b"done")
