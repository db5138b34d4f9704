"""Execution of preparation tasks in processes or on Ray, with progress."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from .jobs import Job, PieceTask, WorkerProgress
from .workers import run_tasks

SOON = 0.02  # fraction done before the time left is estimated


class PrepareProgress(NamedTuple):
    """Progress of data preparation: characters so far, the overall speed, and the speed of the
    tokenizer alone.
    """

    stage: str  # classes, tokenizer, train, valid
    done: float  # the approximate fraction done
    text: int  # characters
    seconds: float
    tokenizer_seconds: float  # the tokenizer's own seconds, over all workers
    workers: int

    @property
    def left(self) -> float:
        return self.seconds * (1 / self.done - 1) if self.done >= SOON else float("inf")

    @property
    def speed(self) -> float:
        """Return millions of characters per second."""
        return self.text / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def tokenizer_speed(self) -> float:
        """Return the speed of the tokenizer alone on as many workers."""
        return (
            self.text * self.workers / self.tokenizer_seconds / 1e6
            if self.tokenizer_seconds
            else 0.0
        )


ReportProgress = Callable[[PrepareProgress], None]


class ProgressClock:
    """Turns ticks of all workers into progress, a few times per second."""

    def __init__(self, stage: str, total: int, workers: int, report: ReportProgress | None) -> None:
        self.stage = stage
        self.workers = workers
        self.say = report
        self.began = time.perf_counter()
        self.last_print = 0.0
        self.total = total
        self.text = 0
        self.busy = 0.0
        self.lock = threading.Lock()

    def tick(self, tick: WorkerProgress) -> None:
        with self.lock:
            self.text += tick.text
            self.busy += tick.busy
            if time.perf_counter() - self.last_print > 0.2:
                self.last_print = time.perf_counter()
                self.tell(min(0.99, self.text / max(1, self.total)))

    def tell(self, done: float) -> None:
        if self.say:
            self.say(
                PrepareProgress(
                    self.stage,
                    done,
                    self.text,
                    time.perf_counter() - self.began,
                    self.busy,
                    self.workers,
                )
            )


@contextmanager
def reporting(stage: str, report: ReportProgress | None) -> Iterator[None]:
    """Report a few times per second that a stage is still running."""
    if report is None:
        yield
        return
    clock = ProgressClock(stage, 0, 1, report)
    over = threading.Event()

    def beat() -> None:
        clock.tell(0.0)
        while not over.wait(0.2):
            clock.tell(0.0)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    clock.tell(1.0)


def run_stage(
    workers: int,
    on: str,
    report: ReportProgress | None,
    job: Job,
    tasks: Sequence[Any],
    stage: str,
) -> None:
    """Run tasks in processes or on a Ray cluster, with progress."""
    if not tasks:
        return
    sizes = [task.piece.size for task in tasks if isinstance(task, PieceTask)]
    clock = ProgressClock(stage, sum(sizes), min(workers, len(tasks)), report)
    if on == "ray":
        from .on_ray import run_tasks_on_ray

        run_tasks_on_ray(job, tasks, clock.tick)
    else:
        run_tasks(job, tasks, workers, clock.tick)
    clock.tell(1.0)
