"""Experiment trackers. Each receives the values of a line after it is in log.jsonl; no tracker can
change or stop a run.
"""

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ... import recipe as R
from ...support.extras import install_extra
from ...support.registry import implementation
from ...support.storage import write_atomically

RECORD = "loggers.json"  # the id of the run per tracker, and its last line
KINDS = ("loss", "valid", "averaged", "best")  # the order of the lines of one step
Line = dict[str, Any]
LineKey = tuple[int, int]  # step and index in KINDS, ascending in a log
NOTHING: LineKey = (-1, 0)


class LogStart(NamedTuple):
    """The start state of a writer."""

    folder: Path
    step: int  # step after which the run resumes
    # The fields of the recipe by path; for the model, which may have thousands, only its size
    config: dict[str, Any] = {}


class LogWriter(Protocol):
    """Writes to one tracker.

    Attributes:
        can_rewind: whether it removes lines after `LogStart.step`. Other writers keep them and do
            not receive them again, since a resumed run computes the same values.
    """

    can_rewind: bool

    def log(self, step: int, scalars: dict[str, float]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class LogWriters:
    """All trackers of a run. A tracker that fails is reported once and disabled.

    Each tracker receives every line once, in order. The last line of each is stored beside the log:
    a tracker that is new, failed or was disabled first receives the lines that it lacks; a tracker
    ahead of the checkpoint receives nothing until the run has caught up.
    """

    def __init__(
        self, start: LogStart, loggers: Iterable[R.Logger], report: Callable[[str], None]
    ) -> None:
        self.start = start
        self.report = report
        read_record(start.folder, report)  # report damage before a tracker writes its id
        self.writers: dict[str, LogWriter] = {}
        for logger in loggers:
            name = type(logger).__name__
            build = implementation(logger)
            try:
                self.writers[name] = build(logger, start)
            except ImportError as error:
                extra = logger.name or name.lower()
                raise ValueError(
                    f"{name} is not installed ({error}); {install_extra(extra)}, or remove "
                    f"--log-to {extra}"
                ) from None
            except Exception as error:
                self.warn(name, error)
        self.record = read_record(start.folder)

    def resume(self, last: LineKey, lines: Callable[[], list[Line]]) -> None:
        """Send each tracker the lines that it lacks.

        Args:
            last: the last line of the log before truncation; the attached trackers have all lines
                up to it.
            lines: returns the current lines of the log.
        """
        if not self.writers and not self.record["attached"]:
            return
        received = received_lines(self.record, last)
        checkpoint = (self.start.step, len(KINDS))
        for name, writer in self.writers.items():
            key = received.get(name, NOTHING)
            received[name] = min(key, checkpoint) if writer.can_rewind else key
        self.record |= {"received": received, "attached": []}
        if any(received[name] < min(last, checkpoint) for name in self.writers):
            for line in lines():
                self.write(line)
        self.record["attached"] = [*self.writers]
        self.store()

    def write(self, line: Line) -> None:
        key = line_key(line)
        received = self.record["received"]
        scalars = dict(scalars_of(line))
        for name, writer in list(self.writers.items()):
            if key > received.get(name, NOTHING) and self.attempt(
                name, partial(writer.log, line["step"], scalars)
            ):
                received[name] = key

    def flush(self) -> None:
        for name, writer in list(self.writers.items()):
            self.attempt(name, writer.flush)

    def close(self) -> None:
        for name, writer in list(self.writers.items()):
            self.attempt(name, writer.close)

    def attempt(self, name: str, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:  # training continues after any error
            del self.writers[name]
            self.warn(name, error)
            attached = self.record["attached"]
            self.record["attached"] = [each for each in attached if each != name]
            with suppress(OSError):
                self.store()
            return False
        return True

    def store(self) -> None:
        write_record(self.start.folder, self.record)

    def warn(self, name: str, error: Exception) -> None:
        reason = " ".join(str(error).split()) or type(error).__name__
        self.report(
            f"{name} failed and receives no more lines of this run ({reason}); "
            "log.jsonl is complete, and training continues"
        )


def line_key(line: Line) -> LineKey:
    """Return the key of a line, which orders the log."""
    return line["step"], next(place for place, name in enumerate(KINDS) if name in line)


def scalars_of(line: Line, path: str = "") -> Iterator[tuple[str, float]]:
    for name, part in line.items():
        if isinstance(part, dict):
            yield from scalars_of(part, f"{path}{name}/")
        elif isinstance(part, int | float) and name != "step":
            yield path + name, part


def read_record(folder: Path, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Return the stored state of the trackers; empty, with a report, if the file is damaged."""
    path = folder / RECORD
    empty: dict[str, Any] = {"ids": {}, "received": {}, "attached": []}
    try:
        record = empty | (json.loads(path.read_text()) if path.exists() else {})
        if (
            all(isinstance(record[name], type(part)) for name, part in empty.items())
            and all([type(n) for n in key] == [int, int] for key in record["received"].values())
            and set(record["attached"]) <= set(record["received"])
        ):
            return record
    except (ValueError, TypeError):
        pass
    report(f"{path} is damaged; trackers receive this run again from its first step, as a new run")
    return empty


def write_record(folder: Path, record: dict[str, Any]) -> None:
    write_atomically(folder / RECORD, json.dumps(record, indent=1).encode())


def received_lines(record: dict[str, Any], last: LineKey) -> dict[str, LineKey]:
    """Return the last line per tracker; attached trackers have the last line of the log."""
    received: dict[str, LineKey] = {name: tuple(key) for name, key in record["received"].items()}
    return received | {name: max(received[name], last) for name in record["attached"]}


def detach_trackers(folder: Path, last: LineKey) -> None:
    """Record that another machine continued the run after the line `last`, which the local trackers
    have.
    """
    record = read_record(folder)
    if record["attached"]:
        write_record(folder, record | {"received": received_lines(record, last), "attached": []})


def run_id(start: LogStart, tracker: str, create: Callable[[], str]) -> str:
    """Return the id of this run at a tracker, from the run directory; `create` makes a new one."""
    record = read_record(start.folder)
    if tracker not in record["ids"]:
        record["ids"][tracker] = create()
        write_record(start.folder, record)
    identifier: str = record["ids"][tracker]
    return identifier


def random_id() -> str:
    return secrets.token_hex(4)  # from the system, independent of training's random state


# Tracker implementations


class TensorBoardWriter:
    can_rewind = True

    def __init__(self, logger: R.TensorBoard, start: LogStart) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(start.folder / "tensorboard"), purge_step=start.step + 1)

    def log(self, step: int, scalars: dict[str, float]) -> None:
        for name, number in scalars.items():
            self.writer.add_scalar(name, number, step)

    def flush(self) -> None:
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandBWriter:
    """Writes one row per line with its `step`; a validation has the step of the preceding line."""

    can_rewind = False

    def __init__(self, logger: R.WandB, start: LogStart) -> None:
        import wandb

        self.run = wandb.init(
            project=logger.project,
            name=start.folder.name,
            id=run_id(start, "wandb", random_id),
            resume="allow",
            mode=logger.mode,
            dir=str(start.folder),
            config=start.config,
            settings=wandb.Settings(silent=True, console="off", disable_code=True),
        )
        self.run.define_metric("*", step_metric="step")

    def log(self, step: int, scalars: dict[str, float]) -> None:
        self.run.log(scalars | {"step": step})

    def flush(self) -> None:
        """Do nothing: another process writes the files."""

    def close(self) -> None:
        self.run.finish()


class MLflowWriter:
    can_rewind = False

    def __init__(self, logger: R.MLflow, start: LogStart) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self.metric = Metric
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs more packages
        store = (start.folder / "mlflow").resolve().as_uri()
        self.client = MlflowClient(tracking_uri=logger.tracking_uri or store)

        def create() -> str:
            experiment = self.client.get_experiment_by_name(logger.experiment)
            number = (
                experiment.experiment_id
                if experiment
                else self.client.create_experiment(logger.experiment)
            )
            run = self.client.create_run(number, run_name=start.folder.name)
            params = [Param(name, str(part)[:500]) for name, part in start.config.items()]
            for first in range(0, len(params), 100):  # the maximum per request
                self.client.log_batch(run.info.run_id, params=params[first : first + 100])
            return str(run.info.run_id)

        self.id = run_id(start, "mlflow", create)
        self.client.update_run(self.id, status="RUNNING")

    def log(self, step: int, scalars: dict[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self.metric(name, number, now, step) for name, number in scalars.items()]
        self.client.log_batch(self.id, metrics=metrics)

    def flush(self) -> None:
        """Do nothing: every line is written immediately."""

    def close(self) -> None:
        self.client.set_terminated(self.id)


class TrackioWriter:
    can_rewind = False

    def __init__(self, logger: R.Trackio, start: LogStart) -> None:
        import trackio

        name = run_id(start, "trackio", lambda: f"{start.folder.name}-{random_id()}")
        with redirect_stdout(sys.stderr):  # Trackio prints to stdout
            self.run = trackio.init(
                project=logger.project,
                name=name,
                resume="allow",
                config=start.config,
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def log(self, step: int, scalars: dict[str, float]) -> None:
        self.run.log(scalars, step=step)

    def flush(self) -> None:
        """Do nothing: a thread writes every half second."""

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self.run.finish()
