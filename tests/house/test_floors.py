"""The house keeps its shape: floors, imports, letters, sizes."""
import ast
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEFT = ROOT / "src" / "weft"
FLOORS = {
    "words": 0, "values": 0, "overrides": 0, "spec": 0, "check": 0, "count": 0, "cost": 0, "weights": 0, "recipe": 0, "say": 0,
    "families": 1, "layers": 1, "data": 1,
    "model": 2, "show": 2, "summary": 3,
    "objectives": 3, "generate": 3, "observe": 3, "interop": 3,
    "train": 4, "evaluate": 4, "plan": 4,
    "run": 5, "ready": 5, "study": 5, "watch": 6, "status": 6, "prove": 6, "tune": 6, "serve": 6, "commands": 7, "cli": 8, "__init__": 9,
}
NO_TORCH = ("words", "values", "overrides", "spec", "check", "count", "cost", "weights", "recipe", "say", "families", "show", "summary",
            "watch", "status", "commands", "cli", "__init__")
FILES = sorted(WEFT.rglob("*.py"))
LONG = {"spec.py": "the whole table of the design space in one place", "recipe.py": "the whole table of what a run can be",
        "count.py": "every shape and every FLOP of it"}


def room(path: Path) -> str:
    return path.relative_to(WEFT).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules imported, absolute, and whether at the top of the file."""
    tree = ast.parse(path.read_text())
    package = ["weft", *path.relative_to(WEFT).parts[:-1]]
    found = []
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.Import):
            found += [(a.name, top) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(f"{module}.{a.name}" if module == "weft" else module, top) for a in node.names]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(WEFT)))
def test_a_file_imports_only_from_lower_floors_or_its_own_folder(path: Path) -> None:
    here = room(path)
    for module, _ in imports(path):
        if module.startswith("weft."):
            there = module.split(".")[1]
            assert there == here or FLOORS[there] < FLOORS[here] or FLOORS[there] == 0 == FLOORS[here], f"{path.name} imports {module}"


@pytest.mark.parametrize("path", [p for p in FILES if room(p) in NO_TORCH or p.name == "describe.py"],
    ids=lambda p: str(p.relative_to(WEFT)))
def test_torch_is_not_imported_below_the_layers(path: Path) -> None:
    assert not [m for m, _ in imports(path) if m.split(".")[0] in ("torch", "transformers", "safetensors")]


@pytest.mark.alone
@pytest.mark.parametrize("words", [("-c", "import weft"), ("-m", "weft.cli", "--help"), ("-m", "weft.cli", "families")])
def test_it_answers_at_once_without_torch(words: tuple[str, ...]) -> None:
    code = "import sys, runpy; " + ("import weft" if words[0] == "-c" else
                                    f"sys.argv = {['weft', *words[2:]]!r}\ntry: runpy.run_module('weft.cli', run_name='__main__')\n"
                                    "except SystemExit: pass")
    code += "\nassert 'torch' not in sys.modules, 'torch was imported'"
    cached = {name: word for name, word in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}    # as an installed package is
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=cached)
    times = []
    for _ in range(8):                     # its own work, not that of a busy machine: processor time
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, capture_output=True, env=cached)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.5


def test_every_shape_letter_is_in_the_legend() -> None:
    legend = set(re.findall(r"[A-Z0-9]", "".join(re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "letters.md").read_text(), re.M))))
    for path in FILES:
        if room(path) in ("layers", "model", "objectives", "observe", "generate"):
            for name in re.findall(r"\b[a-z][a-z_]*_([A-Z][A-Z0-9]*)\b", path.read_text()):
                assert set(name) <= legend, f"{path.name}: _{name}"


def test_files_functions_and_signatures_stay_small() -> None:
    for path in FILES:
        text = path.read_text()
        assert text.count("\n") <= 300 or path.name in LONG, f"{path.name}: {text.count(chr(10))} lines"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 40, f"{path.name}: {node.name} is long"
                many = len(node.args.args) + len(node.args.kwonlyargs)
                assert many <= 12 or room(path) == "families", f"{path.name}: {node.name} takes {many} parameters"


def test_families_fit_one_screen() -> None:
    for path in (WEFT / "families").glob("*.py"):
        assert path.read_text().count("\n") <= 110, path.name


def test_every_exported_name_exists() -> None:
    import weft
    for name in dir(weft):
        assert getattr(weft, name) is not None


def test_the_project_speaks_of_itself_alone() -> None:
    """No machine paths, no registry addresses, anywhere in the project's own files."""
    for path in ROOT.rglob("*"):
        hidden = any(part.startswith(".") and part != ".ci" for part in path.relative_to(ROOT).parts)
        if path.is_file() and not hidden and path.suffix in (".py", ".md", ".toml", ".txt", ".json", "") and path != Path(__file__):
            text = path.read_text(errors="ignore")
            for word in ("/work/", "/opt/wheels", "/root/", "pypi.org/simple", "extra-index-url", "find-links"):
                assert word not in text, f"{path.relative_to(ROOT)} holds {word!r}"
