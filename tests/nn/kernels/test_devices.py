"""Device selection by option, recipe and availability, and placement of all tensors on the
device.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.faults.runs import documents, gpt, partial_recipe
from tests.tasks.cases import CASES
from tests.training.test_loop import built, recipe, trainer
from weft import recipe as R
from weft.cli import main
from weft.nn.kernels.devices import resolve_device, resolve_precision
from weft.runs.directory import RunDirectory
from weft.training.checkpoints.compatibility import recipe_differences
from weft.training.parallel.ranks import DistributedRanks

from ...conformance.test_meta import OneDevice


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(
        torch.accelerator,
        "current_accelerator",
        lambda check_available=False: torch.device("cuda"),
    )


def test_auto_is_the_accelerator_there_is(four_gpus: None) -> None:
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("cuda:3") == torch.device("cuda:3")
    with pytest.raises(ValueError, match=r"cuda:4 is not available: .* sees 4 cuda devices"):
        resolve_device("cuda:4")


@pytest.mark.parametrize(
    ("device", "fast", "precision"),
    [
        ("cpu", "torch.cpu._is_amx_tile_supported", "bf16"),
        ("cpu", "torch.cpu._is_avx512_bf16_supported", "bf16"),
        ("cpu", None, "fp32"),
        ("cuda", "torch.cuda.is_bf16_supported", "bf16"),
        ("cuda", None, "fp32"),
        ("mps", None, "fp32"),
    ],
)
def test_auto_precision_is_bf16_where_the_device_is_fast_at_it(
    device: str, fast: str | None, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "torch.cpu._is_amx_tile_supported",
        "torch.cpu._is_avx512_bf16_supported",
        "torch.cuda.is_bf16_supported",
    ):
        monkeypatch.setattr(name, lambda *_, name=name, **__: name == fast)
    assert resolve_precision("auto", torch.device(device)) == precision
    assert resolve_precision("bf16", torch.device(device)) == "bf16"
    assert resolve_precision("fp32", torch.device(device)) == "fp32"


def test_under_torchrun_cuda_is_the_gpu_of_the_local_rank(
    four_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda:2")
    assert resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="4 ranks on this machine; use cuda"):
        resolve_device("cuda:1")


@pytest.mark.parametrize("verb", ["train", "resume", "tune", "evaluate", "generate", "classify"])
def test_a_device_that_is_not_there_is_one_line(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is written or prepared before it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    value = partial_recipe(gpt(), R.CausalLM(), data=documents(tmp_path))
    RunDirectory(folder).store(value, lambda line: None)
    words = [verb, str(folder), "--device", "cuda"]
    words += ["--data", str(tmp_path / "train.txt")] if verb == "tune" else []
    words += ["a text"] if verb in ("generate", "classify") else []
    before = sorted(tmp_path.rglob("*"))
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "cuda is not available" in lines[0]
    assert lines[0].endswith("use cpu")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_recipe_names_its_device_and_a_run_may_move() -> None:
    """The device is no part of what must be the same; the precision is."""
    plain = recipe(CASES["causal"]()[1])
    assert plain.device == "auto"
    assert recipe_differences(plain, replace(plain, device="cuda")) == []
    assert [name for name, _ in recipe_differences(plain, replace(plain, precision="bf16"))] == [
        "precision"
    ]
    with pytest.raises(ValueError, match="device"):
        R.apply_overrides(plain, ["device=gpu"])
    assert R.apply_overrides(plain, ["device=cuda:1"]).device == "cuda:1"


@pytest.mark.parametrize("average", [None, R.EMA(decay=0.9), R.BestCheckpoint(metric="loss")])
@pytest.mark.parametrize("name", ["causal", "causal, experts", "masked", "translate"])
def test_a_step_of_training_leaves_no_tensor_on_another_device(name: str, average: Any) -> None:
    """Forward, backward, gradient norm, clipping, optimiser and average, on the meta device."""
    spec, case = built(name, dtype=torch.float32, dropout=0.1)
    value = recipe(spec, optimiser=R.SGD(lr=0.1, momentum=0.9), micro_batch_size=7)
    if average is not None:
        source = value.data.train
        value = replace(value, data=replace(value.data, valid=source), average=average)
    made = trainer(value, case, DistributedRanks(device=torch.device("meta")))
    work = next(made.loader(32).from_position(0))
    made.seed = lambda micro_batch: None  # type: ignore[method-assign]
    with OneDevice("meta") as mode:
        made.backward(work, dict.fromkeys(made.loss.weights, 1.0))
        gradients = [p.grad for p in made.optimiser.parameters.values() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        torch.nn.utils.clip_grads_with_norm_(made.optimiser.parameters.values(), 1.0, norm)
        made.optimiser.step(1.0)
        if made.average is not None:
            made.average.update()
    assert mode.strays == set()
    made.optimiser.restore(
        {name: torch.zeros(t.shape) for name, t in made.optimiser.state().items()}
    )
    groups, _ = made.state()
    assert {
        t.device.type for name in ("model", "optimiser", "average") for t in groups[name].values()
    } == {"meta"}
