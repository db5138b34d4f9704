"""Heartbeats between ranks: when one rank is lost, all others exit, even inside a collective
operation.

A rank that was killed or stopped leaves the others in a collective operation, where Python runs no
signal handler. So each rank has a child process that increments a counter in the rendezvous store
and watches the counter of the next rank: three small requests per second, for any number of ranks.
It is a process because a thread cannot run while a call holds the interpreter lock, and such a rank
is busy, not lost. torchrun may keep the store when it restarts the ranks; entries of earlier starts
are ignored.
"""

import multiprocessing
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch.distributed as dist

from ...support.processes import die_with_parent

PERIOD = 1.0  # seconds between two beats
GRACE = 20.0  # seconds from SIGTERM to the end: torchrun sends SIGKILL after 30
STOPPED = 5.0  # seconds after which a stopped rank is ended
DONE = b"\0"  # sent through the pipe from the rank, as are signal numbers
JOINED = b"\xff"  # all ranks have begun
NOTHING = "nothing"  # read from the store if no rank has published


class Heartbeat:
    """Increment this rank's counter in the store, and end this rank if it is stopped or the next
    rank has not responded for `timeout` seconds.

    Time in which this process itself was not running (a suspended container, an overloaded machine)
    does not count.
    """

    def __init__(self, rank: int, size: int, timeout: float, signals: int) -> None:
        self.rank = rank
        self.next = (rank + 1) % size
        self.timeout = timeout
        self.signals = signals
        self.process = os.getpid()
        self.clock = 0.0  # seconds during which this process was running
        # Value of the clock at the last response of the store; before the first one, the rank
        # itself # waits
        self.answered = float("inf")
        self.joined = Event()
        self.over = Event()

    def run(self) -> None:
        """Watch until the rank is done or dead. Only the thread uses the store: a request may wait
        forever if its server is stopped.
        """
        die_with_parent()
        for number in (signal.SIGINT, signal.SIGTERM):  # the rank decides
            signal.signal(number, signal.SIG_IGN)
        beats = Thread(target=self.beat, daemon=True)
        beats.start()
        self.watch()
        self.over.set()
        beats.join(2 * PERIOD)

    def watch(self) -> None:
        before = time.monotonic()
        stopped = 0.0
        terminated = float("inf")
        while os.getppid() == self.process:
            signals = self.wait()
            if DONE in signals:
                return
            if JOINED in signals:
                self.joined.set()
            now = time.monotonic()
            passed = min(now - before, 2 * PERIOD)
            before = now
            self.clock += passed
            stopped = stopped + passed if is_stopped(self.process) else 0.0
            if signal.SIGTERM in signals:
                terminated = min(terminated, now + GRACE)
            if stopped > STOPPED:
                self.end(f"rank {self.rank} was stopped (SIGSTOP) for {STOPPED:g} s")
            elif self.clock - self.answered > self.timeout + 2 * PERIOD:
                self.end(f"the rendezvous store has not responded for {self.timeout:g} s")
            elif now > terminated:
                self.end(f"rank {self.rank} did not stop within {GRACE:g} s of SIGTERM")

    def wait(self) -> bytes:
        """Return after a period, or with the signals that the rank received, even during a
        collective operation.
        """
        return (
            os.read(self.signals, 256) if select.select([self.signals], [], [], PERIOD)[0] else b""
        )

    def end(self, reason: str) -> None:
        """End this rank with SIGKILL, the only signal that a stopped process handles."""
        print(
            f"weft: {reason}; all ranks stop; run the same command again to continue",
            file=sys.stderr,
            flush=True,
        )
        os.kill(self.process, signal.SIGKILL)

    def beat(self) -> None:
        """Publish this rank's counter and read that of the next rank, until this rank is done."""
        # Without a store, the rank itself raises the error
        with suppress(RuntimeError, KeyError):
            address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self.exchange(dist.TCPStore(*address))  # type: ignore[attr-defined]

    def exchange(self, store: Any) -> None:
        token = secrets.token_hex(8)  # unique per process
        lost_key = "heartbeat/lost"
        next_key = f"heartbeat/{self.next}"
        earlier = {key: read(store, key) for key in (lost_key, next_key)}
        last = ""
        count = 0
        silent = 0  # successful beats since the next rank's counter last changed
        while not self.over.is_set():
            count += 1
            # The process of the store may have exited
            with suppress(RuntimeError):
                store.set(f"heartbeat/{self.rank}", f"{token} {count}")
                lost = read(store, lost_key)
                now = read(store, next_key)
                self.answered = self.clock
                if lost != earlier[lost_key]:
                    self.end(lost.partition(" ")[2])
                    return
                if now == earlier[next_key]:
                    now = ""  # not started
                changed = now != last or now.endswith("done") or not (now or self.joined.is_set())
                last = now
                silent = 0 if changed else silent + 1
                # On their next beat, all ranks print the reason and end
                if silent * PERIOD > self.timeout:
                    reason = f"rank {self.next} has not responded for {self.timeout:g} s"
                    store.set(lost_key, f"{token} {reason}")
            self.over.wait(PERIOD)
        store.set(f"heartbeat/{self.rank}", f"{token} done")


def read(store: Any, key: str) -> str:
    """Return the value published under the key, or "". A single request that never waits for the
    key.
    """
    # For a missing key, compare_set stores nothing and returns the expected value
    published: str = store.compare_set(key, NOTHING, NOTHING).decode()
    return "" if published == NOTHING else published


def is_stopped(process: int) -> bool:
    """Return whether a process is stopped by SIGSTOP; on other systems than Linux, False. A process
    held by a debugger does not count.
    """
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


@contextmanager
def heartbeat(rank: int, size: int, timeout: float) -> Iterator[Callable[[], object]]:
    """Watch until the end of the block. Yields a function to call once all ranks have joined;
    before, a rank that has not started is not lost. If the block ends with an error, the counter
    stops, so that the other ranks end too.
    """
    inside, outside = os.pipe()
    os.set_blocking(outside, False)
    watch = Heartbeat(rank, size, timeout, inside)
    child = multiprocessing.get_context("fork").Process(target=watch.run, daemon=True)
    child.start()
    with suppress(ValueError):  # signals can be set only in the main thread
        signal.set_wakeup_fd(outside, warn_on_full_buffer=False)

    def leave() -> None:
        os.write(outside, DONE)
        child.join(4 * PERIOD)

    try:
        yield partial(os.write, outside, JOINED)
        leave()
    except GeneratorExit:
        leave()
        raise
    finally:
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)
        child.kill()
        child.join()
        os.close(inside)
        os.close(outside)
