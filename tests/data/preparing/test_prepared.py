"""Prepared data as a value: opening without preparing, and one-line errors."""

from dataclasses import replace
from pathlib import Path

import pytest

import weft
from tests.faults.runs import gpt, partial_recipe
from weft import recipe as R
from weft.data.preparing.prepare import prepare, prepare_for_run
from weft.data.preparing.prepared import locate_prepared, open_prepared

from .test_prepare import contents, documents


@pytest.fixture
def data(tmp_path: Path) -> R.Data:
    return replace(
        documents(tmp_path, tokenizer=R.ByteTokenizer()), prepared_folder=str(tmp_path / "out")
    )


def test_it_opens_the_shards_that_were_written(data: R.Data) -> None:
    written = prepare(data, workers=1)
    opened = open_prepared(data)
    assert opened == written
    assert opened.fingerprint == written.fingerprint
    assert len(opened.train) > 0
    assert opened.valid is not None
    assert list(opened.notes()) == []
    assert open_prepared(replace(data, valid=None)).valid is None


def test_missing_unfinished_and_changed_shards_are_refused_in_one_line(
    data: R.Data, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"out is not prepared yet; run weft prepare"):
        open_prepared(data)
    prepare(data, workers=1)
    (tmp_path / "out/train/index.json").unlink()
    with pytest.raises(ValueError, match=r"out is not prepared yet; run weft prepare"):
        open_prepared(data)
    prepare(data, workers=1)
    (tmp_path / "a.txt").write_text("other words\n")
    with pytest.raises(ValueError, match="contains prepared data of other files or settings"):
        open_prepared(data)


def test_one_of_several_processes_writes_nothing(
    data: R.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    prepared = prepare_for_run(data)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="is not prepared yet"):
        prepared.check()


def test_training_opens_the_shards_and_never_writes_them(data: R.Data, tmp_path: Path) -> None:
    recipe = partial_recipe(gpt(), R.CausalLM(), data=data, steps=2)
    with pytest.raises(ValueError, match="is not prepared yet"):
        next(weft.train(recipe, locate_prepared(data), tmp_path / "run"))
    assert not (tmp_path / "out").exists()
    prepared = weft.prepare(data)
    before = contents(tmp_path / "out")
    assert [step.step for step in weft.train(recipe, prepared, tmp_path / "run")] == [1, 2]
    assert contents(tmp_path / "out") == before


def test_two_spellings_of_one_path_are_the_same_data(
    data: R.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    prepared = weft.prepare(data)
    for base in (".", f"../{tmp_path.name}", str(tmp_path), "link"):
        train = replace(data.train, paths=(f"{base}/a.txt",))
        spelt = replace(data, train=train, prepared_folder=f"{base}/out")
        prepared.check_data(spelt)
    recipe = partial_recipe(gpt(), R.CausalLM(), data=spelt, steps=1)
    assert [step.step for step in weft.train(recipe, prepared, "run")] == [1]
    with pytest.raises(ValueError, match=r"was prepared with data\.train\.paths\.0 = "):
        prepared.check_data(replace(data, train=replace(data.train, paths=("b.txt",))))


def test_training_refuses_the_prepared_data_of_another_value(data: R.Data, tmp_path: Path) -> None:
    prepared = weft.prepare(data)
    changed = replace(data, rows=R.Documents())
    recipe = partial_recipe(gpt(), R.CausalLM(), data=changed, steps=2)
    with pytest.raises(
        ValueError,
        match=r"was prepared with data\.rows\.sentence_boundaries = True, but the recipe has "
        r"False; call weft\.prepare",
    ):
        weft.train(recipe, prepared, tmp_path / "run")
    with pytest.raises(ValueError, match=r"weft\.prepare\(recipe\.data\)"):
        weft.train(recipe, "prepared", tmp_path / "run")  # type: ignore[arg-type]
