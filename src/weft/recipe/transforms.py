"""What is done to an image between the store and the model, as values. Names are those of
torchvision.transforms.v2.

A task holds them, in order: what an image goes through is part of what a model was trained to do,
so that validation, inference and export find it where they find the task. All chance comes from the
sample's own generator.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ..spec import Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from ..support.registry import choice, implements

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Stage = Literal["image", "normalize", "array", "mix"]
STAGES: tuple[Stage, ...] = ("image", "normalize", "array", "mix")
Interpolation = Literal["nearest", "bilinear", "bicubic"]
Range = tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]]


class Transform:
    """Base of every transform. What does it is registered with `implements` and built from the
    value; it is called with the image, its boxes (N × 4 corners x1 y1 x2 y2 in pixels, or None) and
    the sample's random generator, and returns the image, the boxes and the indices of the boxes
    that are left (None: all).

    Attributes:
        stage: "image": reads and gives a PIL image; "normalize": gives a float32 array (channels,
            rows, columns); "array": reads and gives such an array; "mix": is called with two arrays
            and the generator, and returns one and the share of the first.
    """

    stage: ClassVar[Stage] = "image"

    def for_evaluation(self) -> tuple["Transform", ...]:
        """Return what takes its place where nothing may be random; here: itself."""
        return (self,)


def check_transforms(
    transforms: Sequence[Transform] | None, eval_transforms: Sequence[Transform] | None
) -> None:
    """Raise ValueError for transforms in an order that cannot be, or if evaluation would lose the
    size that training gives.
    """
    check_order(transforms)
    check_order(eval_transforms)
    if transforms is None or eval_transforms is not None:
        return
    nested = [step for several in transforms for step in getattr(several, "transforms", ())]
    if gives_size(nested) and not gives_size(transforms):
        raise ValueError(
            "transforms resize in RandomChoice or RandomApply alone, which evaluation leaves out; "
            "give eval_transforms, such as "
            "(Resize(size=…), Normalize())"
        )


def gives_size(transforms: Sequence[Transform]) -> bool:
    """Whether evaluation resizes or crops where training does `transforms`."""
    steps = evaluation_transforms(transforms)
    return any(isinstance(step, (Resize, CenterCrop)) for step in steps)


def check_order(transforms: Sequence[Transform] | None) -> None:
    stages = [STAGES.index(transform.stage) for transform in transforms or ()]
    names = [type(transform).__name__ for transform in transforms or ()]
    for i in range(1, len(stages)):
        if stages[i] < stages[i - 1]:
            raise ValueError(f"transforms: {names[i]} cannot follow {names[i - 1]}; put it before")
        if stages[i] == stages[i - 1] and STAGES[stages[i]] in ("normalize", "mix"):
            raise ValueError(
                f"transforms: {names[i]} follows {names[i - 1]}; give one, or RandomChoice of both"
            )


def evaluation_transforms(transforms: Sequence[Transform]) -> tuple[Transform, ...]:
    """Return what validation and inference do where training does `transforms`."""
    return tuple(chain.from_iterable(transform.for_evaluation() for transform in transforms))


def transforms_for(task: Any, evaluation: bool) -> tuple[Transform, ...] | None:
    """Return the transforms of a task by its fields `transforms` and `eval_transforms`; None: the
    usual ones, or none at all.
    """
    transforms: tuple[Transform, ...] | None = getattr(task, "transforms", None)
    if not evaluation:
        return transforms
    eval_transforms: tuple[Transform, ...] | None = getattr(task, "eval_transforms", None)
    if eval_transforms is None and transforms is not None:
        return evaluation_transforms(transforms)
    return eval_transforms


# Size and place


@choice
class Resize(Transform):
    """The shorter side becomes `size` pixels and the ratio stays; two sizes are rows and
    columns.
    """

    size: PositiveInt | tuple[PositiveInt, PositiveInt]
    max_size: PositiveInt | None = None  # of the longer side, where `size` is one number
    interpolation: Interpolation = "bilinear"


@choice
class CenterCrop(Transform):
    """The middle square; what is missing is black."""

    size: PositiveInt


@choice
class RandomCrop(Transform):
    """A square at a random place of the image. With `padding`, the image has the size of the
    square, and that many black pixels are put around it first.
    """

    size: PositiveInt
    padding: NonNegativeInt = 0

    def for_evaluation(self) -> tuple[Transform, ...]:
        """The middle; with `padding`, the whole image."""
        if self.padding:
            return (Resize(size=(self.size, self.size)),)
        return (CenterCrop(size=self.size),)


@choice
class RandomResizedCrop(Transform):
    """A random part, resized to a square (Szegedy et al. 2014, arXiv:1409.4842, section 6). `scale`
    is its share of the area, `ratio` its width over its height.
    """

    size: PositiveInt
    scale: Range = (0.08, 1.0)
    ratio: tuple[PositiveFloat, PositiveFloat] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"

    def for_evaluation(self) -> tuple[Transform, ...]:
        """The middle, of which seven eighths of the shorter side are seen."""
        return (
            Resize(size=round(self.size / 0.875), interpolation=self.interpolation),
            CenterCrop(size=self.size),
        )


@choice
class RandomHorizontalFlip(Transform):
    """The mirrored image, with probability `p`; boxes are mirrored with it."""

    p: Fraction = 0.5

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class RandomShortestSize(Transform):
    """Resize with the shorter side drawn from several: multi-scale training at the image's own
    ratio (DETR, arXiv:2005.12872, section 4).
    """

    min_size: tuple[PositiveInt, ...]
    max_size: PositiveInt | None = None
    interpolation: Interpolation = "bilinear"

    def for_evaluation(self) -> tuple[Transform, ...]:
        return (
            Resize(
                size=max(self.min_size), max_size=self.max_size, interpolation=self.interpolation
            ),
        )


@choice
class RandomSizeCrop(Transform):
    """A part whose sides are each drawn between `min_size` and `max_size`, or what the image has
    (DETR, section 4).
    """

    min_size: PositiveInt
    max_size: PositiveInt

    def __post_init__(self) -> None:
        if self.min_size > self.max_size:
            raise ValueError(
                f"RandomSizeCrop.min_size = {self.min_size}: give at most max_size = "
                f"{self.max_size}"
            )

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


# Numbers


@choice
class Normalize(Transform):
    """Pixels, from 0 to 1, less the mean and divided by the deviation of each channel; a grey image
    takes the middle of three.
    """

    stage = "normalize"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[PositiveFloat, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise ValueError(
                f"Normalize.mean has {len(self.mean)} numbers, std {len(self.std)}; give one of "
                "each per channel"
            )


@choice
class RandomErasing(Transform):
    """With probability `p`, a random rectangle becomes `value` or, as "random", normal noise (Zhong
    et al. 2017, arXiv:1708.04896).
    """

    stage = "array"
    p: Fraction = 0.5
    scale: Range = (0.02, 0.33)
    ratio: tuple[PositiveFloat, PositiveFloat] = (0.3, 3.3)
    value: float | Literal["random"] = 0.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


# Colour


@choice
class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed in random order: the first three by a factor
    of 1 ± the number, hue by at most that share of the colour circle.
    """

    brightness: Annotated[float, Field(ge=0)] = 0.0
    contrast: Annotated[float, Field(ge=0)] = 0.0
    saturation: Annotated[float, Field(ge=0)] = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class RandAugment(Transform):
    """`num_ops` operations, each any of fourteen, all at one magnitude (Cubuk et al. 2019,
    arXiv:1909.13719).
    """

    num_ops: PositiveInt = 2
    magnitude: NonNegativeInt = 9
    num_magnitude_bins: Annotated[int, Field(ge=2)] = 31

    def __post_init__(self) -> None:
        if self.magnitude >= self.num_magnitude_bins:
            raise ValueError(
                f"RandAugment.magnitude = {self.magnitude}: give less than num_magnitude_bins = "
                f"{self.num_magnitude_bins}"
            )

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class AutoAugment(Transform):
    """One of 25 learned pairs of operations (Cubuk et al. 2018, arXiv:1805.09501, table 7)."""

    policy: Literal["cifar10"] = "cifar10"

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


