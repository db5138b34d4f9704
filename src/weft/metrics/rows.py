"""Rows of predictions and references."""

from collections.abc import Sized


def check_pairs(predictions: Sized, references: Sized, what: str = "predictions") -> None:
    """ValueError unless there is one prediction per reference, and at least one."""
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            f"{len(predictions)} {what} and {len(references)} references; give one of each, and at "
            "least one"
        )
