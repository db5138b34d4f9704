"""The log of a run: JSON lines, one a step, that a killed run leaves whole; and its picture."""
import json
from collections.abc import Iterator
from math import isfinite
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import recipe as R
from ..cost import units
from .curve import curve

if TYPE_CHECKING:
    from .loop import Event

CURVE = "curve.svg"


class Log:
    """What is beyond the checkpoint that a run goes on from will happen again, so it is taken off first; and so what was measured at
    its very step, unless the checkpoint knows of it (`validated`): a run that is extended was measured there as a whole."""

    def __init__(self, folder: Path, step: int, validated: int = 0, recipe: R.Recipe | None = None, board: bool = False) -> None:
        self.folder, self.path, self.recipe = folder, folder / "log.jsonl", recipe
        self.path.touch()
        (folder / CURVE).unlink(missing_ok=True)               # not finished yet
        cut(self.path, step, validated)
        self.file = self.path.open("a")
        self.board = open_board(folder, step) if board else None

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()

    def write(self, **line: Any) -> None:
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, number in numbers(line):
                self.board.add_scalar(name, number, line["step"])

    def step(self, e: "Event") -> None:
        more: dict[str, Any] = {units(self.recipe) if self.recipe else "tokens": e.tokens}
        more |= {"refused": e.refused, "samples": e.samples} if e.refused else {}
        more |= {"experts": {name: round(number, 4) for name, number in e.experts.items()}} if e.experts else {}
        self.write(step=e.step, loss=plain(e.loss), terms={name: plain(mean) for name, mean in e.terms.items()}, norm=plain(e.norm),
                   rate=e.rate, seconds=round(e.seconds, 4), **more)

    def valid(self, step: int, name: str, terms: dict[str, float]) -> None:
        self.write(step=step, **{name: terms})

    def finish(self) -> None:
        """The picture, and with it the sign that the run is complete."""
        fresh = self.folder / ".curve.svg"
        fresh.write_text(curve(read(self.path), self.folder.name, self.recipe))
        fresh.replace(self.folder / CURVE)


def plain(number: float) -> float | None:
    """JSON knows no NaN."""
    return number if isfinite(number) else None


def finished(folder: Path) -> bool:
    return (folder / CURVE).exists()


def open_board(folder: Path, step: int) -> Any:
    """TensorBoard's writer; what lies beyond `step` is purged there too."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("TensorBoard is not installed; pip install 'weft[tensorboard]', or leave --tensorboard out") from None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


def numbers(line: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for name, part in line.items():
        if isinstance(part, dict):
            yield from numbers(part, f"{path}{name}/")
        elif isinstance(part, int | float) and name != "step":
            yield path + name, part


MEASURED = ("valid", "averaged", "best")   # what a line beside those of steps holds


def cut(path: Path, step: int, validated: int = 0) -> None:
    """Take off all after the last whole line of `step` or before: from the end, however long the log is."""
    def stays(line: dict[str, Any]) -> bool:
        here: int = line["step"]
        return here < step or (here == step and (("valid" in line and validated == step) or not any(name in line for name in MEASURED)))

    with path.open("r+b") as file:
        end = size = path.stat().st_size
        if size:
            with mmap(file.fileno(), 0, access=ACCESS_READ) as text:
                while end:
                    begin = text.rfind(b"\n", 0, end - 1) + 1
                    if text[end - 1] == 10 and stays(json.loads(text[begin:end])):
                        break
                    end = begin
        file.truncate(end)


def read(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a kill may have cut the last."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found
