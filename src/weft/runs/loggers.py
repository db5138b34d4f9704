"""Experiment trackers. Each gets the numbers of a line once it is in log.jsonl; none of them can change or end a run."""

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from .. import recipe as R
from ..registry import implementation
from ..storage import write_atomically
from ..values import flatten_plain, to_plain

IDS = "loggers.json"  # of a run: the id that each tracker knows it by
Line = dict[str, Any]
LineKey = tuple[int, str]  # the step, and what the line holds


class LogStart(NamedTuple):
    """What a writer begins with."""

    folder: Path
    recipe: R.Recipe | None
    step: int  # after which the run continues

    @property
    def config(self) -> dict[str, Any]:
        """The fields of the recipe by their paths; of the model, which may have thousands, only its size."""
        if self.recipe is None:
            return {}
        fields = flatten_plain(to_plain(self.recipe))
        kept = {name: part for name, part in fields.items() if not name.startswith("model.")}
        return kept | {"parameters": self.recipe.model.parameter_count()}


class LogWriter(Protocol):
    """Writes to one tracker.

    Attributes:
        can_rewind: whether it removes what it logged after `LogStart.step`. Others keep it, and are not given it again: a
            resumed run computes the same numbers.
    """

    can_rewind: bool

    def log(self, step: int, scalars: dict[str, float]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class LogWriters:
    """All trackers of a run. One that fails is reported once and left out.

    Attributes:
        removed: lines that were logged before and that a resumed run writes again.
    """

    def __init__(self, start: LogStart, report: Callable[[str], None]) -> None:
        self.step, self.report = start.step, report
        self.removed: set[LineKey] = set()
        self.writers: dict[str, LogWriter] = {}
        for logger in start.recipe.loggers if start.recipe else ():
            name, build = type(logger).__name__, implementation(logger)
            try:
                self.writers[name] = build(logger, start)
            except ImportError as error:
                extra = logger.name or name.lower()
                raise ValueError(
                    f"{name} is not installed ({error}); pip install 'weft[{extra}]', or leave --log-to {extra} out"
                ) from None
            except Exception as error:
                self.warn(name, error)

    def write(self, line: Line) -> None:
        repeated = line_key(line) in self.removed
        rewound = line["step"] > self.step
        scalars = dict(scalars_of(line))
        for name, writer in list(self.writers.items()):
            if not repeated or (writer.can_rewind and rewound):
                self.attempt(name, partial(writer.log, line["step"], scalars))

    def flush(self) -> None:
        for name, writer in list(self.writers.items()):
            self.attempt(name, writer.flush)

    def close(self) -> None:
        for name, writer in list(self.writers.items()):
            self.attempt(name, writer.close)

    def attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever a tracker raises, training continues
            del self.writers[name]
            self.warn(name, error)

    def warn(self, name: str, error: Exception) -> None:
        reason = " ".join(str(error).split()) or type(error).__name__
        self.report(
            f"{name} failed and gets no more of this run ({reason}); log.jsonl is complete, and training continues"
        )


def line_key(line: Line) -> LineKey:
    """Return what identifies a line of the log: its step, and the first field after it."""
    return line["step"], next(name for name in line if name != "step")


def scalars_of(line: Line, path: str = "") -> Iterator[tuple[str, float]]:
    for name, part in line.items():
        if isinstance(part, dict):
            yield from scalars_of(part, f"{path}{name}/")
        elif isinstance(part, int | float) and name != "step":
            yield path + name, part


def run_id(start: LogStart, tracker: str, create: Callable[[], str]) -> str:
    """Return the id of this run at a tracker, from the run's folder; `create` makes a new one."""
    path = start.folder / IDS
    ids: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    if tracker not in ids:
        ids[tracker] = create()
        write_atomically(path, json.dumps(ids, indent=1).encode())
    return ids[tracker]


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
    """Every line is a row of its own with its `step`: a validation has the step of the line before it."""

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
