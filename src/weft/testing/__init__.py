"""Conformance checks for parts of one's own, in the manner of scikit-learn's `check_estimator`; our own parts run them too.

Each raises an AssertionError that says in one line what is wrong.
"""

from .family import check_family
from .format import check_format
from .metric import check_metric
from .model_part import check_head
from .part import check_part
from .recipe_part import check_optimiser, check_schedule
from .task import check_task, small_store
from .value import check_value

__all__ = [
    "check_family",
    "check_format",
    "check_head",
    "check_metric",
    "check_optimiser",
    "check_part",
    "check_schedule",
    "check_task",
    "check_value",
    "small_store",
]
