"""Few-shot classification on frozen features: regularised least squares to targets in {-1, 1}
(Dosovitskiy et al. 2020, arXiv:2010.11929, section 4.1, "metrics"), in closed form and without
training."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.shards.store import Store
from ..inference.images import embed_store
from ..nn.loaded_model import LoadedModel
from ..tasks.predict import PredictOptions

L2 = tuple(10.0**power for power in range(-6, 7))  # relative to the mean squared singular value


class LeastSquaresProbe(NamedTuple):
    """A linear classifier: argmax over classes of (x - mean) W + b."""

    mean_D: Tensor
    weight_DC: Tensor
    bias_C: Tensor
    l2: float

    def predict(self, x_ND: Tensor) -> Tensor:
        """Return the class of each vector, (N,)."""
        return ((x_ND - self.mean_D) @ self.weight_DC + self.bias_C).argmax(-1)


def fit_least_squares(
    x_ND: Tensor, label_N: Tensor, classes: int, l2: Sequence[float] = L2
) -> LeastSquaresProbe:
    """Minimise |(X - mean) W + b - Y|² + λ |W|², with Y = 1 for the class and -1 for the others.

    Args:
        x_ND: one feature vector per sample, in float64.
        label_N: the class of each sample.
        classes: the number of classes.
        l2: candidates for λ; the one with the smallest leave-one-out error is used, which follows
            from the singular values (Allen 1974, "The relationship between variable selection and
            data augmentation").
    """
    y_NC = 2.0 * torch.nn.functional.one_hot(label_N, classes).to(x_ND.dtype) - 1
    mean_D = x_ND.mean(0)
    bias_C = y_NC.mean(0)
    u_NR, s_R, v_RD = torch.linalg.svd(x_ND - mean_D, full_matrices=False)
    uy_RC = u_NR.T @ (y_NC - bias_C)
    scale = s_R.square().mean().clamp(min=1e-30)

    def left_out_error(strength: float) -> float:
        shrink_R = s_R.square() / (s_R.square() + strength * scale)
        residual_NC = y_NC - bias_C - u_NR @ (shrink_R[:, None] * uy_RC)
        leverage_N = u_NR.square() @ shrink_R + 1 / len(x_ND)
        return float((residual_NC / (1 - leverage_N).clamp(min=1e-12)[:, None]).square().mean())

    best = min(l2, key=left_out_error)
    weight_DC = v_RD.T @ ((s_R / (s_R.square() + best * scale))[:, None] * uy_RC)
    return LeastSquaresProbe(mean_D, weight_DC, bias_C, best)


def draw_shots(
    label_N: np.ndarray, shots: int | None, seed: int, names: Sequence[str] = ()
) -> np.ndarray:
    """Return the indices of `shots` random samples per class; None: of all samples.

    `names` are the class names for the error.

    Raises:
        ValueError: if a class has fewer samples.
    """
    if shots is None:
        return np.arange(len(label_N))
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(label_N):
        members = np.flatnonzero(label_N == label)
        if len(members) < shots:
            raise ValueError(
                f"class {names[label] if names else label} has {len(members)} images, "
                f"fewer than {shots} shots; "
                f"give at most --shots {len(members)}"
            )
        chosen.append(rng.choice(members, shots, replace=False))
    return np.concatenate(chosen)


class ProbeScore(NamedTuple):
    shots: int | None  # images per class; None: all
    seed: int
    accuracy: float
    l2: float


def probe(
    model: LoadedModel,
    train: Store,
    valid: Store,
    shots: Sequence[int | None] = (1, 5, 10, None),
    seeds: int = 1,
    pooling: str | None = None,
    options: PredictOptions = PredictOptions(),
) -> Iterator[ProbeScore]:
    """Yield the accuracy on `valid` of a probe on a few images per class of `train`, for each
    number of shots and each seed.

    Args:
        model: the model whose features are used, as computed by `embed`.
        train: labelled images to fit.
        valid: labelled images to score on.
        shots: numbers of images per class; None: all.
        seeds: the number of random draws; all images are used once.
        pooling: the pooling of the patches (default: the class token, or the mean without one).
        options: batch size, precision and ranks.
    """
    label_N, label_M = (np.array(store.column("label")) for store in (train, valid))
    classes = train.meta.labels or ()
    draws = [
        (count, seed, draw_shots(label_N, count, seed, classes))
        for count in shots
        for seed in range(1 if count is None else seeds)
    ]
    x_ND, x_MD = (
        torch.from_numpy(embed_store(model, store, pooling, None, options)).double()
        for store in (train, valid)
    )
    for count, seed, chosen in draws:
        label_n = torch.from_numpy(label_N[chosen])
        fitted = fit_least_squares(x_ND[chosen], label_n, len(classes))
        right = fitted.predict(x_MD).numpy() == label_M
        yield ProbeScore(count, seed, float(right.mean()), fitted.l2)
