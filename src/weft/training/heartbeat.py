"""Ranks watch each other: when one is lost, all others end soon, wherever they wait.

A rank that died or stopped leaves the others in a collective operation, where Python runs no signal handler. So each rank has a thread
that counts in the rendezvous store and watches the next rank's count: three small requests a second, however many ranks there are.
torchrun may keep the store when it restarts the ranks: what it held before belongs to others and is not read.
"""

import json
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from socket import gethostname
from threading import Event, Thread
from typing import Any

PERIOD = 1.0  # seconds between two beats
GRACE = 20.0  # seconds from SIGTERM to the end: torchrun sends SIGKILL after 30
LOST = 75  # exit code (EX_TEMPFAIL): run it again
TERMINATED = 143


class Heartbeat(Thread):
    """Count in the store under this rank's name, and end the process when the next rank has been silent for `timeout` seconds."""

    def __init__(self, store: Any, rank: int, size: int, timeout: float, wakeup: int) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.store, self.rank, self.next, self.timeout, self.wakeup = (
            store.clone(),
            rank,
            (rank + 1) % size,
            timeout,
            wakeup,
        )
        self.store.set_timeout(timedelta(seconds=timeout))
        self.over, self.terminated = Event(), float("inf")
        self.token = secrets.token_hex(8)  # no two processes publish the same words
        self.earlier = {key: self.get(key) for key in self.watched()}

    def run(self) -> None:
        self.publish("process", json.dumps([gethostname(), os.getpid(), self.token]))
        count, last_heard, last = 0, time.monotonic(), ""
        while not self.over.is_set():
            count += 1
            try:
                self.publish("beat", f"{self.token} {count}")
                self.exit_if_rank_lost()
                now = self.ask(f"beat/{self.next}")
                if now.split()[-1:] in ([], ["done"]) or now != last:
                    last_heard, last = time.monotonic(), now
            except RuntimeError:  # the store is gone: its process ended, or the run is over
                last = "the rendezvous store"
            if time.monotonic() - last_heard > self.timeout:
                self.end(last)
            self.wait()

    def wait(self) -> None:
        """A period, in which SIGTERM is noticed although the main thread may be in a collective operation."""
        if select.select([self.wakeup], [], [], PERIOD)[0] and signal.SIGTERM in os.read(
            self.wakeup, 256
        ):
            self.terminated = min(self.terminated, time.monotonic() + GRACE)
        if time.monotonic() > self.terminated and not self.over.is_set():
            os._exit(TERMINATED)

    def publish(self, name: str, text: str) -> None:
        self.store.set(f"heartbeat/{name}/{self.rank}", text)

    def watched(self) -> tuple[str, ...]:
        return "lost", f"beat/{self.next}"

    def get(self, name: str) -> str:
        key = f"heartbeat/{name}"
        return self.store.get(key).decode() if self.store.check([key]) else ""

    def ask(self, name: str) -> str:
        """Return what was published under the name since this process started; "" if nothing."""
        text = self.get(name)
        return "" if text == self.earlier[name] else text

    def exit_if_rank_lost(self) -> None:
        """End if any rank has found another one lost."""
        if self.ask("lost") and not self.over.is_set():
            os._exit(LOST)

    def end(self, last: str) -> None:
        if self.over.is_set():
            return
        who = last if last == "the rendezvous store" else f"rank {self.next}"
        print(
            f"weft: {who} has not responded for {self.timeout:g} s; all ranks stop; run it again to continue",
            file=sys.stderr,
            flush=True,
        )
        with suppress(RuntimeError, ValueError, OSError):
            self.store.set("heartbeat/lost", f"{self.token} {self.next}")
            host, process, token = json.loads(self.get(f"process/{self.next}"))
            if host == gethostname() and last.split()[:1] == [token]:  # not one of an earlier start
                os.kill(process, signal.SIGKILL)  # a stopped process obeys nothing else
        os._exit(LOST)

    def done(self) -> None:
        """This rank has left on purpose; the one that watches it need not mind."""
        self.over.set()
        with suppress(RuntimeError):
            self.publish("beat", f"{self.token} done")


@contextmanager
def heartbeat(store: Any, rank: int, size: int, timeout: float) -> Iterator[None]:
    """Watch from here to the end of the block. A block that ends with an error stops counting, so that the other ranks end too."""
    inside, outside = os.pipe()
    os.set_blocking(outside, False)
    with suppress(ValueError):  # not in the main thread: its owner has the signals
        signal.set_wakeup_fd(outside, warn_on_full_buffer=False)
    watch = Heartbeat(store, rank, size, timeout, inside)
    watch.start()
    try:
        yield
        watch.done()
    except GeneratorExit:
        watch.done()
        raise
    finally:
        watch.over.set()
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)
        watch.join(2 * PERIOD)
        if not watch.is_alive():
            os.close(inside)
            os.close(outside)
