"""DAB-DETR: DETR with boxes as queries, refined layer by layer (Liu et al. 2022,
arXiv:2201.12329).
"""

from typing import Any

from ..spec import (
    MLP,
    AnchorQueries,
    Attention,
    Block,
    DetectionHead,
    LayerNorm,
    NoHead,
    ResNet,
    SinusoidalPositions2D,
    Spec,
    Stack,
    XavierInit,
    post_norm,
)
from .base import ACTIVATION_CODEC, Codec, ConfigField, Family
from .detr import BACKBONE_VALUES, HIDDEN, SHARED_TABLE, SIZES, extra
from .detr import FIELDS as DETR_FIELDS
from .weights import WeightAlias, WeightRow, WeightTable, layer_rows, weight_and_bias


def make(
    depth: int,
    width: int,
    heads: int,
    hidden: int,
    decoder_depth: int | None = None,
    queries: int = 300,
    depths: tuple[int, ...] = (3, 4, 6, 3),
    widths: tuple[int, ...] = (256, 512, 1024, 2048),
    stem: int = 64,
    channels: int = 3,
    temperature: float = 20.0,
    activation: Any = "prelu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    classes: int = 91,
    head: Any = None,
) -> Spec:
    norm = LayerNorm()

    def attention(positions: Any = "added") -> Any:
        inner = Attention(heads=heads, dropout=attention_dropout, query_key_positions=positions)
        return post_norm(norm, inner, dropout=dropout)

    def feed(inside: float) -> Any:
        inner = MLP(hidden=hidden, activation=activation, dropout=inside)
        return post_norm(norm, inner, dropout=dropout)

    def decode(across: str) -> Block:
        return Block(
            attention=attention("projected"),
            cross_attention=attention(across),
            feedforward=feed(hidden_dropout),
        )

    return Spec(
        width=width,
        source=ResNet(
            depths=depths,
            widths=widths,
            stem_width=stem,
            channels=channels,
            positions=SinusoidalPositions2D(scale="unit", temperature=temperature),
        ),
        target=AnchorQueries(count=queries),
        head=head or DetectionHead(num_labels=classes, scores="sigmoid"),
        encoder=Stack(
            blocks=(Block(attention=attention(), feedforward=feed(dropout)),) * depth,
            position_scale="mlp",
        ),
        decoder=Stack(
            blocks=(
                decode("projected-concatenated"),
                *(decode("concatenated"),) * ((decoder_depth or depth) - 1),
            ),
            norm=norm,
        ),
    )


PRELU_CODEC = Codec(
    lambda name: name if name == "prelu" else ACTIVATION_CODEC.read(name),
    lambda name: name if name == "prelu" else ACTIVATION_CODEC.write(name),
)
OWN_FIELDS = (
    ConfigField("width", "hidden_size", "width", 256, legacy=("d_model",)),
    ConfigField("queries", "num_queries", "target.count", 300),
    ConfigField(
        "temperature",
        ("temperature_height", "temperature_width"),
        "source.positions.temperature",
        20.0,
        Codec(float, lambda number: int(number) if number.is_integer() else number),
    ),
    ConfigField("activation", "activation_function", f"{HIDDEN}.activation", "prelu", PRELU_CODEC),
    ConfigField(
        "hidden_dropout",
        "activation_dropout",
        "decoder.blocks.0.feedforward.inner.dropout",
        0.0,
    ),
)
OWN = {field.argument: field for field in OWN_FIELDS}
OF_DETR = {field.argument: field for field in DETR_FIELDS if field.argument != "positions"}
FIELDS = tuple((OF_DETR | OWN).values())

SELF = {
    "query": "query_content_proj",
    "query_position": "query_pos_proj",
    "key": "key_content_proj",
    "key_position": "key_pos_proj",
    "value": "value_proj",
}
CROSS = SELF | {"query_position": "query_pos_sine_proj", "query_added": "query_pos_proj"}
DECODER = {
    **{f"attention.inner.{o}": f"self_attn.self_attn_{t}" for o, t in SELF.items()},
    **{f"cross_attention.inner.{o}": f"cross_attn.cross_attn_{t}" for o, t in CROSS.items()},
    "attention.inner.out": "self_attn.self_attn.output_proj",
    "cross_attention.inner.out": "cross_attn.cross_attn.output_proj",
    "attention.after": "self_attn.self_attn_layer_norm",
    "cross_attention.after": "cross_attn.cross_attn_layer_norm",
    "feedforward.inner.up": "mlp.fc1",
    "feedforward.inner.down": "mlp.fc2",
    "feedforward.after": "mlp.final_layer_norm",
}
TABLE: WeightTable = (
    *SHARED_TABLE,
    WeightRow("target.anchors.weight", "model.query_refpoint_embeddings.weight"),
    *weight_and_bias("target.position.{}", "model.decoder.ref_point_head.layers.{}"),
    *weight_and_bias("target.scale.{}", "model.decoder.query_scale.layers.{}"),
    *weight_and_bias("target.size.{}", "model.decoder.ref_anchor_head.layers.{}"),
    *weight_and_bias("encoder.position_scale.{}", "model.encoder.query_scale.layers.{}"),
    *layer_rows("decoder.blocks.{}", "model.decoder.layers.{}", DECODER),
    WeightRow(
        "encoder.blocks.{}.feedforward.inner.slope", "model.encoder.layers.{}.activation_fn.weight"
    ),
    WeightRow(
        "decoder.blocks.{}.feedforward.inner.slope",
        "model.decoder.layers.{}.mlp.activation_fn.weight",
    ),
    *weight_and_bias("head.classes", "class_embed"),
    *(
        WeightAlias(
            f"model.decoder.bbox_embed.layers.{{}}.{part}", f"bbox_predictor.layers.{{}}.{part}"
        )
        for part in ("weight", "bias")
    ),
)

dab_detr = Family(
    "dab_detr",
    "arXiv:2201.12329",
    make,
    SIZES,
    "dab-detr",
    FIELDS,
    TABLE,
    prefix="model.",
    init=XavierInit(),
    derived_config=extra,
    supported_values=BACKBONE_VALUES
    | {
        "keep_query_pos": (False,),
        "num_patterns": (0,),
        "normalize_before": (False,),
        "query_dim": (4,),
        "random_refpoints_xy": (False,),
        "sine_position_embedding_scale": (None,),
    },
    heads={
        "DabDetrForObjectDetection": lambda m, l: DetectionHead(
            num_labels=l.outputs, labels=l.labels, scores="sigmoid"
        ),
        "DabDetrModel": lambda m, l: NoHead(),
    },
)
