"""Evaluation receipts: scores with date, data, commit and machine."""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..nn.loaded_model import LoadedModel
from ..nn.model import Model
from ..observe.spread import spread

# Receipt


class Fingerprinted(Protocol):
    """Evaluated data: prepared data, or questions."""

    fingerprint: str

    def __len__(self) -> int: ...


def receipt(
    model: LoadedModel,
    data: Fingerprinted,
    scores: dict[str, float | str],
    seconds: float,
    seed: int,
) -> dict[str, Any]:
    """Return command, versions, machine and hashes, which identify an evaluation."""
    return {
        "command": shlex.join(["weft", *sys.argv[1:]]),
        "version": version("weft"),
        "commit": git_commit(),
        "seed": seed,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "torch": version("torch"),
        "model": model_digest(model.model),
        "data": data.fingerprint,
        "samples": len(data),
        "scores": {
            name: value if isinstance(value, str) or isfinite(value) else None
            for name, value in scores.items()
        },
    }


def spread_of_states(states: list[Tensor]) -> dict[str, Any]:
    """Return the spread of a model's output vectors; empty if there are too few."""
    if sum(map(len, states)) < 2:
        return {}
    x_TD = torch.cat(states)
    return {"states": {"vectors": len(x_TD), "width": x_TD.shape[1], **spread(x_TD)._asdict()}}


def git_commit() -> str | None:
    """Return the commit of Weft's source; None outside a checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        outputs = [
            subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "src"])
        ]
    except OSError:
        return None
    return (outputs[0] + (" and changes" if outputs[1] else "")) or None


def model_digest(model: Model) -> str:
    """Return the SHA-256 of all parameters and buffers."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha256.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sha256.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return sha256.hexdigest()
