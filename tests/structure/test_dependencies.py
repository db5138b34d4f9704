"""What src/weft imports is declared in pyproject.toml, and what is declared is imported."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {"PIL": "pillow", "mlflow": "mlflow-skinny"}  # module -> package, where the names differ
# imported by a string, through torch.utils.tensorboard, and by fsspec
UNSEEN = {
    "lm-eval",
    "tensorboard",
    "s3fs",
}


def imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.split(".")[0]


def normalised(name: str) -> str:
    return name.split(">")[0].split("<")[0].split("[")[0].replace("_", "-").lower()


def test_imports_and_declared_dependencies_are_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        name
        for extra, names in project["optional-dependencies"].items()
        if extra not in ("dev", "docs")  # what checks and what documents, not what src/weft imports
        for name in names
    ]
    declared = {normalised(name) for name in (*project["dependencies"], *extras)}
    found = {
        normalised(PACKAGES.get(name, name))
        for path in (ROOT / "src" / "weft").rglob("*.py")
        for name in imported(path.read_text())
        if name not in sys.stdlib_module_names and name != "weft"
    }
    assert found - declared == set(), "declare them in pyproject.toml"
    assert declared - found - UNSEEN == set(), "remove them until something imports them"


def test_the_lowest_versions_are_those_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    floors = dict(name.split(",")[0].split(">=") for name in project["dependencies"])
    pins = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in pins if not line.startswith("#"))
    assert floors.items() <= tested.items()
