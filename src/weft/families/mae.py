"""MAE: a ViT that sees a quarter of the patches, and the light stack that guesses the rest (He et al. 2021, arXiv:2111.06377)."""
from typing import Any

from ..spec import Attention, Block, Dense, Features, LayerNorm, Model, Pixels, Sine2D, Stack, at, pre
from ..weights import Family, Field, Row, Table, both, layer, sizes
from . import vit
from .vit import FIELDS as VIT
from .vit import LAYER, body

SIZES = sizes("depth width heads hidden patch", base=(12, 768, 12, 3072, 16), large=(24, 1024, 16, 4096, 16), huge=(32, 1280, 16, 5120, 14))


def make(guess_depth: int = 8, guess_width: int = 512, guess_heads: int = 16, guess_hidden: int = 2048, eps: float = 1e-12,
         activation: Any = "gelu", bias: bool = True, head: Any = None, **rest: Any) -> Model:
    norm = LayerNorm(eps=eps)
    block = Block(attention=pre(norm, Attention(heads=guess_heads, bias=bias)),
                  feedforward=pre(norm, Dense(hidden=guess_hidden, activation=activation)))
    pixels = Pixels(width=guess_width, stack=Stack(blocks=(block,) * guess_depth, norm=norm))
    return vit.make(positions=Sine2D(), eps=eps, activation=activation, bias=bias, head=head or pixels, **rest)


STACK = "head.stack.blocks"


def guess(path: str, default: int) -> Any:
    """A part of the guessing stack, where the model still has it."""
    return lambda m: at(m.head, path) if isinstance(m.head, Pixels) else default


GUESS = (
    Field("guess_depth", "decoder_num_hidden_layers", guess("stack.blocks.length", 8), 8),
    Field("guess_width", "decoder_hidden_size", guess("width", 512), 512),
    Field("guess_heads", "decoder_num_attention_heads", guess("stack.blocks.0.attention.inner.heads", 16), 16),
    Field("guess_hidden", "decoder_intermediate_size", guess("stack.blocks.0.feedforward.inner.hidden", 2048), 2048))

TABLE: Table = (
    *body("vit"), *both("head.narrow", "decoder.decoder_embed"), Row("head.mask", "decoder.mask_token", "two_leading"),
    Row("head.positions.weight", "decoder.decoder_pos_embed", "one_leading"),
    *layer(STACK + ".{}", "decoder.decoder_encoder.layer.{}", LAYER),
    *both("head.stack.norm", "decoder.decoder_norm"), *both("head.out", "decoder.decoder_pred"))

mae = Family("mae", "arXiv:2111.06377", make, SIZES, "vit_mae", (*VIT, *GUESS), TABLE, prefix="vit.",
             heads={"ViTMAEForPreTraining": lambda m, l: m.head, "ViTMAEModel": lambda m, l: Features()})
