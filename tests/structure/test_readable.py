"""Each rule of scripts/readable finds its case and leaves good code alone."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "readable"
READABLE = runpy.run_path(str(SCRIPT))


def rules(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "code.py"
    path.write_text(text)
    return [rule for _, rule, _ in READABLE["findings"](path)]


FOUND = {
    "R1": [
        "a, b = x, y\n",
        "a, b = b + 1, a\n",
        "[a, b] = 1, 2\n",
    ],
    "R2": [
        "a = 1 if x else 2 if y else 3\n",
        "a = (1 if x else 2) if y else 3\n",
        "a = [b if x else c for b in d] if y else []\n",
    ],
    "R3": [
        'a = "s" * (n > 1)\n',
        "a = [b] * (not c)\n",
        "a = 1 + (n > 1) + (n > 2)\n",
        "a = n * isinstance(x, int)\n",
        "a = n * (m > 1 and x)\n",
    ],
    "R4": [
        "a = f(  # why\n    b\n)\n",
        "a = [\n    b,\n]  # why\n",
    ],
}
GOOD = (
    "a, b = b, a\n",
    "a[0], a[1] = a[1], a[0]\n",
    "a, b = f(x)\n",
    "a = (x, y)\n",
    "a = 1 if x else 2\n",
    "a = (1 if x else 2, 3 if y else 4)\n",
    "a = 2 * n + 1\n",
    'a = "ab" * 3\n',
    "a = n * (m or 1)\n",
    "# why\na = f(\n    b\n)\n",
    "a = f(b)  # why\n",
    "a = f(  # noqa: E501\n    b\n)\n",
)


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, texts in FOUND.items() for text in texts]
)
def test_a_rule_finds_its_case(rule: str, text: str, tmp_path: Path) -> None:
    assert set(rules(text, tmp_path)) == {rule}


@pytest.mark.parametrize("text", GOOD)
def test_good_code_has_no_findings(text: str, tmp_path: Path) -> None:
    assert rules(text, tmp_path) == []


def test_every_exception_is_needed() -> None:
    for exception in READABLE["EXCEPTIONS"]:
        name, rule = exception.rsplit(":", 1)
        assert rule in {found for _, found, _ in READABLE["findings"](SCRIPT.parents[1] / name)}
