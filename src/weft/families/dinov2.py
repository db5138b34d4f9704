"""DINOv2: ViT with layer scale, trained without labels (Oquab et al. 2023, arXiv:2304.07193)."""

from typing import Any

from ..spec import Branch, LayerScale, NoHead, NormalInit, Spec, Stack, replace
from . import vit
from .base import ConfigField, Family, size_table
from .vit import LAYER, body
from .weights import WeightRow, WeightTable

SIZES = size_table(
    "depth width heads", base=(12, 768, 12), small=(12, 384, 6), large=(24, 1024, 16)
)


def make(
    width: int,
    ratio: int = 4,
    image_size: int = 518,
    patch_size: int = 14,
    eps: float = 1e-6,
    scale: float = 1.0,
    drop_path: float = 0.0,
    head: Any = None,
    **rest: Any,
) -> Spec:
    """Return the spec.

    Args:
        scale: the initial layer scale.
        skip: the rate of stochastic depth, the same for all blocks.
    """
    spec = vit.make(
        width=width,
        hidden=ratio * width,
        image_size=image_size,
        patch_size=patch_size,
        eps=eps,
        head=head or NoHead(),
        **rest,
    )

    def scaled(branch: Branch) -> Branch:
        return replace(branch, layer_scale=LayerScale(initial=scale), drop_path=drop_path)

    assert isinstance(spec.encoder, Stack)
    block = spec.encoder.blocks[0]
    block = replace(block, attention=scaled(block.attention), feedforward=scaled(block.feedforward))
    return replace(spec, encoder=replace(spec.encoder, blocks=(block,) * len(spec.encoder.blocks)))


ATTENTION = "encoder.blocks.0.attention"
OTHER = {"eps": 1e-6, "patch_size": 14}  # defaults that differ from ViT's
FIELDS = (
    *(
        ConfigField(f.argument, f.keys, f.path, OTHER.get(f.argument, f.default), f.codec)
        for f in vit.FIELDS
        if f.argument not in ("hidden", "dropout")
    ),
    ConfigField(
        "ratio", "mlp_ratio", lambda m: m.encoder.blocks[0].feedforward.inner.hidden // m.width, 4
    ),
    ConfigField("scale", "layerscale_value", f"{ATTENTION}.layer_scale.initial", 1.0),
    ConfigField("drop_path", "drop_path_rate", f"{ATTENTION}.drop_path", 0.0),
)

NAMES = LAYER | {
    "attention.before": "norm1",
    "feedforward.before": "norm2",
    "feedforward.inner.up": "mlp.fc1",
    "feedforward.inner.down": "mlp.fc2",
}
OURS = "encoder.blocks.{}"
THEIRS = "dinov2.encoder.layer.{}"
TABLE: WeightTable = (
    *body("dinov2", names=NAMES),
    WeightRow(OURS + ".attention.layer_scale.weight", THEIRS + ".layer_scale1.lambda1"),
    WeightRow(OURS + ".feedforward.layer_scale.weight", THEIRS + ".layer_scale2.lambda1"),
)

dinov2 = Family(
    "dinov2",
    "arXiv:2304.07193",
    make,
    SIZES,
    "dinov2",
    FIELDS,
    TABLE,
    prefix="dinov2.",
    init=NormalInit(truncate_at=2.0),
    supported_values={
        "hidden_dropout_prob": (0.0,),
        "use_swiglu_ffn": (False,),
        "use_mask_token": (False, True),
    },
    heads={"Dinov2Model": lambda m, l: NoHead()},
)
