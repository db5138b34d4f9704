"""Training leaves the process as it was: random generators, signal handlers, threads, algorithms,
environment.
"""

import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import whole_runs
from weft import recipe as R

from .runs import documents, gpt, partial_recipe

TORCHS_OWN = "TORCHINDUCTOR_CACHE_DIR"  # set by torch when it first imports its compiler
STATE = """
import os, pickle, random, signal, threading
import numpy as np, torch
state = lambda: (
    random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist(),
    torch.initial_seed(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM),
    torch.get_num_threads(), torch.get_default_dtype(),
    torch.are_deterministic_algorithms_enabled(), dict(os.environ), threading.active_count(),
    os.getcwd(),
)
before = state()
import weft, weft.cli
weft.build, weft.gpt2
import weft.runs.train, weft.inference.open_model, weft.studies.plan
after = state()
assert [i for i, (a, b) in enumerate(zip(before, after)) if a != b] == []
"""


def process_state() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": pickle.dumps(np.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "signals": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)],
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warns": torch.is_deterministic_algorithms_warn_only_enabled(),
        **{f"environment {n}": v for n, v in os.environ.items() if n != TORCHS_OWN},
    }


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> R.Recipe:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    return partial_recipe(
        gpt(),
        R.CausalLM(),
        data=documents(tmp_path),
        steps=4,
        schedule=R.ConstantSchedule(),
        threads=2,
        deterministic=True,
    )


def to_the_end(steps: Any) -> None:
    assert len(list(steps)) == 4


def close_early(steps: Any) -> None:
    next(steps)
    random.random(), np.random.random(), torch.rand(1)
    steps.close()


def fail(steps: Any) -> None:
    next(steps)
    with pytest.raises(KeyError):
        steps.throw(KeyError("the caller's own"))


@pytest.mark.parametrize("end", [to_the_end, close_early, fail], ids=lambda end: end.__name__)
def test_the_process_is_as_before_when_training_ends(
    recipe: R.Recipe, tmp_path: Path, end: Callable[[Any], None]
) -> None:
    torch.manual_seed(5)
    before = process_state()
    end(whole_runs.train(recipe, tmp_path / "run"))
    after = process_state()
    assert [n for n in before | after if before.get(n) != after.get(n)] == []


def test_importing_weft_changes_nothing_global() -> None:
    subprocess.run([sys.executable, "-c", STATE], check=True)
