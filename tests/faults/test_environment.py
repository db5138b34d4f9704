"""F17: what the bits of a run depend on beside its recipe is recorded, and a change of it is
announced in one line.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import whole_runs
from weft import recipe as R
from weft.runs import start
from weft.runs.run import Run
from weft.training.checkpoints.checkpoint import all_checkpoints, write
from weft.training.environment import configured_environment, describe_environment

from .runs import documents, gpt, partial_recipe, train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[R.Recipe, Path]:
    folder = tmp_path_factory.mktemp("environment")
    recipe = partial_recipe(
        gpt(),
        R.CausalLM(),
        data=documents(folder),
        steps=2,
        checkpoints=R.Checkpoints(every_steps=2),
        schedule=R.ConstantSchedule(),
    )
    train(recipe, folder / "run")
    return replace(recipe, steps=3), folder / "run"


def resumed(
    begun: tuple[R.Recipe, Path], out: Path, recorded: dict[str, Any], **more: Any
) -> list[str]:
    """What the lines say of a run that goes on from a checkpoint with this record."""
    found = all_checkpoints(begun[1] / "checkpoints")[-1]
    said = list[str]()
    write(out / "checkpoints", 2, found.all_tensors(), found.state | {"environment": recorded})
    train(replace(begun[0], **more), out, say=said.append)
    return [line for line in said if "may differ" in line]


def test_a_checkpoint_records_threads_torch_cpu_and_device(
    begun: tuple[R.Recipe, Path],
) -> None:
    recorded = all_checkpoints(begun[1] / "checkpoints")[-1].state["environment"]
    assert recorded == describe_environment(CPU) | {"precision": "fp32"}
    assert recorded["threads"] == 1
    assert recorded["torch"] == torch.__version__
    assert torch.backends.cpu.get_cpu_capability() in recorded["cpu"]
    assert recorded["device"] == "cpu"


@pytest.mark.parametrize(
    ("name", "value"),
    [("threads", 7), ("torch", "2.9.0"), ("cpu", "another (AVX2)"), ("device", "cuda (A100)")],
)
def test_each_change_is_announced_in_one_line(
    name: str, value: Any, begun: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    (line,) = resumed(begun, tmp_path, describe_environment(CPU) | {name: value})
    assert (
        f"{name} changed from {value} to {describe_environment(CPU)[name]}: the last bits of "
        "results may differ" in line
    )
    assert ("--set threads=7 keeps their number" in line) == (name == "threads")
    assert "\n" not in line


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_auto_precision_is_chosen_once_and_kept_on_another_machine(
    before: bool,
    after: bool,
    begun: tuple[R.Recipe, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def machine(fast: bool) -> None:
        monkeypatch.setattr(start, "has_fast_bf16", lambda device: fast)

    kept, other = ("bf16", "fp32") if before else ("fp32", "bf16")
    recipe = replace(begun[0], steps=2, precision="auto")
    said = list[str]()
    longer = replace(recipe, steps=3)
    machine(before)
    train(recipe, tmp_path / "run")
    whole = train(longer, tmp_path / "whole")
    machine(after)
    assert train(longer, tmp_path / "run", say=said.append) == whole
    assert f"precision stays {kept}, as the run began; auto on this machine is {other}" in said
    saved = all_checkpoints(tmp_path / "run" / "checkpoints")[-1].state
    assert saved["environment"]["precision"] == kept
    assert R.recipe_of_run(tmp_path / "run").precision == kept
    with pytest.raises(ValueError, match=f"precision was '{kept}'"):
        train(replace(longer, precision=other), tmp_path / "run")
    assert train(replace(longer, precision=kept), tmp_path / "explicit") == whole


def test_the_number_of_threads_can_be_kept(begun: tuple[R.Recipe, Path], tmp_path: Path) -> None:
    seen: list[int] = []

    def plot(made: Run, event: Any) -> None:
        seen.append(torch.get_num_threads())

    assert (
        resumed(begun, tmp_path / "run", describe_environment(CPU) | {"threads": 2}, threads=2)
        == []
    )
    train(replace(begun[0], threads=2), tmp_path / "fresh", plot)
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1  # and nothing else in this process is changed
    assert (
        all_checkpoints(tmp_path / "run" / "checkpoints")[-1].state["environment"]["threads"] == 2
    )
    assert whole_runs.verify_resume(tmp_path / "fresh")
    assert torch.get_num_threads() == 1


def test_deterministic_algorithms_are_on_while_the_run_is_trained_alone(
    begun: tuple[R.Recipe, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen: list[bool] = []

    def plot(made: Run, event: Any) -> None:
        seen.append(torch.are_deterministic_algorithms_enabled())

    recipe = replace(begun[0], deterministic=True)
    # on a CPU they are the same
    assert train(recipe, tmp_path / "run", plot) == train(begun[0], tmp_path / "plain")
    assert set(seen) == {True}
    assert not torch.are_deterministic_algorithms_enabled()
    with configured_environment(recipe.threads, recipe.deterministic):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    with pytest.raises(ValueError, match="deterministic was True"):
        train(begun[0], tmp_path / "run")
