"""Heads, initialisations, batchings, averages and trainables pass the public conformance checks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import nn

from weft import recipe as R
from weft import spec as S
from weft.data.batches.batching import FixedPlanner, SampleIndex, StepPlan
from weft.nn.heads import TokenClassifierHeadLayer
from weft.nn.initialisation import NormalRule
from weft.support.order import Order
from weft.support.registry import CHOICES, IMPLEMENTATIONS, choice, implements, members
from weft.testing import check_part
from weft.testing.recipe_part import tiny_encoder
from weft.training.averages import ExponentialMovingAverage

TRANSFORM = S.HeadTransform(norm=S.LayerNorm())
PARTS: list[Any] = [
    S.LMHead(),
    S.LMHead(tied=False, bias="trained", transform=TRANSFORM, softcap=30.0),
    S.ClassifierHead(num_labels=3),
    S.ClassifierHead(num_labels=3, pooling="mean", transform=TRANSFORM, bias=False),
    S.ClassifierHead(num_labels=3, pooling="tokens"),
    S.ClassifierHead(num_labels=3, pooling="sequence"),
    S.TokenClassifierHead(num_labels=5),
    S.SpanHead(transform=TRANSFORM),
    S.DetectionHead(num_labels=4),
    S.PixelDecoder(width=8, stack=tiny_encoder().encoder),  # type: ignore[arg-type]
    S.NoHead(),
    S.NoHead(transform=TRANSFORM),
    S.ConvStem(),
    S.ResNetStem(depths=(1, 1), widths=(8, 16), stem_width=4, norm=S.GroupNorm(groups=2)),
    S.ResNetStem(depths=(1,), widths=(8,), stem_width=4, block="basic", norm=S.GroupNorm(groups=4)),
    S.ResNetStem(
        depths=(1, 1),
        widths=(8, 16),
        stem_width=4,
        stem_type="3x3",
        block="basic",
        norm=S.GroupNorm(groups=4),
    ),
    S.ConvStem(widths=(), kernel_size=7),
    S.NormalInit(truncate_at=2.0, scale_by_depth=True),
    S.XavierInit(),
    S.T5Init(factor=0.5),
    S.FanInInit(),
    R.FixedBatch(size=8, length=16),
    R.FixedBatch(size=8, length=16, sort_pool=32),
    R.FixedBatch(size=8, length=16, repeats=3),
    R.PackedBatch(size=4, length=16, pack_pool=40),
    R.TokenBudget(tokens=64, length=16, sort_pool=50),
    R.EMA(decay=0.9),
    R.AverageLast(),
    R.BestCheckpoint(metric="accuracy"),
    R.HeadOnly(),
    R.LoRA(rank=2),
    R.Resize(size=20),
    R.Resize(size=(12, 20), interpolation="bicubic"),
    R.Resize(size=64, max_size=50),
    R.CenterCrop(size=24),
    R.CenterCrop(size=48),
    R.RandomCrop(size=28),
    R.RandomResizedCrop(size=16),
    R.RandomHorizontalFlip(),
    R.RandomShortestSize(min_size=(16, 24, 50), max_size=60),
    R.RandomSizeCrop(min_size=10, max_size=35),
    R.Normalize(),
    R.RandomErasing(p=1.0),
    R.RandomErasing(value="random"),
    R.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
    R.RandAugment(),
    R.AutoAugment(),
    R.MixUp(alpha=0.8),
    R.CutMix(),
    R.RandomChoice(transforms=(R.MixUp(), R.CutMix())),
    R.RandomChoice(transforms=(R.RandomHorizontalFlip(), R.CenterCrop(size=9))),
    R.RandomApply(transforms=(R.RandomSizeCrop(min_size=10, max_size=35),), p=0.5),
    R.RandomApply(transforms=(R.Resize(size=(28, 28)), R.RandomCrop(size=28, padding=4))),
    R.LengthFilter(min_words=3),
    R.CharacterFilter(min_letter_fraction=0.5),
    R.LineFilter(min_terminal_fraction=0.5),
    R.RepetitionFilter(),
    R.ForbiddenTextFilter(),
    R.ExactDeduplication(normalize=True),
    R.NearDeduplication(threshold=0.7),
]
BASES = [
    S.Head,
    S.PatchStem,
    S.Init,
    R.Batching,
    R.WeightAverage,
    R.Trainable,
    R.Transform,
    R.Filter,
]


def name(value: Any) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize("base", BASES)
def test_every_member_is_tried(base: type) -> None:
    ours = {cls for cls in members(base) if cls.__module__.startswith(("weft.spec", "weft.recipe"))}
    assert {type(part) for part in PARTS if isinstance(part, base)} == ours


@pytest.mark.parametrize("part", PARTS, ids=name)
def test_our_parts_conform(part: Any) -> None:
    check_part(part)


# Parts that break a promise are found


class FaultyPlanner(FixedPlanner):
    def __init__(self, batching: Any, samples: Any, seed: int, length: int) -> None:
        super().__init__(Order(len(samples), 0 if batching.fault == "seed" else seed), 5)
        self.fault = batching.fault
        self.calls = 0

    def at(self, position: int) -> StepPlan:
        self.calls += 1
        step = super().at(position)
        if self.fault == "twice":
            return step._replace(rows=[[SampleIndex(*step.rows[0][0])] for _ in step.rows])
        return (
            step._replace(rows=step.rows[::-1]) if self.fault == "past" and self.calls > 3 else step
        )


class FaultyShift:
    """Moves an image to the left by a random number of pixels, and its boxes with it."""

    def __init__(self, value: Any) -> None:
        self.fault = value.fault

    def __call__(self, image: Any, boxes: Any, rng: np.random.Generator) -> Any:
        by = int(rng.integers(1, 6))
        moved = image.transform(image.size, Image.Transform.AFFINE, (1, 0, by, 0, 1, 0))
        if boxes is None:
            return moved, np.zeros((0, 4)) if self.fault == "boxes" else None, None
        if self.fault == "writes":
            boxes -= 1
        shifted = (boxes - np.array((by, 0, by, 0))).clip(0)
        return moved, shifted[1:] if self.fault == "lost" else shifted, None


@pytest.fixture
def own() -> Iterator[dict[str, Any]]:
    """Parts of one's own, registered for one test alone."""
    before = dict(CHOICES)

    @choice
    class Scores(S.Head):
        fault: str = "none"

        def shapes(self, spec: S.Spec) -> Any:
            extra = [("out.spare", (1,))] if self.fault == "shapes" else []
            return iter([*S.TokenClassifierHead(num_labels=2).shapes(spec), *extra])

    @implements(Scores)
    class ScoresLayer(TokenClassifierHeadLayer):
        def __init__(self, head: Any, spec: S.Spec) -> None:
            super().__init__(S.TokenClassifierHead(num_labels=2), spec)

    @choice
    class Blind(S.Init):
        fault: str = "none"

    class BlindRule(NormalRule):
        @staticmethod
        def matrix(init: Any, t: Any, facts: Any, generator: Any) -> None:
            if init.fault == "constant":
                t.fill_(0.1)
            else:
                t.normal_(0, 0.02, generator=generator)

        @staticmethod
        def table(init: Any, t: Any, role: Any, width: int, generator: Any) -> None:
            t.normal_(0, 0.02, generator=generator)

    implements(Blind)(BlindRule)

    @choice
    class Fives(R.Batching):
        length: int = 16
        fault: str = "none"

        def rows_per_step(self) -> int:
            return 5

    implements(Fives)(FaultyPlanner)

    @choice
    class Forgetful(R.WeightAverage):
        pass

    class ForgetfulCopy(ExponentialMovingAverage):
        def __init__(self, average: Any, module: nn.Module) -> None:
            super().__init__(R.EMA(decay=0.5), module)
            self.steps = 0  # not among its facts

        def update(self) -> None:
            self.steps += 1
            self.decay = 1 / (1 + self.steps)
            super().update()

    implements(Forgetful)(ForgetfulCopy)

    @choice
    class Thaws(R.Trainable):
        trains_body = False

    def thaw(trainable: Any, model: Any, seed: int) -> None:
        model.requires_grad_(True)

    implements(Thaws)(thaw)

    @choice
    class Shift(R.Transform):
        fault: str = "none"

        def for_evaluation(self) -> tuple[R.Transform, ...]:
            return (self,) if self.fault == "evaluation" else ()

    implements(Shift)(FaultyShift)
    yield {name: CHOICES[name] for name in CHOICES if name not in before}
    for name in [name for name in CHOICES if name not in before]:
        IMPLEMENTATIONS.pop(CHOICES.pop(name), None)


