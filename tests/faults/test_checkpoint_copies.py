"""Copies of checkpoints on a real server of object storage: a run continues on a machine that has nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import weft
from weft import recipe as R
from weft.addresses import ObjectPath
from weft.runs import run
from weft.training import checkpoint
from weft.training.checkpoint_copies import CheckpointCopies

from ..object_server import server  # noqa: F401 a fixture
from .runs import Whole, model_bytes, train, whole  # noqa: F401 a fixture
from .test_sharded_checkpoint import GRIDS, start, until

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def recipe(whole: Whole, request: pytest.FixtureRequest) -> R.Recipe:  # noqa: F811
    address = f"s3://weft/{abs(hash(request.node.name))}"
    return replace(
        whole.recipes["causal"],
        steps=6,
        eval_every=None,
        checkpoints=R.Checkpoints(every_steps=2, copy_to=address),
    )


def copies(recipe: R.Recipe) -> CheckpointCopies:
    assert recipe.checkpoints.copy_to is not None
    return CheckpointCopies(recipe.checkpoints.copy_to, 2)


def stop_at(recipe: R.Recipe, out: Path, step: int) -> None:
    with pytest.raises(run.RunStopped):
        train(recipe, out, until(step))


def test_a_machine_that_has_nothing_continues_to_the_same_bits(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    train(replace(recipe, checkpoints=R.Checkpoints(every_steps=2)), tmp_path / "uninterrupted")
    stop_at(recipe, tmp_path / "lost", 5)
    assert copies(recipe).steps() == [5, 4]  # as many as are kept here
    train(recipe, tmp_path / "another")
    assert model_bytes(tmp_path / "another") == model_bytes(tmp_path / "uninterrupted")
    assert copies(recipe).steps() == [6, 5]


def test_a_copy_without_its_manifest_does_not_count_and_a_damaged_one_is_passed_over(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    stop_at(recipe, tmp_path / "lost", 5)
    there, lines = copies(recipe), list[str]()
    there.report = lines.append
    newest = there.root / "step-000000005"
    content = bytearray((newest / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "model.safetensors").write_bytes(bytes(content))
    assert there.fetch_newest(tmp_path / "new") == 4
    assert lines == [f"{newest} cannot be used: {newest}/model.safetensors is damaged"]
    assert there.fetch_newest(tmp_path / "new") is None  # nothing here is older
    (newest / "manifest.json").unlink()
    assert there.steps() == [4]


@pytest.mark.parametrize("name", ["../../escaped.json", "/escaped.json", ".escaped"])
def test_a_manifest_of_somebody_else_names_no_file_outside(
    recipe: R.Recipe, tmp_path: Path, name: str
) -> None:
    there, lines = copies(recipe), list[str]()
    there.report = lines.append
    manifest = checkpoint._seal(7, {"state.json": (2, "0" * 64), name: (2, "0" * 64)})
    (there.root / "step-000000007" / "manifest.json").write_bytes(manifest)
    assert there.fetch_newest(tmp_path / "run" / "checkpoints") is None
    assert len(lines) == 1
    assert "does not match its own SHA-256" in lines[0]
    assert not [path for path in tmp_path.rglob("*") if "escaped" in path.name]


def test_a_damaged_checkpoint_here_is_replaced_by_its_copy(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    stop_at(recipe, tmp_path / "run", 5)
    weights = tmp_path / "run" / "checkpoints" / "step-000000005" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    assert copies(recipe).fetch_newest(tmp_path / "run" / "checkpoints") == 5
    assert weights.read_bytes() == content


def test_what_is_averaged_is_fetched_too(recipe: R.Recipe, tmp_path: Path) -> None:
    averaging = replace(recipe, average=R.AverageLast(checkpoints=3))
    plain = R.Checkpoints(every_steps=2)
    train(replace(averaging, checkpoints=plain), tmp_path / "uninterrupted")
    stop_at(averaging, tmp_path / "lost", 5)
    train(averaging, tmp_path / "another")
    assert model_bytes(tmp_path / "another") == model_bytes(tmp_path / "uninterrupted")


def test_storage_that_cannot_be_reached_is_reported_and_training_continues(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    (tmp_path / "step-000000001").mkdir()
    (tmp_path / "step-000000001" / "manifest.json").write_bytes(b"{}")
    lines = list[str]()
    with CheckpointCopies("s3://nobody/run", 2, report=lines.append) as nowhere:
        nowhere.submit(tmp_path / "step-000000001")
    assert len(lines) == 1
    assert "step-000000001 is saved here, but not copied" in lines[0]


def test_copies_of_another_past_go_and_the_newest_stay(recipe: R.Recipe, tmp_path: Path) -> None:
    there = copies(recipe)
    for step in (1, 2, 3, 9):
        (there.root / f"step-{step:09d}" / "manifest.json").write_bytes(b"{}")
    (there.root / "step-000000002" / "state.json").write_bytes(b"{}")
    (there.root / "step-000000001" / "manifest.json").unlink()
    (there.root / "step-000000001" / "state.json").write_bytes(b"{}")
    (there.root / "step-000000005" / "part_00001.safetensors").write_bytes(b"")  # another rank's
    there.retain(4)
    names = {path.parent.name for path in there.root.rglob("*")}
    assert names == {"step-000000002", "step-000000003", "step-000000005"}


def test_two_ranks_copy_their_parts_and_one_continues_from_them(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    start(recipe, tmp_path / "lost", GRIDS[2], stop=5)
    there = copies(recipe)
    names = {p.name for p in ObjectPath(f"{there.root}/step-000000005").rglob("*")}
    assert {"part_00000.safetensors", "part_00001.safetensors", "manifest.json"} <= names
    assert there.fetch_newest(tmp_path / "new" / "checkpoints") == 5
    train(recipe, tmp_path / "new")
    train(replace(recipe, checkpoints=R.Checkpoints(every_steps=2)), tmp_path / "uninterrupted")
    models = [weft.load(str(tmp_path / name / "model")) for name in ("new", "uninterrupted")]
    for (name, a), (_, b) in zip(*(m.state_dict().items() for m in models), strict=True):
        assert torch.allclose(a, b, atol=1e-5), name
