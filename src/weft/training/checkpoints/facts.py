"""Metadata of a checkpoint, without its tensors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CheckpointFacts:
    """The directory of a checkpoint, its step, and its `state.json`."""

    path: Path
    step: int
    state: dict[str, Any]
