"""Outputs never overwrite an input or another output, under any name of the same file."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from weft.cli import main
from weft.commands.evaluate_options import EvaluateOptions
from weft.commands.predict_options import TextOptions
from weft.commands.receipts import receipts_file
from weft.commands.rows import image_rows

SAME: dict[str, Callable[[Path], Path]] = {
    "name": lambda file: file,
    "other spelling": lambda file: Path(f"{file.parent}/../{file.parent.name}/{file.name}"),
    "link": lambda file: linked(file, os.symlink),
    "hard link": lambda file: linked(file, os.link),
}
VERBS = [
    "classify {model} --input {file} --output {same}",
    "embed {model} --input {file} --output {same}",
    "fill {model} --input {file} --output {same}",
    "tag {model} --input {file} --output {same}",
    "answer {model} --input {file} --output {same}",
    "generate {model} --input {file} --output {same}",
    "translate {model} --input {file} --output {same}",
]


def linked(file: Path, link: Callable[[Path, Path], None]) -> Path:
    link(file, file.with_name(f"link-{file.name}"))
    return file.with_name(f"link-{file.name}")


@pytest.mark.parametrize("same", SAME)
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.split()[0])
def test_rows_are_never_written_over_their_input(
    verb: str, same: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"text": "a"}\nnot JSON\n')
    target = SAME[same](file)
    words = verb.format(model=tmp_path / "none", file=file, same=target).split()
    assert main(words) == 2
    line = capsys.readouterr().err
    assert "--output" in line
    assert str(target) in line
    assert file.read_text() == '{"text": "a"}\nnot JSON\n'


def test_rows_are_never_written_over_an_image_of_the_folder_that_is_read(tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "1.png")
    output = str(tmp_path / "1.png")
    options = TextOptions(name="none", texts=[str(tmp_path)], output=output)
    with pytest.raises(ValueError, match=output):
        image_rows(options, [], None)


@pytest.mark.parametrize("same", ["name", "other spelling"])
@pytest.mark.parametrize(
    "pair", [("--output", "--coco"), ("--coco", "--draw"), ("--draw", "--output")]
)
def test_two_outputs_of_detect_are_two_files(
    pair: tuple[str, str], same: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--output o.jsonl --coco o.jsonl` kept the rows alone."""
    Image.new("RGB", (32, 32)).save(tmp_path / "in.png")
    file = tmp_path / "out.png"
    words = ["detect", str(tmp_path / "none"), str(tmp_path / "in.png")]
    words += [pair[0], str(file), pair[1], str(SAME[same](file))]
    assert main(words) == 2
    line = capsys.readouterr().err
    assert all(option in line for option in pair)
    assert not file.exists()


IN_A_RUN = {
    "classify": "classify {run} a --output {file}",
    "of its model": "classify {run}/model a --output {file}",
    "embed": "embed {run} a --output {file}",
    "tag": "tag {run} a --output {file}",
    "fill": "fill {run} a --output {file}",
    "answer": "answer {run} --question a --context b --output {file}",
    "generate": "generate {run} a --output {file}",
    "a draft": "generate demo a --draft-model {run} --output {file}",
    "translate": "translate {run} a --output {file}",
    "detect": "detect {run} in.png --coco {file}",
    "draw": "detect {run} in.png --draw {run}",
    "reconstruct": "reconstruct {run} in.png --draw {run}/out.png",
    "look": "look {run} --output {file}",
    "evaluate": "evaluate {run} --output {file}",
    "few shots": "evaluate {run} --arithmetic --output {file}",
    "compare": "compare {run} --output {file}",
    "plan": "plan {run} --picture {file}",
}


@pytest.mark.parametrize("name", ["recipe.json", "new.jsonl", "model/weft.json"])
@pytest.mark.parametrize("verb", IN_A_RUN)
def test_no_output_takes_the_place_of_a_file_in_the_run_that_is_read(
    verb: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    for file in ("recipe.json", "log.jsonl", "model/weft.json"):
        (run / file).write_text("{}")
    words = IN_A_RUN[verb].format(run=run, file=run / name).split()
    assert main(words) == 2
    assert f"is inside {run}" in capsys.readouterr().err
    assert {path.read_text() for path in run.rglob("*.json*")} == {"{}"}
    assert not (run / "new.jsonl").exists()


def test_no_output_is_another_name_of_a_file_in_the_run_that_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    (tmp_path / "hard.jsonl").hardlink_to(run / "recipe.json")
    (tmp_path / "link.jsonl").symlink_to(run / "recipe.json")
    for name in ("hard.jsonl", "link.jsonl"):
        assert main(["classify", str(run), "a", "--output", str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err
    assert (run / "recipe.json").read_text() == "{}"


@pytest.mark.parametrize("of_run", [True, False])
def test_the_receipts_of_an_evaluation_may_be_beside_the_model(
    of_run: bool, tmp_path: Path
) -> None:
    if of_run:
        (tmp_path / "recipe.json").write_text("{}")
    own = tmp_path / "evaluation.json"
    assert receipts_file(EvaluateOptions(name=str(tmp_path), output=str(own))) == own
    assert receipts_file(EvaluateOptions(name=str(tmp_path), output=None)) == (
        own if of_run else None
    )


ADD_RECEIPTS = """
import sys
from pathlib import Path
from weft.commands.receipts import add_receipt

for number in range(20):
    written = {"model": sys.argv[2], "data": number, "options": {}, "scores": {}}
    add_receipt(Path(sys.argv[1]), "valid", written)
"""


def test_processes_that_write_the_same_receipts_lose_none(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    words = [sys.executable, "-c", ADD_RECEIPTS, str(file)]
    processes = [subprocess.Popen([*words, f"model {i}"]) for i in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    receipts = json.loads(file.read_text()).values()
    assert len({(one["model"], one["data"]) for one in receipts}) == 80
    assert os.listdir(tmp_path) == ["evaluation.json"]
