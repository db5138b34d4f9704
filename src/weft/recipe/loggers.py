"""Experiment trackers, which receive the numbers of a run in addition to log.jsonl."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..support.registry import choice, implements, members
from ..support.synonyms import suggest

Name = Annotated[str, Field(min_length=1)]


class Logger:
    """Base of experiment trackers. Its implementation is built with (logger, start) on the first
    rank and is a `weft.runs.logs.loggers.LogWriter`.

    A logger receives numbers after they are in log.jsonl: it cannot change a run, and its failure
    is a single warning.

    Attributes:
        name: the value of `--log-to`.
    """

    name: ClassVar[str] = ""


@choice
class TensorBoard(Logger):
    """Event files in RUN/tensorboard."""

    name = "tensorboard"


@choice
class WandB(Logger):
    """Weights & Biases: files in RUN/wandb.

    Args:
        project: the project (default: "weft").
        mode: "offline", for a later `wandb sync`, or "online", which uploads during training
            (default: "offline").
    """

    name = "wandb"

    project: Name = "weft"
    mode: Literal["offline", "online"] = "offline"


@choice
class MLflow(Logger):
    """MLflow: files in RUN/mlflow, or a tracking server.

    Args:
        experiment: the experiment (default: "weft").
        tracking_uri: the address of a server or store (default: RUN/mlflow).
    """

    name = "mlflow"

    experiment: Name = "weft"
    tracking_uri: str | None = None


@choice
class Trackio(Logger):
    """Trackio: its local database, which `trackio show` displays.

    Args:
        project: the project (default: "weft").
    """

    name = "trackio"

    project: Name = "weft"


implements(TensorBoard, "weft.runs.logs.loggers:TensorBoardWriter")
implements(WandB, "weft.runs.logs.loggers:WandBWriter")
implements(MLflow, "weft.runs.logs.loggers:MLflowWriter")
implements(Trackio, "weft.runs.logs.loggers:TrackioWriter")


def logger_named(name: str) -> Logger:
    """Return the logger called `name` with its defaults.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest one.
    """
    loggers = {kind.name: kind for kind in members(Logger)}
    if name not in loggers:
        raise ValueError(f"no logger is called {name!r}; {suggest(name, list(loggers))}")
    return loggers[name]()
