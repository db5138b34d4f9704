"""Copies of checkpoints on a real server of object storage: a run continues on a machine that has
nothing.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch

import weft
from weft import recipe as R
from weft.runs.train import RunStopped
from weft.support.addresses import ObjectPath
from weft.support.storage import wait_until
from weft.training.checkpoints import checkpoint
from weft.training.checkpoints.copies import CheckpointCopies

from ..object_server import server  # noqa: F401 a fixture
from .runs import Whole, model_bytes, ranks, steps_of, told, train, whole  # noqa: F401 a fixture
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
    return CheckpointCopies(recipe.checkpoints.copy_to, 2)


def stop_at(recipe: R.Recipe, out: Path, step: int) -> None:
    with pytest.raises(RunStopped):
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
    assert told(tmp_path / "another") == told(tmp_path / "uninterrupted")  # its whole curve
    copied = (copies(recipe).root / "step-000000005" / "log.jsonl").read_text().splitlines()
    assert json.loads(copied[-1])["step"] == 5


def test_a_copy_without_its_manifest_does_not_count_and_a_damaged_one_is_passed_over(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    stop_at(recipe, tmp_path / "lost", 5)
    there = copies(recipe)
    lines = list[str]()
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
    there = copies(recipe)
    lines = list[str]()
    there.report = lines.append
    manifest = checkpoint._seal(7, {"state.json": (2, "0" * 64), name: (2, "0" * 64)})
    (there.root / "step-000000007" / "manifest.json").write_bytes(manifest)
    with pytest.raises(ValueError, match=r"no copy can be used .*copy_to to start again"):
        there.fetch_newest(tmp_path / "run" / "checkpoints")
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


def test_storage_that_cannot_be_reached_is_reported_and_training_continues(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    (tmp_path / "step-000000001").mkdir()
    (tmp_path / "step-000000001" / "manifest.json").write_bytes(b"{}")
    lines = list[str]()
    with CheckpointCopies("s3://nobody/run", 2, report=lines.append) as nowhere:
        nowhere.submit(tmp_path / "step-000000001")
    assert len(lines) == 1
    assert "step-000000001 is saved locally, but was not copied" in lines[0]


def test_where_uploads_are_slower_than_saves_the_newest_checkpoint_is_copied(
    recipe: R.Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = copies(recipe)
    lines = list[str]()
    all_saved = Event()
    there.report = lines.append
    upload = there.upload

    def slow_upload(path: Path) -> None:
        assert all_saved.wait(10)
        upload(path)

    monkeypatch.setattr(there, "upload", slow_upload)
    with there, checkpoint.CheckpointWriter(tmp_path, 2, on_saved=there.submit) as writer:
        for step in range(1, 6):
            writer.submit(step, {}, {})
        writer.wait()
        all_saved.set()
    assert there.steps() == [5, 4]
    assert [line.split(" before")[0] for line in lines] == [
        f"step-00000000{step} was removed locally" for step in (1, 3, 2)
    ]


def test_the_first_rank_stops_waiting_for_parts_of_a_checkpoint_that_is_removed(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    there = copies(recipe)
    lines = list[str]()
    there.report = lines.append
    there.writers = checkpoint.Writers(0, 2, "token")
    there.submit(checkpoint.write(tmp_path, 1, {}, {}))
    assert wait_until(lambda: any(there.root.rglob("copied_*")), 10)  # it waits for rank 1
    there.writers = checkpoint.Writers()
    there.submit(checkpoint.write(tmp_path, 2, {}, {}))
    checkpoint.discard(tmp_path / "step-000000001")
    there.__exit__()
    assert there.steps() == [2]
    assert lines[0].startswith("step-000000001 was removed locally before it was copied; save less")


class LostNetwork(ObjectPath):
    """Storage that answers requests for names, but not for contents."""

    def __truediv__(self, name: str) -> ObjectPath:
        return LostNetwork(f"{self.address}/{name}")

    def download(self, local: Path) -> None:
        raise ValueError(f"{self} cannot be read: timed out; check the address and the network")


@pytest.mark.parametrize("step_here", [None, 2])
def test_a_network_that_fails_ends_the_start_and_no_copy_is_lost(
    recipe: R.Recipe, tmp_path: Path, step_here: int | None
) -> None:
    stop_at(recipe, tmp_path / "lost", 5)
    there = copies(recipe)
    root = tmp_path / "new" / "checkpoints"
    lines = list[str]()
    if step_here is not None:
        checkpoint.write(root, step_here, {}, {})
    there.root = LostNetwork(str(there.root))
    there.report = lines.append
    with pytest.raises(
        ValueError, match=r"step-000000005/manifest\.json cannot be read: timed out"
    ):
        there.fetch_newest(root)
    assert lines == []
    assert there.damaged == set()
    assert copies(recipe).fetch_newest(root) == 5


def test_copies_that_a_start_could_not_list_outlive_its_saves(
    recipe: R.Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = copies(recipe)
    lines = list[str]()
    (there.root / "step-000010000" / "manifest.json").write_bytes(b"{}")
    there.report = lines.append
    checkpoint.write(tmp_path, 500, {}, {})
    with monkeypatch.context() as patch:
        patch.setattr(there, "steps", lambda: LostNetwork("s3://weft/list").download(tmp_path))
        assert there.fetch_newest(tmp_path) is None
    assert "using local step 500" in lines[0]
    there.submit(checkpoint.write(tmp_path, 502, {}, {}))
    there.__exit__()
    assert there.steps() == [10_000, 502]


def test_steps_to_average_are_fetched_at_the_next_start_if_the_network_failed(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    stop_at(recipe, tmp_path / "lost", 5)
    there = copies(recipe)
    root = tmp_path / "new"
    there.pinned = {4}
    assert there.fetch(5, root)  # and then the network failed
    assert there.fetch_newest(root) is None
    assert {path.name for path in root.iterdir()} == {"step-000000004", "step-000000005"}


def test_damaged_copies_go_and_the_newest_stay(recipe: R.Recipe, tmp_path: Path) -> None:
    there = copies(recipe)
    there.damaged = {9}
    for step in (1, 2, 3, 9, 10):
        (there.root / f"step-{step:09d}" / "manifest.json").write_bytes(b"{}")
    (there.root / "step-000000002" / "state.json").write_bytes(b"{}")
    (there.root / "step-000000001" / "manifest.json").unlink()
    (there.root / "step-000000001" / "state.json").write_bytes(b"{}")
    (there.root / "step-000000005" / "part_00001.safetensors").write_bytes(b"")  # another rank's
    there.retain(4)
    names = {path.parent.name for path in there.root.rglob("*")}
    assert names == {f"step-{step:09d}" for step in (2, 3, 5, 10)}


def test_machines_that_share_no_disk_each_download_the_copy(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    stop_at(recipe, tmp_path / "lost", 5)

    def work() -> str:
        torch.set_num_threads(1)
        return train(recipe, tmp_path / f"disk-{os.environ['RANK']}")

    digests = ranks(recipe, tmp_path / "machine", 2, work)
    assert len(set(map(json.dumps, digests))) == 1, digests
    assert steps_of(tmp_path / "disk-0") == [1, 2, 3, 4, 5, 6]
    names = [path.name for path in (tmp_path / "disk-1" / "checkpoints").iterdir()]
    assert names == ["step-000000005"]
    again = ranks(recipe, tmp_path / "machine", 2, work)  # all leave with the first rank
    assert again == digests


def test_ranks_that_would_continue_after_different_steps_are_refused(
    recipe: R.Recipe, tmp_path: Path
) -> None:
    alone = replace(recipe, checkpoints=R.Checkpoints(every_steps=2))
    stop_at(alone, tmp_path / "disk-0", 5)

    def work() -> str:
        torch.set_num_threads(1)
        return train(alone, tmp_path / f"disk-{os.environ['RANK']}")

    errors = [end["line"] for end in ranks(alone, tmp_path / "machine", 2, work)]
    assert "rank 0 would resume after step 5, but not all others" in errors[0]
    assert "rank 1 would resume after step 0" in errors[1]


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
