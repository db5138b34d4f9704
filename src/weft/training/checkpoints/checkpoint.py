"""Checkpoints: directories of safetensors and JSON files, renamed into place once every byte is on
disk.

`step-000001000/` holds one file per group of tensors, `state.json` and `manifest.json` with the
size and SHA-256 of the others and of itself. A name that starts with a dot is temporary: never
read, removed by the next writer. One writer per directory: see `runs/lock.py`.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, TensorSpec, serialize
from safetensors.torch import load
from torch import Tensor
from torch.nn import Parameter

from ...support import storage
from ...support.ranks import Ranks
from ..interpreter_exit import BackgroundThread
from .facts import CheckpointFacts
from .parts import FILE, MANIFEST, PART, TENSORS, SavedTensor, saved_tensors

Groups = Mapping[str, Mapping[str, Tensor]]
OnSaved = Callable[[Path], None]
STATE = "state.json"
FOLDER = re.compile(r"step-(\d{9,})(\.old)?")
SCAFFOLD = re.compile(r"\.(new|trash)-.*")


# Writing


def write(root: str | Path, step: int, groups: Groups, facts: Mapping[str, Any]) -> Path:
    """Write a checkpoint; it is on disk when this returns."""
    return _put(Path(root), step, serialize_checkpoint(groups, facts))


def serialize_checkpoint(groups: Groups, facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of a checkpoint as bytes: a copy that is independent of later changes to the
    tensors.
    """
    files = {f"{name}{TENSORS}": serialize_tensors(tensors) for name, tensors in groups.items()} | {
        STATE: serialize_state(facts)
    }
    assert all(FILE.fullmatch(name) for name in files), (
        f"group names are lower-case words: {list(groups)}"
    )
    return files


