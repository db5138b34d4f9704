"""Everything that a checkpoint does to the disk, in plain `os` calls, so that a test can put another disk under it."""
import errno
import os
from hashlib import sha256
from pathlib import Path

CHUNK = 1 << 22                            # hashed while it is still in the processor's cache


def make_folder(path: Path) -> None:
    """A folder and those above it; their names are on the disk afterwards."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        os.mkdir(path)
        sync_folder(path.parent)


def write_file(path: Path, content: bytes) -> str:
    """A new file, on the disk when this returns, and its SHA-256."""
    digest, view = sha256(), memoryview(content)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        while view:
            written = os.write(file, view[:CHUNK])     # may be less than asked
            digest.update(view[:written])
            view = view[written:]
        os.fsync(file)
    finally:
        os.close(file)
    return digest.hexdigest()


def sync_folder(path: Path) -> None:
    """The names in a folder are on the disk, not only the files' bytes."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:    # some network file systems keep names safe without being asked, and say so in this way
            raise
    finally:
        os.close(folder)


def rename(path: Path, to: Path) -> None:
    """All or nothing, and on the disk afterwards."""
    os.rename(path, to)
    sync_folder(to.parent)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in sorted(path.iterdir()):
            remove(inner)
        os.rmdir(path)
    else:
        os.unlink(path)
