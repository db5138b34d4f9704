"""The lock of a run directory: one trainer per run. The kernel releases it at process exit."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname

from ..support import storage

HELD_FILES: set[int] = set()


def _forget() -> None:
    """Close inherited locks in a forked data worker, which may outlive a killed trainer."""
    for file in HELD_FILES:
        os.close(file)
    HELD_FILES.clear()


os.register_at_fork(after_in_child=_forget)


def acquire(file: int) -> None:
    """Acquire the lock; a ValueError names its holder. `is_locked` holds it only briefly."""
    for _ in range(10):
        with suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return None


def is_locked(run: Path) -> bool:
    """Return whether a run is being trained."""
    try:
        file = os.open(run / "lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Wait until no other process is in this block for the same folder. Has no effect on a file
    system without locks.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class RunLock:
    """A lock from construction to `release`, the end of `with`, or the end of the process."""

    def __init__(self, run: str | Path) -> None:
        run = Path(run)
        try:
            storage.make_folder(run)
            self.file = os.open(run / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ValueError(
                f"{run} is not writable: {error.strerror}; give another run directory"
            ) from None
        try:
            acquire(self.file)
        except OSError as error:
            holder = os.pread(self.file, 4096, 0)
            os.close(self.file)
            if not isinstance(error, BlockingIOError):
                raise ValueError(
                    f"{run} cannot be locked: {error.strerror}; give a run directory on another "
                    "file system"
                ) from None
            raise ValueError(
                f"{run} is being trained by {_who(holder)}; wait until it ends, stop it, or give "
                "another run directory"
            ) from None
        HELD_FILES.add(self.file)
        me = {
            "host": gethostname(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        with suppress(OSError):  # the lock works without the holder's name, as on a full disk
            os.ftruncate(self.file, 0)
            os.pwrite(self.file, json.dumps(me).encode(), 0)

    def release(self) -> None:
        if self.file in HELD_FILES:
            HELD_FILES.remove(self.file)
            os.close(self.file)
            self.file = -1  # the file descriptor may be reused

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _who(holder: bytes) -> str:
    try:
        holder_info = json.loads(holder)
        return f"process {holder_info['pid']} on {holder_info['host']} since {holder_info['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"  # which has not written its name yet
