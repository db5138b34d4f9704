"""The code keeps its layout: layers, imports, cycles, mirrored tests, letters, sizes."""

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
TESTS = ROOT / "tests"
# A module imports from its own package and from packages listed above it here.
ORDER = (
    # What a model and a run are: no torch
    "support",
    "registry",
    "spec",
    "recipe",
    # Models and data
    "families",
    "data",
    "metrics",
    "nn",
    # What is done with a model
    "generate",
    "interop",
    "suggest",
    "observe",
    "tasks",
    # Training and use
    "training",
    "plan",
    "inference",
    "evaluation",
    # Runs
    "runs",
    "studies",
    # What users call
    "testing",
    "commands",
    "api_tables",
    "api",
    "cli",
    "__main__",
    "__init__",
)
NO_TORCH = (
    "support",
    "registry",
    "spec",
    "recipe",
    "families",
    "metrics",
    "suggest",
    "commands",
    "cli",
    "__init__",
    "__main__",
)
# Directories of more than 15 modules: one module per member of an open family
MANY = {
    "commands": "one module per verb",
    "data/reading/formats": "one module per format",
    "families": "one module per architecture",
    "recipe/tasks": "one module per task",
    "tasks": "one module per task",
}
# Tests of what is not one module
NOT_MIRRORED = (
    "combinations",
    "conformance",
    "faults",
    "golden",
    "parity",
    "references",
    "repository",
    "structure",
)
# what is over the sizes below, each with its reason
LARGE = {
    "commands/evaluate.py:evaluate": "the verb: data, options and two kinds of report",
    "data/batches/loader.py:__init__": "what a batch depends on",
    "generate/decoding.py:decode_steps": "one loop over tokens",
    "generate/speculative.py:speculative_generate": "two models and one sampling",
    "generate/text_generator.py:generate": "one parameter per option of the command",
    "nn/kernels/attention.py:__call__": "the arguments of a kernel",
    "nn/kernels/block_local.py:forward": "the arguments of a kernel",
    "runs/train.py:run_steps": "a run from its recipe to its last checkpoint",
    "spec/check.py:check_parts": "one check per kind of part, in the order of the block",
}
FILES = sorted(WEFT.rglob("*.py"))


def package(path: Path) -> str:
    """The package directly under src/weft that holds a file, or the name of a file there."""
    return path.relative_to(WEFT).parts[0].removesuffix(".py")


def module_name(path: Path) -> str:
    parts = path.relative_to(WEFT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in FILES}


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, at its top or later; ours without the leading `weft.`."""
    parents = path.relative_to(WEFT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.ImportFrom):
            base = [*parents[: len(parents) - node.level + 1], *(node.module or "").split(".")]
            module = ".".join(filter(None, base))
            for name in node.names:
                whole = f"{module}.{name.name}".lstrip(".")
                yield whole if whole in MODULES else module


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(WEFT)))
def test_a_module_imports_only_from_its_own_package_or_from_those_above(path: Path) -> None:
    here = package(path)
    for module in imports(path):
        if module in MODULES and module:
            there = module.split(".")[0]
            above = ORDER.index(there) < ORDER.index(here)
            assert there == here or above, f"{module_name(path)} imports {module}"


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return one cycle of a graph, or nothing."""
    finished = set[str]()

    def search(module: str, trail: list[str]) -> list[str]:
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in finished:
            return []
        for other in sorted(graph[module]):
            if found := search(other, [*trail, module]):
                return found
        finished.add(module)
        return []

    return next(filter(None, (search(module, []) for module in graph)), [])


def test_no_import_cycle() -> None:
    """Imports inside functions count: a cycle is not undone by hiding it."""
    graph = {
        module: {other for other in imports(path) if other in MODULES and other != module}
        for module, path in MODULES.items()
        if module not in ("", "__init__")
    }
    graph = {module: {name for name in names if name in graph} for module, names in graph.items()}
    assert not cycle(graph)


