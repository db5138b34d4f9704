"""Experiment trackers. Each gets the numbers of a line once it is in log.jsonl; none of them can
change or end a run.
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

RECORD = "loggers.json"  # the id by which each tracker knows a run, and its last line
KINDS = ("loss", "valid", "averaged", "best")  # the order of the lines of one step
Line = dict[str, Any]
LineKey = tuple[int, int]  # the step, and the line's place in KINDS: a log ascends
NOTHING: LineKey = (-1, 0)


class LogStart(NamedTuple):
    """What a writer begins with."""

    folder: Path
    step: int  # after which the run continues
    # The fields of the recipe by their paths; of the model, which may have thousands, only its size
    config: dict[str, Any] = {}


class LogWriter(Protocol):
    """Writes to one tracker.

    Attributes:
        can_rewind: whether it removes what it logged after `LogStart.step`. Others keep it, and are
            not given it again: a resumed run computes the same numbers.
    """

    can_rewind: bool

    def log(self, step: int, scalars: dict[str, float]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class LogWriters:
    """All trackers of a run. One that fails is reported once and left out.

    Each gets every line once, in order. The last line of each is stored beside the log: a tracker
    that is new, failed or was left out for a while first gets the lines that it lacks, and one that
    is ahead of the checkpoint gets nothing until the run has caught up.
    """

    def __init__(
        self, start: LogStart, loggers: Iterable[R.Logger], report: Callable[[str], None]
    ) -> None:
        self.start = start
        self.report = report
        read_record(start.folder, report)  # reported before a tracker writes its id there
        self.writers: dict[str, LogWriter] = {}
        for logger in loggers:
            name = type(logger).__name__
            build = implementation(logger)
            try:
                self.writers[name] = build(logger, start)
            except ImportError as error:
                extra = logger.name or name.lower()
                raise ValueError(
                    f"{name} is not installed ({error}); {install_extra(extra)}, or leave --log-to "
                    f"{extra} out"
                ) from None
            except Exception as error:
                self.warn(name, error)
        self.record = read_record(start.folder)

    def resume(self, last: LineKey, lines: Callable[[], list[Line]]) -> None:
        """Give each tracker the lines that it lacks.

        Args:
            last: line of the log before it was cut back: what was attached until then has all lines
                up to it.
            lines: reads the log as it is now.
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
        except Exception as error:  # whatever a tracker raises, training continues
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
            f"{name} failed and gets no more of this run ({reason}); log.jsonl is complete, and "
            "training continues"
        )


def line_key(line: Line) -> LineKey:
    """Return the place of a line in the log."""
    return line["step"], next(place for place, name in enumerate(KINDS) if name in line)


def scalars_of(line: Line, path: str = "") -> Iterator[tuple[str, float]]:
    for name, part in line.items():
        if isinstance(part, dict):
            yield from scalars_of(part, f"{path}{name}/")
        elif isinstance(part, int | float) and name != "step":
            yield path + name, part


def read_record(folder: Path, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Return what is known of the trackers; nothing, and a report, if the file is damaged."""
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
    report(f"{path} is damaged: trackers get this run from its first step, as a new one")
    return empty


def write_record(folder: Path, record: dict[str, Any]) -> None:
    write_atomically(folder / RECORD, json.dumps(record, indent=1).encode())


def received_lines(record: dict[str, Any], last: LineKey) -> dict[str, LineKey]:
    """Return the last line that each tracker has; those that were attached have the last one of the
    log.
    """
    received: dict[str, LineKey] = {name: tuple(key) for name, key in record["received"].items()}
    return received | {name: max(received[name], last) for name in record["attached"]}


def detach_trackers(folder: Path, last: LineKey) -> None:
    """Another machine went on with the run: its lines are not at the trackers that were attached
    here up to the last line.
    """
    record = read_record(folder)
    if record["attached"]:
        write_record(folder, record | {"received": received_lines(record, last), "attached": []})


def run_id(start: LogStart, tracker: str, create: Callable[[], str]) -> str:
    """Return the id of this run at a tracker, from the run's folder; `create` makes a new one."""
    record = read_record(start.folder)
    if tracker not in record["ids"]:
        record["ids"][tracker] = create()
        write_record(start.folder, record)
    identifier: str = record["ids"][tracker]
    return identifier


def random_id() -> str:
    return secrets.token_hex(4)  # of the system: no random state of training changes


# The trackers


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
    """Every line is a row of its own with its `step`: a validation has the step of the line before
    it.
    """

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
        """Nothing: another process writes the files."""

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
            for first in range(0, len(params), 100):  # the most that a store takes at once
                self.client.log_batch(run.info.run_id, params=params[first : first + 100])
            return str(run.info.run_id)

        self.id = run_id(start, "mlflow", create)
        self.client.update_run(self.id, status="RUNNING")

    def log(self, step: int, scalars: dict[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self.metric(name, number, now, step) for name, number in scalars.items()]
        self.client.log_batch(self.id, metrics=metrics)

    def flush(self) -> None:
        """Nothing: every line is written at once."""

    def close(self) -> None:
        self.client.set_terminated(self.id)


class TrackioWriter:
    can_rewind = False

    def __init__(self, logger: R.Trackio, start: LogStart) -> None:
        import trackio

        name = run_id(start, "trackio", lambda: f"{start.folder.name}-{random_id()}")
        with redirect_stdout(sys.stderr):  # it prints, and stdout is the verb's
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
        """Nothing: a thread of its own writes every half second."""

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self.run.finish()
