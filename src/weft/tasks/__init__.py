"""Training objectives. Each module implements one task: preprocessing, loss, prediction and
evaluation.
"""

import torch

from .. import recipe as R
from .. import spec as S
from ..data.shards.store import DataInfo
from ..nn.model import Model
from ..support.registry import implementation
from .base import Loss, Preprocess, TaskContext, encode_batch
from .pair_encoding import PairEncoding
from .task import EvaluationData, TaskImplementation

__all__ = [
    "EvaluationData",
    "Loss",
    "PairEncoding",
    "Preprocess",
    "TaskContext",
    "TaskImplementation",
    "build_task",
    "encode_batch",
]


def build_task(
    task: R.Task,
    model_spec: S.Spec,
    meta: DataInfo,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    teacher: Model | None = None,
    model: Model | None = None,
    device: str = "cpu",
) -> TaskImplementation:
    """Build the implementation of a task for a model and data.

    Args:
        task: the task, such as `CausalLM()`.
        model_spec: the spec of the model.
        meta: metadata of the data: rows, vocabulary size, labels.
        seed: of the weights.
        dtype: of the weights.
        teacher: a trained model, for tasks with a teacher (default: None).
        model: an existing model (default: build a new one).
        device: device of a new model; on "meta", tensors have no storage.

    Raises:
        ValueError: if task, model and data are incompatible.
    """
    if not isinstance(task, R.Task):
        raise ValueError(f"build_task takes a task, such as CausalLM(), not {task!r}"[:200])
    built: TaskImplementation = implementation(task)(
        task, TaskContext(model_spec, meta, seed, dtype, teacher, model, device)
    )
    return built
