"""DETR: a ResNet's cells, an encoder, object queries decoded in parallel to boxes (Carion et al. 2020, arXiv:2005.12872)."""
from typing import Any

from ..spec import Attention, Backbone, Block, Boxes, Dense, Features, LayerNorm, Learned2D, Model, Queries, Sine2D, Stack, Xavier, post
from ..weights import ACTIVATION, TUPLE, Family, Field, Row, Skip, Table, Way, both, layer, sizes
from .bart import CROSS, NAMES

SIZES = sizes("depth width heads hidden depths", resnet_50=(6, 256, 8, 2048, (3, 4, 6, 3)), resnet_101=(6, 256, 8, 2048, (3, 4, 23, 3)))


def make(depth: int, width: int, heads: int, hidden: int, decoder_depth: int | None = None, queries: int = 100,
         depths: tuple[int, ...] = (3, 4, 6, 3), widths: tuple[int, ...] = (256, 512, 1024, 2048), stem: int = 64, channels: int = 3,
         positions: Any = Sine2D(scale="unit"), activation: Any = "relu", dropout: float = 0.1, attention_dropout: float = 0.0,
         hidden_dropout: float = 0.0, classes: int = 91, head: Any = None) -> Model:
    norm = LayerNorm()
    look = post(norm, Attention(heads=heads, dropout=attention_dropout), dropout=dropout)
    feed = post(norm, Dense(hidden=hidden, activation=activation, dropout=hidden_dropout), dropout=dropout)
    return Model(width=width, source=Backbone(depths=depths, widths=widths, stem=stem, channels=channels, positions=positions),
                 target=Queries(count=queries), head=head or Boxes(classes=classes),
                 encoder=Stack(blocks=(Block(attention=look, feedforward=feed),) * depth),
                 decoder=Stack(blocks=(Block(attention=look, cross=look, feedforward=feed),) * (decoder_depth or depth), norm=norm))


def read_positions(name: str) -> Any:
    if name not in ("sine", "learned"):
        raise ValueError(f"{name!r}; Weft knows 'sine' and 'learned'")
    return Sine2D(scale="unit") if name == "sine" else Learned2D()


def read_depths(found: Any) -> tuple[int, ...]:
    known = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}
    if isinstance(found, str) and found not in known:
        raise ValueError(f"backbone {found!r}; Weft knows {', '.join(known)}")
    return known[found] if isinstance(found, str) else tuple(found)


LOOK, HIDDEN = "encoder.blocks.0.attention.inner", "encoder.blocks.0.feedforward.inner"
FIELDS = (
    Field("depth", "encoder_layers", "encoder.blocks.length", 6), Field("decoder_depth", "decoder_layers", "decoder.blocks.length"),
    Field("width", "d_model", "width", 256), Field("heads", ("encoder_attention_heads", "decoder_attention_heads"), f"{LOOK}.heads", 8),
    Field("hidden", ("encoder_ffn_dim", "decoder_ffn_dim"), f"{HIDDEN}.hidden", 2048), Field("queries", "num_queries", "target.count", 100),
    Field("depths", "backbone_config.depths", "source.depths", (3, 4, 6, 3), Way(read_depths, list), legacy=("backbone",)),
    Field("widths", "backbone_config.hidden_sizes", "source.widths", (256, 512, 1024, 2048), TUPLE),
    Field("stem", "backbone_config.embedding_size", "source.stem", 64),
    Field("channels", "backbone_config.num_channels", "source.channels", 3),
    Field("activation", "activation_function", f"{HIDDEN}.activation", "relu", ACTIVATION),
    Field("dropout", "dropout", "encoder.blocks.0.attention.dropout", 0.1),
    Field("positions", "position_embedding_type", "source.positions", Sine2D(scale="unit"),
          Way(read_positions, lambda p: "sine" if isinstance(p, Sine2D) else "learned")),
    Field("attention_dropout", "attention_dropout", f"{LOOK}.dropout", 0.0),
    Field("hidden_dropout", "activation_dropout", f"{HIDDEN}.dropout", 0.0))

NET = "model.backbone.conv_encoder.model."
PARTS = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}


def convolution(ours: str, convolution: str, norm: str) -> Table:
    return (Row(f"source.{ours}.convolution.weight", f"{NET}{convolution}.weight"),
            *(Row(f"source.{ours}.norm.{o}", f"{NET}{norm}.{t}") for o, t in PARTS.items()),
            Skip(f"{NET}{norm}.num_batches_tracked", "a counter"))


def hugging_face(ours: str, theirs: str) -> Table:
    return convolution(ours, f"{theirs}.convolution", f"{theirs}.normalization")


STAGE = "encoder.stages.{}.layers.{}."
TABLE: Table = (
    *hugging_face("stem", "embedder.embedder"), *hugging_face("stages.{}.{}.shortcut", STAGE + "shortcut"),
    *hugging_face("stages.{}.{}.layers.{}", STAGE + "layer.{}"),
    *convolution("stem", "conv1", "bn1"),                          # the published file: timm's names
    *(row for stage in range(4) for row in convolution(f"stages.{stage}.{{}}.shortcut", f"layer{stage + 1}.{{}}.downsample.0",
                                                       f"layer{stage + 1}.{{}}.downsample.1")),
    *(row for stage in range(4) for i in range(3) for row in convolution(
        f"stages.{stage}.{{}}.layers.{i}", f"layer{stage + 1}.{{}}.conv{i + 1}", f"layer{stage + 1}.{{}}.bn{i + 1}")),
    *both("source.project", "model.input_projection"), Row("target.queries.weight", "model.query_position_embeddings.weight"),
    *(Row(f"source.positions.{ours}s.weight", f"{where}.position_embedding.{ours}_embeddings.weight")
      for where in ("model", "model.backbone") for ours in ("row", "column")),      # the second: transformers before 5
    *layer("encoder.blocks.{}", "model.encoder.layers.{}", NAMES), *layer("decoder.blocks.{}", "model.decoder.layers.{}", NAMES | CROSS),
    *both("decoder.norm", "model.decoder.layernorm"), *both("head.classes", "class_labels_classifier"),
    *both("head.box.{}", "bbox_predictor.layers.{}"))


def extra(m: Any) -> dict[str, Any]:
    return {"backbone_config.model_type": "resnet", "backbone_config.out_features": [f"stage{len(m.source.depths)}"], "backbone": None}


detr = Family("detr", "arXiv:2005.12872", make, SIZES, "detr", FIELDS, TABLE, prefix="model.", start=Xavier(), extra=extra,
              only={"use_timm_backbone": (False, True), "use_pretrained_backbone": (False, True), "dilation": (False,),
                    "backbone_config.layer_type": ("bottleneck",), "backbone_config.hidden_act": ("relu",),
                    "backbone_config.downsample_in_first_stage": (False,), "backbone_config.downsample_in_bottleneck": (False,)},
              heads={"DetrForObjectDetection": lambda m, l: Boxes(classes=l.outputs, labels=l.labels),
                     "DetrModel": lambda m, l: Features()})
