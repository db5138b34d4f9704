"""Swin: windows on a pyramid of image grids, shifted in every other block (Liu et al. 2021, arXiv:2103.14030)."""
from typing import Any

from ..spec import Attention, Block, Classes, Dense, Features, LayerNorm, Model, Normal, Patches, Pyramid, Windows, pre
from ..weights import ACTIVATION, TUPLE, Family, Field, Row, Skip, Table, both, layer, sizes

SIZES = sizes("width depths heads", tiny=(96, (2, 2, 6, 2), (3, 6, 12, 24)), small=(96, (2, 2, 18, 2), (3, 6, 12, 24)),
              base=(128, (2, 2, 18, 2), (4, 8, 16, 32)), large=(192, (2, 2, 18, 2), (6, 12, 24, 48)))


def make(width: int, depths: tuple[int, ...], heads: tuple[int, ...], window: int = 7, image: int = 224, patch: int = 4, channels: int = 3,
         ratio: float = 4.0, eps: float = 1e-5, activation: Any = "gelu", bias: bool = True, dropout: float = 0.0,
         attention_dropout: float = 0.0, skip: float = 0.1, classes: int = 1000, head: Any = None) -> Model:
    norm, deepest = LayerNorm(eps=eps), max(sum(depths) - 1, 1)

    def block(stage: int, i: int) -> Block:
        windows = Windows(size=window, shift=window // 2 if i % 2 else 0)
        fall = skip * ((sum(depths[:stage]) + i) / deepest)      # deeper branches are skipped more often
        look = Attention(heads=heads[stage], bias=bias, pattern=windows, dropout=attention_dropout)
        feed = Dense(hidden=int(ratio * (width << stage)), activation=activation)
        return Block(attention=pre(norm, look, dropout=dropout, skip=fall), feedforward=pre(norm, feed, dropout=dropout, skip=fall))

    stages = tuple(tuple(block(s, i) for i in range(depth)) for s, depth in enumerate(depths))
    return Model(width=width, source=Patches(image=image, patch=patch, channels=channels, tokens=(), norm=LayerNorm(), dropout=dropout),
                 encoder=Pyramid(stages=stages, norm=norm), head=head or Classes(outputs=classes, pool="mean"))


LOOK, HIDDEN = "encoder.stages.0.0.attention.inner", "encoder.stages.0.0.feedforward.inner"
FIELDS = (
    Field("width", "embed_dim", "width", 96), Field("depths", "depths", lambda m: tuple(map(len, m.encoder.stages)), (2, 2, 6, 2), TUPLE),
    Field("heads", "num_heads", lambda m: tuple(s[0].attention.inner.heads for s in m.encoder.stages), (3, 6, 12, 24), TUPLE),
    Field("window", "window_size", f"{LOOK}.pattern.size", 7), Field("image", "image_size", "source.image", 224),
    Field("patch", "patch_size", "source.patch", 4), Field("channels", "num_channels", "source.channels", 3),
    Field("ratio", "mlp_ratio", lambda m: m.encoder.stages[0][0].feedforward.inner.hidden / m.width, 4.0),
    Field("eps", "layer_norm_eps", "encoder.norm.eps", 1e-5), Field("activation", "hidden_act", f"{HIDDEN}.activation", "gelu", ACTIVATION),
    Field("bias", "qkv_bias", f"{LOOK}.bias", True), Field("dropout", "hidden_dropout_prob", "source.dropout", 0.0),
    Field("attention_dropout", "attention_probs_dropout_prob", f"{LOOK}.dropout", 0.0),
    Field("skip", "drop_path_rate", lambda m: m.encoder.stages[-1][-1].attention.skip, 0.1),
    Field("std", "initializer_range", "start.std", 0.02))

NAMES = {"attention.before": "layernorm_before", "attention.inner.query": "attention.self.query",
    "attention.inner.key": "attention.self.key",
         "attention.inner.value": "attention.self.value", "attention.inner.out": "attention.output.dense",
         "feedforward.before": "layernorm_after", "feedforward.inner.up": "intermediate.dense", "feedforward.inner.down": "output.dense"}
OURS, THEIRS = "encoder.stages.{}.{}", "swin.encoder.layers.{}.blocks.{}"
TABLE: Table = (
    *both("source.patch", "swin.embeddings.patch_embeddings.projection"), *both("source.norm", "swin.embeddings.norm"),
    *layer(OURS, THEIRS, NAMES), Row(OURS + ".attention.inner.offsets.weight", THEIRS + ".attention.self.relative_position_bias_table"),
    *both("encoder.merges.{}.norm", "swin.encoder.layers.{}.downsample.norm"),
    Row("encoder.merges.{}.reduce.weight", "swin.encoder.layers.{}.downsample.reduction.weight"),
    *both("encoder.norm", "swin.layernorm"), *both("head.out", "classifier", when="Classes"),
    Skip(THEIRS + ".attention.self.relative_position_index", "worked out"))

swin = Family("swin", "arXiv:2103.14030", make, SIZES, "swin", FIELDS, TABLE, prefix="swin.", start=Normal(cut=2.0),
              only={"use_absolute_embeddings": (False,)},
              heads={"SwinForImageClassification": lambda m, l: Classes(outputs=l.outputs, labels=l.labels, pool="mean"),
                     "SwinModel": lambda m, l: Features()})
