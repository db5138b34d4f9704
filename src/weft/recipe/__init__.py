"""Training recipes: a `Recipe` is one frozen value with the model, task, data, optimiser and
schedule of a run.

This package does not import torch.
"""

from ..support.values import replace_path, to_json
from . import assistant_tasks, tasks
from .assistant_tasks import *  # noqa: F403 the module defines __all__
from .averages import EMA, AverageLast, BestCheckpoint, WeightAverage
from .batching import Batching, FixedBatch, PackedBatch, TokenBudget
from .data.conversations import ChatTemplate, Conversations, Preferences, chat_template_of
from .data.data import Data, DataPart
from .data.filters import (
    CharacterFilter,
    Deduplication,
    ExactDeduplication,
    Filter,
    ForbiddenTextFilter,
    LengthFilter,
    LineFilter,
    NearDeduplication,
    QualityFilter,
    RepetitionFilter,
)
from .data.formats import Source
from .data.image_rows import ImagesWithBoxes, LabelledImages
from .data.mixture import FixedRates, MixingRates, Mixture, NamedSource, ProportionalRates
from .data.rows import (
    TEMPLATE_FIELD,
    ChoiceQuestions,
    ContextQuestions,
    Documents,
    LabelledTexts,
    RowSchema,
    SourceTargetPairs,
    TaggedWords,
    TemplatedPairs,
)
from .data.tokenizers import (
    BPE,
    ByteBPE,
    ByteTokenizer,
    CharacterTokenizer,
    TokenizerFile,
    TokenizerSpec,
    Unigram,
    WordPiece,
)
from .files import load_recipe, recipe_from_json, recipe_of_run
from .loggers import Logger, MLflow, TensorBoard, Trackio, WandB, logger_named
from .optimisers import SGD, Adafactor, Adam, AdamW, Betas, Muon, OptimiserSpec
from .overrides import apply_overrides
from .parallel import ActivationCheckpointing, CheckpointBlocks, Parallel, SelectiveCheckpointing
from .recipe import Checkpoints, LossGuard, Recipe, Timeouts
from .schedules import (
    ConstantSchedule,
    CosineSchedule,
    InverseSqrt,
    LinearSchedule,
    Schedule,
    TrainingSchedule,
    WarmupStableDecay,
    noam_lr,
)
from .tasks import *  # noqa: F403 the module defines __all__
from .trainable import HeadOnly, LoRA, Trainable
from .transforms import (
    AutoAugment,
    CenterCrop,
    ColorJitter,
    CutMix,
    MixUp,
    Normalize,
    RandAugment,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomShortestSize,
    RandomSizeCrop,
    Resize,
    Transform,
    evaluation_transforms,
    transforms_for,
)

__all__ = [
    "BPE",
    "EMA",
    "SGD",
    "TEMPLATE_FIELD",
    "ActivationCheckpointing",
    "Adafactor",
    "Adam",
    "AdamW",
    "AutoAugment",
    "AverageLast",
    "Batching",
    "BestCheckpoint",
    "Betas",
    "ByteBPE",
    "ByteTokenizer",
    "CenterCrop",
    "CharacterFilter",
    "CharacterTokenizer",
    "ChatTemplate",
    "CheckpointBlocks",
    "Checkpoints",
    "ChoiceQuestions",
    "ColorJitter",
    "ConstantSchedule",
    "ContextQuestions",
    "Conversations",
    "CosineSchedule",
    "CutMix",
    "Data",
    "DataPart",
    "Deduplication",
    "Documents",
    "ExactDeduplication",
    "Filter",
    "FixedBatch",
    "FixedRates",
    "ForbiddenTextFilter",
    "HeadOnly",
    "ImagesWithBoxes",
    "InverseSqrt",
    "LabelledImages",
    "LabelledTexts",
    "LengthFilter",
    "LineFilter",
    "LinearSchedule",
    "LoRA",
    "Logger",
    "LossGuard",
    "MLflow",
    "MixUp",
    "MixingRates",
    "Mixture",
    "Muon",
    "NamedSource",
    "NearDeduplication",
    "Normalize",
    "OptimiserSpec",
    "PackedBatch",
    "Parallel",
    "Preferences",
    "ProportionalRates",
    "QualityFilter",
    "RandAugment",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomShortestSize",
    "RandomSizeCrop",
    "Recipe",
    "RepetitionFilter",
    "Resize",
    "RowSchema",
    "Schedule",
    "SelectiveCheckpointing",
    "Source",
    "SourceTargetPairs",
    "TaggedWords",
    "TemplatedPairs",
    "TensorBoard",
    "Timeouts",
    "TokenBudget",
    "TokenizerFile",
    "TokenizerSpec",
    "Trackio",
    "Trainable",
    "TrainingSchedule",
    "Transform",
    "Unigram",
    "WandB",
    "WarmupStableDecay",
    "WeightAverage",
    "WordPiece",
    "apply_overrides",
    "chat_template_of",
    "evaluation_transforms",
    "load_recipe",
    "logger_named",
    "noam_lr",
    "recipe_from_json",
    "recipe_of_run",
    "replace_path",
    "to_json",
    "transforms_for",
]
__all__ += assistant_tasks.__all__
__all__ += tasks.__all__  # so that a new task is listed only once
