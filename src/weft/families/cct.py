"""CCT: convolutional stem, no class token, sequence pooling (Hassani et al. 2021,
arXiv:2104.05704).

The published files are pickles, which Weft does not open; the weight table has their names, for
tensors read by other means.
"""

from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    Branch,
    ClassifierHead,
    ConvStem,
    LayerNorm,
    LearnedPositions,
    NormalInit,
    Patches,
    Spec,
    Stack,
    with_drop_path,
)
from .base import Family, size_table
from .weights import WeightRow, WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    # table 1 and the authors' model files; "2-3x2": 2 blocks, 2 convolutions of 3 × 3
    "depth width heads hidden kernel_size convolutions image_size",
    _2_3x2=(2, 128, 2, 128, 3, 2, 32),
    _4_3x2=(4, 128, 2, 128, 3, 2, 32),
    _6_3x1=(6, 256, 4, 512, 3, 1, 32),
    _7_3x1=(7, 256, 4, 512, 3, 1, 32),
    _14_7x2=(14, 384, 6, 1152, 7, 2, 224),
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    kernel_size: int = 3,
    convolutions: int = 2,
    image_size: int = 32,
    channels: int = 3,
    dropout: float = 0.0,
    attention_dropout: float = 0.1,
    drop_path: float = 0.1,
    classes: int = 10,
    stem: Any = None,
    head: Any = None,
) -> Spec:
    """Return the spec. The second norm of a block is on the residual stream after the attention,
    not inside the feed-forward branch.

    `stem` replaces the paper's stem; `kernel_size` and `convolutions` are then ignored.
    """
    norm = LayerNorm()
    stem = stem or ConvStem(widths=(64,) * (convolutions - 1), kernel_size=kernel_size)
    attention = Attention(heads=heads, bias=False, dropout=attention_dropout)
    block = Block(
        attention=Branch(before=norm, inner=attention, after=norm, dropout=dropout),
        feedforward=Branch(inner=MLP(hidden=hidden), dropout=dropout),
    )
    spec = Spec(
        width=width,
        source=Patches(
            image_size=image_size,
            patch_size=stem.stride,
            channels=channels,
            extra_tokens=(),
            positions=LearnedPositions(count=(image_size // stem.stride) ** 2),
            stem=stem,
            dropout=dropout,
        ),
        encoder=Stack(blocks=(block,) * depth, norm=norm),
        head=head or ClassifierHead(num_labels=classes, pooling="sequence"),
    )
    return with_drop_path(spec, drop_path)


BLOCK = "encoder.blocks.{}"
TABLE: WeightTable = (
    WeightRow("source.patch.{}.weight", "tokenizer.conv_layers.{}.0.weight"),
    WeightRow("source.positions.weight", "classifier.positional_emb", "one_leading"),
    WeightRow(
        tuple(f"{BLOCK}.attention.inner.{name}.weight" for name in ("query", "key", "value")),
        "classifier.blocks.{}.self_attn.qkv.weight",
    ),
    *layer_rows(
        BLOCK,
        "classifier.blocks.{}",
        {
            "attention.before": "pre_norm",
            "attention.inner.out": "self_attn.proj",
            "attention.after": "norm1",
            "feedforward.inner.up": "linear1",
            "feedforward.inner.down": "linear2",
        },
    ),
    *weight_and_bias("encoder.norm", "classifier.norm"),
    *weight_and_bias("head.score", "classifier.attention_pool", when="ClassifierHead"),
    *weight_and_bias("head.out", "classifier.fc", when="ClassifierHead"),
)

cct = Family(
    "cct",
    "arXiv:2104.05704",
    make,
    SIZES,
    table=TABLE,
    init=NormalInit(truncate_at=2.0),
)
