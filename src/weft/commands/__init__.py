"""The verbs of `weft`, one file per kind. Nothing heavy is imported before its verb needs it."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

EXIT_STOPPED = 75  # stopped and saved, not finished: run it again (EX_TEMPFAIL)
COLUMN_PREFIX = "weft_"
COLUMN_PREFIX_HELP = f"a column whose name is taken gets the prefix {COLUMN_PREFIX}"
Fields = dict[str, Any]


class AddCommand(Protocol):
    """Adds a verb to the command and returns its parser."""

    def __call__(
        self, run: Callable[[argparse.Namespace], int], text: str, more: str = ""
    ) -> argparse.ArgumentParser: ...


def export_hint(run: str) -> str:
    """Return the command that exports the model of a finished run; "" where no family of transformers matches it."""
    from ..interop.describe import read_folder
    from ..interop.equivalent_specs import find_family

    try:
        family = find_family(read_folder(Path(run) / "model")[1]).family.name
    except (ValueError, OSError):
        return ""
    return f"to open {Path(run) / 'model'} in transformers (as {family}): weft export {run} OUT --to hf"
