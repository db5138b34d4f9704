"""Everything that is written to stay: whole and on the disk, or not at all. Plain `os` calls, so that a test can put another disk
under it; no other module renames or syncs."""

import errno
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from .values import SEAL, UNSEALED

CHUNK = 1 << 22  # hashed while it is still in the processor's cache


def make_folder(path: Path) -> None:
    """A folder and those above it; their names are on the disk afterwards."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        os.mkdir(path)
        sync_path(path.parent)


def write_file(path: Path, content: bytes) -> str:
    """A new file, on the disk when this returns, and its SHA-256."""
    digest, view = sha256(), memoryview(content)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        while view:
            written = os.write(file, view[:CHUNK])  # may be less than asked
            digest.update(view[:written])
            view = view[written:]
        os.fsync(file)
    finally:
        os.close(file)
    return digest.hexdigest()


def sync_path(path: Path) -> None:
    """A file's bytes, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        sync_handle(handle)
    except OSError as error:
        # some network file systems keep the names of a folder safe without being asked, and say so in this way
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(handle)


def sync_handle(handle: int) -> None:
    """What was written to an open file is on the disk."""
    os.fsync(handle)


def rename(path: Path, to: Path) -> None:
    """All or nothing, in the place of a file that was there, and on the disk afterwards."""
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
    """An error of the disk names the file that it is about: a full disk does not by itself."""
    try:
        yield
    except OSError as error:
        room = (
            "; free some space and run it again"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else ""
        )
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}{room}") from error


def write_atomically(path: Path, content: bytes) -> None:
    """All of it under the name and on the disk, or nothing."""
    temporary = temporary_path(path)
    with named_os_errors(path):
        try:
            write_file(temporary, content)
            rename(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def temporary_path(path: Path) -> Path:
    """A name beside a file, for what becomes the file: two machines may share a folder and a process id."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def write_if_changed(path: Path, content: bytes) -> None:
    """Writes only what is not there already: a folder that is finished may be read-only."""
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


def is_stale_temporary(path: Path) -> bool:
    """Another process, here or elsewhere, may be writing a younger one."""
    try:
        return time.time() - path.stat().st_mtime > STALE_AFTER_SECONDS
    except FileNotFoundError:
        return False


def publish(temporary: Path, path: Path) -> None:
    """On the disk first, then under its name: for a file that another library wrote."""
    sync_path(temporary)
    rename(temporary, path)


class DamagedFile(ValueError):
    """A file is not as it was written."""


def digest_plain(*parts: Any) -> str:
    """The SHA-256 of plain values."""
    return sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def seal_json(content: dict[str, Any]) -> bytes:
    """JSON that ends with the SHA-256 of all its other bytes, so that `unseal` notices a changed bit."""
    text = json.dumps(content | {"seal": UNSEALED}, indent=1)
    before, _, after = text.rpartition(UNSEALED)
    return (before + sha256(text.encode()).hexdigest() + after).encode()


def unseal_json(text: str) -> dict[str, Any]:
    """What `seal` wrote, byte by byte; ValueError if it is not that any more."""
    content, generated = json.loads(text), SEAL.search(text)
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
