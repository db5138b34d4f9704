"""F17: what the bits of a run depend on beside its recipe is recorded, and a change of it is announced in one line."""
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from weft import prove, run
from weft import recipe as R
from weft.train.checkpoint import checkpoints, write
from weft.train.environment import changes, configured, environment

from .runs import documents, gpt, partial_recipe, train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[R.Recipe, Path]:
    folder = tmp_path_factory.mktemp("environment")
    recipe = partial_recipe(gpt(), R.NextToken(), data=documents(folder), steps=2, save=R.Saves(every=2), schedule=R.Constant())
    train(recipe, folder / "run")
    return replace(recipe, steps=3), folder / "run"


def resumed(begun: tuple[R.Recipe, Path], out: Path, recorded: dict[str, Any], **more: Any) -> list[str]:
    """What the lines say of a run that goes on from a checkpoint with this record."""
    found, said = checkpoints(begun[1] / "checkpoints")[-1], list[str]()
    write(out / "checkpoints", 2, found.groups(), found.facts | {"environment": recorded})
    train(replace(begun[0], **more), out, say=said.append)
    return [line for line in said if "bits may differ" in line]


def test_a_checkpoint_records_threads_torch_cpu_and_accelerator(begun: tuple[R.Recipe, Path]) -> None:
    recorded = checkpoints(begun[1] / "checkpoints")[-1].facts["environment"]
    assert recorded == environment(CPU)
    assert recorded["threads"] == 1
    assert recorded["torch"] == torch.__version__
    assert torch.backends.cpu.get_cpu_capability() in recorded["cpu"]
    assert recorded["accelerator"] is None


@pytest.mark.parametrize(("name", "value"), [("threads", 7), ("torch", "2.9.0"), ("cpu", "another (AVX2)"), ("accelerator", "A100")])
def test_each_change_is_announced_in_one_line(name: str, value: Any, begun: tuple[R.Recipe, Path], tmp_path: Path) -> None:
    (line,) = resumed(begun, tmp_path, environment(CPU) | {name: value})
    assert f"{name} {value} until now, {environment(CPU)[name] or 'none'} from here on: bits may differ" in line
    assert ("--set threads=7 keeps their number" in line) == (name == "threads")
    assert "\n" not in line


def test_several_changes_are_one_line_and_none_is_no_line(begun: tuple[R.Recipe, Path], tmp_path: Path) -> None:
    (line,) = resumed(begun, tmp_path / "several", environment(CPU) | {"threads": 2, "torch": "2.9.0"})
    assert "threads 2 until now" in line
    assert "torch 2.9.0 until now" in line
    assert resumed(begun, tmp_path / "none", environment(CPU)) == []
    assert resumed(begun, tmp_path / "before it was recorded", {}) == []
    assert changes({}, environment(CPU)) is None


def test_the_number_of_threads_can_be_kept(begun: tuple[R.Recipe, Path], tmp_path: Path) -> None:
    seen: list[int] = []

    def plot(made: run.Made, event: Any) -> None:
        seen.append(torch.get_num_threads())
    assert resumed(begun, tmp_path / "run", environment(CPU) | {"threads": 2}, threads=2) == []
    train(replace(begun[0], threads=2), tmp_path / "fresh", plot)
    assert set(seen) == {2}
    assert torch.get_num_threads() == 1    # and nothing else in this process is changed
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].facts["environment"]["threads"] == 2
    assert prove.check(tmp_path / "fresh")
    assert torch.get_num_threads() == 1


def test_deterministic_algorithms_are_on_while_the_run_is_trained_alone(begun: tuple[R.Recipe, Path], tmp_path: Path,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen: list[bool] = []

    def plot(made: run.Made, event: Any) -> None:
        seen.append(torch.are_deterministic_algorithms_enabled())
    recipe = replace(begun[0], deterministic=True)
    assert train(recipe, tmp_path / "run", plot) == train(begun[0], tmp_path / "plain")    # on a CPU they are the same
    assert set(seen) == {True}
    assert not torch.are_deterministic_algorithms_enabled()
    with configured(recipe):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    with pytest.raises(ValueError, match="deterministic was True"):
        train(begun[0], tmp_path / "run")
