"""The house keeps its shape: floors, imports, letters, sizes."""

import ast
import json
import os
import re
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEFT = ROOT / "src" / "weft"
FLOORS = {
    "registry": 0,
    "ranks": 0,
    "values": 0,
    "value_tree": 0,
    "synonyms": 0,
    "spec": 0,
    "recipe": 0,
    "console": 0,
    "addresses": 0,
    "extras": 0,
    "storage": 0,
    "processes": 0,
    "python_files": 0,
    "python_messages": 0,
    "options": 0,
    "user_code": 0,
    "kernels": 1,
    "families": 1.5,
    "layers": 1.5,
    "data": 1.5,
    "metrics": 1.5,
    "model": 2,
    "generate": 3,
    "interop": 3,
    "observe": 3,
    "suggest": 3.5,
    "tasks": 3.5,
    "training": 4,
    "plan": 4.5,
    "inference": 5,
    "runs": 5.5,
    "studies": 6.2,
    "serve": 6,
    "testing": 6.5,
    "commands": 7,
    "api": 7.5,
    "api_tables": 7.5,
    "cli": 8,
    "__init__": 9,
    "__main__": 9,
}
NO_TORCH = (
    "registry",
    "ranks",
    "values",
    "value_tree",
    "synonyms",
    "spec",
    "recipe",
    "console",
    "addresses",
    "extras",
    "storage",
    "processes",
    "python_files",
    "python_messages",
    "options",
    "user_code",
    "families",
    "metrics",
    "suggest",
    "commands",
    "cli",
    "__init__",
    "__main__",
)
FILES = sorted(WEFT.rglob("*.py"))
LARGE = {  # what is over the sizes below, each with its reason
    "commands/evaluate.py:evaluate": "the verb: data, options and two kinds of report",
    "data/batches/loader.py:__init__": "what a batch depends on",
    "data/shards/store.py": "one format, its reader and its checks",
    "data/tokenizing/tokenizer.py:__init__": "one reading of tokenizer.json, with its checks",
    "generate/decoding.py:decode_steps": "one loop over tokens",
    "generate/speculative.py:speculative_generate": "two models and one sampling",
    "generate/text_generator.py:generate": "one parameter per option of the command",
    "nn/kernels/attention.py:__call__": "the arguments of a kernel",
    "nn/kernels/block_local.py:forward": "the arguments of a kernel",
    "recipe/tasks.py": "one value per task: what it fits, how it is judged, what it costs",
    "runs/train.py:run_steps": "a run from its recipe to its last checkpoint",
    "spec/check.py:check_parts": "one check per kind of part, in the order of the block",
    "tasks/base.py": "what every task consists of",
    "tasks/masked_lm.py:__init__": "BERT, RoBERTa, SpanBERT and next sentence share one table of tokens",
    "training/checkpoints/checkpoint.py": "one format: its writer, its reader and their checks",
    "training/loop.py:train_step": "one step of training, in the order in which it happens",
}


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
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [
                (f"{module}.{a.name}" if module == "weft" else module, top) for a in node.names
            ]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(WEFT)))
def test_a_file_imports_only_from_lower_floors_or_its_own_folder(path: Path) -> None:
    here = room(path)
    for module, _ in imports(path):
        if module.startswith("weft."):
            there = module.split(".")[1]
            assert (
                there == here or FLOORS[there] < FLOORS[here] or FLOORS[there] == 0 == FLOORS[here]
            ), f"{path.name} imports {module}"


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if room(p) in NO_TORCH or p.name == "describe.py"],
    ids=lambda p: str(p.relative_to(WEFT)),
)
def test_torch_is_not_imported_below_the_layers(path: Path) -> None:
    assert not [
        m for m, _ in imports(path) if m.split(".")[0] in ("torch", "transformers", "safetensors")
    ]


# What may be loaded before an answer, and the processor time of it all relative to these imports alone.
QUICK_PACKAGES = {
    "annotated_types",
    # Loaded by rich before 15 where it is installed
    "attr",
    "pydantic",
    "pydantic_core",
    "rich",
    "typing_extensions",
    "typing_inspection",
    "weft",
}
QUICK = {
    ("-c", "import weft"): 1.4,
    ("-m", "weft.cli", "--help"): 2.4,
    ("-m", "weft.cli", "families"): 2.2,
}
AS_INSTALLED = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}


