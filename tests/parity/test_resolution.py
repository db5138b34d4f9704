"""Other image sizes: learned positions stretch as in transformers (ViT, section 3.2), windows
shrink as in the authors' code (Swin).
"""

import pytest
import torch
import transformers as T
from transformers.models.swin.modeling_swin import SwinLayer, SwinRelativePositionBias

import weft


@pytest.mark.parametrize("side", [48, 24])
def test_positions_stretch_to_another_image_size_as_in_transformers(
    side: int, tmp_path: object
) -> None:
    torch.manual_seed(0)
    other = T.ViTForImageClassification(
        T.ViTConfig(
            num_hidden_layers=2,
            hidden_size=32,
            num_attention_heads=4,
            intermediate_size=64,
            image_size=32,
            patch_size=8,
            num_labels=5,
        )
    ).eval()
    with torch.no_grad():
        for p in other.parameters():
            p.normal_(0, 0.2)
    other.save_pretrained(tmp_path)
    image = torch.randn(2, 3, side, side)
    with torch.no_grad():
        truth = other(image, interpolate_pos_encoding=True).logits
        found = weft.load(tmp_path)(image)
    assert (found - truth).abs().max() <= 1e-5


def shrink(model: T.SwinForImageClassification) -> T.SwinForImageClassification:
    """transformers shrinks the window but not the bias, and fails on such sizes: give it the bias
    of the offsets that are left, which is the table that the authors' code makes for this input.
    """

    def first(layer: SwinLayer, given: tuple[object, ...]) -> None:
        bias = layer.attention.relative_position_bias  # type: ignore[call-overload]
        side = min(given[1])  # type: ignore[call-overload]
        size = bias.window_size[0]
        heads = bias.relative_position_bias_table.shape[1]
        if side < size:
            small = SwinRelativePositionBias(heads, (side, side))
            square = bias.relative_position_bias_table.detach().view(
                2 * size - 1, 2 * size - 1, heads
            )
            middle = slice(size - side, size + side - 1)
            small.relative_position_bias_table.data = square[middle, middle].reshape(-1, heads)
            layer.attention.relative_position_bias = small

    for layer in model.modules():
        if isinstance(layer, SwinLayer):
            layer.register_forward_pre_hook(first)
    return model


@pytest.mark.parametrize(
    ("image", "patch", "window", "depths"),
    [
        (32, 4, 7, (2, 2)),
        (32, 4, 7, (2, 2, 2, 2)),
        (32, 8, 7, (2, 2)),
        (24, 4, 7, (1, 2)),
        (28, 4, 7, (2, 2)),
        (40, 2, 12, (2, 2, 2)),
    ],
)
def test_a_window_larger_than_the_grid_shrinks_as_in_the_authors_code(
    image: int, patch: int, window: int, depths: tuple[int, ...], tmp_path: object
) -> None:
    torch.manual_seed(0)
    other = T.SwinForImageClassification(
        T.SwinConfig(
            image_size=image,
            patch_size=patch,
            window_size=window,
            embed_dim=8,
            depths=depths,
            num_heads=(2, 2, 4, 4)[: len(depths)],
            num_labels=5,
        )
    ).eval()
    with torch.no_grad():
        for p in other.parameters():
            p.normal_(0, 0.2)
    other.save_pretrained(tmp_path)
    images = torch.randn(2, 3, image, image)
    with torch.no_grad():
        truth = shrink(other)(images).logits
        found = weft.load(tmp_path)(images)
    assert truth.std() > 0.02
    assert (found - truth).abs().max() <= 1e-5
