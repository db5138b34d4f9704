"""Image transforms, as values named as in torchvision.transforms.v2.

A task holds its transforms in order, so that validation, inference and export apply the same ones.
All randomness is seeded per sample.
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
    """Base of image transforms.

    Its implementation is registered with `implements` and built from the value. It is called with
    the image, its boxes (N × 4 corners x1 y1 x2 y2 in pixels, or None) and the sample's random
    generator, and returns the image, the boxes and the indices of the remaining boxes (None: all).

    Attributes:
        stage: "image": from a PIL image to a PIL image; "normalize": from a PIL image to a float32
            array (channels, rows, columns); "array": from such an array to another; "mix": called
            with two arrays and the generator, returns one array and the weight of the first.
    """

    stage: ClassVar[Stage] = "image"

    def for_evaluation(self) -> tuple["Transform", ...]:
        """Return the deterministic replacement for evaluation (default: the transform itself)."""
        return (self,)


def check_transforms(
    transforms: Sequence[Transform] | None, eval_transforms: Sequence[Transform] | None
) -> None:
    """Raise ValueError for transforms in an impossible order, or if evaluation would lose the size
    that training gives.
    """
    check_order(transforms)
    check_order(eval_transforms)
    if transforms is None or eval_transforms is not None:
        return
    nested = [step for several in transforms for step in getattr(several, "transforms", ())]
    if gives_size(nested) and not gives_size(transforms):
        raise ValueError(
            "transforms resize only inside RandomChoice or RandomApply, which evaluation skips; "
            "give eval_transforms, such as (Resize(size=…), Normalize())"
        )


def gives_size(transforms: Sequence[Transform]) -> bool:
    """Return whether the evaluation version of `transforms` resizes or crops."""
    steps = evaluation_transforms(transforms)
    return any(isinstance(step, (Resize, CenterCrop)) for step in steps)


def check_order(transforms: Sequence[Transform] | None) -> None:
    stages = [STAGES.index(transform.stage) for transform in transforms or ()]
    names = [type(transform).__name__ for transform in transforms or ()]
    for i in range(1, len(stages)):
        if stages[i] < stages[i - 1]:
            raise ValueError(f"transforms: {names[i]} cannot follow {names[i - 1]}; swap them")
        if stages[i] == stages[i - 1] and STAGES[stages[i]] in ("normalize", "mix"):
            raise ValueError(
                f"transforms: {names[i]} cannot follow {names[i - 1]}; give one of them or a "
                "RandomChoice of both"
            )


def evaluation_transforms(transforms: Sequence[Transform]) -> tuple[Transform, ...]:
    """Return the deterministic transforms for validation and inference.

    Args:
        transforms: the transforms of training.
    """
    return tuple(chain.from_iterable(transform.for_evaluation() for transform in transforms))


def transforms_for(task: Any, evaluation: bool) -> tuple[Transform, ...] | None:
    """Return the transforms of a task; None: the task's default transforms, or none.

    Args:
        task: a task with the fields `transforms` and `eval_transforms`, if any.
        evaluation: whether for validation and inference instead of training.
    """
    transforms: tuple[Transform, ...] | None = getattr(task, "transforms", None)
    if not evaluation:
        return transforms
    eval_transforms: tuple[Transform, ...] | None = getattr(task, "eval_transforms", None)
    if eval_transforms is None and transforms is not None:
        return evaluation_transforms(transforms)
    return eval_transforms


@choice
class Resize(Transform):
    """Resize the image.

    Args:
        size: the shorter side in pixels, with the aspect ratio kept, or rows and columns.
        max_size: the longest longer side, if `size` is one number (default: unlimited).
        interpolation: "nearest", "bilinear" or "bicubic" (default: "bilinear").
    """

    size: PositiveInt | tuple[PositiveInt, PositiveInt]
    max_size: PositiveInt | None = None
    interpolation: Interpolation = "bilinear"


@choice
class CenterCrop(Transform):
    """Crop the central square; missing pixels are black.

    Args:
        size: the side of the square in pixels.
    """

    size: PositiveInt


@choice
class RandomCrop(Transform):
    """Crop a square at a random position.

    Args:
        size: the side of the square in pixels.
        padding: black pixels added on each side of an image of the square's size first (default:
            0).
    """

    size: PositiveInt
    padding: NonNegativeInt = 0

    def for_evaluation(self) -> tuple[Transform, ...]:
        """Return the central crop; with `padding`, the whole image."""
        if self.padding:
            return (Resize(size=(self.size, self.size)),)
        return (CenterCrop(size=self.size),)


@choice
class RandomResizedCrop(Transform):
    """Crop a random part and resize it to a square (Szegedy et al. 2014, arXiv:1409.4842, section
    6).

    Args:
        size: the side of the square in pixels.
        scale: the range of the part's fraction of the area (default: (0.08, 1)).
        ratio: the range of width / height (default: (3/4, 4/3)).
        interpolation: "nearest", "bilinear" or "bicubic" (default: "bilinear").
    """

    size: PositiveInt
    scale: Range = (0.08, 1.0)
    ratio: tuple[PositiveFloat, PositiveFloat] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"

    def for_evaluation(self) -> tuple[Transform, ...]:
        """Return the central crop of seven eighths of the shorter side."""
        return (
            Resize(size=round(self.size / 0.875), interpolation=self.interpolation),
            CenterCrop(size=self.size),
        )


@choice
class RandomHorizontalFlip(Transform):
    """Mirror the image and its boxes.

    Args:
        p: the probability (default: 0.5).
    """

    p: Fraction = 0.5

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class RandomShortestSize(Transform):
    """Resize the shorter side to a random size, with the aspect ratio kept: multi-scale training
    (DETR, arXiv:2005.12872, section 4).

    Args:
        min_size: the sizes of the shorter side in pixels.
        max_size: the longest longer side (default: unlimited).
        interpolation: "nearest", "bilinear" or "bicubic" (default: "bilinear").
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
    """Crop a part of random width and height, at most those of the image (DETR, section 4).

    Args:
        min_size: the shortest side in pixels.
        max_size: the longest side in pixels.
    """

    min_size: PositiveInt
    max_size: PositiveInt

    def __post_init__(self) -> None:
        if self.min_size > self.max_size:
            raise ValueError(
                f"RandomSizeCrop.min_size = {self.min_size} exceeds max_size = {self.max_size}; "
                "give a smaller one"
            )

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class Normalize(Transform):
    """Subtract the mean of each channel from pixels in 0 to 1 and divide by the standard deviation;
    a grey image uses the second of three channels.

    Args:
        mean: the mean per channel (default: ImageNet's).
        std: the standard deviation per channel (default: ImageNet's).
    """

    stage = "normalize"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[PositiveFloat, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise ValueError(
                f"Normalize.mean has {len(self.mean)} values but std has {len(self.std)}; give one "
                "per channel in both"
            )


@choice
class RandomErasing(Transform):
    """Replace a random rectangle (Zhong et al. 2017, arXiv:1708.04896).

    Args:
        p: the probability (default: 0.5).
        scale: the range of the rectangle's fraction of the area (default: (0.02, 0.33)).
        ratio: the range of width / height (default: (0.3, 3.3)).
        value: the new value, or "random" for normal noise (default: 0).
    """

    stage = "array"
    p: Fraction = 0.5
    scale: Range = (0.02, 0.33)
    ratio: tuple[PositiveFloat, PositiveFloat] = (0.3, 3.3)
    value: float | Literal["random"] = 0.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class ColorJitter(Transform):
    """Change brightness, contrast, saturation and hue in random order.

    Args:
        brightness: x for a random factor from 1 - x to 1 + x (default: 0).
        contrast: x for a random factor from 1 - x to 1 + x (default: 0).
        saturation: x for a random factor from 1 - x to 1 + x (default: 0).
        hue: the largest shift as a fraction of the colour circle, up to 0.5 (default: 0).
    """

    brightness: Annotated[float, Field(ge=0)] = 0.0
    contrast: Annotated[float, Field(ge=0)] = 0.0
    saturation: Annotated[float, Field(ge=0)] = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class RandAugment(Transform):
    """Apply random operations of fourteen, all at one magnitude (Cubuk et al. 2019,
    arXiv:1909.13719).

    Args:
        num_ops: the number of operations (default: 2).
        magnitude: the strength of the operations (default: 9).
        num_magnitude_bins: the number of strengths (default: 31).
    """

    num_ops: PositiveInt = 2
    magnitude: NonNegativeInt = 9
    num_magnitude_bins: Annotated[int, Field(ge=2)] = 31

    def __post_init__(self) -> None:
        if self.magnitude >= self.num_magnitude_bins:
            raise ValueError(
                f"RandAugment.magnitude = {self.magnitude} must be less than num_magnitude_bins = "
                f"{self.num_magnitude_bins}; give a smaller one"
            )

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class AutoAugment(Transform):
    """Apply one of 25 learned pairs of operations (Cubuk et al. 2018, arXiv:1805.09501, table 7).

    Args:
        policy: the data set of the learned policy (default: "cifar10").
    """

    policy: Literal["cifar10"] = "cifar10"

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class MixUp(Transform):
    """Mix two images and their labels with weights λ and 1 - λ, λ ~ Beta(alpha, alpha) (Zhang et
    al. 2017, arXiv:1710.09412).

    Args:
        alpha: the parameter of the beta distribution (default: 1).
    """

    stage = "mix"
    alpha: PositiveFloat = 1.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class CutMix(Transform):
    """Paste a rectangle of a second image; labels are weighted by area (Yun et al. 2019,
    arXiv:1905.04899).

    Args:
        alpha: the parameter of the beta distribution of the area (default: 1).
    """

    stage = "mix"
    alpha: PositiveFloat = 1.0

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


class _Several(Transform):
    """Base of groups of transforms of one stage. Evaluation skips them."""

    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        stages = {transform.stage for transform in self.transforms}
        if len(stages) != 1 or stages == {"normalize"}:
            raise ValueError(
                f"{type(self).__name__}.transforms: give transforms of one stage: all before "
                "Normalize, all after it, or MixUp and CutMix"
            )

    @property
    def stage(self) -> Stage:  # type: ignore[override]
        return self.transforms[0].stage

    def for_evaluation(self) -> tuple[Transform, ...]:
        return ()


@choice
class RandomChoice(_Several):
    """Apply one of the transforms, each with equal probability.

    Args:
        transforms: the transforms, all of one stage.
    """

    transforms: tuple[Transform, ...]


@choice
class RandomApply(_Several):
    """Apply all of the transforms in order, or none.

    Args:
        transforms: the transforms, all of one stage.
        p: the probability (default: 0.5).
    """

    transforms: tuple[Transform, ...]
    p: Fraction = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage == "mix":
            raise ValueError(
                "RandomApply does not support MixUp and CutMix; give them as transforms directly"
            )


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
