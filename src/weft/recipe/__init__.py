"""What a run is: a model, a task, data, an optimiser and a schedule, as one frozen value. Nothing here imports torch."""

from ..values import replace_path, to_json
from . import tasks
from .averages import EMA, AverageLast, BestCheckpoint, WeightAverage
from .batching import Batching, FixedBatch, PackedBatch, TokenBudget
from .data import Data, Source
from .files import load_recipe, recipe_from_json, recipe_of_run
from .optimisers import SGD, Adafactor, Adam, AdamW, Betas, Muon, OptimiserSpec
from .overrides import apply_overrides
from .recipe import Checkpoints, LossGuard, Recipe, Timeouts
from .rows import (
    TEMPLATE_FIELD,
    ChoiceQuestions,
    ContextQuestions,
    Documents,
    ImagesWithBoxes,
    LabelledImages,
    LabelledTexts,
    RowSchema,
    SourceTargetPairs,
    TaggedWords,
    TemplatedPairs,
)
from .schedules import (
    ConstantSchedule,
    CosineSchedule,
    InverseSqrt,
    LinearSchedule,
    Schedule,
    WarmupStableDecay,
    noam_lr,
)
from .tasks import *  # noqa: F403 the file says what it exports
from .tokenizers import (
    BPE,
    ByteBPE,
    ByteTokenizer,
    CharacterTokenizer,
    TokenizerFile,
    TokenizerSpec,
    Unigram,
    WordPiece,
)
from .trainable import HeadOnly, LoRA, Trainable

__all__ = [
    "BPE",
    "EMA",
    "SGD",
    "TEMPLATE_FIELD",
    "Adafactor",
    "Adam",
    "AdamW",
    "AverageLast",
    "Batching",
    "BestCheckpoint",
    "Betas",
    "ByteBPE",
    "ByteTokenizer",
    "CharacterTokenizer",
    "Checkpoints",
    "ChoiceQuestions",
    "ConstantSchedule",
    "ContextQuestions",
    "CosineSchedule",
    "Data",
    "Documents",
    "FixedBatch",
    "HeadOnly",
    "ImagesWithBoxes",
    "InverseSqrt",
    "LabelledImages",
    "LabelledTexts",
    "LinearSchedule",
    "LoRA",
    "LossGuard",
    "Muon",
    "OptimiserSpec",
    "PackedBatch",
    "Recipe",
    "RowSchema",
    "Schedule",
    "Source",
    "SourceTargetPairs",
    "TaggedWords",
    "TemplatedPairs",
    "Timeouts",
    "TokenBudget",
    "TokenizerFile",
    "TokenizerSpec",
    "Trainable",
    "Unigram",
    "WarmupStableDecay",
    "WeightAverage",
    "WordPiece",
    "apply_overrides",
    "load_recipe",
    "noam_lr",
    "recipe_from_json",
    "recipe_of_run",
    "replace_path",
    "to_json",
]
__all__ += tasks.__all__  # what a task file exports, so that a new task is named once
