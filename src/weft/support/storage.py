"""Durable writes: a file is complete and on disk, or absent. Plain `os` calls, so that a test can
simulate another disk; no other module renames or syncs. In object storage one request writes one
object: it is complete or absent too, and needs no renaming."""

import errno
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from .addresses import Location, ObjectPath
from .values import SEAL, UNSEALED

CHUNK = 1 << 22  # hashed while it is still in the processor's cache


def make_folder(path: Path) -> None:
    """Create a folder and its parents, of which another rank may create some; their names are on
    disk afterwards."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not path.is_dir():
                raise
        sync_path(path.parent)


def write_file(path: Path, content: bytes) -> str:
    """Write a new file and return its SHA-256; it is on disk when this returns."""
    digest = sha256()
    remaining = memoryview(content)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        while remaining:
            written = os.write(file, remaining[:CHUNK])  # may be less than requested
            digest.update(remaining[:written])
            remaining = remaining[written:]
        os.fsync(file)
    finally:
        os.close(file)
    return digest.hexdigest()


def wait_until(condition: Callable[[], bool], timeout: float, poll: float = 0.1) -> bool:
    """Wait for what another process writes, with `poll` seconds between two looks; return False
    after `timeout` seconds without it."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(poll)
    return True


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def sync_path(path: Path) -> None:
    """Sync the bytes of a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        sync_handle(handle)
    except OSError as error:
        # some network file systems sync the names of a folder by themselves, and raise this error
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(handle)


def sync_handle(handle: int) -> None:
    """Sync an open file to disk."""
    os.fsync(handle)


def rename(path: Path, to: Path) -> None:
    """Rename a file atomically, replacing an existing one; it is on disk afterwards."""
    os.rename(path, to)
    sync_path(to.parent)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in sorted(path.iterdir()):
            remove(inner)
        os.rmdir(path)
    else:
        os.unlink(path)


STALE_AFTER_SECONDS = 86_400  # seconds; an older temporary file belongs to nobody who lives


@contextmanager
def named_os_errors(path: Path) -> Iterator[None]:
    """Add the name of the file to errors of the disk; a full disk does not name it."""
    try:
        yield
    except OSError as error:
        room = (
            "; free some space and run the command again"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else ""
        )
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}{room}") from error


def write_atomically(path: Location, content: bytes) -> None:
    """Write a file atomically: all of it is on disk under its name, or nothing."""
    if isinstance(path, ObjectPath):
        path.write_bytes(content)
        return
    temporary = temporary_path(path)
    with named_os_errors(path):
        try:
            write_file(temporary, content)
            rename(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def temporary_path(path: Path) -> Path:
    """Return a temporary name next to a file; two machines may share a folder and a process id."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_if_changed(path: Location, content: bytes) -> None:
    """Write a file unless it already has this content, since a finished folder may be read-only."""
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


def is_stale_temporary(path: Location) -> bool:
    """Return whether a temporary file is old enough to be abandoned; another process may be writing
    a younger one."""
    try:
        return isinstance(path, Path) and time.time() - path.stat().st_mtime > STALE_AFTER_SECONDS
    except FileNotFoundError:
        return False


def publish(temporary: Path, path: Location) -> None:
    """Sync a file that another library wrote, then rename it into place, or move it to object
    storage."""
    if isinstance(path, ObjectPath):
        path.upload(temporary)
        temporary.unlink()
        return
    sync_path(temporary)
    rename(temporary, path)


def read_range(path: Location, start: int, stop: int) -> bytes:
    """Return the bytes [start, stop) of a file."""
    if isinstance(path, ObjectPath):
        return path.read_range(start, stop) if start < stop else b""
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(stop - start)


class DamagedFile(ValueError):
    """A file is not as it was written."""


def digest_plain(*parts: Any) -> str:
    """Return the SHA-256 of plain values."""
    return sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def seal_json(content: dict[str, Any]) -> bytes:
    """Return JSON that ends with the SHA-256 of its other bytes, so that `unseal_json` notices a
    changed bit."""
    text = json.dumps(content | {"seal": UNSEALED}, indent=1)
    before, _, after = text.rpartition(UNSEALED)
    return (before + sha256(text.encode()).hexdigest() + after).encode()


def unseal_json(text: str) -> dict[str, Any]:
    """Return what `seal_json` wrote; ValueError if a byte has changed."""
    content = json.loads(text)
    generated = SEAL.search(text)
    if (
        generated is None
        or sha256(
            (text[: generated.start(1)] + UNSEALED + text[generated.end(1) :]).encode()
        ).hexdigest()
        != generated[1]
    ):
        raise DamagedFile("it does not match its own SHA-256")
    del content["seal"]
    unsealed: dict[str, Any] = content
    return unsealed
