"""Clean-up at interpreter exit: close unfinished training, so that its last step is saved."""

import atexit
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")
OPEN_GENERATORS: WeakSet[Generator[Any, None, None]] = WeakSet()


def close_at_exit(
    function: Callable[P, Generator[T, None, None]],
) -> Callable[P, Generator[T, None, None]]:
    """Decorate a generator function so that its open generators are closed while modules still
    work. Python finalises a generator held by a module only after it has cleared the module's
    names.
    """

    @wraps(function)
    def tracked(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        generator = function(*args, **kwargs)
        OPEN_GENERATORS.add(generator)
        return generator

    return tracked


@atexit.register
def close_generators() -> None:
    for generator in tuple(OPEN_GENERATORS):
        if getgeneratorstate(generator) != GEN_RUNNING:  # in a thread that ends with the process
            generator.close()


class BackgroundThread(ThreadPoolExecutor):
    """One background thread. At exit, when Python starts no more threads, the work runs in the
    caller's thread.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1, thread_name_prefix=name)

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        try:
            return super().submit(work, *args, **kwargs)
        except RuntimeError:
            done = Future[T]()
            done.set_result(work(*args, **kwargs))
            return done
