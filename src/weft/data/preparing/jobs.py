"""Tasks on one piece of a source, and their progress."""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from ...recipe.data.formats import Piece
from ...support.addresses import Location


class PieceTask(NamedTuple):
    """A piece by its index in the source; the fingerprint identifies everything that its result
    depends on.
    """

    number: int
    piece: Piece
    fingerprint: str

    @classmethod
    def from_json(cls, plain: Any) -> "PieceTask":
        """Return a task that another process sent, or this one."""
        number, piece, fingerprint = plain
        return cls(number, piece_from_json(piece), fingerprint)


class WorkerProgress(NamedTuple):
    """Progress since the last report: tokenised characters and the tokenizer's own seconds."""

    text: int
    busy: float


Tick = Callable[[WorkerProgress], None]


class Job(Protocol):
    """The settings of all tasks, as plain values that can be sent to another process or machine."""

    def open(self) -> Callable[[Any, Tick], None]:
        """Load the objects that many tasks need, and return a function that runs one task."""

    def _asdict(self) -> dict[str, Any]: ...


RunTasks = Callable[[Job, Sequence[Any], str], None]  # the last is the name of the stage


def piece_from_json(plain: Any) -> Piece:
    paths, spans, size, identity = plain
    return Piece(tuple(paths), tuple((a, b) for a, b in spans), size, identity)


@contextmanager
def named_piece_errors(folder: Location, name: str, piece: Piece) -> Iterator[None]:
    """Context that converts errors of a piece into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(
                f"the disk of {folder} is full: writing {name} needs about "
                f"{2 * piece.size / 1e6:.1f} MB; free some space and run the command again: "
                "finished shards are kept"
            ) from None
        raise ValueError(f"{error.filename or piece.paths[0]}: {error.strerror or error}") from None
    except LookupError as error:
        raise ValueError(
            f"{piece.paths[0]} cannot be read in this format: {type(error).__name__}: {error}; "
            "check the format and the file"
        ) from None