def loaded_modules(words: tuple[str, ...]) -> list[str]:
    """The modules that a command has loaded when it ends."""
    code = (
        words[1]
        if words[0] == "-c"
        else f"import runpy\nsys.argv = {['weft', *words[2:]]!r}\ntry: runpy.run_module('weft.cli', run_name='__main__')\n"
        "except SystemExit: pass"
    )
    code = f"import json, sys\n{code}\nprint(json.dumps(list(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, env=AS_INSTALLED
    )
    return [name for name in json.loads(done.stderr) if not name.startswith("_")]


def processor_seconds(words: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=AS_INSTALLED)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_a_quick_answer_loads_no_other_package(words: tuple[str, ...]) -> None:
    packages = {name.partition(".")[0] for name in loaded_modules(words)}
    assert packages - sys.stdlib_module_names <= QUICK_PACKAGES


@pytest.mark.alone
@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_it_answers_about_as_fast_as_its_imports_alone(words: tuple[str, ...]) -> None:
    """Both are timed in turn, so that a busy machine slows down both; the ratio is the median pair's."""
    modules = [name for name in loaded_modules(words) if not name.startswith("weft")]
    needed = [
        name
        for name in modules
        if name.partition(".")[0] in QUICK_PACKAGES | sys.stdlib_module_names
    ]
    imports_alone = (
        "-c",
        f"import importlib\nfor name in {needed!r}: importlib.import_module(name)",
    )
    pairs = [(processor_seconds(words), processor_seconds(imports_alone)) for _ in range(9)]
    ratio = statistics.median(seconds / imports for seconds, imports in pairs)
    assert ratio < QUICK[words], f"{ratio:.2f} times its imports alone"
    fastest = min(seconds for seconds, _ in pairs)
    assert fastest < 1, "slow on a slow machine too: half a second is what a quiet one needs"


def test_every_shape_letter_is_in_the_legend() -> None:
    legend = set(
        re.findall(
            r"[A-Z0-9]",
            "".join(
                re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "letters.md").read_text(), re.M)
            ),
        )
    )
    for path in FILES:
        if room(path) in ("kernels", "layers", "model", "tasks", "observe", "generate"):
            for name in re.findall(r"\b[a-z][a-z_]*_([A-Z][A-Z0-9]*)\b", path.read_text()):
                assert set(name) <= legend, f"{path.name}: _{name}"


def statements(node: ast.AST) -> int:
    """Statements inside a node, without docstrings."""
    inside = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node]
    return len(inside) - sum(
        isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in inside
    )


def too_large(path: Path) -> Iterator[tuple[str, str]]:
    """Files over 200 statements, functions over 25, signatures over 8 parameters, each with its size."""
    tree = ast.parse(path.read_text())
    name = str(path.relative_to(WEFT))
    if statements(tree) > 200:
        yield name, f"{statements(tree)} statements"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            parameters = len(node.args.args) + len(node.args.kwonlyargs)
            if statements(node) > 25:
                yield f"{name}:{node.name}", f"{statements(node)} statements"
            elif parameters > 8 and room(path) != "families":
                yield f"{name}:{node.name}", f"{parameters} parameters"


def test_files_functions_and_signatures_stay_small() -> None:
    sizes = dict(size for path in FILES for size in too_large(path))
    assert sizes.keys() == LARGE.keys()


def test_every_exported_name_exists() -> None:
    import weft

    for name in dir(weft):
        assert getattr(weft, name) is not None


def test_only_storage_renames_and_syncs() -> None:
    """One function writes what must stay; `x.replace(y)` with one argument is a path's."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner, name = node.func.value, node.func.attr
            starred = any(isinstance(given, ast.Starred) for given in node.args)
            moves = name in ("fsync", "fdatasync", "rename", "renames") or (
                name == "replace"
                and (
                    ast.unparse(owner) == "os"
                    or (len(node.args) == 1 and not starred and not node.keywords)
                )
            )
            ours = ast.unparse(owner) == "storage"
            assert not moves or ours or path.name == "support/storage.py", (
                f"{path}:{node.lineno}: {name}"
            )