def serialize_state(facts: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(facts, indent=1).encode()
    except TypeError as error:
        raise ValueError(f"{STATE} holds only JSON: {error}") from None


def serialize_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    tensors_on_cpu = {}
    for name, tensor in tensors.items():
        assert type(tensor) in (Tensor, Parameter), (
            f"{name} is a {type(tensor).__name__}; gather it into a plain tensor first"
        )
        # keeps the array alive while its address is in use
        tensors_on_cpu[name] = tensor.detach().cpu().contiguous()
    return serialize(
        {
            name: TensorSpec(
                dtype=str(t.dtype).removeprefix("torch."),
                shape=list(t.shape),
                data_ptr=t.data_ptr(),
                data_len=t.nbytes,
            )
            for name, t in tensors_on_cpu.items()
        }
    )


def _put(root: Path, step: int, files: Mapping[str, bytes]) -> Path:
    final = root / f"step-{step:09d}"
    fresh = root / f".new-{final.name}"
    size = sum(map(len, files.values()))
    with explain_os_error(root, f"cannot write {final}, which needs {size:,} bytes"):
        storage.make_folder(root)
        for stray in (path for path in root.iterdir() if SCAFFOLD.fullmatch(path.name)):
            storage.remove(stray)
        try:
            storage.make_folder(fresh)
            written = {
                name: (len(content), storage.write_file(fresh / name, content))
                for name, content in files.items()
            }
            return commit(root, step, fresh, written)
        except OSError:
            with suppress(OSError):
                storage.remove(fresh)
            raise


def commit(root: Path, step: int, fresh: Path, files: Mapping[str, tuple[int, str]]) -> Path:
    """Write the manifest of a directory whose files are on disk, and rename the directory into
    place.
    """
    final = root / f"step-{step:09d}"
    old = root / f"step-{step:09d}.old"
    storage.write_file(fresh / MANIFEST, _seal(step, files))
    storage.sync_path(fresh)
    if _is_good(final):  # the same step again: the old checkpoint is valid until the new one is
        discard(old)
        storage.rename(final, old)
    discard(final)
    storage.rename(fresh, final)
    discard(old)
    return final


def _seal(step: int, files: Mapping[str, tuple[int, str]]) -> bytes:
    """Return a manifest that contains its own SHA-256."""
    content = {
        "step": step,
        "files": {
            name: {"bytes": size, "sha256": digest}
            for name, (size, digest) in sorted(files.items())
        },
    }
    return json.dumps(
        content | {"sha256": sha256(json.dumps(content).encode()).hexdigest()}, indent=1
    ).encode()


def discard(path: Path) -> None:
    """Rename a directory, then remove it, so that a partly removed one never has the name of a
    checkpoint.
    """
    if os.path.lexists(path):
        trash = path.with_name(f".trash-{path.name}")
        storage.rename(path, trash)
        storage.remove(trash)


@contextmanager
def explain_os_error(root: Path, text: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        raise OSError(
            error.errno, f"{text}: {error.strerror}{place}; {_free(root):,} bytes are free there"
        ) from error


# Reading


@dataclass(frozen=True)
class Checkpoint(CheckpointFacts):
    """A checkpoint whose files all match their SHA-256."""

    files: dict[str, tuple[int, str]]  # size and SHA-256

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of one group; their bytes are compared with the manifest again."""
        file = f"{name}{TENSORS}"
        if file not in self.files:
            if name in (saved := self.saved()):
                return {key: tensor.read() for key, tensor in saved[name].items()}
            raise ValueError(f"{self.path} has no group {name!r}; it has {', '.join(self.names())}")
        with _reading(self.path / file):
            return load(_checked(self.path / file, *self.files[file]))

    def names(self) -> list[str]:
        return self.whole_groups() or list(self.saved())

    def whole_groups(self) -> list[str]:
        """Return the groups that have their own file; empty if ranks wrote parts."""
        files = [file.removesuffix(TENSORS) for file in self.files if file.endswith(TENSORS)]
        return [name for name in files if not PART.fullmatch(f"{name}.json")]

    def saved(self) -> dict[str, dict[str, SavedTensor]]:
        """Return every tensor by group and name, for lazy reading of slices."""
        with _reading(self.path):
            return saved_tensors(self.path, self.files)

    def all_tensors(self) -> dict[str, dict[str, Tensor]]:
        if whole := self.whole_groups():
            return {name: self.tensors(name) for name in whole}
        return {
            name: {key: tensor.read() for key, tensor in named.items()}
            for name, named in self.saved().items()
        }


def read(path: str | Path, ranks: Ranks = Ranks()) -> Checkpoint:
    """Return the checkpoint in a folder; ValueError names the first damaged file. Several `ranks`
    compare some files each, and agree.
    """
    path = Path(path)
    error = None
    try:
        step, files = unseal_manifest(path / MANIFEST)
        if (named := FOLDER.fullmatch(path.name)) and int(named[1]) != step:
            raise ValueError(f"{path} is damaged: {MANIFEST} belongs to step {step}")
        for name in list(files)[ranks.rank :: ranks.size]:
            _compare(path / name, *files[name])
        state = read_state(path, files)
    except ValueError as problem:
        error = problem
    (damaged,) = ranks.sum([float(error is not None)])
    if error is not None:
        raise error
    if damaged:
        raise ValueError(f"{path} is damaged; the error of another rank names the file")
    return Checkpoint(path, step, state, files)


def newest_facts(root: Path) -> CheckpointFacts | None:
    """Return the facts of the newest checkpoint whose manifest and `state.json` are undamaged,
    without comparing its tensors; None if there is none.
    """
    for path in checkpoint_folders(root):
        try:
            step, files = unseal_manifest(path / MANIFEST)
            return CheckpointFacts(path, step, read_state(path, files))
        except ValueError:
            continue
    return None


def read_state(path: Path, files: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    with _reading(path / STATE):
        state: dict[str, Any] = json.loads(_checked(path / STATE, *files[STATE]))
        return state


def latest_checkpoint(
    root: str | Path, report: Callable[[str], None], ranks: Ranks = Ranks()
) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, None if there is none; damaged newer ones are
    reported.
    """
    folders = checkpoint_folders(Path(root))
    for path in folders:
        try:
            return read(path, ranks)
        except ValueError as error:
            # its trainer has saved a newer one and removed this one
            if not os.path.lexists(path):
                return latest_checkpoint(root, report, ranks)
            report(str(error))
    if folders:
        names = ", ".join(path.name for path in folders)
        raise ValueError(
            f"{root}: all checkpoints are damaged ({names}); restore one, or move them to "
            f"another directory to start again"
        )
    return None


def all_checkpoints(
    root: str | Path, report: Callable[[str], None] = lambda line: None, ranks: Ranks = Ranks()
) -> list[Checkpoint]:
    """Return all undamaged checkpoints, the oldest first, one per step; damaged ones are reported.
    Several `ranks` share the reading.
    """
    good = {}
    for path in reversed(checkpoint_folders(Path(root))):
        try:
            checkpoint = read(path, ranks)
            good[checkpoint.step] = checkpoint
        except ValueError as error:
            report(str(error))
    return list(good.values())


def checkpoint_folders(root: Path) -> list[Path]:
    """Return the folders of checkpoints, the newest first; a replaced checkpoint comes after the
    newer one of the same step.
    """
    named = [
        (FOLDER.fullmatch(path.name), path) for path in (root.iterdir() if root.exists() else ())
    ]
    return [
        path
        for _, _, path in sorted(
            ((int(m[1]), not m[2], path) for m, path in named if m), reverse=True
        )
    ]


def unseal_manifest(path: Path) -> tuple[int, dict[str, tuple[int, str]]]:
    with _reading(path):
        content = path.read_bytes()
    try:
        manifest = json.loads(content)
        files = {name: (file["bytes"], file["sha256"]) for name, file in manifest["files"].items()}
        whole = (
            content == _seal(manifest["step"], files)
            and STATE in files
            and all(map(FILE.fullmatch, files))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise storage.DamagedFile(f"{path} is damaged: it does not match its own SHA-256")
    return manifest["step"], files


def _checked(path: Path, size: int, digest: str) -> bytes:
    content = path.read_bytes()
    if len(content) != size or sha256(content).hexdigest() != digest:
        raise ValueError(f"{path} is damaged: its SHA-256 differs from the manifest")
    return content


def _compare(path: Path, size: int, digest: str) -> None:
    with _reading(path), path.open("rb") as file:
        if (actual_size := path.stat().st_size) != size:
            raise ValueError(
                f"{path} is damaged: {actual_size:,} bytes instead of {size:,} as in the manifest"
            )
        if file_digest(file, "sha256").hexdigest() != digest:
            raise ValueError(f"{path} is damaged: its SHA-256 differs from the manifest")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged: {getattr(error, 'strerror', error)}") from None


def _is_good(path: Path) -> bool:
    try:
        return bool(read(path))
    except ValueError:
        return False


# Background saving


class Writers(NamedTuple):
    """The ranks that write parts of a checkpoint. `token` is the same on all of them and different
    at every start, so that parts of an earlier start are never mistaken for new ones.
    """

    rank: int = 0
    world: int = 1
    token: str = ""


class CheckpointWriter:
    """Save checkpoints in a thread, one at a time, and keep the newest `keep` undamaged ones and
    the steps in `pinned`. `on_saved` is called with the directory of each checkpoint.
    """

    def __init__(
        self,
        root: str | Path,
        keep: int,
        pinned: Collection[int] = (),
        on_saved: OnSaved | None = None,
    ) -> None:
        assert keep >= 1, keep
        self.root = Path(root)
        self.keep = keep
        self.pinned = set(pinned)
        self.on_saved = on_saved
        self.thread = BackgroundThread("checkpoint")
        self.saving: Future[Path] | None = None
        # checkpoints that this process has written or verified; no other process writes here
        self.whole: set[Path] = set()

    def submit(self, step: int, groups: Groups, facts: Mapping[str, Any]) -> None:
        """Copy the state and save it in the background. Waits for the previous save and raises its
        error.
        """
        self.wait()
        self.saving = self.thread.submit(self._save, step, serialize_checkpoint(groups, facts))

    def wait(self) -> None:
        """Wait until the last save is on disk."""
        saving = self.saving
        self.saving = None
        if saving:
            saving.result()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            self.thread.shutdown()

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _save(self, step: int, files: dict[str, bytes]) -> Path:
        path = _put(self.root, step, files)
        self.whole.add(path)
        with explain_os_error(
            self.root, f"{path} is saved, but older ones cannot be removed from {self.root}"
        ):
            self._retain(path)
        if self.on_saved is not None:
            self.on_saved(path)
        return path

    def _retain(self, latest: Path) -> None:
        count = 0
        for path in checkpoint_folders(self.root):
            named = FOLDER.fullmatch(path.name)
            assert named
            if count >= self.keep and path != latest and int(named[1]) not in self.pinned:
                discard(path)
            elif path in self.whole or _is_good(path):
                self.whole.add(path)
                count += 1


# Disk space


def tensor_bytes(groups: Groups) -> int:
    """Return the size of a checkpoint's tensors in bytes."""
    return sum(tensor.nbytes for tensors in groups.values() for tensor in tensors.values())


def check_free_space(root: str | Path, need: int) -> None:
    """Raise ValueError if `need` bytes of checkpoints do not fit on the disk. Existing checkpoints
    and leftovers of a killed save count as free, since the next save removes them. A run needs
    (keep + 1) × size.
    """
    root = Path(root)
    leftovers = [path for path in root.glob(".*") if SCAFFOLD.fullmatch(path.name)]
    there = sum(
        file.stat().st_size
        for folder in (*checkpoint_folders(root), *leftovers)
        for file in folder.glob("*")
    )
    if there + (free := _free(root)) < need:
        raise ValueError(
            f"{root} needs {need - there:,} more bytes for checkpoints, but {free:,} are free; "
            f"free disk space, lower checkpoints.keep, or give another directory"
        )
    if not os.access(_above(root), os.W_OK, effective_ids=True):
        raise ValueError(f"{root} is not writable; give a writable run directory")


def _free(root: Path) -> int:
    return shutil.disk_usage(_above(root)).free


def _above(root: Path) -> Path:
    """Return the nearest existing parent directory."""
    return root if root.exists() else _above(root.parent)
