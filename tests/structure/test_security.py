"""Security: the source never unpickles data or runs code from directories, and malicious
directories fail.
"""

import ast
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from weft import spec as S
from weft.interop.huggingface.verify import verify

ROOT = Path(__file__).parents[2]
# the last keeps its metadata in a pickle
MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "torch.package",
    "torch.distributed.checkpoint",
}
CALLS = {
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "torch.serialization.load",
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
    "pandas.read_pickle",
    "eval",
    "exec",
    "compile",
    "__import__",
    "builtins.eval",
    "builtins.exec",
    "builtins.compile",
    "runpy.run_path",
    "runpy.run_module",
    "code.interact",
}
# what they may be
KEYWORDS = {
    "allow_pickle": False,
    "trust_remote_code": False,
    "weights_only": True,
}


def sources() -> list[Path]:
    """Python under src/weft, benchmarks and scripts, with or without the ending."""
    found = []
    for path in sorted(
        p
        for room in ("src/weft", "benchmarks", "scripts")
        for p in (ROOT / room).rglob("*")
        if p.is_file()
    ):
        if path.suffix == ".py" or (
            not path.suffix and "python" in path.read_text(errors="ignore").partition("\n")[0]
        ):
            found.append(path)
    return found


def imported(tree: ast.AST) -> dict[str, str]:
    """Local names and the full names that they stand for."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0]
                for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def full(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{full(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def modules(node: ast.AST, names: dict[str, str]) -> list[str]:
    """What a statement imports or reaches into."""
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{a.name}" for a in node.names]
    if (
        isinstance(node, ast.Call)
        and full(node.func, names).endswith("import_module")
        and node.args
    ):
        return [str(getattr(node.args[0], "value", ""))]
    return [full(node, names)] if isinstance(node, ast.Attribute) else []


def sins(code: str) -> Iterator[str]:
    tree = ast.parse(code)
    names = imported(tree)
    for node in ast.walk(tree):
        yield from (
            m
            for m in modules(node, names)
            if any(m == bad or m.startswith(bad + ".") for bad in MODULES)
        )
        if isinstance(node, ast.Call):
            said = full(node.func, names)
            if said in CALLS or said.endswith(".read_pickle"):
                yield said
            for word in node.keywords:
                if (
                    word.arg in KEYWORDS
                    and getattr(word.value, "value", "?") is not KEYWORDS[word.arg]
                ):
                    yield word.arg


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_source_file_can_unpickle_or_run_text(path: Path) -> None:
    assert list(sins(path.read_text())) == []


def test_the_check_covers_every_package() -> None:
    names = {str(p.relative_to(ROOT)) for p in sources()}
    assert {
        "src/weft/interop/loading.py",
        "src/weft/__init__.py",
        "benchmarks/__init__.py",
    } <= names
    assert len(names) > 50


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "from _pickle import Unpickler",
        "import dill",
        "import joblib",
        "from joblib import load",
        "import shelve",
        "import marshal",
        "import cloudpickle",
        "import torch.distributed.checkpoint as dcp",
        "from torch.distributed import checkpoint",
        "from torch.distributed.checkpoint import load",
        "import torch\ntorch.load('x')",
        "import torch as t\nt.load('x')",
        "from torch import load\nload('x')",
        "from torch import load as read\nread('x')",
        "import torch\ntorch.load('x', weights_only=True)",
        "import torch\ntorch.jit.load('x')",
        "import torch\ntorch.package.PackageImporter",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import numpy as np\nnp.load('x', allow_pickle=flag)",
        "eval('1')",
        "exec('1')",
        "exec(compile('1', '', 'exec'))",
        "import builtins\nbuiltins.eval('1')",
        "import yaml\nyaml.load('x')",
        "import yaml\nyaml.unsafe_load('')",
        "from yaml import load\nload('x')",
        "__import__('os')",
        "from importlib import import_module\nimport_module('pickle')",
        "import importlib\nimportlib.import_module('dill')",
        "import pandas as pd\npd.read_pickle('x')",
        "import runpy\nrunpy.run_path('x')",
        "AutoModel.from_pretrained('x', trust_remote_code=True)",
        "def f():\n    import pickle",
    ],
)
def test_the_check_rejects(code: str) -> None:
    assert list(sins(code))


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "import torch\ntorch.compile(f)",
        "import re\nre.compile('x')",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=False)",
        "import json\njson.loads('1')",
        "import yaml\nyaml.safe_load('1')",
        "from .loading import load\nload('x')",
        "model.load('x')",
        "from importlib import import_module\nimport_module('weft')",
    ],
)
def test_the_check_accepts(code: str) -> None:
    assert not list(sins(code))


# Planted folders


class Bomb:
    """Whoever unpickles it makes the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.canary),)


EVIL = {
    "auto_map": {
        "AutoConfig": "evil.Config",
        "AutoModel": "evil.Model",
        "AutoTokenizer": ["evil.Tokenizer", None],
    },
    "custom_pipelines": {"text": {"impl": "evil.Pipeline", "pt": ["AutoModel"]}},
    "trust_remote_code": True,
}


