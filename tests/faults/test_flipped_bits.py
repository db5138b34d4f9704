"""F13: one bit flipped anywhere in prepared data, an exported model, an average, a tokenizer or a
recipe beside them: it is found before it is used, the file is named, and what can be made again is
made again.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from weft import cli
from weft import recipe as R
from weft.data.preparing.prepare import prepare
from weft.data.shards.shard_builder import read_shard_facts
from weft.data.shards.store import PreparedFolder, open_store
from weft.interop import manifest
from weft.interop.huggingface.describe import read_folder
from weft.support.storage import seal_json
from weft.training.checkpoints.checkpoint import latest_checkpoint
from weft.training.checkpoints.compatibility import recipe_of

from .runs import documents, gpt, model_bytes, partial_recipe, told, train
from .test_run_folder import held

SIZES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda b: b"",
    "half": lambda b: b[: len(b) // 2],
    "one less": lambda b: b[:-1],
    "one more": lambda b: b + b"\n",
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[R.Recipe, Path]:
    """A finished run with averaged weights, on data of its own."""
    folder = tmp_path_factory.mktemp("flipped")
    recipe = partial_recipe(
        gpt(),
        R.CausalLM(),
        data=documents(folder),
        steps=4,
        checkpoints=R.Checkpoints(every_steps=2, keep=2),
        average=R.EMA(decay=0.5),
    )
    train(recipe, folder / "run")
    return recipe, folder / "run"


@contextmanager
def hurt(path: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    try:
        yield
    finally:
        path.write_bytes(whole)


def flips(
    paths: list[Path], count: int, seed: int = 0
) -> Iterator[tuple[Path, Callable[[bytes], bytes]]]:
    """Bits drawn from all files: every file now and then, however small."""
    draw = random.Random(seed)
    for i in range(count):
        path = paths[i % len(paths)]
        place = draw.randrange(path.stat().st_size)
        bit = draw.randrange(8)

        def flip(whole: bytes, place: int = place, bit: int = bit) -> bytes:
            return whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]

        yield path, flip


# Prepared data


def read_all(folder: Path) -> None:
    """All that a run reads of its data."""
    for split in ("train", "valid"):
        store = open_store(folder, split)
        for i in range(len(store.entries)):
            store.shard(i)
    PreparedFolder(str(folder)).tokenizer()


def test_a_bit_of_prepared_data_is_found_and_its_file_named(
    done: tuple[R.Recipe, Path], long: bool
) -> None:
    folder = Path(str(done[0].data.prepared_folder))
    read_all(folder)
    paths = [
        path for path in folder.rglob("*") if path.is_file() and not path.stem.isdecimal()
    ] + list(folder.rglob("*.arrow"))
    assert {path.name for path in paths} == {
        "data.json",
        "index.json",
        "tokenizer.json",
        "00000.arrow",
    }
    for path, flip in flips(paths, 700 if long else 70):
        with (
            hurt(path, flip),
            pytest.raises(ValueError, match=rf"{path} is (damaged|missing)") as error,
        ):
            read_all(folder)
        assert "run weft prepare again" in str(error.value)
    for path, flip in flips(list(folder.rglob("0*.json")), 200 if long else 20):
        with hurt(path, flip):
            assert read_shard_facts(path) is None


@pytest.mark.parametrize(
    "name",
    [
        "data.json",
        "tokenizer.json",
        "train/index.json",
        "train/00000.arrow",
        "train/00000.json",
        "valid/00000.arrow",
    ],
)
def test_damaged_prepared_data_is_made_again(name: str, done: tuple[R.Recipe, Path]) -> None:
    data = done[0].data
    folder = Path(str(done[0].data.prepared_folder))
    before = held(folder)
    ((path, flip),) = flips([folder / name], 1, seed=5)
    with hurt(path, flip):
        prepare(data, workers=1, verify=True)
        assert held(folder) == before


# An exported model, with its tokenizer


def test_a_bit_of_an_exported_model_is_found_and_its_file_named(
    done: tuple[R.Recipe, Path], long: bool
) -> None:
    folder = done[1] / "model"
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors",
        "weft.json",
        "tokenizer.json",
        "manifest.json",
    }
    read_folder(folder)
    for path, flip in flips(sorted(folder.iterdir()), 700 if long else 70):
        with (
            hurt(path, flip),
            pytest.raises(ValueError, match=rf"{path} is damaged.*weft resume RUN"),
        ):
            read_folder(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "manifest.json"])
def test_a_damaged_model_is_refused_by_name_and_made_again_by_resume(
    name: str, done: tuple[R.Recipe, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A truncated model counted as finished."""
    recipe, out = done
    before = held(out / "model")
    log = told(out)
    path = out / "model" / name
    with hurt(path, SIZES["half"]):
        assert cli.main(["generate", str(out), "the loom"]) == 2
        assert f"{path} is damaged" in capsys.readouterr().err
        assert cli.main(["resume", str(out)]) == 0
        assert f"{path} is damaged" in (said := capsys.readouterr().err)
        assert "exporting the model again from the checkpoint" in said
        assert held(out / "model") == before
        assert told(out) == log
    path.unlink()
    train(recipe, out)
    assert held(out / "model") == before


