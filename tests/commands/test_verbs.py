"""Shell completion, driven through bash itself."""

import subprocess
from pathlib import Path

import pytest

from weft.cli import main


@pytest.fixture
def complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A function from the words of a command line to what bash offers for the last one."""
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "weft.bash"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "words.csv").touch()

    def run(*words: str) -> list[str]:
        program = (
            'source weft.bash; complete -p weft >&2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            'eval "$(complete -p weft | sed "s/.*-F \\([^ ]*\\).*/\\1/")"; printf "%s\\n" '
            '"${COMPREPLY[@]}"'
        )
        result = subprocess.run(
            ["bash", "-c", program, "bash", "weft", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return [line for line in result.stdout.splitlines() if line]

    return run


def test_bash_completes_verbs_options_choices_names_runs_and_files(complete) -> None:
    assert complete("tr") == ["train", "translate"]
    assert complete("train", "--prec") == ["--precision"]
    assert complete("train", "x.py", "--precision", "") == ["auto", "fp32", "bf16"]
    assert complete("show", "bert-b") == ["bert-base"]
    assert complete("generate", "d") == ["demo"]
    assert complete("status", "runs/") == ["runs/mine"]
    assert complete("new", "classify", "wo") == ["words.csv"]
    assert complete("classify", "runs/mine", "--input", "wo") == ["words.csv"]
    assert complete("nothing", "--x") == []


def test_the_name_of_a_run_is_a_name_and_no_program(complete, tmp_path: Path) -> None:
    for name in ("$(touch${IFS}made)", "`touch made`"):
        (tmp_path / "runs" / name).mkdir()
    assert "runs/$(touch${IFS}made)" in complete("status", "runs/")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_name_every_verb_and_option(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for word in ("translate", "doctor", "precision", "log-to", "gpt3-175b"):
        assert word in text