@pytest.mark.parametrize(
    ("kind", "fault", "words"),
    [
        ("Scores", "shapes", "parameters are counted"),
        ("Blind", "constant", "is 0.1"),
        ("Fives", "twice", "once per epoch"),
        ("Fives", "past", "depends on the steps before it"),
        ("Fives", "seed", "ignores the seed"),
        ("Shift", "evaluation", "is random"),
        ("Shift", "lost", "2 boxes, but the transform reports 3"),
        ("Shift", "writes", "modifies its input boxes"),
        ("Shift", "boxes", "returns boxes for an image without boxes"),
    ],
)
def test_a_broken_part_is_found(own: dict[str, Any], kind: str, fault: str, words: str) -> None:
    check_part(own[kind]())
    with pytest.raises(AssertionError, match=words):
        check_part(own[kind](fault=fault))


def test_an_average_that_forgets_its_step_is_found(own: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="resumes differently"):
        check_part(own["Forgetful"]())


def test_a_trainable_that_trains_the_body_in_secret_is_found(own: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="trains_body is False"):
        check_part(own["Thaws"]())


def test_a_head_that_fits_no_small_model_says_so() -> None:
    with pytest.raises(AssertionError, match="not compatible with any small model"):
        check_part(S.ClassifierHead(num_labels=3, labels=("one",)))
