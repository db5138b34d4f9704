"""F15: whatever a command is pointed at, other people's files stay as they are; and a refused
command has changed nothing on disk.
"""

import json
import shutil
from pathlib import Path

import pytest

import weft
from tests import whole_runs
from tests.commands.tuned_data import checkpoint, recipe, write_examples
from tests.faults.hostile import made_tokenizer
from weft import spec as S
from weft.cli import main
from weft.commands.verbs import parser

# names as ours are, and others
FOREIGN = {
    "stranger": (
        "data.json",
        "tokenizer.json",
        "train/00000.arrow",
        "train/00000.json",
        "train/index.json",
        "train/data-00000-of-00001.arrow",
        "train/state.json",
        "valid/00000.json",
    ),
    "model": (
        "config.json",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "weft.json",
    ),
    "run": (
        "log.jsonl",
        "checkpoints/step-00000001/state.json",
        "model/config.json",
        "model/model.safetensors",
        "curve.svg",
    ),
    "search": (
        "data/train.jsonl",
        "data/valid.jsonl",
        "start/tokenizer.json",
        "prepared/notes.txt",
        "trial-1e-05-0/log.jsonl",
        "model/a.bin",
    ),
    "notes": ("thesis.txt", "photos/1.jpg"),
}
# verbs that write a folder
FOLDERS = {
    "prepare": "prepare {rows} --rows examples --tokenizer bytes --output {out}",
    "train": "train {recipe} --output {out}",
    "tune": "tune {checkpoint} --data {rows} --output {out} --epochs 1 --learning-rates 1e-3 "
    "--seeds 1",
    "export": "export {model} {out} --to weft",
    "resume": "resume {out}",
}
# verbs that write a file
FILES = {
    "evaluate": "evaluate {run} --output {out}",
    "generate": "generate {model} a --output {out}",
    "translate": "translate {model} a --output {out}",
    "classify": "classify {run} loom --output {out}",
    "embed": "embed {model} loom --output {out}",
    "fill": "fill {model} a --output {out}",
    "tag": "tag {model} a --output {out}",
    "answer": "answer {model} --question a --context b --output {out}",
    "look": "look {model} a --output {out}",
    "compare": "compare {run} {run} --output {out}",
}


def snapshot(root: Path) -> dict[str, tuple[bytes | None, int]]:
    """Every file and folder, with its content and time."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes() if path.is_file() else None,
            path.stat().st_mtime_ns if path.is_file() else 0,
        )
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands read: rows, a recipe, a run, a checkpoint, a model."""
    root = tmp_path_factory.mktemp("made")
    own = recipe(root / "own", steps=2)
    (root / "recipe.json").write_text(own.to_json())
    for _ in whole_runs.train(own, root / "run"):
        pass
    made_ = made_tokenizer(0)
    size = len(made_["model"]["vocab"])
    model = weft.save(
        weft.build(
            weft.bert(
                depth=1,
                width=16,
                heads=2,
                hidden=16,
                vocab_size=size,
                positions=32,
                head=S.NoHead(),
            )
        ),
        root / "model",
    )
    (model / "tokenizer.json").write_text(json.dumps(made_))
    start = checkpoint(root / "checkpoint")
    shutil.copyfile(root / "own" / "prepared" / "tokenizer.json", start / "tokenizer.json")
    return {
        "rows": str(write_examples(root / "rows.jsonl", 60)),
        "recipe": str(root / "recipe.json"),
        "run": str(root / "run"),
        "checkpoint": str(start),
        "model": str(model),
    }


