"""Signals: a run stops after the current step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Stoppable(Protocol):
    """What stops at its next opportunity once this is set, such as a trainer after its step."""

    stop_requested: bool


@contextmanager
def stop_on_signal(work: Stoppable) -> Iterator[None]:
    """Request a stop on Ctrl-C and SIGTERM, also if they come several times."""

    def ask(*_: Any) -> None:
        work.stop_requested = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: its owner stops it
        before = {}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
