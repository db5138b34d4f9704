"""DETR: ResNet features, an encoder, and a decoder of object queries to boxes (Carion et al. 2020,
arXiv:2005.12872).
"""

from typing import Any

from ..spec import (
    MLP,
    Attention,
    Block,
    DetectionHead,
    LayerNorm,
    LearnedPositions2D,
    NoHead,
    ObjectQueries,
    ResNet,
    SinusoidalPositions2D,
    Spec,
    Stack,
    XavierInit,
    post_norm,
)
from .bart import CROSS, NAMES
from .base import ACTIVATION_CODEC, TUPLE_CODEC, Codec, ConfigField, Family, size_table
from .weights import SkippedWeight, WeightRow, WeightTable, layer_rows, weight_and_bias

SIZES = size_table(
    "depth width heads hidden depths",
    resnet_50=(6, 256, 8, 2048, (3, 4, 6, 3)),
    resnet_101=(6, 256, 8, 2048, (3, 4, 23, 3)),
)


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    decoder_depth: int | None = None,
    queries: int = 100,
    depths: tuple[int, ...] = (3, 4, 6, 3),
    widths: tuple[int, ...] = (256, 512, 1024, 2048),
    stem: int = 64,
    channels: int = 3,
    positions: Any = SinusoidalPositions2D(scale="unit"),
    activation: Any = "relu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    classes: int = 91,
    head: Any = None,
) -> Spec:
    norm = LayerNorm()
    attention_branch = post_norm(
        norm, Attention(heads=heads, dropout=attention_dropout), dropout=dropout
    )
    feed = post_norm(
        norm, MLP(hidden=hidden, activation=activation, dropout=hidden_dropout), dropout=dropout
    )
    return Spec(
        width=width,
        source=ResNet(
            depths=depths, widths=widths, stem_width=stem, channels=channels, positions=positions
        ),
        target=ObjectQueries(count=queries),
        head=head or DetectionHead(num_labels=classes),
        encoder=Stack(blocks=(Block(attention=attention_branch, feedforward=feed),) * depth),
        decoder=Stack(
            blocks=(
                Block(
                    attention=attention_branch, cross_attention=attention_branch, feedforward=feed
                ),
            )
            * (decoder_depth or depth),
            norm=norm,
        ),
    )


def read_positions(name: str) -> Any:
    if name not in ("sine", "learned"):
        raise ValueError(f"positions {name!r} are not supported; use 'sine' or 'learned'")
    return SinusoidalPositions2D(scale="unit") if name == "sine" else LearnedPositions2D()


def read_depths(config_value: Any) -> tuple[int, ...]:
    named_depths = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
    if isinstance(config_value, str) and config_value not in named_depths:
        raise ValueError(f"backbone {config_value!r}; Weft knows {', '.join(named_depths)}")
    return named_depths[config_value] if isinstance(config_value, str) else tuple(config_value)


ATTEND = "encoder.blocks.0.attention.inner"
HIDDEN = "encoder.blocks.0.feedforward.inner"
FIELDS = (
    ConfigField("depth", "encoder_layers", "encoder.blocks.length", 6),
    ConfigField("decoder_depth", "decoder_layers", "decoder.blocks.length"),
    ConfigField("width", "d_model", "width", 256),
    ConfigField(
        "heads", ("encoder_attention_heads", "decoder_attention_heads"), f"{ATTEND}.heads", 8
    ),
    ConfigField("hidden", ("encoder_ffn_dim", "decoder_ffn_dim"), f"{HIDDEN}.hidden", 2048),
    ConfigField("queries", "num_queries", "target.count", 100),
    ConfigField(
        "depths",
        "backbone_config.depths",
        "source.depths",
        (3, 4, 6, 3),
        Codec(read_depths, list),
        legacy=("backbone",),
    ),
    ConfigField(
        "widths",
        "backbone_config.hidden_sizes",
        "source.widths",
        (256, 512, 1024, 2048),
        TUPLE_CODEC,
    ),
    ConfigField("stem", "backbone_config.embedding_size", "source.stem_width", 64),
    ConfigField("channels", "backbone_config.num_channels", "source.channels", 3),
    ConfigField(
        "activation", "activation_function", f"{HIDDEN}.activation", "relu", ACTIVATION_CODEC
    ),
    ConfigField("dropout", "dropout", "encoder.blocks.0.attention.dropout", 0.1),
    ConfigField(
        "positions",
        "position_embedding_type",
        "source.positions",
        SinusoidalPositions2D(scale="unit"),
        Codec(
            read_positions, lambda p: "sine" if isinstance(p, SinusoidalPositions2D) else "learned"
        ),
    ),
    ConfigField("attention_dropout", "attention_dropout", f"{ATTEND}.dropout", 0.0),
    ConfigField("hidden_dropout", "activation_dropout", f"{HIDDEN}.dropout", 0.0),
)

