"""Rows of predictions and references."""

from collections.abc import Sized


def check_pairs(predictions: Sized, references: Sized, what: str = "predictions") -> None:
    """Raise ValueError unless there is one prediction per reference and at least one of each."""
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            f"{len(predictions)} {what} for {len(references)} references; give one per reference, "
            "and at least one"
        )
