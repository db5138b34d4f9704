"""Preparation on a Ray cluster, with the same functions as local processes.

A task is plain text and writes its own result, so that Ray may run it anywhere, and again after a
machine is lost. All machines need Weft, and access to the sources and the output directory under
the same names: a shared file system, or addresses such as s3://…
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ...support.extras import install_extra
from .jobs import Job, Tick, WorkerProgress
from .workers import from_wire, to_wire, worker_environment

RETRIES = 3  # of a task whose machine is lost
AHEAD = 2  # tasks per processor that wait in the cluster
PASSED_ON = ("AWS_", "FSSPEC_", "WEFT_", "XDG_CACHE_HOME")  # variables that the workers see too
SECRET = ("KEY", "SECRET", "TOKEN", "PASSWORD")  # but not these: Ray shows them on its dashboard


@lru_cache(maxsize=2)
def open_job(wire: str, folder: str) -> Callable[[Any, Tick], None]:
    """Load what many tasks of a job need; a worker process of Ray lives on between them."""
    from ...support.user_code import load_code_of_environment

    with suppress(FileNotFoundError):  # addresses and absolute paths do without
        os.chdir(folder)
    load_code_of_environment()
    return from_wire(wire).open()


def run_task(wire: str, folder: str, task: str) -> tuple[int, float, str | None]:
    """Run one task, with paths relative to `folder`; return the characters, the tokenizer's
    seconds, and what is wrong, if anything."""
    ticks: list[WorkerProgress] = []
    try:
        open_job(wire, folder)(json.loads(task), ticks.append)
    except ValueError as error:
        return 0, 0.0, str(error)
    return sum(tick.text for tick in ticks), sum(tick.busy for tick in ticks), None


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that workers on other machines need; each machine of a cluster has
    credentials of its own."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PASSED_ON) and not any(word in name for word in SECRET)
    }


def run_tasks_on_ray(job: Job, tasks: Sequence[Any], tick: Tick) -> None:
    """Run all tasks on the cluster that `RAY_ADDRESS` names or this process is connected to; else
    on one that is started here."""
    try:
        import ray
    except ImportError:
        raise ValueError(f"--on ray needs Ray; {install_extra('ray')}") from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    environment = worker_environment() | passed_on(os.environ)
    remote = ray.remote(run_task).options(
        max_retries=RETRIES, runtime_env={"env_vars": environment}
    )
    wire = to_wire(job)
    ahead = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    left = list(reversed(tasks))
    waiting: list[Any] = []
    try:
        while left or waiting:
            while left and len(waiting) < ahead:
                waiting.append(remote.remote(wire, os.getcwd(), json.dumps(left.pop())))
            done, waiting = ray.wait(waiting)
            for text, busy, problem in ray.get(done):
                if problem is not None:
                    raise ValueError(problem)
                tick(WorkerProgress(text, busy))
    except ray.exceptions.RayError as error:
        raise ValueError(
            f"the Ray cluster stopped a task: {str(error).splitlines()[0]}; run the command again "
            "to continue"
        ) from None
    finally:
        for task in waiting:
            ray.cancel(task)
