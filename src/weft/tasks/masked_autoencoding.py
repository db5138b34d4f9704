"""Masked autoencoding: reconstruct the hidden patches of an image (MAE, He et al. 2021,
arXiv:2111.06377, section 3).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.images.image_samples import ImageSamples
from ..data.shards.store import Store
from ..nn.kernels.cross_entropy import accumulation_dtype
from .base import ArrayRow, Batch, LengthLimitedSamples, Loss, Preprocess, TaskContext, check_head
from .classification import image_samples
from .task import TaskImplementation


class MaskedAutoencodingPreprocess(Preprocess):
    """Hide the same number of patches in every image, chosen uniformly at random."""

    terms = ("patch",)

    def __init__(self, task: R.MaskedAutoencoding, context: TaskContext) -> None:
        check_head(task, context, outputs=0)
        super().__init__(task, context)
        self.fields = {}
        assert isinstance(context.spec.source, S.Patches)
        self.source = context.spec.source
        self.cells = (self.source.image_size // self.source.patch_size) ** 2
        self.shown = int(self.cells * (1 - task.mask_rate))
        if not 0 < self.shown < self.cells:
            raise ValueError(
                f"mask_rate = {task.mask_rate} of {self.cells} patches leaves {self.shown} "
                f"visible; choose a rate that leaves at least one visible and one hidden"
            )

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        return ImageSamples(
            store,
            self.source,
            area=(0.2, 1.0),  # appendix A.1: a random crop is all the augmentation
            deterministic=include_partial,
            transforms=R.transforms_for(self.task, include_partial),
        )

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        image = image_samples(samples).transform(samples[index]["image"], rng)
        return {"image": image} | mask_patches(
            rng.random(self.cells), self.shown, len(self.source.extra_tokens)
        )

    def term_counts(self, batch: Any) -> dict[str, int]:
        return {"patch": batch["hidden"].shape[0] * batch["hidden"].shape[1]}


def mask_patches(noise: np.ndarray, shown: int, extras: int) -> ArrayRow:
    """Return the visible positions of the sequence, extra tokens first, and the hidden positions of
    the grid: patches with the least noise stay visible (section 3, "simple implementation").
    """
    order = noise.argsort(-1)
    front = np.broadcast_to(np.arange(extras), (*noise.shape[:-1], extras))
    return {
        "visible": np.concatenate((front, extras + np.sort(order[..., :shown], -1)), -1),
        "hidden": np.sort(order[..., shown:], -1),
    }


class MaskedAutoencodingLoss(Loss):
    def __init__(self, task: R.MaskedAutoencoding, context: TaskContext) -> None:
        super().__init__(task, context, {"patch": 1.0})
        assert isinstance(context.spec.source, S.Patches)
        self.patch = context.spec.source.patch_size
        self.normalised = task.normalise_pixels

    def forward_outputs(self, batch: Batch) -> Tensor:
        """Return the predictions of all patches; the loss uses the hidden ones."""
        image_BCRS = batch["image"].to(next(self.model.parameters()).dtype)
        rebuilt_BPF = self.model.read(
            self.model.encode(self.model.embed(image_BCRS).select(batch["visible"]))
        )
        assert isinstance(rebuilt_BPF, Tensor)
        return rebuilt_BPF

    def loss_sums(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the squared error summed over hidden patches, averaged over the pixels of each."""
        target_BSF, predicted_BSF = (
            gather_patches(x_BPF.to(accumulation_dtype(answer)), batch["hidden"])
            for x_BPF in (patchify(batch["image"], self.patch), answer)
        )
        # by the patch's own mean and deviation (section 3, "reconstruction target")
        if self.normalised:
            variance_BS1, mean_BS1 = torch.var_mean(target_BSF, -1, keepdim=True)
            target_BSF = (target_BSF - mean_BS1) / (variance_BS1 + 1e-6).sqrt()
        return {"patch": (predicted_BSF - target_BSF).square().mean(-1).sum()}


def patchify(image_BCRS: Tensor, patch: int) -> Tensor:
    """(B, P, pixels): patches row by row; inside one, rows, columns, channels."""
    (B, C, R, S) = image_BCRS.shape
    p = patch
    return (
        image_BCRS.reshape(B, C, R // p, p, S // p, p)
        .permute(0, 2, 4, 3, 5, 1)
        .reshape(B, R // p * (S // p), p * p * C)
    )


def gather_patches(x_BPF: Tensor, place_BS: Tensor) -> Tensor:
    return x_BPF.gather(1, place_BS[..., None].expand(-1, -1, x_BPF.shape[2]))


class MaskedAutoencodingTask(TaskImplementation):
    preprocess_class = MaskedAutoencodingPreprocess
    loss_class = MaskedAutoencodingLoss
