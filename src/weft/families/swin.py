"""Swin: a pyramid of image grids with windowed attention, shifted in every other block (Liu et al.
2021, arXiv:2103.14030).
"""

from functools import cache
from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    ClassifierHead,
    LayerNorm,
    NoHead,
    NormalInit,
    Patches,
    Pyramid,
    ShiftedWindows,
    Spec,
    pre_norm,
    with_drop_path,
)
from .base import ACTIVATION_CODEC, TUPLE_CODEC, ConfigField, Family, size_table
from .weights import SkippedWeight, WeightRow, WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    "width depths heads",
    tiny=(96, (2, 2, 6, 2), (3, 6, 12, 24)),
    small=(96, (2, 2, 18, 2), (3, 6, 12, 24)),
    base=(128, (2, 2, 18, 2), (4, 8, 16, 32)),
    large=(192, (2, 2, 18, 2), (6, 12, 24, 48)),
)


def make(
    width: int,
    depths: tuple[int, ...],
    heads: tuple[int, ...],
    window: int = 7,
    image_size: int = 224,
    patch_size: int = 4,
    channels: int = 3,
    ratio: float = 4.0,
    eps: float = 1e-5,
    activation: Any = "gelu",
    bias: bool = True,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    drop_path: float = 0.1,
    classes: int = 1000,
    head: Any = None,
) -> Spec:
    norm = LayerNorm(eps=eps)

    @cache
    def block(stage: int, shifted: int) -> Block:
        windows = ShiftedWindows(size=window, shift=window // 2 if shifted else 0)
        attention = Attention(
            heads=heads[stage], bias=bias, pattern=windows, dropout=attention_dropout
        )
        feed = MLP(hidden=int(ratio * (width << stage)), activation=activation)
        return Block(
            attention=pre_norm(norm, attention, dropout=dropout),
            feedforward=pre_norm(norm, feed, dropout=dropout),
        )

    stages = tuple(tuple(block(s, i % 2) for i in range(depth)) for s, depth in enumerate(depths))
    spec = Spec(
        width=width,
        source=Patches(
            image_size=image_size,
            patch_size=patch_size,
            channels=channels,
            extra_tokens=(),
            norm=LayerNorm(),
            dropout=dropout,
        ),
        encoder=Pyramid(stages=stages, norm=norm),
        head=head or ClassifierHead(num_labels=classes, pooling="mean"),
    )
    return with_drop_path(spec, drop_path)


ATTEND = "encoder.stages.0.0.attention.inner"
HIDDEN = "encoder.stages.0.0.feedforward.inner"
FIELDS = (
    ConfigField("width", "embed_dim", "width", 96),
    ConfigField(
        "depths", "depths", lambda m: tuple(map(len, m.encoder.stages)), (2, 2, 6, 2), TUPLE_CODEC
    ),
    ConfigField(
        "heads",
        "num_heads",
        lambda m: tuple(s[0].attention.inner.heads for s in m.encoder.stages),
        (3, 6, 12, 24),
        TUPLE_CODEC,
    ),
    ConfigField("window", "window_size", f"{ATTEND}.pattern.size", 7),
    ConfigField("image_size", "image_size", "source.image_size", 224),
    ConfigField("patch_size", "patch_size", "source.patch_size", 4),
    ConfigField("channels", "num_channels", "source.channels", 3),
    ConfigField(
        "ratio",
        "mlp_ratio",
        lambda m: m.encoder.stages[0][0].feedforward.inner.hidden / m.width,
        4.0,
    ),
    ConfigField("eps", "layer_norm_eps", "encoder.norm.eps", 1e-5),
    ConfigField("activation", "hidden_act", f"{HIDDEN}.activation", "gelu", ACTIVATION_CODEC),
    ConfigField("bias", "qkv_bias", f"{ATTEND}.bias", True),
    ConfigField("dropout", "hidden_dropout_prob", "source.dropout", 0.0),
    ConfigField("attention_dropout", "attention_probs_dropout_prob", f"{ATTEND}.dropout", 0.0),
    ConfigField(
        "drop_path", "drop_path_rate", lambda m: m.encoder.stages[-1][-1].attention.drop_path, 0.1
    ),
    ConfigField("std", "initializer_range", "init.std", 0.02),
)

NAMES = {
    "attention.before": "layernorm_before",
    "attention.inner.query": "attention.self.query",
    "attention.inner.key": "attention.self.key",
    "attention.inner.value": "attention.self.value",
    "attention.inner.out": "attention.output.dense",
    "feedforward.before": "layernorm_after",
    "feedforward.inner.up": "intermediate.dense",
    "feedforward.inner.down": "output.dense",
}
OURS = "encoder.stages.{}.{}"
THEIRS = "swin.encoder.layers.{}.blocks.{}"
TABLE: WeightTable = (
    *weight_and_bias("source.patch", "swin.embeddings.patch_embeddings.projection"),
    *weight_and_bias("source.norm", "swin.embeddings.norm"),
    *layer_rows(OURS, THEIRS, NAMES),
    WeightRow(
        OURS + ".attention.inner.offsets.weight",
        THEIRS + ".attention.self.relative_position_bias_table",
    ),
    *weight_and_bias("encoder.merges.{}.norm", "swin.encoder.layers.{}.downsample.norm"),
    WeightRow(
        "encoder.merges.{}.reduce.weight", "swin.encoder.layers.{}.downsample.reduction.weight"
    ),
    *weight_and_bias("encoder.norm", "swin.layernorm"),
    *weight_and_bias("head.out", "classifier", when="ClassifierHead"),
    SkippedWeight(THEIRS + ".attention.self.relative_position_index", "worked out"),
)

swin = Family(
    "swin",
    "arXiv:2103.14030",
    make,
    SIZES,
    "swin",
    FIELDS,
    TABLE,
    prefix="swin.",
    init=NormalInit(truncate_at=2.0),
    supported_values={"use_absolute_embeddings": (False,)},
    heads={
        "SwinForImageClassification": lambda m, l: ClassifierHead(
            num_labels=l.outputs, labels=l.labels, pooling="mean"
        ),
        "SwinModel": lambda m, l: NoHead(),
    },
)
