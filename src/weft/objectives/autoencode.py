"""Rebuild the hidden patches of an image (MAE, He et al. 2021, arXiv:2111.06377, section 3)."""
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.image import Pictures
from ..layers.loss import wide
from .base import Batch, Corruption, Objective, Reader, Row, Setting
from .classify import refuse_head, see

if TYPE_CHECKING:
    from ..data.store import Store


class Corrupt(Corruption):
    """The same number of patches is hidden in every image, any set of them as likely as any other."""
    terms = ("patch",)

    def __init__(self, value: R.Autoencoding, setting: Setting) -> None:
        refuse_head(value, setting, S.Pixels, outputs=0)
        if not isinstance(setting.meta.row, R.Images):
            raise ValueError(f"Autoencoding reads rows of Images, not of {type(setting.meta.row).__name__}")
        super().__init__(setting)
        self.fields = {}
        assert isinstance(setting.spec.source, S.Patches)
        self.source = setting.spec.source
        self.cells = (self.source.image // self.source.patch) ** 2
        self.shown = int(self.cells * (1 - value.share))
        if not 0 < self.shown < self.cells:
            raise ValueError(f"share = {value.share} of {self.cells} patches leaves {self.shown} to see; some must be seen and some hidden")

    def read(self, store: "Store", length: int, tail: bool) -> Any:
        return Pictures(store, self.source, area=(0.2, 1.0), still=tail)       # appendix A.1: a random crop is all the augmentation

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        image = see(samples, samples[index]["image"], draw)
        return {"image": image} | hide(draw.random(self.cells), self.shown, len(self.source.tokens))

    def units(self, batch: Any) -> dict[str, int]:
        return {"patch": batch["hidden"].shape[0] * batch["hidden"].shape[1]}


def hide(noise: np.ndarray, shown: int, extras: int) -> Row:
    """Places in the sequence to encode, extra tokens first, and places on the grid to rebuild: the patches of least noise stay
    (section 3, "simple implementation")."""
    order = noise.argsort(-1)
    front = np.broadcast_to(np.arange(extras), (*noise.shape[:-1], extras))
    return {"visible": np.concatenate((front, extras + np.sort(order[..., :shown], -1)), -1), "hidden": np.sort(order[..., shown:], -1)}


class Score(Objective):
    def __init__(self, value: R.Autoencoding, setting: Setting) -> None:
        super().__init__(setting, {"patch": 1.0})
        assert isinstance(setting.spec.source, S.Patches)
        self.patch, self.normalised = setting.spec.source.patch, value.normalised

    def answer(self, batch: Batch) -> Tensor:
        """All patches, of which the hidden ones count."""
        image_BCRS = batch["image"].to(next(self.model.parameters()).dtype)
        rebuilt_BPF = self.model.read(self.model.encode(self.model.embed(image_BCRS).take(batch["visible"])))
        assert isinstance(rebuilt_BPF, Tensor)
        return rebuilt_BPF

    def score(self, answer: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The squared error a pixel, over each hidden patch's pixels the mean."""
        target_BSF, guess_BSF = (pick(x_BPF.to(wide(answer)), batch["hidden"]) for x_BPF in (patches(batch["image"], self.patch), answer))
        if self.normalised:                # by the patch's own mean and deviation (section 3, "reconstruction target")
            variance_BS1, mean_BS1 = torch.var_mean(target_BSF, -1, keepdim=True)
            target_BSF = (target_BSF - mean_BS1) / (variance_BS1 + 1e-6).sqrt()
        return {"patch": (guess_BSF - target_BSF).square().mean(-1).sum()}


def patches(image_BCRS: Tensor, patch: int) -> Tensor:
    """(B, P, pixels): patches row by row; inside one, rows, columns, channels."""
    (B, C, R, S), p = image_BCRS.shape, patch
    return image_BCRS.reshape(B, C, R // p, p, S // p, p).permute(0, 2, 4, 3, 5, 1).reshape(B, R // p * (S // p), p * p * C)


def pick(x_BPF: Tensor, place_BS: Tensor) -> Tensor:
    return x_BPF.gather(1, place_BS[..., None].expand(-1, -1, x_BPF.shape[2]))
