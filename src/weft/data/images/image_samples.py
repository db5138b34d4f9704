"""Image samples: rows of prepared data, transformed to the model's size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import recipe as R
from ... import spec as S
from ..batches.samples import RowSamples, Sample
from ..shards.store import Store
from .images import decode, normalise, random_crop_and_flip, usual_transforms
from .transforms import ImagePipeline


class ImageSamples(RowSamples):
    """Rows with an image, resized by `transforms`. Without transforms: a random crop of at least
    the `area`, mirrored with probability 0.5, or the center crop in validation (`deterministic`).
    """

    def __init__(
        self,
        store: Store,
        patches: S.Patches,
        area: tuple[float, float] = (0.08, 1.0),
        deterministic: bool = False,
        transforms: Sequence[R.Transform] | None = None,
    ) -> None:
        super().__init__(store)
        self.size = patches.image_size
        self.channels = patches.channels
        self.area = area
        self.tokens = (patches.image_size // patches.patch_size) ** 2 + len(patches.extra_tokens)
        if transforms is None and deterministic:
            transforms = usual_transforms(patches.image_size)
        self.pipeline = None if transforms is None else ImagePipeline(transforms)

    def lengths(self, indices: NDArray[Any]) -> NDArray[np.int64]:
        return np.full(len(indices), self.tokens)

    def transform(self, data: bytes, rng: np.random.Generator) -> NDArray[np.float32]:
        image = decode(data, self.channels)
        if self.pipeline is None:
            return normalise(random_crop_and_flip(image, self.size, rng, self.area))
        pixels = self.pipeline(image, None, rng)[0]
        if pixels.shape[1:] != (self.size, self.size):
            raise ValueError(
                f"the transforms give {pixels.shape[2]} × {pixels.shape[1]} pixels, but the model "
                f"reads {self.size} × {self.size}; add Resize(size=({self.size}, {self.size})) or "
                "a crop"
            )
        return pixels

    def labelled(self, sample: Sample, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return a sample's pixels and label. For mixed samples, the first one's generator draws
        the second from all samples; the result has both labels and the weight of the first.
        """
        pixels = self.transform(sample["image"], rng)
        label = np.asarray(sample["label"])
        if self.pipeline is None or self.pipeline.mix is None:
            return {"image": pixels, "labels": label}
        other = self[int(rng.integers(len(self)))]
        mixed, share = self.pipeline.mix(pixels, self.transform(other["image"], rng), rng)
        second = np.asarray(other["label"])
        return {
            "image": mixed,
            "labels": label,
            "mixed_labels": second,
            "label_weight": np.asarray(share),
        }
