"""Output: JSON for programs, text for people, and spinners. Heavy packages are imported on use."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[[str], None]  # called with one line for the user
SPINNER_DELAY = 2.0  # seconds before a spinner appears


def console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False)


def print_result(as_json: bool, plain: Any, page: Callable[[int], Any]) -> None:
    """Print JSON, or the page, which receives the terminal width."""
    if as_json:
        print(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        screen = console()
        content = page(screen.width)
        print(content) if isinstance(content, str) else screen.print(content)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner on stderr if it is a terminal and the work takes long."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Timer

    status = console(stderr=True).status(text)
    timer = Timer(SPINNER_DELAY, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


# Numbers


def format_number(number: float, unit: str = "") -> str:
    """Format a number with three digits and a unit prefix: 1.2 M, 3.4 GB."""
    for size, letter in (
        (1e24, "Y"),
        (1e21, "Z"),
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
    ):
        if number >= 0.9995 * size:  # values that three digits round up
            return f"{number / size:.3g} {letter}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def count_of(number: int, noun: str) -> str:
    """Format a count: 1 row, 2 rows, 1,000 rows, 3 classes."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def report(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr, flush=True)


def report_on_first_rank(line: str) -> None:
    """Print a line to stderr, on the first rank only."""
    if os.environ.get("RANK", "0") == "0":
        report(line)
