"""Objectives: what a model is trained to do. One file, one paper; corruption and score together."""
from importlib import import_module

import torch

from .. import recipe as R
from .. import spec as S
from ..data.store import Meta
from ..model.model import Model
from .base import IGNORE, Batch, Corruption, Objective, Reader, Row, Setting

__all__ = ["IGNORE", "Batch", "Corruption", "Objective", "Reader", "Row", "Setting", "build"]

MODULES: dict[type, str] = {
    R.NextToken: "causal", R.MaskedTokens: "masked", R.ReplacedTokens: "replaced", R.CorruptedSpans: "spans", R.Denoising: "denoise",
    R.Translation: "translate", R.TextToText: "text2text", R.Classification: "classify", R.Regression: "classify",
    R.MultipleChoice: "choice", R.Tagging: "tag", R.Answering: "answer", R.Autoencoding: "autoencode", R.Distillation: "distil"}


def build(objective: R.Objective, model_spec: S.Model, meta: Meta, *, seed: int = 0, dtype: torch.dtype = torch.float32,
          teacher: Model | None = None, model: Model | None = None) -> tuple[Corruption, Objective]:
    """The corruption and the score of an objective for a model and data; what does not fit together is refused here. `model` is one that
    is there already; without it a new one starts."""
    if type(objective) not in MODULES:
        raise ValueError(f"build takes an objective, such as NextToken(), not {objective!r}"[:200])
    module = import_module(f".{MODULES[type(objective)]}", __name__)
    setting = Setting(model_spec, meta, seed, dtype, teacher, model)
    return module.Corrupt(objective, setting), module.Score(objective, setting)