# Two samples


@choice
class MixUp(Transform):
    """Two images and their labels, λ of the first and 1 - λ of the second, λ from Beta(alpha,
    alpha) (Zhang et al. 2017, arXiv:1710.09412).
    """

    stage = "mix"
    alpha: PositiveFloat = 1.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class CutMix(Transform):
    """A rectangle of a second image, its labels weighted by the area (Yun et al. 2019,
    arXiv:1905.04899).
    """

    stage = "mix"
    alpha: PositiveFloat = 1.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


# Of several


class _Several(Transform):
    """Of transforms that stand at one place. Evaluation does none of them."""

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        stages = {transform.stage for transform in self.transforms}
        if len(stages) != 1 or stages == {"normalize"}:
            raise ValueError(
                f"{type(self).__name__}.transforms: give some that read the same, all before "
                "Normalize, all after it, or MixUp and CutMix"
            )

    @property
    def stage(self) -> Stage:  # type: ignore[override]
        return self.transforms[0].stage

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class RandomChoice(_Several):
    """One of the transforms, each as likely as any other."""

    transforms: tuple[Transform, ...]


@choice
class RandomApply(_Several):
    """All of the transforms in order with probability `p`, else none."""

    transforms: tuple[Transform, ...]
    p: Fraction = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage == "mix":
            raise ValueError("RandomApply cannot mix samples; use MixUp or CutMix themselves")


implements(Resize, "weft.data.images.transforms:ResizeTransform")
implements(CenterCrop, "weft.data.images.transforms:CenterCropTransform")
implements(RandomCrop, "weft.data.images.transforms:RandomCropTransform")
implements(RandomResizedCrop, "weft.data.images.transforms:RandomResizedCropTransform")
implements(RandomHorizontalFlip, "weft.data.images.transforms:RandomHorizontalFlipTransform")
implements(RandomShortestSize, "weft.data.images.transforms:RandomShortestSizeTransform")
implements(RandomSizeCrop, "weft.data.images.transforms:RandomSizeCropTransform")
implements(Normalize, "weft.data.images.transforms:NormalizeTransform")
implements(RandomErasing, "weft.data.images.transforms:RandomErasingTransform")
implements(MixUp, "weft.data.images.transforms:MixUpTransform")
implements(CutMix, "weft.data.images.transforms:CutMixTransform")
implements(RandomChoice, "weft.data.images.transforms:RandomChoiceTransform")
implements(RandomApply, "weft.data.images.transforms:RandomApplyTransform")
implements(ColorJitter, "weft.data.images.transforms_augment:ColorJitterTransform")
implements(RandAugment, "weft.data.images.transforms_augment:RandAugmentTransform")
implements(AutoAugment, "weft.data.images.transforms_augment:AutoAugmentTransform")
