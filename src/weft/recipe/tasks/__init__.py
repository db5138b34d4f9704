"""Tasks: what a model is trained for, one module each, with everything that needs no torch."""

# isort: off
# The order of these imports is that of listings, and of tasks that fit a table equally well
from .causal_lm import CausalLM
from .masked_lm import MaskedLM
from .replaced_token_detection import ReplacedTokenDetection
from .span_corruption import SpanCorruption
from .denoising import Denoising
from .translation import Translation
from .text_to_text import TextToText
from .pair_task import PairTask
from .classification import Classification, Regression
from .multiple_choice import MultipleChoice
from .token_classification import TokenClassification
from .question_answering import QuestionAnswering
from .masked_autoencoding import MaskedAutoencoding
from .detection import DenoisingQueries, Detection
from .distillation import Distillation
from .instruction_tuning import InstructionTuning
from .preference_tuning import PreferenceTuning
from .reward_modelling import RewardModelling

# isort: on
from .task import (
    LossWeight,
    TableFacts,
    Task,
    best_match,
    task_named,
    task_names,
    tunable_names,
    verb_for,
)

__all__ = [
    "CausalLM",
    "Classification",
    "Denoising",
    "DenoisingQueries",
    "Detection",
    "Distillation",
    "InstructionTuning",
    "LossWeight",
    "MaskedAutoencoding",
    "MaskedLM",
    "MultipleChoice",
    "PairTask",
    "PreferenceTuning",
    "QuestionAnswering",
    "Regression",
    "ReplacedTokenDetection",
    "RewardModelling",
    "SpanCorruption",
    "TableFacts",
    "Task",
    "TextToText",
    "TokenClassification",
    "Translation",
    "best_match",
    "task_named",
    "task_names",
    "tunable_names",
    "verb_for",
]
