"""MAE: a ViT encoder of visible patches and a light decoder that predicts the hidden ones (He et
al. 2021, arXiv:2111.06377).
"""

from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    LayerNorm,
    NoHead,
    PixelDecoder,
    SinusoidalPositions2D,
    Spec,
    Stack,
    pre_norm,
)
from ..support.values import get_path
from . import vit
from .base import ConfigField, Family, size_table
from .vit import FIELDS as VIT
from .vit import LAYER, body
from .weights import WeightRow, WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    "depth width heads hidden patch_size",
    base=(12, 768, 12, 3072, 16),
    large=(24, 1024, 16, 4096, 16),
    huge=(32, 1280, 16, 5120, 14),
)


def make(
    decoder_depth: int = 8,
    decoder_width: int = 512,
    decoder_heads: int = 16,
    decoder_hidden: int = 2048,
    eps: float = 1e-12,
    activation: Any = "gelu",
    bias: bool = True,
    head: Any = None,
    **rest: Any,
) -> Spec:
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=pre_norm(norm, Attention(heads=decoder_heads, bias=bias)),
        feedforward=pre_norm(norm, MLP(hidden=decoder_hidden, activation=activation)),
    )
    pixels = PixelDecoder(
        width=decoder_width, stack=Stack(blocks=(block,) * decoder_depth, norm=norm)
    )
    return vit.make(
        positions=SinusoidalPositions2D(),
        eps=eps,
        activation=activation,
        bias=bias,
        head=head or pixels,
        **rest,
    )


STACK = "head.stack.blocks"


def decoder_part(path: str, default: int) -> Any:
    """Return a part of the decoder, or the default for a model without a decoder."""
    return lambda m: get_path(m.head, path) if isinstance(m.head, PixelDecoder) else default


DECODER = (
    ConfigField(
        "decoder_depth", "decoder_num_hidden_layers", decoder_part("stack.blocks.length", 8), 8
    ),
    ConfigField("decoder_width", "decoder_hidden_size", decoder_part("width", 512), 512),
    ConfigField(
        "decoder_heads",
        "decoder_num_attention_heads",
        decoder_part("stack.blocks.0.attention.inner.heads", 16),
        16,
    ),
    ConfigField(
        "decoder_hidden",
        "decoder_intermediate_size",
        decoder_part("stack.blocks.0.feedforward.inner.hidden", 2048),
        2048,
    ),
)

TABLE: WeightTable = (
    *body("vit"),
    *weight_and_bias("head.narrow", "decoder.decoder_embed"),
    WeightRow("head.mask", "decoder.mask_token", "two_leading"),
    WeightRow("head.positions.weight", "decoder.decoder_pos_embed", "one_leading"),
    *layer_rows(STACK + ".{}", "decoder.decoder_encoder.layer.{}", LAYER),
    *weight_and_bias("head.stack.norm", "decoder.decoder_norm"),
    *weight_and_bias("head.out", "decoder.decoder_pred"),
)


def pixels(m: Any, l: Any) -> PixelDecoder | None:
    """Return the pre-training head; other models cannot have it, since its stack is in the fields
    above.
    """
    return m.head if isinstance(m.head, PixelDecoder) else None


mae = Family(
    "mae",
    "arXiv:2111.06377",
    make,
    SIZES,
    "vit_mae",
    (*VIT, *DECODER),
    TABLE,
    prefix="vit.",
    heads={"ViTMAEForPreTraining": pixels, "ViTMAEModel": lambda m, l: NoHead()},
)
