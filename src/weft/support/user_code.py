"""Python files with user code, imported before a recipe or a model is read; the run stores their
SHA-256.

A file `scale_norm.py` becomes the module `weft.support.user_code.scale_norm`, in worker processes
too: their environment names it.
"""

import hashlib
import os
import sys
from importlib.util import module_from_spec
from pathlib import Path
from typing import NamedTuple

from .python_files import module_spec_of_file
from .storage import seal_json, unseal_json, write_if_changed

__path__: list[str] = []  # so that `import weft.support.user_code.scale_norm` looks here
ENVIRONMENT = "WEFT_CODE"
FILE = "code.json"


class CodeFile(NamedTuple):
    """An imported file."""

    path: str
    sha256: str


LOADED: dict[str, CodeFile] = {}  # by module name


def load_code(paths: list[str]) -> None:
    """Import files of user code, each once, under `weft.support.user_code`.

    Args:
        paths: the Python files.

    Raises:
        ValueError: if a file is missing, cannot be imported, or has the module name of another.
    """
    for path in map(os.path.realpath, paths):
        name = Path(path).stem
        try:
            code = CodeFile(path, file_sha256(path))
        except OSError as error:
            raise ValueError(f"--code {path}: {error.strerror}") from None
        if name in LOADED and LOADED[name] != code:
            raise ValueError(
                f"--code {path}: {LOADED[name].path} is already imported as {name}; rename one of "
                "them"
            )
        if name not in LOADED:
            import_file(name, path)
            LOADED[name] = code
    if LOADED:
        os.environ[ENVIRONMENT] = os.pathsep.join(code.path for code in LOADED.values())


def file_sha256(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def import_file(name: str, path: str) -> None:
    importable = module_spec_of_file(f"{__name__}.{name}", Path(path))
    if importable is None:
        raise ValueError(f"--code {path}: not a Python file; give a file that ends in .py")
    module_spec, loader = importable
    module = sys.modules[module_spec.name] = module_from_spec(module_spec)
    try:
        loader.exec_module(module)
    except Exception as error:  # user code may raise anything
        del sys.modules[module_spec.name]
        raise ValueError(f"--code {path}: {type(error).__name__}: {error}") from error


def load_code_of_environment() -> None:
    """Import the files of the parent process; a worker calls this first."""
    load_code([path for path in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if path])


# User code of a run


def store_code(folder: Path) -> None:
    """Store path and SHA-256 of every imported file in the run directory."""
    if LOADED:
        write_if_changed(
            folder / FILE, seal_json({name: code._asdict() for name, code in LOADED.items()})
        )


def load_code_of_run(folder: Path, changed: bool = False) -> None:
    """Import the files that a run was started with, if they are unchanged.

    A file inside the run directory is not imported automatically, since a folder from an untrusted
    source could contain it.

    Args:
        folder: the run directory.
        changed: accept files given with `--code` that changed since the run began
            (default: False).

    Raises:
        ValueError: if a file is missing or changed.
    """
    path = folder / FILE
    code_files = unseal_json(path.read_text("utf-8")) if path.exists() else {}
    for name, plain in code_files.items():
        before = CodeFile(plain["path"], plain["sha256"])
        if name not in LOADED and not Path(before.path).exists():
            raise ValueError(
                f"{folder} needs {before.path}, which is missing; give it with --code FILE"
            )
        now = LOADED[name].sha256 if name in LOADED else file_sha256(before.path)
        if now != before.sha256 and not (changed and name in LOADED):
            raise ValueError(
                f"{before.path} changed since {folder} began (SHA-256 {before.sha256[:12]}, now "
                f"{now[:12]}); "
                f"restore the old file, or give --code FILE --code-changed"
            )
        if name not in LOADED and Path(before.path).is_relative_to(folder.resolve()):
            raise ValueError(f"{before.path} is in the run directory; give it with --code FILE")
        if name not in LOADED:
            load_code([before.path])


load_code_of_environment()