def test_the_search_for_cycles_finds_one() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": set[str](), "d": {"b"}}
    assert cycle(graph) == ["b", "d", "b"]


def test_a_directory_holds_about_fourteen_modules() -> None:
    counts: dict[str, int] = {}
    for path in FILES:
        folder = path.parent.relative_to(WEFT).as_posix()
        if path.name != "__init__.py" and folder != ".":
            counts[folder] = counts.get(folder, 0) + 1
    assert {folder for folder, count in counts.items() if count > 15} == MANY.keys()


def mirrored(test: Path) -> bool:
    """Whether a test lies where the module or the package lies that it is about."""
    folder = WEFT / test.relative_to(TESTS).parent
    name = test.stem.removeprefix("test_")
    named_as_folder = name == folder.name and folder.is_dir()
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir() or named_as_folder


def test_tests_mirror_the_source() -> None:
    tests = [
        path
        for path in TESTS.rglob("test_*.py")
        if path.relative_to(TESTS).parts[0] not in NOT_MIRRORED
    ]
    assert tests
    assert [str(path.relative_to(TESTS)) for path in tests if not mirrored(path)] == []
    assert not mirrored(TESTS / "commands" / "test_nothing.py")


@pytest.mark.parametrize(
    "path",
    [p for p in FILES if package(p) in NO_TORCH or p.name == "describe.py"],
    ids=lambda p: str(p.relative_to(WEFT)),
)
def test_torch_is_not_imported_where_answers_must_be_quick(path: Path) -> None:
    heavy = ("torch", "transformers", "safetensors")
    assert not [module for module in imports(path) if module.split(".")[0] in heavy]


def test_only_these_packages_import_torch_distributed() -> None:
    # Muon's update needs whole matrices, which sharding cuts
    allowed = ("training/parallel", "training/checkpoints", "training/optimisers/muon.py", "plan")
    for path in FILES:
        name = path.relative_to(WEFT).as_posix()
        used = any(module.startswith("torch.distributed") for module in imports(path))
        assert not used or name.startswith(allowed), name


# What may be loaded before an answer, and the processor time of it all relative to these imports
# alone.
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
        else f"import runpy\nsys.argv = {['weft', *words[2:]]!r}\ntry: "
        "runpy.run_module('weft.cli', run_name='__main__')\n"
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
    """Both are timed in turn, so that a busy machine slows down both; the ratio is the median
    pair's.
    """
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
        if package(path) in ("kernels", "layers", "model", "tasks", "observe", "generate"):
            for name in re.findall(r"\b[a-z][a-z_]*_([A-Z][A-Z0-9]*)\b", path.read_text()):
                assert set(name) <= legend, f"{path.name}: _{name}"


def statements(node: ast.AST) -> int:
    """Statements inside a node, without docstrings."""
    inside = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and n is not node]
    return len(inside) - sum(
        isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in inside
    )


def too_large(path: Path) -> Iterator[tuple[str, str]]:
    """Files over 250 statements, functions over 30, signatures over 8 parameters, each with its
    size. Code of about 200 and 25 passes, whether an idea has a line of its own or not.
    """
    tree = ast.parse(path.read_text())
    name = str(path.relative_to(WEFT))
    if statements(tree) > 250:
        yield name, f"{statements(tree)} statements"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            parameters = len(node.args.args) + len(node.args.kwonlyargs)
            if statements(node) > 30:
                yield f"{name}:{node.name}", f"{statements(node)} statements"
            elif parameters > 8 and package(path) != "families":
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
            owner = node.func.value
            name = node.func.attr
            starred = any(isinstance(given, ast.Starred) for given in node.args)
            moves = name in ("fsync", "fdatasync", "rename", "renames") or (
                name == "replace"
                and (
                    ast.unparse(owner) == "os"
                    or (len(node.args) == 1 and not starred and not node.keywords)
                )
            )
            ours = ast.unparse(owner) == "storage"
            assert not moves or ours or path.name == "storage.py", f"{path}:{node.lineno}: {name}"
