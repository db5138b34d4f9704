"""DINOv2: a ViT whose branches have a layer scale, trained without labels (Oquab et al. 2023, arXiv:2304.07193)."""
from typing import Any

from ..spec import Branch, Features, LayerScale, Model, Normal, Stack, replace
from ..weights import Family, Field, Row, Table, sizes
from . import vit
from .vit import LAYER, body

SIZES = sizes("depth width heads", base=(12, 768, 12), small=(12, 384, 6), large=(24, 1024, 16))


def make(width: int, ratio: int = 4, image: int = 518, patch: int = 14, eps: float = 1e-6, scale: float = 1.0, skip: float = 0.0,
         head: Any = None, **rest: Any) -> Model:
    """`scale`: what the layer scale starts with. `skip`: the rate of stochastic depth, the same for all blocks."""
    made = vit.make(width=width, hidden=ratio * width, image=image, patch=patch, eps=eps, head=head or Features(), **rest)

    def scaled(branch: Branch) -> Branch:
        return replace(branch, layer_scale=LayerScale(initial=scale), skip=skip)

    assert isinstance(made.encoder, Stack)
    block = made.encoder.blocks[0]
    block = replace(block, attention=scaled(block.attention), feedforward=scaled(block.feedforward))
    return replace(made, encoder=replace(made.encoder, blocks=(block,) * len(made.encoder.blocks)))


ATTENTION = "encoder.blocks.0.attention"
OTHER = {"eps": 1e-6, "patch": 14}         # than ViT's, where a file is silent
FIELDS = (
    *(Field(f.argument, f.keys, f.path, OTHER.get(f.argument, f.default), f.way) for f in vit.FIELDS
      if f.argument not in ("hidden", "dropout")),
    Field("ratio", "mlp_ratio", lambda m: m.encoder.blocks[0].feedforward.inner.hidden // m.width, 4),
    Field("scale", "layerscale_value", f"{ATTENTION}.layer_scale.initial", 1.0), Field("skip", "drop_path_rate", f"{ATTENTION}.skip", 0.0))

NAMES = LAYER | {"attention.before": "norm1", "feedforward.before": "norm2", "feedforward.inner.up": "mlp.fc1",
                 "feedforward.inner.down": "mlp.fc2"}
OURS, THEIRS = "encoder.blocks.{}", "dinov2.encoder.layer.{}"
TABLE: Table = (
    *body("dinov2", names=NAMES), Row(OURS + ".attention.layer_scale.weight", THEIRS + ".layer_scale1.lambda1"),
    Row(OURS + ".feedforward.layer_scale.weight", THEIRS + ".layer_scale2.lambda1"))

dinov2 = Family("dinov2", "arXiv:2304.07193", make, SIZES, "dinov2", FIELDS, TABLE, prefix="dinov2.", start=Normal(cut=2.0),
                only={"hidden_dropout_prob": (0.0,), "use_swiglu_ffn": (False,), "use_mask_token": (False, True)},
                heads={"Dinov2Model": lambda m, l: Features()})