NET = "model.backbone.conv_encoder.model."
PARTS = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}


def convolution(ours: str, convolution: str, norm: str) -> WeightTable:
    return (
        WeightRow(f"source.{ours}.convolution.weight", f"{NET}{convolution}.weight"),
        *(WeightRow(f"source.{ours}.norm.{o}", f"{NET}{norm}.{t}") for o, t in PARTS.items()),
        SkippedWeight(f"{NET}{norm}.num_batches_tracked", "a counter"),
    )


def hugging_face(ours: str, theirs: str) -> WeightTable:
    return convolution(ours, f"{theirs}.convolution", f"{theirs}.normalization")


STAGE = "encoder.stages.{}.layers.{}."
BACKBONE: WeightTable = (
    *hugging_face("stem", "embedder.embedder"),
    *hugging_face("stages.{}.{}.shortcut", STAGE + "shortcut"),
    *hugging_face("stages.{}.{}.layers.{}", STAGE + "layer.{}"),
    # The published file uses timm's names.
    *convolution("stem", "conv1", "bn1"),
    *(
        row
        for stage in range(4)
        for row in convolution(
            f"stages.{stage}.{{}}.shortcut",
            f"layer{stage + 1}.{{}}.downsample.0",
            f"layer{stage + 1}.{{}}.downsample.1",
        )
    ),
    *(
        row
        for stage in range(4)
        for i in range(3)
        for row in convolution(
            f"stages.{stage}.{{}}.layers.{i}",
            f"layer{stage + 1}.{{}}.conv{i + 1}",
            f"layer{stage + 1}.{{}}.bn{i + 1}",
        )
    ),
    *weight_and_bias("source.project", "model.input_projection"),
)
# Shared with DAB-DETR.
SHARED_TABLE: WeightTable = (
    *BACKBONE,
    *layer_rows("encoder.blocks.{}", "model.encoder.layers.{}", NAMES),
    *weight_and_bias("decoder.norm", "model.decoder.layernorm"),
    *weight_and_bias("head.box.{}", "bbox_predictor.layers.{}"),
)
TABLE: WeightTable = (
    *SHARED_TABLE,
    WeightRow("target.queries.weight", "model.query_position_embeddings.weight"),
    # The second name is that of transformers before 5.
    *(
        WeightRow(
            f"source.positions.{ours}s.weight",
            f"{where}.position_embedding.{ours}_embeddings.weight",
        )
        for where in ("model", "model.backbone")
        for ours in ("row", "column")
    ),
    *layer_rows("decoder.blocks.{}", "model.decoder.layers.{}", NAMES | CROSS),
    *weight_and_bias("head.classes", "class_labels_classifier"),
)
BACKBONE_VALUES = {
    "use_timm_backbone": (False, True),
    "use_pretrained_backbone": (False, True),
    "dilation": (False,),
    "backbone_config.layer_type": ("bottleneck",),
    "backbone_config.hidden_act": ("relu",),
    "backbone_config.downsample_in_first_stage": (False,),
    "backbone_config.downsample_in_bottleneck": (False,),
}


def extra(m: Any) -> dict[str, Any]:
    return {
        "backbone_config.model_type": "resnet",
        "backbone_config.out_features": [f"stage{len(m.source.depths)}"],
        "backbone": None,
    }


detr = Family(
    "detr",
    "arXiv:2005.12872",
    make,
    SIZES,
    "detr",
    FIELDS,
    TABLE,
    prefix="model.",
    init=XavierInit(),
    derived_config=extra,
    supported_values=BACKBONE_VALUES,
    heads={
        "DetrForObjectDetection": lambda m, l: DetectionHead(num_labels=l.outputs, labels=l.labels),
        "DetrModel": lambda m, l: NoHead(),
    },
)
