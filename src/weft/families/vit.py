"""ViT: patches through a pre-norm encoder, read at the class token (Dosovitskiy et al. 2020, arXiv:2010.11929)."""
from collections.abc import Mapping
from typing import Any

from ..spec import Attention, Block, Classes, Dense, Features, LayerNorm, Learned, Model, Normal, Patches, Stack, Transform, pre
from ..weights import ACTIVATION, Family, Field, Row, Skip, Table, both, layer, sizes

SIZES = sizes("depth width heads hidden patch", base=(12, 768, 12, 3072, 16), large=(24, 1024, 16, 4096, 16), huge=(32, 1280, 16, 5120, 14))


def make(depth: int, width: int, heads: int, hidden: int, image: int = 224, patch: int = 16, channels: int = 3, eps: float = 1e-12,
         activation: Any = "gelu", bias: bool = True, dropout: float = 0.0, attention_dropout: float = 0.0, tokens: Any = ("class",),
         classes: int = 1000, positions: Any = "learned", head: Any = None) -> Model:
    """`positions`: "learned" is a table of one vector per patch and extra token, None no positions, else a value of `Patches.positions`."""
    norm = LayerNorm(eps=eps)
    block = Block(attention=pre(norm, Attention(heads=heads, bias=bias, dropout=attention_dropout), dropout=dropout),
                  feedforward=pre(norm, Dense(hidden=hidden, activation=activation), dropout=dropout))
    places = Learned(count=(image // patch) ** 2 + len(tokens)) if positions == "learned" else positions
    return Model(width=width, encoder=Stack(blocks=(block,) * depth, norm=norm), head=head or Classes(outputs=classes),
                 source=Patches(image=image, patch=patch, channels=channels, tokens=tokens, positions=places, dropout=dropout))


LOOK, HIDDEN = "encoder.blocks.0.attention.inner", "encoder.blocks.0.feedforward.inner"
FIELDS = (
    Field("depth", "num_hidden_layers", "encoder.blocks.length", 12), Field("width", "hidden_size", "width", 768),
    Field("heads", "num_attention_heads", f"{LOOK}.heads", 12), Field("hidden", "intermediate_size", f"{HIDDEN}.hidden", 3072),
    Field("image", "image_size", "source.image", 224), Field("patch", "patch_size", "source.patch", 16),
    Field("channels", "num_channels", "source.channels", 3), Field("eps", "layer_norm_eps", "encoder.norm.eps", 1e-12),
    Field("activation", "hidden_act", f"{HIDDEN}.activation", "gelu", ACTIVATION), Field("bias", "qkv_bias", f"{LOOK}.bias", True),
    Field("dropout", "hidden_dropout_prob", "source.dropout", 0.0),
    Field("attention_dropout", "attention_probs_dropout_prob", f"{LOOK}.dropout", 0.0),
    Field("std", "initializer_range", "start.std", 0.02))

LAYER = {"attention.before": "layernorm_before", "attention.inner.query": "attention.attention.query",
         "attention.inner.key": "attention.attention.key", "attention.inner.value": "attention.attention.value",
         "attention.inner.out": "attention.output.dense", "feedforward.before": "layernorm_after",
         "feedforward.inner.up": "intermediate.dense", "feedforward.inner.down": "output.dense"}


def body(prefix: str, extra: tuple[str, ...] = ("cls_token",), names: Mapping[str, str] = LAYER) -> Table:
    """Patches and encoder, as ViT, DeiT and MAE name them."""
    return (
        Row("source.extra", tuple(f"{prefix}.embeddings.{name}" for name in extra), "two_leading"),
        Row("source.positions.weight", f"{prefix}.embeddings.position_embeddings", "one_leading"),
        *both("source.patch", f"{prefix}.embeddings.patch_embeddings.projection"),
        *layer("encoder.blocks.{}", prefix + ".encoder.layer.{}", names), *both("encoder.norm", f"{prefix}.layernorm"),
        Skip(f"{prefix}.embeddings.mask_token", "masked image modelling: its objective owns one"),
        *both("head.transform.dense", f"{prefix}.pooler.dense", when="Features"))


def classes(m: Model, l: Any) -> Classes:
    return Classes(outputs=l.outputs, labels=l.labels)


vit = Family("vit", "arXiv:2010.11929", make, SIZES, "vit", FIELDS, (*body("vit"), *both("head.out", "classifier", when="Classes")),
             prefix="vit.", start=Normal(cut=2.0), only={"pooler_act": ("tanh",)},
             heads={"ViTForImageClassification": classes, "ViTModel": lambda m, l: Features(transform=Transform(activation="tanh"))})
