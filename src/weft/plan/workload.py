"""The workload of a model without a recipe, with default batch size and number of tokens."""

from dataclasses import replace

from .. import spec as S
from ..families import training_length_of_name
from .recipe_workload import Workload, image_size

TOKENS_PER_PARAMETER = 20  # compute-optimal (Hoffmann et al. 2022, arXiv:2203.15556, table 3)
# Tokens per step by number of parameters (Brown et al. 2020, arXiv:2005.14165, table 2.1).
BATCH_TOKENS = ((1e9, 500_000), (5e9, 1_000_000), (100e9, 2_000_000), (float("inf"), 3_200_000))
DEFAULT_LENGTH = 512  # tokens per row of models without a position table or context length
BATCH_IMAGES = 4096  # ViT (arXiv:2010.11929, appendix B.1)


def workload_of_spec(
    name: str, spec: S.Spec, length: int | None = None, tokens: float | None = None
) -> Workload:
    """Return the workload of a model without a recipe: bf16, Adam, rows of its context length,
    compute-optimal number of tokens.

    Args:
        name: of the model.
        spec: the model.
        length: tokens per row; pixels of a side for images (default: the length of its training).
        tokens: tokens or images to train on (default: 20 tokens per parameter;
            images: 300 epochs of ImageNet).
    """
    parameters = spec.parameter_count()
    if not isinstance(spec.source, S.Tokens):
        images = tokens or 300 * 1_281_167
        steps = max(1, round(images / BATCH_IMAGES))
        side = length or image_size(spec)
        return Workload(name, spec, BATCH_IMAGES, side, steps, unit="images", any_rows=True)
    length, reason = (length, "") if length else row_length(name, spec)
    both = spec.encoder is not None and spec.decoder is not None
    per_step = next(size for limit, size in BATCH_TOKENS if parameters < limit)
    rows = max(1, round(per_step / (length * (1 + both))))
    workload = Workload(
        name,
        spec,
        rows,
        length,
        1,
        target_length=length if both else None,
        length_reason=reason,
        any_rows=True,
    )
    tokens = tokens or TOKENS_PER_PARAMETER * parameters
    return replace(workload, steps=max(1, round(tokens / (rows * workload.units_per_row))))


def row_length(name: str, spec: S.Spec) -> tuple[int, str]:
    """Return the tokens per row of a model's training, and the source of this number."""
    if spec.context_length:
        return spec.context_length, "its context length"
    if trained := training_length_of_name(name):
        return trained, "as it was trained"
    if positions := getattr(getattr(spec.source, "positions", None), "max_length", None):
        return int(positions), "as many as it has positions"
    return DEFAULT_LENGTH, "assumed; --row-length gives another"


def with_samples(workload: Workload, samples: float | None) -> Workload:
    """Set the steps to read this many tokens or images; None leaves them unchanged."""
    if samples is None:
        return workload
    return replace(
        workload, steps=max(1, round(samples / (workload.rows * workload.units_per_row)))
    )
