"""The verbs of `weft`, a file a kind. Nothing heavy is imported before its verb needs it."""
import argparse
from collections.abc import Callable
from typing import Protocol

STOPPED = 75                               # asked to stop, saved, not finished: run it again (EX_TEMPFAIL)


class Verb(Protocol):
    """Adds a verb to the command; what it returns takes the verb's own arguments."""

    def __call__(self, run: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser: ...
