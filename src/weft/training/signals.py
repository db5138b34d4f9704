"""Signal handling: Ctrl-C and SIGTERM stop a run after the current step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Stoppable(Protocol):
    """An object that stops at its next opportunity once the flag is set, such as a trainer after
    its step.
    """

    stop_requested: bool


@contextmanager
def stop_on_signal(work: Stoppable) -> Iterator[None]:
    """Request a stop on Ctrl-C and SIGTERM; repeated signals have no further effect."""

    def ask(*_: Any) -> None:
        work.stop_requested = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # signals can be set only in the main thread
        before = {}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
