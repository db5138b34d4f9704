"""No output takes the place of an input or of another output, by its own name or by another of the same file."""

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from weft.cli import main
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
    args = Namespace(texts=[str(tmp_path)], file=None, output=str(tmp_path / "1.png"))
    with pytest.raises(ValueError, match=str(tmp_path / "1.png")):
        image_rows(args, [], None)


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


def test_a_device_may_take_two_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "in.png")
    words = ["detect", str(tmp_path / "none"), str(tmp_path / "in.png")]
    assert main([*words, "--output", os.devnull, "--coco", os.devnull]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
