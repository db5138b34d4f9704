"""Child processes that end with their parent."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends. Does nothing on other systems than
    Linux.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the request
        os._exit(1)


@contextmanager
def delayed_sigterm() -> Iterator[None]:
    """Start processes that call `ignore_signals_of_others`: a SIGTERM reaches this process after
    the block, and the workers once they can identify the sender. Without this, PyTorch's handler
    ends a worker that is still starting.
    """
    if sys.platform != "linux":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals_of_others() -> None:
    """Ignore Ctrl-C and SIGTERM except from the parent. Schedulers signal every process of a job,
    and the parent needs its workers for the current step. SIGTERM from the parent still ends this
    process: `multiprocessing` sends it at exit.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "linux":  # `sigwaitinfo`, which names the sender, is missing on macOS
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=exit_on_sigterm_of_parent, daemon=True).start()


def exit_on_sigterm_of_parent() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(0)
