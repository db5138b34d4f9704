"""Evaluation receipts in a run directory."""

import json
from pathlib import Path

from . import Fields
from .evaluate_options import EvaluateOptions
from .files import check_output_file, check_outside_model


def receipts_file(options: EvaluateOptions) -> Path | None:
    """Return the file of the receipts, --output or the run's own, after checking that it is
    writable."""
    check_output_file(options.output)
    beside_model = Path(options.name) / "evaluation.json"
    path = Path(options.output) if options.output else None
    if path is None and beside_model.with_name("recipe.json").exists():
        path = beside_model
    if path is not None and path.resolve() != beside_model.resolve():
        check_outside_model("--output", [path], options.name)
    read_receipts(path)
    return path


def read_receipts(path: Path | None) -> Fields:
    """Return the existing receipts; raise ValueError for another kind of file."""
    try:
        receipts = json.loads(path.read_text("utf-8")) if path is not None and path.exists() else {}
    except ValueError:
        receipts = None
    if not isinstance(receipts, dict) or not all(
        isinstance(one, dict) and "scores" in one for one in receipts.values()
    ):
        raise ValueError(f"{path} does not contain receipts; give another file with --output")
    return receipts


# Options that do not change a score, or that the hashes of model and data cover
NOT_COMPARED = {"name", "output", "json", "device", "batch_size", "data", "few_shot"}


def options_of(options: EvaluateOptions) -> Fields:
    """Return the evaluation options that affect the scores."""
    return {name: value for name, value in vars(options).items() if name not in NOT_COMPARED}


def add_receipt(path: Path, data_name: str, written: Fields) -> None:
    """Add a receipt to the file, replacing one with the same model, data and options."""
    from ..runs.lock import exclusive
    from ..support.storage import digest_plain

    digest = digest_plain(written["model"], written["data"], written["options"])
    with exclusive(path.parent):
        write_receipts(path, read_receipts(path) | {f"{data_name} ({digest[:16]})": written})


def write_receipts(path: Path, receipts: Fields) -> None:
    from ..support.storage import write_atomically

    write_atomically(path, (json.dumps(receipts, indent=1, ensure_ascii=False) + "\n").encode())
