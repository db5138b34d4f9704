"""Reconstruction by a masked autoencoder: original, visible patches and rebuilt image (He et al.
2021, arXiv:2111.06377, figure 2)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.images.images import to_image
from ..nn.loaded_model import LoadedModel
from ..tasks.masked_autoencoding import mask_patches, patchify
from ..tasks.predict import device_of
from .images import ImageInput, ImagePreprocess, evaluation_transforms, image_store
from .methods import check_head

GREY = 128  # grey level of a hidden patch


class Reconstruction(NamedTuple):
    """Three views of one image at the model's resolution."""

    original: Image.Image
    masked: Image.Image
    rebuilt: Image.Image  # predicted hidden patches, original visible ones
    error: float  # mean squared error of a hidden pixel, in units of `Normalize.std`


def reconstruct(
    model: LoadedModel,
    images: Sequence[ImageInput],
    mask_rate: float | None = None,
    seed: int = 0,
    bf16: bool = False,
) -> list[Reconstruction]:
    """Hide patches of each image and rebuild them.

    A model trained on normalised pixels predicts no brightness and contrast of a patch; these are
    taken from the original, as in the paper's figures.

    Args:
        model: a model with a `PixelDecoder` head.
        images: files, bytes or PIL images.
        mask_rate: the fraction of hidden patches (default: that of training, else 0.75).
        seed: selects the hidden patches, together with the index of an image.
        bf16: compute in bfloat16.

    Raises:
        ValueError: if the model does not rebuild images.
    """
    spec = model.model.spec
    check_head(model, R.MaskedAutoencoding, "recipes/mae.py")
    assert isinstance(spec.source, S.Patches)
    trained = model.recipe.task if model.recipe is not None else None
    task = trained if isinstance(trained, R.MaskedAutoencoding) else R.MaskedAutoencoding()
    rate = task.mask_rate if mask_rate is None else mask_rate
    shown = int(spec.grid_cells * (1 - rate))
    if not 0 < shown < spec.grid_cells:
        raise ValueError(
            f"a mask rate of {rate} of {spec.grid_cells} patches leaves {shown} visible; "
            f"give a {'larger' if shown else 'smaller'} rate"
        )
    store = image_store(model, images)
    preprocess = ImagePreprocess(model, store)
    samples = preprocess.open_samples(store, 1, include_partial=True)
    pictures = []
    for i in range(len(images)):
        rng = np.random.default_rng((seed, i))
        image_CRS = preprocess(samples, i, rng)["image"]
        masks = mask_patches(rng.random(spec.grid_cells), shown, spec.extra_tokens)
        with torch.autocast(device_of(model.model).type, torch.bfloat16, enabled=bf16):
            pictures.append(rebuild_image(model, task, torch.from_numpy(image_CRS), masks))
    return pictures


def rebuild_image(
    model: LoadedModel,
    task: R.MaskedAutoencoding,
    image_CRS: Tensor,
    masks: dict[str, np.ndarray],
) -> Reconstruction:
    source = model.model.spec.source
    assert isinstance(source, S.Patches)
    original_PF = patchify(image_CRS[None], source.patch_size)[0]
    predicted_PF = predict_patches(model, image_CRS, masks["visible"])
    # The targets were normalised; restore the patch's own mean and deviation
    if task.normalise_pixels:
        variance_P1, mean_P1 = torch.var_mean(original_PF, -1, keepdim=True)
        predicted_PF = predicted_PF * (variance_P1 + 1e-6).sqrt() + mean_P1
    hidden_S = torch.from_numpy(masks["hidden"])
    rebuilt_PF = original_PF.clone()
    rebuilt_PF[hidden_S] = predicted_PF[hidden_S]
    steps = [step for step in evaluation_transforms(model) if isinstance(step, R.Normalize)]
    normal = steps[0] if steps else R.Normalize(mean=(0.0,), std=(1.0,))
    original, rebuilt = (
        to_image(unpatchify(x_PF, source.patch_size, source.channels).numpy(), normal)
        for x_PF in (original_PF, rebuilt_PF)
    )
    masked = np.array(original)
    masked[hidden_pixels(source, masks["hidden"])] = GREY
    error = (rebuilt_PF - original_PF)[hidden_S].square().mean()
    return Reconstruction(original, Image.fromarray(masked), rebuilt, float(error))


@torch.no_grad()
def predict_patches(model: LoadedModel, image_CRS: Tensor, visible_S: np.ndarray) -> Tensor:
    """Return the predicted pixels of every patch, (P, F)."""
    device = device_of(model.model)
    sequence = model.model.embed(image_CRS[None].to(device, model.model.dtype))
    seen = sequence.select(torch.from_numpy(visible_S)[None].to(device))
    rebuilt = model.model.read(model.model.encode(seen))
    assert isinstance(rebuilt, Tensor)
    return rebuilt[0].float().cpu()


def hidden_pixels(source: S.Patches, hidden_S: np.ndarray) -> np.ndarray:
    """Return a mask of shape (rows, columns), True where a patch is hidden."""
    side = source.image_size // source.patch_size
    patch = source.patch_size
    hidden_P = np.zeros(side * side, bool)
    hidden_P[hidden_S] = True
    return hidden_P.reshape(side, side).repeat(patch, 0).repeat(patch, 1)


def unpatchify(x_PF: Tensor, patch: int, channels: int) -> Tensor:
    """Return an image (channels, rows, columns) from patches, the inverse of `patchify`."""
    side = round(len(x_PF) ** 0.5)
    return (
        x_PF.reshape(side, side, patch, patch, channels)
        .permute(4, 0, 2, 1, 3)
        .reshape(channels, side * patch, side * patch)
    )


def contact_sheet(rows: Sequence[Reconstruction], scale: int = 1, gap: int = 4) -> Image.Image:
    """Return one image with a row per reconstruction: original, masked and rebuilt."""
    width, height = (side * scale for side in rows[0].original.size)
    sheet = Image.new("RGB", (3 * width + 4 * gap, len(rows) * (height + gap) + gap), "white")
    for line, row in enumerate(rows):
        for column, image in enumerate((row.original, row.masked, row.rebuilt)):
            large = image.convert("RGB").resize((width, height), Image.Resampling.NEAREST)
            sheet.paste(large, (gap + column * (width + gap), gap + line * (height + gap)))
    return sheet
