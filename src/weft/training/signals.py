"""Signals: a run stops after the current step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .loop import Trainer


@contextmanager
def stop_on_signal(trainer: Trainer) -> Iterator[None]:
    """Stop the trainer after the current step on Ctrl-C and SIGTERM, also if they come several times."""

    def ask(*_: Any) -> None:
        trainer.stop_requested = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: its owner stops it
        before = {}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
