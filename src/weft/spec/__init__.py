"""Model specifications: a `Spec` is one frozen value that describes a Transformer of any family.

A field with alternatives is a union of dataclasses (a sum type). This package does not import
torch.
"""

from dataclasses import replace

from ..support.values import FiniteFloat as FiniteFloat
from ..support.values import Fraction as Fraction
from ..support.values import NonNegativeFloat as NonNegativeFloat
from ..support.values import NonNegativeInt as NonNegativeInt
from ..support.values import PositiveFloat as PositiveFloat
from ..support.values import PositiveFraction as PositiveFraction
from ..support.values import PositiveInt as PositiveInt
from ..support.values import Probability as Probability
from ..support.values import (
    from_json,
    from_plain,
    get_path,
    iterate_leaves,
    replace_path,
    to_json,
    to_plain,
)
from .attention import (
    Attention,
    CausalAttention,
    FullAttention,
    Linformer,
    Pattern,
    QKNorm,
    ShiftedWindows,
    SlidingWindow,
)
from .block import (
    DLCL,
    Block,
    Branch,
    LayerMix,
    LayerScale,
    ParallelBlock,
    Pyramid,
    Stack,
    deepnorm_branch,
    deepnorm_scales,
    post_norm,
    pre_norm,
    sandwich_norm,
)
from .feedforward import MLP, Activation, FeedForwardSpec, GatedMLP, MixtureOfExperts
from .heads import (
    ClassifierHead,
    DetectionHead,
    Head,
    HeadTransform,
    LMHead,
    NoHead,
    PixelDecoder,
    SpanHead,
    TokenClassifierHead,
)
from .initialisation import FanInInit, Init, NormalInit, T5Init, XavierInit
from .inputs import AnchorQueries, ObjectQueries, Patches, ResNet, SharedTokens, Tokens
from .norms import FrozenBatchNorm, GroupNorm, LayerNorm, Norm, RMSNorm
from .parts import Inner
from .positions import (
    ALiBi,
    InputPositions,
    LearnedPositions,
    LearnedPositions2D,
    PositionBias,
    RelativeBias,
    RoPE,
    RoPEScaling,
    SinusoidalPositions,
    SinusoidalPositions2D,
)
from .spec import Spec, SpecialTokens, with_drop_path, with_dropout, with_image_size
from .spec import with_label_names as with_label_names
from .stems import ConvStem, PatchStem, ResNetStem

__all__ = [
    "DLCL",
    "MLP",
    "ALiBi",
    "Activation",
    "AnchorQueries",
    "Attention",
    "Block",
    "Branch",
    "CausalAttention",
    "ClassifierHead",
    "ConvStem",
    "DetectionHead",
    "FanInInit",
    "FeedForwardSpec",
    "FrozenBatchNorm",
    "FullAttention",
    "GatedMLP",
    "GroupNorm",
    "Head",
    "HeadTransform",
    "Init",
    "Inner",
    "InputPositions",
    "LMHead",
    "LayerMix",
    "LayerNorm",
    "LayerScale",
    "LearnedPositions",
    "LearnedPositions2D",
    "Linformer",
    "MixtureOfExperts",
    "NoHead",
    "Norm",
    "NormalInit",
    "ObjectQueries",
    "ParallelBlock",
    "PatchStem",
    "Patches",
    "Pattern",
    "PixelDecoder",
    "PositionBias",
    "Pyramid",
    "QKNorm",
    "RMSNorm",
    "RelativeBias",
    "ResNet",
    "ResNetStem",
    "RoPE",
    "RoPEScaling",
    "SharedTokens",
    "ShiftedWindows",
    "SinusoidalPositions",
    "SinusoidalPositions2D",
    "SlidingWindow",
    "SpanHead",
    "Spec",
    "SpecialTokens",
    "Stack",
    "T5Init",
    "TokenClassifierHead",
    "Tokens",
    "XavierInit",
    "deepnorm_branch",
    "deepnorm_scales",
    "from_json",
    "from_plain",
    "get_path",
    "iterate_leaves",
    "post_norm",
    "pre_norm",
    "replace",
    "replace_path",
    "sandwich_norm",
    "to_json",
    "to_plain",
    "with_drop_path",
    "with_dropout",
    "with_image_size",
]
