"""Checkpoints of ranks that share weights: saved by any number of ranks on any grid, loaded by any
other, or by one process.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests import whole_runs
from weft import recipe as R
from weft.runs import checkpoints, run
from weft.runs.directory import RunDirectory
from weft.runs.train import RunStopped
from weft.support.ranks import Ranks
from weft.training.checkpoints import checkpoint
from weft.training.checkpoints import parts as checkpoint_parts
from weft.training.checkpoints.parts import Piece, SavedTensor
from weft.training.checkpoints.sharded_writer import ShardedCheckpointWriter

from .runs import Whole, ranks, train, whole

__all__ = ["whole"]
ONE = (1, R.Parallel())
COPIES = (2, R.Parallel())
GRIDS: list[tuple[int, R.Parallel]] = [
    ONE,
    COPIES,
    (2, R.Parallel(shard=2)),
    (2, R.Parallel(tensor=2)),
    (3, R.Parallel(shard=3)),
    (4, R.Parallel(shard=2, tensor=2)),
    (4, R.Parallel(replicate=2, shard=2)),
]


def causal(whole: Whole) -> R.Recipe:
    """Adam's eps is above the rounding of a gradient. Grids round its sums differently, here by up
    to δ = 3e-8, and the first update lr g / (|g| + eps) moves by up to lr δ / eps: with eps = 1e-8,
    a gradient of 8.2e-9 that another grid rounds to 7.9e-9 moves one weight of the feed-forward by
    1.1e-5, and a larger δ any weight by 2 lr. In float64, all grids agree within 2e-15. A larger
    eps also shows gradients of a wrong scale, which Adam divides away.
    """
    return replace(
        whole.recipes["causal"],
        steps=6,
        optimiser=R.AdamW(lr=3e-3, eps=1e-4),
        eval_every=None,
        checkpoints=R.Checkpoints(every_steps=2),
    )


def assert_same_model(one: Path, other: Path) -> None:
    """Rounding could move a weight by 6 lr δ / eps = 5e-6 in six steps; it moves it by 2e-8, and
    ten times that is allowed.
    """
    models = [weft.load(str(path / "model")).state_dict() for path in (one, other)]
    for (name, a), (_, b) in zip(*(model.items() for model in models), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=2e-7), name


def until(step: int) -> Callable[[run.Run, Any], None]:
    def plot(built: run.Run, event: Any) -> None:
        if event and event.step == step:
            built.trainer.stop_requested = True

    return plot


def start(recipe: R.Recipe, out: Path, grid: tuple[int, R.Parallel], stop: int) -> list[Any]:
    """Train on a grid until a step; what each rank has gathered at its end."""
    world, parallel = grid
    spread = replace(recipe, parallel=parallel)

    def work() -> Any:
        torch.set_num_threads(1)
        try:
            return train(spread, out, until(stop))
        except RunStopped:
            return "stopped"

    return ranks(spread, out, world, work)


def digest_on(recipe: R.Recipe, out: Path, grid: tuple[int, R.Parallel]) -> set[str]:
    """The SHA-256 of the gathered state after loading the newest checkpoint, on every rank."""
    world, parallel = grid
    spread = replace(recipe, parallel=parallel)

    def work() -> Any:
        torch.set_num_threads(1)
        from weft.training.parallel.ranks import init_ranks

        with init_ranks(device="cpu") as here:
            built = whole_runs.build_run(spread, here, is_new=False)
            latest = checkpoint.latest_checkpoint(out / "checkpoints", print)
            checkpoints.restore_run(built, latest, RunDirectory(out), print)
            digest = built.trainer.digest()
            built.trainer.drop_ddp()
        return digest

    return set(map(json.dumps, ranks(spread, out.with_name("loaded"), world, work)))


def load_everywhere(
    whole: Whole, folder: Path, saved_on: tuple[int, R.Parallel], others: list[Any]
) -> None:
    out = folder / "run"
    assert set(start(causal(whole), out, saved_on, stop=3)) == {"stopped"}
    latest = checkpoint.latest_checkpoint(out / "checkpoints", pytest.fail)
    assert latest.step == 3
    parts = [name for name in latest.files if name.startswith("part_")]
    assert len(parts) == (2 * saved_on[0] if saved_on[1].splits_weights else 0)
    digests = [digest_on(causal(whole), out, grid) for grid in [saved_on, *others]]
    assert all(len(digest) == 1 for digest in digests), digests
    assert len(set.union(*digests)) == 1, list(zip([saved_on, *others], digests, strict=True))


def test_two_ranks_save_their_parts_and_one_process_or_another_grid_loads_them(
    whole: Whole, tmp_path: Path
) -> None:
    load_everywhere(whole, tmp_path, GRIDS[2], [ONE, GRIDS[3]])


@pytest.mark.slow
@pytest.mark.parametrize("saved_on", GRIDS, ids=str)
def test_every_grid_loads_what_every_other_saved(
    saved_on: Any, whole: Whole, tmp_path: Path
) -> None:
    load_everywhere(whole, tmp_path, saved_on, [grid for grid in GRIDS if grid != saved_on])


def test_a_sharded_run_ends_with_the_model_of_one_process_and_opens_as_one(
    whole: Whole, tmp_path: Path
) -> None:
    """Stopped on two ranks that share weights, continued on two that share layers, to its end."""
    recipe = causal(whole)
    start(recipe, tmp_path / "one", ONE, stop=-1)
    start(recipe, tmp_path / "many", GRIDS[2], stop=3)
    opened = weft.open(str(tmp_path / "many"))  # from the parts, while the run is not finished
    assert len(opened.generate("the loom", max_new_tokens=3)) > 0
    digests = start(recipe, tmp_path / "many", GRIDS[3], stop=-1)
    assert len(set(digests)) == 1, digests
    assert_same_model(tmp_path / "one", tmp_path / "many")


@pytest.mark.parametrize(
    "average",
    [
        R.AverageLast(checkpoints=2),
        pytest.param(R.EMA(decay=0.7), marks=pytest.mark.slow),
        pytest.param(R.BestCheckpoint(metric="loss"), marks=pytest.mark.slow),
    ],
    ids=lambda value: type(value).__name__,
)
def test_averages_of_a_sharded_run_are_those_of_one_process(
    average: R.WeightAverage, whole: Whole, tmp_path: Path
) -> None:
    recipe = replace(causal(whole), average=average, eval_every=2)
    start(recipe, tmp_path / "one", ONE, stop=-1)
    start(recipe, tmp_path / "many", GRIDS[2], stop=-1)
    assert_same_model(tmp_path / "one", tmp_path / "many")


def test_a_slice_of_a_tensor_in_parts_is_read_from_the_files_that_have_it(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    whole = torch.arange(7 * 6.0).view(7, 6)
    pieces = []
    for i, (rows, columns) in enumerate([((0, 4), (0, 3)), ((4, 7), (0, 3)), ((0, 7), (3, 6))]):
        file = tmp_path / f"part_{i:05d}.safetensors"
        part = whole[slice(*rows), slice(*columns)].contiguous()
        save_file({"model/w": part}, file)
        pieces.append(Piece(file, "model/w", (rows[0], columns[0]), tuple(part.shape)))
    saved = SavedTensor((7, 6), tuple(pieces))
    assert torch.equal(saved.read(), whole)
    for rows in (slice(0, 2), slice(3, 6), slice(6, 7)):
        for columns in (slice(0, 6), slice(2, 4), slice(3, 6)):
            assert torch.equal(saved.read((rows, columns)), whole[rows, columns])
    with pytest.raises(ValueError, match="do not cover model/w"):
        SavedTensor((7, 6), tuple(pieces[1:])).read()
    pieces[1].file.unlink()  # a file that has nothing of the slice is not opened
    assert torch.equal(saved.read((slice(0, 4), slice(0, 6))), whole[:4])


def test_to_read_all_tensors_every_file_is_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {name: {key: torch.rand(3) for key in "abcd"} for name in ("model", "optimiser")}
    for rank in (1, 0):
        writers = checkpoint.Writers(rank, 2, "token")
        with ShardedCheckpointWriter(tmp_path, 1, writers=writers, timeout=5.0) as writer:
            writer.submit(1, groups, {})
    opened = list[str]()
    layouts = list[str]()
    safe_open = checkpoint_parts.safe_open
    loads = json.loads

    def open_and_note(path: Path, framework: str) -> Any:
        opened.append(path.name)
        return safe_open(path, framework=framework)

    def load_and_note(content: bytes) -> Any:
        layouts.append(str(content[:9]))
        return loads(content)

    found = checkpoint.read(tmp_path / "step-000000001")
    monkeypatch.setattr(checkpoint_parts, "safe_open", open_and_note)
    monkeypatch.setattr(json, "loads", load_and_note)
    tensors = found.all_tensors()
    assert opened == ["part_00000.safetensors"]
    assert len(layouts) == 2  # one per rank
    for name, named in groups.items():
        assert all(torch.equal(named[key], tensors[name][key]) for key in named)
    tensors["model"]["a"].zero_()
    assert torch.equal(found.tensors("model")["a"], groups["model"]["a"])


def test_a_damaged_part_is_named_and_the_checkpoint_before_it_is_used(
    whole: Whole, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    told = []
    start(causal(whole), out, GRIDS[2], stop=5)
    newest = out / "checkpoints" / "step-000000005"
    content = bytearray((newest / "part_00001.safetensors").read_bytes())
    content[-3] ^= 1
    (newest / "part_00001.safetensors").write_bytes(content)
    latest = checkpoint.latest_checkpoint(out / "checkpoints", told.append)
    assert latest.step == 4
    assert "part_00001.safetensors is damaged" in told[0]


class TwoRanks(Ranks):
    """One of two ranks that agree on what one of them found."""

    def __init__(self, rank: int, damaged: float) -> None:
        super().__init__(rank, 2)
        self.damaged = damaged

    def sum(self, numbers: list[float]) -> list[float]:
        return [numbers[0] + self.damaged]


def test_ranks_compare_half_of_the_files_each_and_agree(tmp_path: Path) -> None:
    path = checkpoint.write(tmp_path, 3, {name: {"w": torch.ones(9)} for name in "abc"}, {})
    assert checkpoint.read(path, TwoRanks(0, 0.0)).step == 3
    with pytest.raises(ValueError, match="another rank names the file"):
        checkpoint.read(path, TwoRanks(0, 1.0))
    content = bytearray((path / "b.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "b.safetensors").write_bytes(content)
    outcomes = []
    for rank in (0, 1):
        try:
            outcomes.append(checkpoint.read(path, TwoRanks(rank, 0.0)).step)
        except ValueError as error:
            outcomes.append("b.safetensors is damaged" in str(error))
    assert sorted(outcomes) == [True, 3]


def test_a_missing_part_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    from weft.training.checkpoints.sharded_writer import ShardedCheckpointWriter

    def writer(rank: int, token: int) -> ShardedCheckpointWriter:
        writers = checkpoint.Writers(rank, 2, f"{token:x}")
        return ShardedCheckpointWriter(tmp_path, 2, writers=writers, timeout=0.2)

    groups = {"model": {"w": torch.ones(3)}}
    first = writer(0, 7)
    second = writer(1, 7)
    second.submit(1, groups, {})
    first.submit(1, groups, {})
    first.wait()
    old = writer(1, 8)  # an earlier start, whose first rank was lost
    old.submit(2, groups, {})
    old.wait()
    first.submit(2, groups, {})
    with pytest.raises(OSError, match="rank 1 has not written its part"):
        first.wait()
    latest = checkpoint.latest_checkpoint(tmp_path, pytest.fail)
    assert latest.step == 1
    for each in (first, second, old):
        with contextlib.suppress(OSError):
            each.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "step", "rank"), [("forward", 3, 1), ("reduce", 3, 1), ("save", 4, 0)]
)
@pytest.mark.parametrize("grid", GRIDS[2:4], ids=str)
def test_a_lost_rank_ends_all_soon_and_the_run_continues_on_another_grid(
    grid: Any, phase: str, step: int, rank: int, whole: Whole, tmp_path: Path
) -> None:
    from .test_ranks import LIMIT, PATIENCE, end, fallen, members
    from .test_ranks import start as torchrun

    recipe = causal(whole)
    out = tmp_path / "run"
    file = tmp_path / "recipe.json"
    file.write_text(replace(recipe, parallel=grid[1]).to_json())
    process = torchrun(file, out, phase, str(step), str(rank))
    try:
        text, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        end(out)
        raise
    assert fallen(out).exists(), text
    lost = fallen(out).stat().st_mtime
    while (left := members(out)) and time.time() < lost + LIMIT:
        time.sleep(0.1)
    assert not left, f"still there: {left}"
    assert process.returncode != 0, text
    latest = checkpoint.latest_checkpoint(out / "checkpoints", pytest.fail)
    assert latest.step == 2
    other = GRIDS[3] if grid == GRIDS[2] else ONE
    digests = start(recipe, out, other, stop=-1)
    assert len(set(digests)) == 1, digests
    start(recipe, tmp_path / "one", ONE, stop=-1)
    assert_same_model(tmp_path / "one", out)
