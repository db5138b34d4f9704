"""Worker processes that share tasks; the result does not depend on their number."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Any

from ...support.processes import die_with_parent
from ...support.registry import resolve
from .jobs import Job, Tick, WorkerProgress

JOBS = {
    "SplitJob": "weft.data.shards.shard_builder:SplitJob",
    "ScanJob": "weft.data.preparing.scan:ScanJob",
    "MatchJob": "weft.data.preparing.match:MatchJob",
}


def to_wire(job: Job) -> str:
    return json.dumps({"job": type(job).__name__} | job._asdict())


def from_wire(text: str) -> Job:
    plain = json.loads(text)
    job: Job = resolve(JOBS[plain.pop("job")])(**plain)
    return job


def run_tasks(job: Job, tasks: Sequence[Any], workers: int, tick: Tick) -> None:
    """Run all tasks, in this process or in several."""
    if workers <= 1 or len(tasks) <= 1:
        work = job.open()
        for task in tasks:
            work(task, tick)
        return
    # Threads only hand work on; taking the next from a list's iterator is atomic
    left = iter(tasks)
    started: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(workers) as pool:
        try:
            for done in [
                pool.submit(run_worker, job, left, tick, started)
                for _ in range(min(workers, len(tasks)))
            ]:
                done.result()
        finally:
            for process in started:
                process.kill()


def worker_environment() -> dict[str, str]:
    return {
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def run_worker(
    job: Job,
    left: Iterator[Any],
    tick: Tick,
    started: list[subprocess.Popen[str]],
) -> None:
    """One worker process: JSON lines of tasks in, lines of progress out. It ends when its input
    does, so it does not outlive this process for long.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | worker_environment(),
    ) as process:
        started.append(process)
        assert process.stdin
        assert process.stdout
        for line in chain([to_wire(job)], map(json.dumps, left)):
            with suppress(BrokenPipeError):  # the process has ended
                process.stdin.write(line + "\n")
                process.stdin.flush()
            for answer in map(json.loads, process.stdout):
                if answer is None:
                    break
                if isinstance(answer, str):
                    raise ValueError(answer)
                tick(WorkerProgress(*answer))
            else:
                raise ValueError(
                    f"a worker process ended with code {process.wait()}; run the command again to "
                    "continue"
                )


def worker_main() -> None:
    """Run a worker: it reads the job, then tasks. Replies are progress, null for done, or an error
    message.
    """

    def say(answer: Any) -> None:
        print(json.dumps(answer), flush=True)

    from ...support.user_code import load_code_of_environment

    die_with_parent()
    work = None
    for line in sys.stdin:
        try:
            if work is None:
                load_code_of_environment()
                work = from_wire(line).open()
            else:
                work(json.loads(line), say)
            say(None)
        except ValueError as error:
            say(str(error))


if __name__ == "__main__":
    worker_main()
