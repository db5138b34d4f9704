"""`scripts/rotation` runs every long proof in turn, and fails where one fails."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROTATION: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "rotation"))
SHARES = ROTATION["SHARES"]
COSTS: dict[str, float] = json.loads((ROOT / "scripts" / "rotation.json").read_text())

TESTS = """
import pytest

@pytest.mark.slow
def test_good(): pass

@pytest.mark.slow
def test_bad(): assert not BAD

@pytest.mark.ray
def test_on_ray():
    pytest.importorskip("no_such_ray", reason="no_such_ray is not installed (pip install it)")

def test_ordinary(): assert False
"""
PLANT_BUGS = """
BUGS = [("1", "first", "a.py", "a", "b"), ("2", "second", "a.py", "c", "d")]
def attempt(bug, everywhere):
    return bug[0] not in MISSED, "a test", 0.5
"""


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project in git with two commits: three long tests, an ordinary one and two planted
    bugs.
    """
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    (tree / "tests").mkdir()
    shutil.copy(ROOT / "scripts" / "rotation", tree / "scripts" / "rotation")
    (tree / "scripts" / "rotation.json").write_text('{"default": 1.0}')
    (tree / "tests" / "conftest.py").write_text(
        "def pytest_addoption(parser): parser.addoption('--unshrunk', action='store_true')"
    )
    (tree / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nmarkers = ["slow", "alone", "ray", "weights"]\n'
    )
    write(tree, bad=False, missed="")
    run("git", "init", "-q", cwd=tree)
    commit(tree)
    commit(tree)
    return tree


def commit(tree: Path) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    run("git", "add", "-A", cwd=tree)
    run("git", *who, "commit", "-q", "--allow-empty", "-m", "change", cwd=tree)


def write(tree: Path, bad: bool, missed: str) -> None:
    (tree / "tests" / "test_a.py").write_text(f"BAD = {bad}\n{TESTS}")
    (tree / "scripts" / "plant_bugs").write_text(f"MISSED = {missed!r}\n{PLANT_BUGS}")


def rotate(tree: Path, *options: str) -> tuple[int, str]:
    script = [sys.executable, str(tree / "scripts" / "rotation"), *options]
    done = subprocess.run(script, cwd=tree, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def rows(output: str) -> dict[str, str]:
    """The result of each proof, as the table at the end has it."""
    table = output.partition("seconds  result")[2].splitlines()[1:-1]
    return {line.split(maxsplit=2)[2].partition("  (")[0]: line.split()[1] for line in table}


def test_every_proof_is_in_one_share_and_shares_cost_about_the_same() -> None:
    proofs = [f"tests/a.py::test_{i}[{j}]" for i in range(40) for j in range(3)]
    costs = {f"tests/a.py::test_{i}": 1.0 + i % 7 for i in range(20)} | {"default": 2.0}
    costs["tests/a.py::test_3[1]"] = 15.0
    parts = ROTATION["shares"](proofs, costs)
    assert sorted(proof for part in parts for proof in part) == sorted(proofs)
    seconds = [sum(ROTATION["cost"](proof, costs) for proof in part) for part in parts]
    mean = sum(seconds) / SHARES
    assert all(abs(each - mean) <= 15 for each in seconds)


def test_costs_are_of_tests_and_bugs_that_exist() -> None:
    bugs = runpy.run_path(str(ROOT / "scripts" / "plant_bugs"))["BUGS"]
    planted = {f"{ROTATION['PLANTED']}{number}: {what}" for number, what, *_ in bugs}
    assert len(planted) == len(bugs)
    for proof in COSTS.keys() - planted - {"default"}:
        file, _, name = proof.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), proof


def test_every_file_with_a_long_test_is_read() -> None:
    files = ROTATION["marked_files"]()
    assert "tests/repository/test_tiny_benchmarks.py" in files
    assert "tests/parity/test_published_weights.py" in files
    assert "tests/support/test_order.py" not in files


def test_a_failing_test_or_a_missed_bug_fails_and_a_missing_package_is_named(tree: Path) -> None:
    code, output = rotate(tree, "--all")
    assert code == 0, output
    assert rows(output) == {
        "tests/test_a.py::test_good": "passed",
        "tests/test_a.py::test_bad": "passed",
        "tests/test_a.py::test_on_ray": "skipped",
        "planted bug 1: first": "passed",
        "planted bug 2: second": "passed",
    }
    assert "no_such_ray is not installed (pip install it)" in output
    write(tree, bad=True, missed="")
    code, output = rotate(tree, "--all")
    assert code == 1
    assert [p for p, result in rows(output).items() if result == "FAILED"] == [
        "tests/test_a.py::test_bad"
    ]
    write(tree, bad=False, missed="2")
    code, output = rotate(tree, "--all")
    assert code == 1
    assert rows(output)["planted bug 2: second"] == "FAILED"


def test_proofs_over_the_time_limit_fail(tree: Path) -> None:
    code, output = rotate(tree, "--all", "--limit", "0")
    assert code == 1
    assert set(rows(output).values()) == {"FAILED"}


def test_a_word_that_names_no_proof_is_an_error(tree: Path) -> None:
    assert rotate(tree, "no_such_proof")[0] == 2


def test_an_error_of_pytest_itself_is_shown_as_such(tree: Path) -> None:
    (tree / "tests" / "conftest.py").write_text("")  # without --unshrunk
    for options in (["test_good"], ["--all"], ["--all", "--list"]):
        code, output = rotate(tree, *options)
        assert code == 2
        assert "unrecognized arguments: --unshrunk" in output
        assert "no proof was chosen: pytest ended with code 4" in output
        assert "no proof has a name" not in output


def test_an_update_after_all_proofs_drops_those_that_no_longer_exist(tree: Path) -> None:
    (tree / "tests" / "test_b.py").write_text(
        "import pytest\npytest.importorskip('no_such_package')\n@pytest.mark.slow\ndef test(): "
        "pass\n"
    )
    there = ["tests/test_a.py::test_on_ray", "tests/test_b.py::test", "default"]
    gone = ["tests/test_a.py::test_gone", "tests/test_gone.py::test", "planted bug 3: third"]
    costs = tree / "scripts" / "rotation.json"
    costs.write_text(json.dumps(dict.fromkeys([*there, *gone], 7.0)))
    rotate(tree, "test_good", "--update")
    assert {*there, *gone} <= json.loads(costs.read_text()).keys()
    rotate(tree, "--all", "--update")
    written = json.loads(costs.read_text())
    assert written.keys() == {
        *there,
        *(f"tests/test_a.py::test_{name}" for name in ("good", "bad")),
        *("planted bug 1: first", "planted bug 2: second"),
    }


def test_the_next_commit_takes_the_next_share(tree: Path) -> None:
    assert rotate(tree, "--list")[1].startswith("share 2 ")
    commit(tree)
    assert rotate(tree, "--list")[1].startswith("share 3 ")


def test_a_shallow_clone_takes_a_share_by_its_commit(tree: Path) -> None:
    clone = tree.parent / "clone"
    run("git", "clone", "-q", "--depth", "1", tree.as_uri(), str(clone), cwd=tree)
    head = run("git", "rev-parse", "HEAD", cwd=clone)
    assert rotate(clone, "--list")[1].startswith(f"share {int(head, 16) % SHARES} ")