def foreign(folder: Path, kind: str) -> Path:
    for name in FOREIGN[kind]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"theirs": name}))
    return folder


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("weft: ")
    return line


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_of_other_people_is_refused_and_stays_as_it_is(
    verb: str,
    kind: str,
    made: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = foreign(tmp_path / "theirs", kind)
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    assert main(FOLDERS[verb].format(**made, out=out).split()) == 2
    assert str(out) in one_line(capsys)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", FOLDERS)
def test_a_file_in_place_of_a_folder_is_refused_and_stays_as_it_is(
    verb: str,
    made: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "theirs").write_text("theirs")
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    assert main(FOLDERS[verb].format(**made, out=tmp_path / "theirs").split()) == 2
    one_line(capsys)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", FILES)
def test_a_folder_in_place_of_a_file_is_refused_and_stays_as_it_is(
    verb: str,
    made: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = foreign(tmp_path / "theirs", "notes")
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    assert main(FILES[verb].format(**made, out=out).split()) == 2
    assert "is a folder" in one_line(capsys)
    assert snapshot(tmp_path) == before


def test_receipts_are_never_put_into_a_file_of_another_kind(
    made: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ('{"name": "a package"}', "[]", "not JSON"):
        (tmp_path / "package.json").write_text(text)
        assert main(["evaluate", made["run"], "--output", str(tmp_path / "package.json")]) == 2
        assert "give another file with --output" in one_line(capsys)
        assert (tmp_path / "package.json").read_text() == text


@pytest.mark.parametrize(
    "words",
    [
        "prepare {rows} --rows examples --tokenizer nothing --output {out}",
        "prepare nothing.jsonl --output {out}",
        "prepare {rows} --shard 3/2 --output {out}",
        "train {recipe} --output {out} --set nothing=1",
        "train nothing.py --output {out}",
        "tune {checkpoint} --data nothing.csv --output {out}",
        "tune nothing/at/all --data {rows} --output {out}",
        "tune {checkpoint} --data {rows} --task tag --output {out}",
        "tune {model} --data {rows} --learning-rates -1 --output {out}",
        "export nothing/at/all {out} --to hf",
        "export {rows} {out} --to hf",
        "export {model} {out}/deep/down --to tf",
        "export {linked} {out}/deep/down --to hf",
        "generate nothing/at/all a --output {out}.jsonl",
        "evaluate {model} --output {out}.json",
        "resume {out}",
        "classify {run} --input nothing.csv --output {out}.csv",
    ],
)
def test_a_refused_command_has_changed_nothing(
    words: str,
    made: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    linked = tmp_path / "linked"
    shutil.copytree(made["model"], linked)
    (linked / "merges.txt").symlink_to("/etc/passwd")
    monkeypatch.chdir(tmp_path)
    before = snapshot(tmp_path)
    root = Path(made["rows"]).parent
    there = snapshot(root)
    assert main(words.format(**made, out=tmp_path / "out", linked=linked).split()) == 2
    one_line(capsys)
    assert snapshot(tmp_path) == before
    assert snapshot(root) == there


def test_a_stopped_search_resumes_in_its_directory(made: dict[str, str], tmp_path: Path) -> None:
    from weft.studies.plan import MARK

    (tmp_path / "out" / "data").mkdir(parents=True)
    (tmp_path / "out" / MARK).touch()
    (tmp_path / "out" / "data" / "train.jsonl").write_text("half")
    assert main(FOLDERS["tune"].format(**made, out=tmp_path / "out").split()) == 0


def test_convert_replaces_a_model_only_where_asked(
    made: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", made["model"], str(tmp_path / "out"), "--to", "weft"]
    assert main(words) == 0
    before = snapshot(tmp_path)
    assert main(words) == 2
    assert "--overwrite" in one_line(capsys)
    assert snapshot(tmp_path) == before
    assert main([*words, "--overwrite"]) == 0


def test_every_verb_that_writes_is_here() -> None:
    verbs = next(action.choices for action in parser()._actions if action.choices)
    writing = {
        name
        for name, verb in verbs.items()
        if any(a.dest in ("output", "run_folder") for a in verb._actions)
    }  # type: ignore[union-attr]
    elsewhere = {"detect", "new"}  # tests/evaluate and tests/commands have their own
    assert writing == {*FOLDERS, *FILES, *elsewhere}
