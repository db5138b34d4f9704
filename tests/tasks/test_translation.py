"""Translation: decoder inputs, labels and loss."""

import numpy as np
import torch
import torch.nn.functional as F

from weft import recipe as R
from weft.tasks.base import LengthLimitedSamples

from .cases import transformer
from .made import Given, batch, build_pair, meta, pairs, rows

PAIR = LengthLimitedSamples(
    Given([{"source": np.array([10, 11, 12], np.uint16), "target": np.array([20, 21], np.uint16)}]),
    3,
)


def test_decoder_inputs_and_labels_are_the_shifted_target() -> None:
    corruption, _ = build_pair(R.Translation(), transformer(), meta(R.SourceTargetPairs()))
    row = corruption(PAIR, 0, np.random.default_rng(0))
    # cut at 3
    assert {name: value.tolist() for name, value in row.items()} == {
        "tokens": [10, 11, 3],
        "target": [2, 20, 21],
        "labels": [20, 21, 3],
    }


def test_the_loss_is_the_smoothed_cross_entropy_of_each_pair_alone() -> None:
    corruption, objective = build_pair(
        R.Translation(label_smoothing=0.2),
        transformer(),
        meta(R.SourceTargetPairs()),
        dtype=torch.float64,
    )
    objective.eval()
    given = rows(corruption, pairs(5, 12, 10))
    alone = torch.zeros((), dtype=torch.float64)
    for row in given:
        tokens, target, labels = (
            torch.from_numpy(row[name]) for name in ("tokens", "target", "labels")
        )
        alone += F.cross_entropy(
            objective.model(tokens[None], target[None])[0],
            labels,
            reduction="sum",
            label_smoothing=0.2,
        )
    torch.testing.assert_close(
        objective(batch(corruption, given))["token"], alone, rtol=1e-12, atol=1e-12
    )
