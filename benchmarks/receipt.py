"""Receipts: measured results with the command, versions and machine that reproduce them."""

import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch


def machine() -> str:
    """Return the kind of machine: its cores, and the instructions that decide how fast matrix
    products are.
    """
    there = {
        torch.backends.cpu.get_cpu_capability(): True,
        "AVX-512 BF16": torch.cpu._is_avx512_bf16_supported(),
        "VNNI": torch.cpu._is_vnni_supported(),
        "AMX": torch.cpu._is_amx_tile_supported(),
    }
    instructions = [name for name, supported in there.items() if supported]
    return ", ".join([platform.machine(), f"{os.cpu_count()} cores", *instructions])


def write(path: str, found: Any, seconds: float, seed: int = 0) -> None:
    """Beside the result: command, commit, seed, time, kind of machine, versions, and the result's
    hash.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    changed = subprocess.run(
        ["git", "status", "--porcelain", "src", "recipes", "benchmarks"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    name = Path(
        sys.modules["__main__"].__spec__.name if sys.modules["__main__"].__spec__ else sys.argv[0]
    ).name
    receipt = {
        "command": shlex.join(["python", "-m", name, *sys.argv[1:]]),
        "commit": commit + (" and changes" if changed else ""),
        "seed": seed,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "machine": machine(),
        "versions": {n: version(n) for n in ("torch", "transformers")},
        "sha256": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest(),
        "result": found,
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(receipt, indent=1) + "\n")
