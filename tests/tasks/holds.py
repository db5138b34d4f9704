"""Invariants of tasks whose batches have no ragged field or which need a teacher."""

from collections.abc import Callable

from . import test_base as invariants
from .test_base import Built

HOLDS: tuple[Callable[[Built], None], ...] = (
    invariants.test_samples_are_never_written_to,
    invariants.test_terms_counts_sums_and_weights_have_the_same_names,
    invariants.test_every_parameter_gets_a_gradient,
    invariants.test_a_micro_batch_of_few_labels_weighs_no_more_than_they_do,
)
