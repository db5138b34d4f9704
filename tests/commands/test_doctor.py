"""`weft doctor` reports installed packages and fails only for required ones."""

import json
import tomllib
from pathlib import Path

import pytest

from weft.cli import main
from weft.commands import doctor

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def bare(requirement: str) -> str:
    return requirement.split(">")[0].split("[")[0]


def test_doctor_measures_this_machine_and_is_content(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["problems"] == []
    assert summary["writable"]
    assert summary["machine"]["fp32_flops"] > 1e8
    assert summary["machine"]["bf16_flops"] > 0
    assert main(["doctor"]) == 0
    assert "no problems found" in capsys.readouterr().out


def test_doctor_knows_every_dependency_and_every_extra() -> None:
    assert list(doctor.CORE) == [bare(name) for name in PROJECT["dependencies"]]
    extras = {n: tuple(map(bare, p)) for n, p in PROJECT["optional-dependencies"].items()}
    del extras["dev"]
    assert {name: extra.packages for name, extra in doctor.EXTRAS.items()} == extras


@pytest.mark.parametrize(
    ("versions", "line"),
    [
        ({"pyarrow": None}, "pyarrow missing: pip install pyarrow"),
        ({"rich": "1.0"}, "rich 1.0 is older than 14: pip install -U 'rich>=14'"),
    ],
)
def test_what_is_needed_and_missing_comes_with_its_command_and_exit_code_1(
    versions: dict[str, str | None],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: versions.get(name, real(name)))
    monkeypatch.setattr(doctor, "least_versions", lambda: {"rich": "14"})
    monkeypatch.setattr(doctor, "machine_of", lambda core: "not looked at")
    monkeypatch.setattr(doctor, "can_write", lambda folder: False)
    assert main(["doctor", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert line in problems
    assert any("is not writable" in problem for problem in problems)


def test_the_lowest_versions_are_read_from_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch>=2.13", "pydantic<3,>=2.14", "wandb>=0.31; extra == 'wandb'", "rich>=14"]
    monkeypatch.setattr(doctor, "requires", lambda name: lines)
    assert doctor.least_versions() == {"torch": "2.13", "pydantic": "2.14", "rich": "14"}
    assert doctor.release("2.13.0+cpu") == (2, 13, 0)
