"""Receipts of evaluations in a run's folder."""

import argparse
import json
from pathlib import Path

from . import Fields
from .rows import check_output_file


def receipts_file(args: argparse.Namespace) -> Path | None:
    """Return the file of the receipts, --output or that of the run, after checking that it can be written."""
    check_output_file(args.output)
    run = Path(args.name) / "recipe.json"
    path = (
        Path(args.output)
        if args.output
        else run.with_name("evaluation.json")
        if run.exists()
        else None
    )
    read_receipts(path)
    return path


def read_receipts(path: Path | None) -> Fields:
    """Return the receipts so far; a file of another kind is refused."""
    try:
        receipts = json.loads(path.read_text("utf-8")) if path is not None and path.exists() else {}
    except ValueError:
        receipts = None
    if not isinstance(receipts, dict) or not all(
        isinstance(one, dict) and "scores" in one for one in receipts.values()
    ):
        raise ValueError(f"{path} holds no receipts; give another file with --output")
    return receipts


def write_receipts(path: Path, receipts: Fields) -> None:
    """Write the receipts, one per data set."""
    from ..storage import write_atomically

    write_atomically(path, (json.dumps(receipts, indent=1, ensure_ascii=False) + "\n").encode())