def test_an_export_that_was_broken_off_is_found(
    done: tuple[R.Recipe, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest goes first: whichever files of an older model are still there, they are not the
    manifest's.
    """
    recipe = replace(done[0], steps=3)
    out = tmp_path / "run"
    train(recipe, out)
    old = model_bytes(out)
    published = manifest.publish
    moves = list[str]()

    def broken(temporary: Path, path: Path) -> None:
        moves.append(path.name)
        if len(moves) == 2:
            raise KeyboardInterrupt
        published(temporary, path)

    longer = replace(recipe, steps=5, schedule=recipe.schedule)
    monkeypatch.setattr(manifest, "publish", broken)
    with pytest.raises(KeyboardInterrupt):
        train(replace(longer, seed=1), tmp_path / "other")
    monkeypatch.undo()
    assert moves[0] == "manifest.json"
    for file in (
        out / "model"
    ).iterdir():  # an older model's files, where the new one's did not arrive
        if not (tmp_path / "other" / "model" / file.name).exists():
            (tmp_path / "other" / "model" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="is damaged"):
        read_folder(tmp_path / "other" / "model")
    assert model_bytes(out) == old


@pytest.mark.parametrize(
    "name",
    [
        "/dev/zero",
        "../../checkpoints",
        "../recipe.json",
        "sub/../../lock",
        "link",
        "fifo",
        "gone",
        None,
    ],
)
def test_a_manifest_names_only_files_beside_it(
    name: str | None, done: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run" / "model"
    shutil.copytree(done[1] / "model", folder)
    (folder / "link").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    (folder / "manifest.json").write_bytes(seal_json({"files": {name: "0"} if name else [1]}))
    with pytest.raises(ValueError, match=rf"{folder}/.* (is damaged|not a regular file)"):
        read_folder(folder)


# An average, and the recipe


def test_a_bit_of_an_average_is_found_and_the_checkpoint_before_is_taken(
    done: tuple[R.Recipe, Path], long: bool
) -> None:
    path = done[1] / "checkpoints" / "step-000000004" / "average.safetensors"
    for _, flip in flips([path], 200 if long else 20):
        said: list[str] = []
        with hurt(path, flip):
            found = latest_checkpoint(done[1] / "checkpoints", said.append)
        assert found.step == 2
        assert said == [f"{path} is damaged: its SHA-256 differs from the manifest"]


def test_a_damaged_checkpoint_among_those_that_are_averaged_is_named(
    done: tuple[R.Recipe, Path], tmp_path: Path
) -> None:
    recipe = replace(done[0], average=R.AverageLast(checkpoints=2))
    said = list[str]()
    train(recipe, tmp_path)
    path = tmp_path / "checkpoints" / "step-000000002" / "model.safetensors"
    (tmp_path / "model" / "manifest.json").unlink()  # the model is to be made again
    with hurt(path, SIZES["half"]):
        train(recipe, tmp_path, say=said.append)
    assert any(f"{path} is damaged" in line for line in said)
    assert any("averaged 1 checkpoints instead of 2" in line for line in said)


def test_a_bit_of_the_recipe_is_found_and_the_checkpoints_recipe_is_taken(
    done: tuple[R.Recipe, Path], long: bool
) -> None:
    recipe, out = done
    path = out / "recipe.json"
    repaired = 0
    for _, flip in flips([path], 200 if long else 20):
        said: list[str] = []
        with hurt(path, flip):
            try:
                assert recipe_of(out, said.append) == recipe
                assert "using the recipe of step-000000004" in said[0]
                repaired += 1
            except ValueError as error:  # it reads as a recipe, but as another one
                said = [str(error)]
                assert "undo the change, or delete the file to restore it" in said[0]
        assert str(path) in said[0]
    assert repaired
