"""Masked autoencoding of images."""

from ...spec import PixelDecoder, Probability
from ...support.registry import choice, implements
from ..data.image_rows import LabelledImages
from ..transforms import Transform, check_transforms
from .task import Task


@choice
class MaskedAutoencoding(Task):
    """Reconstruct the masked patches of an image (MAE, arXiv:2111.06377)."""

    row_schemas = (LabelledImages,)
    head = PixelDecoder
    hf_class_suffix = "ForPreTraining"
    verb = "reconstruct"
    loss_unit = "squared error"
    packable = False

    mask_rate: Probability = 0.75
    normalise_pixels: bool = True  # each patch's pixels by their own mean and deviation
    transforms: tuple[Transform, ...] | None = (
        None  # in training; None: a random resized crop, mirrored half of the time
    )
    eval_transforms: tuple[Transform, ...] | None = None  # elsewhere; None: as `transforms` say

    def __post_init__(self) -> None:
        check_transforms(self.transforms, self.eval_transforms)
        if any(transform.stage == "mix" for transform in self.transforms or ()):
            raise ValueError(
                "MaskedAutoencoding rebuilds one image at a time; leave MixUp and CutMix out of "
                "transforms"
            )

    def visible_fraction(self) -> float:
        return 1 - self.mask_rate


implements(MaskedAutoencoding, "weft.tasks.masked_autoencoding:MaskedAutoencodingTask")
