"""Weft: every Transformer, woven from one block."""

from . import families as families
from . import observe as observe
from . import recipe as recipe
from . import spec as spec
from . import testing as testing
from .api import evaluate as evaluate
from .api import load_recipe as load_recipe
from .api import look as look
from .api import open as open
from .api import open_prepared as open_prepared
from .api import prepare as prepare
from .api import train as train
from .api import tune as tune
from .api_tables import open_table as open_table
from .api_tables import suggest_recipe as suggest_recipe
from .data.preparing.prepared import PreparedData as PreparedData
from .data.reading.table import Table as Table
from .families import Family as Family
from .families import family as family
from .generate.sampling import Sampling as Sampling
from .inference.open_model import OpenModel as OpenModel
from .interop.loading import load as load
from .interop.saving import save as save
from .nn.kernels.attention import AttentionBackend as AttentionBackend
from .nn.kernels.attention import PatternBackend as PatternBackend
from .nn.kernels.masks import PatternMask as PatternMask
from .nn.kernels.masks import Positions as Positions
from .nn.layers.images.self_attention_2d import SelfAttention2d as SelfAttention2d
from .nn.layers.roles import Role as Role
from .nn.layers.roles import with_role as with_role
from .nn.model import Model as Model
from .nn.model import build as build
from .observe.attention import attention_maps as attention_maps
from .recipe import Batching as Batching
from .recipe import Deduplication as Deduplication
from .recipe import Logger as Logger
from .recipe import OptimiserSpec as OptimiserSpec
from .recipe import QualityFilter as QualityFilter
from .recipe import Recipe as Recipe
from .recipe import RowSchema as RowSchema
from .recipe import Schedule as Schedule
from .recipe import Task as Task
from .recipe import TokenizerSpec as TokenizerSpec
from .recipe import Trainable as Trainable
from .recipe import Transform as Transform
from .recipe import WeightAverage as WeightAverage
from .recipe.data.formats import Format as Format
from .recipe.metrics import Metric as Metric
from .runs.train import RunStopped as RunStopped
from .spec import DLCL as DLCL
from .spec import MLP as MLP
from .spec import Activation as Activation
from .spec import ALiBi as ALiBi
from .spec import AnchorQueries as AnchorQueries
from .spec import Attention as Attention
from .spec import Block as Block
from .spec import Branch as Branch
from .spec import CausalAttention as CausalAttention
from .spec import ClassifierHead as ClassifierHead
from .spec import ConvStem as ConvStem
from .spec import DetectionHead as DetectionHead
from .spec import FanInInit as FanInInit
from .spec import FeedForwardSpec as FeedForwardSpec
from .spec import FrozenBatchNorm as FrozenBatchNorm
from .spec import FullAttention as FullAttention
from .spec import GatedMLP as GatedMLP
from .spec import GroupNorm as GroupNorm
from .spec import Head as Head
from .spec import HeadTransform as HeadTransform
from .spec import Init as Init
from .spec import Inner as Inner
from .spec import InputPositions as InputPositions
from .spec import LayerMix as LayerMix
from .spec import LayerNorm as LayerNorm
from .spec import LayerScale as LayerScale
from .spec import LearnedPositions as LearnedPositions
from .spec import LearnedPositions2D as LearnedPositions2D
from .spec import Linformer as Linformer
from .spec import LMHead as LMHead
from .spec import MixtureOfExperts as MixtureOfExperts
from .spec import NoHead as NoHead
from .spec import Norm as Norm
from .spec import NormalInit as NormalInit
from .spec import ObjectQueries as ObjectQueries
from .spec import ParallelBlock as ParallelBlock
from .spec import Patches as Patches
from .spec import PatchStem as PatchStem
from .spec import Pattern as Pattern
from .spec import PixelDecoder as PixelDecoder
from .spec import PositionBias as PositionBias
from .spec import Pyramid as Pyramid
from .spec import QKNorm as QKNorm
from .spec import RelativeBias as RelativeBias
from .spec import ResNet as ResNet
from .spec import ResNetStem as ResNetStem
from .spec import RMSNorm as RMSNorm
from .spec import RoPE as RoPE
from .spec import RoPEScaling as RoPEScaling
from .spec import SharedTokens as SharedTokens
from .spec import ShiftedWindows as ShiftedWindows
from .spec import SinusoidalPositions as SinusoidalPositions
from .spec import SinusoidalPositions2D as SinusoidalPositions2D
from .spec import SlidingWindow as SlidingWindow
from .spec import SpanHead as SpanHead
from .spec import Spec as Spec
from .spec import SpecialTokens as SpecialTokens
from .spec import Stack as Stack
from .spec import T5Init as T5Init
from .spec import TokenClassifierHead as TokenClassifierHead
from .spec import Tokens as Tokens
from .spec import XavierInit as XavierInit
from .spec import deepnorm_branch as deepnorm_branch
from .spec import deepnorm_scales as deepnorm_scales
from .spec import from_json as from_json
from .spec import from_plain as from_plain
from .spec import get_path as get_path
from .spec import iterate_leaves as iterate_leaves
from .spec import post_norm as post_norm
from .spec import pre_norm as pre_norm
from .spec import replace as replace
from .spec import replace_path as replace_path
from .spec import sandwich_norm as sandwich_norm
from .spec import to_json as to_json
from .spec import to_plain as to_plain
from .spec import with_drop_path as with_drop_path
from .spec import with_dropout as with_dropout
from .spec import with_image_size as with_image_size
from .suggest.suggestion import Budget as Budget
from .support.registry import implements as implements
from .support.registry import register as register

__version__: str
transformer: Family
marian: Family
pegasus: Family
bert: Family
roberta: Family
electra: Family
modernbert: Family
gpt: Family
gpt2: Family
gpt3: Family
bloom: Family
llama: Family
mistral: Family
mixtral: Family
gpt_neox: Family
palm: Family
starcoder2: Family
gemma2: Family
qwen3: Family
olmo2: Family
t5: Family
t5_v1_1: Family
mt5: Family
byt5: Family
bart: Family
vit: Family
deit: Family
mae: Family
dinov2: Family
swin: Family
cct: Family
detr: Family
dab_detr: Family
