"""The role of a parameter is declared, never derived from its name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

WEFT = Path(__file__).parents[2] / "src" / "weft"
PREDICATES = ("startswith", "endswith", "split", "rsplit", "removeprefix", "removesuffix")
# Strings that are not names of parameters.
OTHER_STRINGS = {
    "training/checkpoints/checkpoint.py": {"file"},  # files of a checkpoint
    "training/checkpoints/parts.py": {"file"},
    "training/checkpoints/compatibility.py": {"path", "name"},  # of a field of the recipe
    "training/environment.py": {"line"},  # of /proc/cpuinfo
    "training/parallel/heartbeat.py": {"now"},  # what a rank published
    "training/memory.py": {"line"},  # of /proc/meminfo
}


def name_predicates(source: str) -> Iterator[str]:
    """The variables of which a piece of code asks how they are spelt."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            whole = called.attr in ("startswith", "endswith")
            text = any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args)
            if called.attr in PREDICATES and (whole or text) and isinstance(called.value, ast.Name):
                yield called.value.id
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            left = node.left
            right = node.comparators[0]
            text = isinstance(left, ast.Constant) and isinstance(left.value, str)
            if text and isinstance(right, ast.Name) and right.id in ("name", "path", "key"):
                yield right.id


@pytest.mark.parametrize("room", ["layers", "model", "training"])
def test_no_module_derives_roles_from_parameter_names(room: str) -> None:
    found = {
        str(path.relative_to(WEFT)): variables
        for path in sorted((WEFT / room).glob("**/*.py"))
        if (
            variables := set(name_predicates(path.read_text()))
            - OTHER_STRINGS.get(str(path.relative_to(WEFT)), set())
        )
    }
    assert found == {}, "declare a role instead (nn/layers/roles.py)"


def test_the_check_finds_the_predicates_it_is_for() -> None:
    code = 'a = [n for name in x if name.startswith("head.") or ".score." in name]'
    assert list(name_predicates(code)).count("name") == 2
