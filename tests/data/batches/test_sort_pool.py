"""Samples of like length share a step, and nothing else changes."""

import numpy as np

from weft import recipe as R
from weft.data.batches.batching import SampleIndex, build_planner
from weft.tasks.base import LengthLimitedSamples


class Texts:
    def __init__(self, lengths: list[int]) -> None:
        self.own = np.array(lengths)

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, i: int) -> dict[str, int]:
        return {"number": i}

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.own[indices]
        return found


def test_each_epoch_reads_every_sample_once_in_steps_of_count_and_little_is_padded() -> None:
    samples = LengthLimitedSamples(
        Texts(np.random.default_rng(0).integers(3, 60, 103).tolist()), 64
    )

    def walk(batch: R.FixedBatch) -> tuple[list[list[SampleIndex]], int]:
        """The steps of two epochs, and how many tokens are padding."""
        plan, position, steps, padding = build_planner(batch, samples, seed=1), 0, [], 0
        while position < 2 * len(samples):
            step = plan.at(position)
            assert (
                build_planner(batch, samples, seed=1).at(position) == step
            )  # from any place, as a resume does
            steps.append([pick for (pick,) in step.rows])
            lengths = samples.lengths(np.array([pick.index for pick in steps[-1]]))
            padding += int((lengths.max() - lengths).sum())
            position = step.next_position
        return steps, padding

    steps, padding = walk(R.FixedBatch(size=8, length=64, sort_pool=32))
    assert [len(own) for own in steps].count(8) == 2 * 12
    assert len(steps) == 2 * 13
    for epoch in range(2):
        assert sorted(p.index for own in steps for p in own if p.epoch == epoch) == list(range(103))
    assert padding < 0.35 * walk(R.FixedBatch(size=8, length=64))[1]
    assert [p.index for p in steps[0]] != [p.index for p in steps[13]]
