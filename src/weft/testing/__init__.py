"""Conformance checks for user-defined parts, like scikit-learn's `check_estimator`; the parts of
Weft run them too.

Each check raises an AssertionError with a one-line message.
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
