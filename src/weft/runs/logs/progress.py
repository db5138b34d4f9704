"""Progress lines on the terminal: processed rows, prepared data."""

import sys
import time
from contextlib import ExitStack
from math import isfinite
from typing import Self

from ...data.preparing.task_runner import PrepareProgress
from ...support.console import SPINNER_DELAY, format_duration, format_number, spinner

# Seconds between two updates on a terminal, and elsewhere
LIVE_SECONDS = 0.2
PLAIN_SECONDS = 10.0


class ProgressLine:
    """One line on stderr: on a terminal a spinner, then a line that is rewritten; elsewhere a plain
    line every ten seconds.
    """

    prefix = "weft: "  # of a plain line

    def __init__(self, text: str = "") -> None:
        self.live = sys.stderr.isatty()
        self.shown = False
        self.started = time.monotonic()
        # The first line waits for the delay of a spinner, or of a plain line
        self.next_print = self.started + (SPINNER_DELAY if self.live else PLAIN_SECONDS)
        self.waiting = ExitStack()
        if text:
            self.waiting.enter_context(spinner(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self.next_print

    def print(self, line: str) -> None:
        self.waiting.close()
        self.shown = True
        self.next_print = time.monotonic() + (LIVE_SECONDS if self.live else PLAIN_SECONDS)
        print(
            f"\r\x1b[K{line}" if self.live else f"{self.prefix}{line}",
            end="" if self.live else "\n",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        self.waiting.close()
        if self.live and self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class CountProgressLine(ProgressLine):
    """A count with the time left: `evaluated 320 of 1,000 rows, 40 s left`."""

    def __init__(self, done: str, unit: str = "rows", text: str = "") -> None:
        super().__init__(text)
        self.verb = done
        self.unit = unit

    def __call__(self, done: int, total: int) -> None:
        if not done:
            self.started = time.monotonic()
            self.next_print = max(self.next_print, self.started + SPINNER_DELAY)
        elif done < total and self.is_due:
            seconds = time.monotonic() - self.started
            self.print(f"{self.verb} {count_left(done, total, self.unit, seconds)}")


def count_left(done: int, total: int, unit: str, seconds: float) -> str:
    """Format a count after some seconds, with the estimated time left."""
    left = seconds * (total - done) / done
    return f"{done:,} of {total:,} {unit}{time_left(left)}"


def time_left(seconds: float) -> str:
    return f", {format_duration(seconds)} left" if isfinite(seconds) else ""


# Preparing


class PrepareProgressLine(ProgressLine):
    """Progress of preparing data, with the total speed and the tokenizer's speed."""

    last: PrepareProgress | None = None

    def show(self, p: PrepareProgress) -> None:
        self.last = p
        if not self.is_due or (p.done == 1 and not self.live):  # the result shows completion
            return
        stages = {
            "tokenizer": "training the tokenizer",
            "classes": "collecting the class names",
        }
        speed = f", {prepare_speed(p.speed, p.tokenizer_speed)}" if p.speed else ""
        self.print(
            stages.get(p.stage) or f"preparing {p.stage}: {p.done:.0%}{speed}{time_left(p.left)}"
        )


def prepare_speed(speed: float, tokenizer_speed: float) -> str:
    """Format both speeds, given in millions of characters per second; data without a tokenizer,
    such as images, is measured in bytes.
    """
    if not tokenizer_speed:
        return f"{format_number(1e6 * speed)} bytes/s"
    alone = f" (tokenizer: {format_number(1e6 * tokenizer_speed)})"
    return f"{format_number(1e6 * speed)} characters/s{alone}"


def moving_average(before: float | None, now: float) -> float:
    return now if before is None else before + 0.05 * (now - before)
