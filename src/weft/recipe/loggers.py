"""Where the numbers of a run go beside its log.jsonl, which stays the truth."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ..support.registry import choice, implements, members
from ..support.synonyms import suggest

Name = Annotated[str, Field(min_length=1)]


class Logger:
    """Base of every experiment tracker. Built with (logger, start) into a
    `weft.runs.logs.loggers.LogWriter` on the first rank.

    A logger sees numbers after they are in log.jsonl: it cannot change a run, and a failure of it
    is one warning.

    Attributes:
        name: after `--log-to`.
    """

    name: ClassVar[str] = ""


@choice
class TensorBoard(Logger):
    """Event files in RUN/tensorboard."""

    name = "tensorboard"


@choice
class WandB(Logger):
    """Weights & Biases: files in RUN/wandb, which `wandb sync` uploads; in the mode online they are
    uploaded during training.
    """

    name = "wandb"

    project: Name = "weft"
    mode: Literal["offline", "online"] = "offline"


@choice
class MLflow(Logger):
    """MLflow: files in RUN/mlflow, or a server or store at `tracking_uri`."""

    name = "mlflow"

    experiment: Name = "weft"
    tracking_uri: str | None = None


@choice
class Trackio(Logger):
    """Trackio: a local database, where `trackio show` finds it."""

    name = "trackio"

    project: Name = "weft"


implements(TensorBoard, "weft.runs.logs.loggers:TensorBoardWriter")
implements(WandB, "weft.runs.logs.loggers:WandBWriter")
implements(MLflow, "weft.runs.logs.loggers:MLflowWriter")
implements(Trackio, "weft.runs.logs.loggers:TrackioWriter")


def logger_named(name: str) -> Logger:
    """Return the logger called `name` with its defaults.

    Raises:
        ValueError: if there is none; the message says which name is nearest.
    """
    loggers = {kind.name: kind for kind in members(Logger)}
    if name not in loggers:
        raise ValueError(f"no logger is called {name!r}; {suggest(name, list(loggers))}")
    return loggers[name]()