def plant(folder: Path, canary: Path) -> None:
    for name in (
        "model.pt",
        "pytorch_model.bin",
        "training_args.bin",
        "optimizer.pt",
        "tokenizer.pkl",
    ):
        (folder / name).write_bytes(pickle.dumps({"weight": Bomb(canary)}))
    torch.save(Bomb(canary), folder / "checkpoint.pt")
    np.save(folder / "weights.npy", np.array([Bomb(canary)], dtype=object), allow_pickle=True)
    for name in ("evil.py", "__init__.py", "weft.py", "conftest.py", "sitecustomize.py"):
        (folder / name).write_text(
            f"import os\nos.mkdir({str(canary)!r})\nclass Config: ...\nclass Model: ...\n"
        )
    (folder / "tokenizer_config.json").write_text(json.dumps(EVIL | {"do_lower_case": True}))
    for name in ("preprocessor_config.json", "generation_config.json"):
        (folder / name).write_text(json.dumps({"kept": 1} | EVIL))
    config = folder / "config.json"
    if config.exists():
        config.write_text(
            json.dumps(
                json.loads(config.read_text())
                | EVIL
                | {"inner": {"auto_map": EVIL["auto_map"], "kept": [1]}}
            )
        )


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


class Never:
    """Stands where an unpickler stood; a class, since others derive from it."""

    def __init__(self, *_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")


def poison(patch: pytest.MonkeyPatch) -> None:
    for owner, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (pickle, "_Unpickler"),
        (torch, "load"),
        (torch.serialization, "load"),
        (torch.jit, "load"),
        (np, "load"),
    ):
        patch.setattr(owner, name, Never)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    small()  # torch's late imports derive from the true unpickler
    poison(monkeypatch)
    return monkeypatch


def small(head: Any = None) -> weft.Model:
    return weft.build(
        weft.bert(depth=1, width=16, heads=2, hidden=16, vocab_size=20, positions=8, head=head)
    ).eval()


@pytest.mark.parametrize("to", ["hf", "weft"])
def test_a_planted_folder_loads_and_saves_without_its_code_ever_running(
    to: str, tmp_path: Path, canary: Path, poisoned: pytest.MonkeyPatch
) -> None:
    model = small()
    plant(weft.save(model, tmp_path / "a", to=to), canary)
    poisoned.chdir(tmp_path / "a")
    loaded = weft.load(tmp_path / "a")
    assert all(torch.equal(t, loaded.state_dict()[n]) for n, t in model.state_dict().items())
    for way in ("hf", "weft"):
        weft.save(loaded, tmp_path / way, to=way)
        weft.load(tmp_path / way)
    weft.load(tmp_path / "a", head=S.ClassifierHead(num_labels=2), new_parts={"head"})
    assert not canary.exists()


def test_the_comparison_with_transformers_runs_no_planted_code(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    verify(weft.save(small(), tmp_path / "a"))
    plant(tmp_path / "a", canary)
    poison(monkeypatch)
    assert max(verify(tmp_path / "a").values()) < 1e-5
    assert not canary.exists()


def test_a_planted_folder_without_safetensors_is_refused_and_its_code_never_runs(
    tmp_path: Path, canary: Path, poisoned: pytest.MonkeyPatch
) -> None:
    plant(weft.save(small(), tmp_path / "a"), canary)
    (tmp_path / "a" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="pickle"):
        weft.load(tmp_path / "a")
    (tmp_path / "a" / "config.json").write_text(json.dumps({"model_type": "evil", **EVIL}))
    with pytest.raises(ValueError, match="evil"):
        weft.load(tmp_path / "a")
    assert not canary.exists()


@pytest.mark.parametrize("into", ["a", "b"], ids=["into its origin", "elsewhere"])
def test_saved_files_never_request_code_execution(into: str, tmp_path: Path, canary: Path) -> None:
    plant(weft.save(small(), tmp_path / "a"), canary)
    weft.save(weft.load(tmp_path / "a"), tmp_path / into)
    for name in (
        "config.json",
        "tokenizer_config.json",
        "preprocessor_config.json",
        "generation_config.json",
    ):
        text = (tmp_path / into / name).read_text()
        assert not [word for word in EVIL if word in text], name
    assert json.loads((tmp_path / into / "config.json").read_text())["inner"] == {"kept": [1]}
    assert json.loads((tmp_path / into / "tokenizer_config.json").read_text()) == {
        "do_lower_case": True
    }


def test_the_planted_files_run_code_when_unpickled(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, canary)
    for open_it in (
        lambda: pickle.loads((tmp_path / "pytorch_model.bin").read_bytes()),  # noqa: S301
        lambda: torch.load(tmp_path / "checkpoint.pt", weights_only=False),
        lambda: np.load(tmp_path / "weights.npy", allow_pickle=True),
    ):
        open_it()
        assert canary.exists()
        canary.rmdir()
        with monkeypatch.context() as inside:
            poison(inside)
            with pytest.raises(AssertionError, match="unpickled"):
                open_it()
    assert not canary.exists()
