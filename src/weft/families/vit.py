"""ViT: a pre-norm encoder of image patches with a class token (Dosovitskiy et al. 2020,
arXiv:2010.11929).
"""

from collections.abc import Mapping
from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    ClassifierHead,
    HeadTransform,
    LayerNorm,
    LearnedPositions,
    NoHead,
    NormalInit,
    Patches,
    Spec,
    Stack,
    pre_norm,
)
from .base import ACTIVATION_CODEC, ConfigField, Family, size_table
from .weights import SkippedWeight, WeightRow, WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    "depth width heads hidden patch_size",
    base=(12, 768, 12, 3072, 16),
    large=(24, 1024, 16, 4096, 16),
    huge=(32, 1280, 16, 5120, 14),
    base_32=(12, 768, 12, 3072, 32),
    large_32=(24, 1024, 16, 4096, 32),
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    image_size: int = 224,
    patch_size: int = 16,
    channels: int = 3,
    eps: float = 1e-12,
    activation: Any = "gelu",
    bias: bool = True,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    tokens: Any = ("class",),
    classes: int = 1000,
    positions: Any = "learned",
    stem: Any = None,
    head: Any = None,
) -> Spec:
    """Return the spec.

    Args:
        positions: "learned" for a vector per patch and extra token, None, or a value of
            `Patches.positions`.
        stem: a `PatchStem` in place of the linear patch embedding (default: none).
    """
    norm = LayerNorm(eps=eps)
    block = Block(
        attention=pre_norm(
            norm, Attention(heads=heads, bias=bias, dropout=attention_dropout), dropout=dropout
        ),
        feedforward=pre_norm(norm, MLP(hidden=hidden, activation=activation), dropout=dropout),
    )
    places = (
        LearnedPositions(count=(image_size // patch_size) ** 2 + len(tokens))
        if positions == "learned"
        else positions
    )
    return Spec(
        width=width,
        encoder=Stack(blocks=(block,) * depth, norm=norm),
        head=head or ClassifierHead(num_labels=classes),
        source=Patches(
            image_size=image_size,
            patch_size=patch_size,
            channels=channels,
            extra_tokens=tokens,
            positions=places,
            stem=stem,
            dropout=dropout,
        ),
    )


ATTEND = "encoder.blocks.0.attention.inner"
HIDDEN = "encoder.blocks.0.feedforward.inner"
FIELDS = (
    ConfigField("depth", "num_hidden_layers", "encoder.blocks.length", 12),
    ConfigField("width", "hidden_size", "width", 768),
    ConfigField("heads", "num_attention_heads", f"{ATTEND}.heads", 12),
    ConfigField("hidden", "intermediate_size", f"{HIDDEN}.hidden", 3072),
    ConfigField("image_size", "image_size", "source.image_size", 224),
    ConfigField("patch_size", "patch_size", "source.patch_size", 16),
    ConfigField("channels", "num_channels", "source.channels", 3),
    ConfigField("eps", "layer_norm_eps", "encoder.norm.eps", 1e-12),
    ConfigField("activation", "hidden_act", f"{HIDDEN}.activation", "gelu", ACTIVATION_CODEC),
    ConfigField("bias", "qkv_bias", f"{ATTEND}.bias", True),
    ConfigField("dropout", "hidden_dropout_prob", "source.dropout", 0.0),
    ConfigField("attention_dropout", "attention_probs_dropout_prob", f"{ATTEND}.dropout", 0.0),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)

LAYER = {
    "attention.before": "layernorm_before",
    "attention.inner.query": "attention.attention.query",
    "attention.inner.key": "attention.attention.key",
    "attention.inner.value": "attention.attention.value",
    "attention.inner.out": "attention.output.dense",
    "feedforward.before": "layernorm_after",
    "feedforward.inner.up": "intermediate.dense",
    "feedforward.inner.down": "output.dense",
}


def body(
    prefix: str, extra: tuple[str, ...] = ("cls_token",), names: Mapping[str, str] = LAYER
) -> WeightTable:
    """Yield the rows of patches and encoder, shared by ViT, DeiT and MAE."""
    return (
        WeightRow(
            "source.extra", tuple(f"{prefix}.embeddings.{name}" for name in extra), "two_leading"
        ),
        WeightRow(
            "source.positions.weight", f"{prefix}.embeddings.position_embeddings", "one_leading"
        ),
        *weight_and_bias("source.patch", f"{prefix}.embeddings.patch_embeddings.projection"),
        *layer_rows("encoder.blocks.{}", prefix + ".encoder.layer.{}", names),
        *weight_and_bias("encoder.norm", f"{prefix}.layernorm"),
        SkippedWeight(
            f"{prefix}.embeddings.mask_token",
            "mask token of masked image modelling, which belongs to the task",
        ),
        *weight_and_bias("head.transform.dense", f"{prefix}.pooler.dense", when="NoHead"),
    )


def classes(spec: Spec, l: Any) -> ClassifierHead:
    return ClassifierHead(num_labels=l.outputs, labels=l.labels)


vit = Family(
    "vit",
    "arXiv:2010.11929",
    make,
    SIZES,
    "vit",
    FIELDS,
    (*body("vit"), *weight_and_bias("head.out", "classifier", when="ClassifierHead")),
    prefix="vit.",
    init=NormalInit(truncate_at=2.0),
    supported_values={"pooler_act": ("tanh",)},
    heads={
        "ViTForImageClassification": classes,
        "ViTModel": lambda m, l: NoHead(transform=HeadTransform(activation="tanh")),
    },
)
