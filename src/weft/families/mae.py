"""MAE: a ViT that sees a quarter of the patches, and the light stack that guesses the rest (He et al. 2021, arXiv:2111.06377)."""

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
from ..values import get_path
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
    guess_depth: int = 8,
    guess_width: int = 512,
    guess_heads: int = 16,
    guess_hidden: int = 2048,
    eps: float = 1e-12,
    activation: Any = "gelu",
    bias: bool = True,
    head: Any = None,
    **rest: Any,
) -> Spec:
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=pre_norm(norm, Attention(heads=guess_heads, bias=bias)),
        feedforward=pre_norm(norm, MLP(hidden=guess_hidden, activation=activation)),
    )
    pixels = PixelDecoder(width=guess_width, stack=Stack(blocks=(block,) * guess_depth, norm=norm))
    return vit.make(
        positions=SinusoidalPositions2D(),
        eps=eps,
        activation=activation,
        bias=bias,
        head=head or pixels,
        **rest,
    )


STACK = "head.stack.blocks"


def guess(path: str, default: int) -> Any:
    """A part of the guessing stack, where the model still has it."""
    return lambda m: get_path(m.head, path) if isinstance(m.head, PixelDecoder) else default


GUESS = (
    ConfigField("guess_depth", "decoder_num_hidden_layers", guess("stack.blocks.length", 8), 8),
    ConfigField("guess_width", "decoder_hidden_size", guess("width", 512), 512),
    ConfigField(
        "guess_heads",
        "decoder_num_attention_heads",
        guess("stack.blocks.0.attention.inner.heads", 16),
        16,
    ),
    ConfigField(
        "guess_hidden",
        "decoder_intermediate_size",
        guess("stack.blocks.0.feedforward.inner.hidden", 2048),
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
    """The head of pre-training, which no other model can be given: its stack is in the fields above."""
    return m.head if isinstance(m.head, PixelDecoder) else None


mae = Family(
    "mae",
    "arXiv:2111.06377",
    make,
    SIZES,
    "vit_mae",
    (*VIT, *GUESS),
    TABLE,
    prefix="vit.",
    heads={"ViTMAEForPreTraining": pixels, "ViTMAEModel": lambda m, l: NoHead()},
)
