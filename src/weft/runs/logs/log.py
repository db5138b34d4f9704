"""The log of a run: JSON lines, one per step, complete after a kill, and its curve."""

import os
from functools import partial
from math import isfinite
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from ...data.reading.files import file_identity
from ...interop.manifest import CURVE, FINISHED_FILE, read_finished, write_finished
from ...support.console import Report
from ...support.storage import named_os_errors, sync_handle, write_atomically
from ...training.step import TrainStep
from .curve import curve
from .log_lines import VALIDATION_KEYS, format_line, parse, scan
from .loggers import KINDS, NOTHING, Line, LineKey, LogStart, LogWriters, detach_trackers, line_key


class LogLabels(NamedTuple):
    """The unit and the metric name of a log."""

    unit: str = "tokens"  # unit of the samples
    loss_unit: str = "nats"
    metric: str | None = None


class RunLog:
    """The log of a run.

    Lines after the checkpoint that a run resumes from are removed first, since they are written
    again; so are the metrics of its own step unless the checkpoint contains them.

    Args:
        folder: the run directory.
        step: the step after which the run resumes.
        validated: the last step whose validation the checkpoint contains.
        labels: the names of the logged quantities.
        trackers: the experiment trackers, which also receive each line.
        report: called with a line about damaged or missing lines.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        validated: int = 0,
        labels: LogLabels = LogLabels(),
        trackers: LogWriters | None = None,
        report: Report = lambda line: None,
    ) -> None:
        self.folder = folder
        self.path = folder / "log.jsonl"
        self.labels = labels
        self.writers = trackers or LogWriters(LogStart(folder, step), (), report)
        with named_os_errors(self.path):
            self.path.touch()
            mark_unfinished(folder)
            last = truncate_log(self.path, step, validated, report)
            self.file = self.path.open("ab", buffering=0)  # so that errors name their line
        self.writers.resume(last, partial(read_log, self.path))

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.sync()
        finally:
            self.file.close()
            self.writers.close()

    def write(self, **line: Any) -> None:
        text = memoryview(format_line(line))
        with named_os_errors(self.path):
            while text:
                text = text[self.file.write(text) :]  # may write less than requested
        self.writers.write(line)

    def sync(self) -> None:
        """Sync all lines to disk, before a checkpoint."""
        with named_os_errors(self.path):
            sync_handle(self.file.fileno())
        self.writers.flush()

    def step(self, e: TrainStep, checkpoint_seconds: float | None = None) -> None:
        """Write the line of a step; `checkpoint_seconds` is the time that training waited for a
        checkpoint.
        """
        more: dict[str, Any] = {self.labels.unit: e.tokens}
        if e.skipped_reason:
            more |= {"skipped_reason": e.skipped_reason, "sample_ids": e.sample_ids}
        if e.expert_load:
            more["expert_load"] = {name: round(share, 4) for name, share in e.expert_load.items()}
        if checkpoint_seconds is not None:
            more["checkpoint_seconds"] = round(checkpoint_seconds, 4)
        self.write(
            step=e.step,
            loss=finite_or_none(e.loss),
            terms={name: finite_or_none(mean) for name, mean in e.terms.items()},
            grad_norm=finite_or_none(e.grad_norm),
            lr=e.lr,
            seconds=round(e.seconds, 4),
            data_seconds=round(e.data_seconds, 4),
            **more,
        )

    def validation(self, step: int, name: str, terms: dict[str, float]) -> None:
        """Write the line of a validation without NaN and infinity, which JSON cannot represent."""
        self.write(step=step, **{name: {key: v for key, v in terms.items() if isfinite(v)}})

    def finish(self) -> None:
        """Record the hashes of the final model and log, and write the curve, which marks the run as
        finished.
        """
        self.sync()
        write_finished(self.folder)
        labels = self.labels
        drawn = curve(read_log(self.path), self.folder.name, labels.loss_unit, labels.metric)
        write_atomically(self.folder / CURVE, drawn.encode())


def finite_or_none(number: float) -> float | None:
    """Return None for NaN and infinity, which JSON cannot represent."""
    return number if isfinite(number) else None


def is_finished(folder: Path) -> bool:
    return (folder / CURVE).exists()


def mark_unfinished(folder: Path) -> None:
    """Remove the mark of a finished run before its model or log changes."""
    for name in (CURVE, FINISHED_FILE):
        (folder / name).unlink(missing_ok=True)


def check_log(folder: Path, report: Report) -> None:
    """Report damaged lines, and whether a finished run's log was changed."""
    path = folder / "log.jsonl"
    problems = list[str]()
    read_log(path, problems.append)
    recorded = read_finished(folder).get("log")
    if recorded is not None and not (path.is_file() and file_identity(str(path)) == recorded):
        problems = problems or [f"{path} changed since the run finished; its model is complete"]
    for line in problems:
        report(line)


# Reading

LONG = 1 << 22  # bytes; a smaller log is read completely
PART = 1 << 18  # bytes at the end of a longer log
# Bytes and number of the sampled blocks
BLOCK = 1 << 12
BLOCKS = 64


def truncate_log(path: Path, step: int, validated: int, report: Report) -> LineKey:
    """Remove all lines after `step`; return the key of the last one.

    Reports damaged lines and missing lines up to `step`. The run continues, since the checkpoint
    contains its state.
    """
    last = NOTHING
    kept = NOTHING
    damaged = list[int]()
    end = 0
    count = 0
    with path.open("rb") as file:
        for number, offset, line, is_damaged in scan(file):
            if is_damaged:
                damaged.append(number)
            if line is None:
                continue
            last = max(last, line_key(line))
            if stays(line, step, validated):
                kept = max(kept, line_key(line))
                end = offset
                count = number
    os.truncate(path, end)
    skipped = [number for number in damaged if number < count]
    removed = [number for number in damaged if number > count]
    tell(path, [(skipped, "skipped"), (removed, "removed")], missing(kept, step, validated), report)
    return last


def stays(line: Line, step: int, validated: int) -> bool:
    """Return whether a line is kept when a run resumes after `step`."""
    if line["step"] != step:
        return bool(line["step"] < step)
    if "valid" in line:
        return validated == step
    return not any(name in line for name in VALIDATION_KEYS)


def missing(last: LineKey, step: int, validated: int) -> str:
    """Describe the lines before a checkpoint that are missing at the end of a log, if any."""
    if max(last[0], 0) < step:
        lines = f"steps {max(last[0], 0) + 1:,} to {step:,} are"
    elif validated == step and step and last < (step, KINDS.index("valid")):
        lines = f"the validation of step {step:,} is"
    else:
        return ""
    return f"{lines} missing; training resumes after step {step:,} from the checkpoint"


class LogEnd(NamedTuple):
    """The end of a log at a step."""

    size: int  # bytes up to there
    last: LineKey  # the last line of the whole log


def find_end(path: Path, step: int) -> LogEnd:
    """Find the end of the lines up to `step`, reading backwards, so that the cost does not depend
    on the size of the log.
    """
    last = NOTHING
    if path.stat().st_size == 0:
        return LogEnd(0, last)
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        end = len(text)
        while end:
            begin = text.rfind(b"\n", 0, end - 1) + 1
            line = parse(text[begin:end]) if text[end - 1] == 10 else None
            if line is not None:
                last = max(last, line_key(line))
                if stays(line, step, validated=step):
                    break
            end = begin
        return LogEnd(end, last)


def lines_until(path: Path, step: int) -> bytes:
    """Return the log as of a saved step."""
    with path.open("rb") as file:
        return file.read(find_end(path, step).size)


def restore_log(path: Path, step: int, copied: bytes) -> None:
    """Use a copy of the log unless the local log reaches the step."""
    last = find_end(path, step).last if path.exists() else NOTHING
    if copied and last[0] < step:
        detach_trackers(path.parent, last)
        write_atomically(path, copied)


def tell(path: Path, damaged: list[tuple[list[int], str]], missing: str, report: Report) -> None:
    """Report in one line which lines are damaged or foreign, how they were handled, and which lines
    are missing.
    """
    parts = []
    for numbers, did in damaged:
        if numbers:
            shown = ", ".join(map(str, numbers[:8]))
            shown += ", …" if len(numbers) > 8 else ""
            noun = "lines" if len(numbers) > 1 else "line"
            parts.append(f"{noun} {shown}: damaged, or not of this run; {did}")
    parts += [missing] if missing else []
    if parts:
        report(f"{path}, {'; '.join(parts)}")


def read_log(path: Path, report: Report = lambda line: None) -> list[dict[str, Any]]:
    """Return all complete lines. A kill may truncate the last one; other damaged lines are
    reported."""
    if not path.exists():
        return []
    lines = []
    damaged = []
    with path.open("rb") as file:
        for number, _, line, is_damaged in scan(file):
            if line is not None:
                lines.append(line)
            if is_damaged:
                damaged.append(number)
    tell(path, [(damaged, "skipped")], "", report)
    return lines


class Excerpt(NamedTuple):
    """The part of a log that `weft status` needs, in constant time."""

    lines: list[dict[str, Any]]  # the last lines, back to the last validation
    sample: list[dict[str, Any]]  # a sample of all lines
    whole: bool  # whether `lines` is the whole log


def excerpt(path: Path, report: Report) -> Excerpt:
    size = path.stat().st_size if path.exists() else 0
    if size <= LONG:
        lines = read_log(path, report)
        return Excerpt(lines, lines, True)
    with path.open("rb") as file:
        last = lines_at(file, size - PART, PART)
        if (
            not any("valid" in line for line in last)
            and (at := find_last(file, b'"valid": {', size)) is not None
        ):
            last = lines_at(file, at - PART, PART + BLOCK) + last
        sample = [
            line
            for i in range(BLOCKS)
            for line in lines_at(file, i * (size - BLOCK) // (BLOCKS - 1), BLOCK)
        ]
    return Excerpt(list({(line["step"], *line): line for line in last}.values()), sample, False)


def lines_at(file: BinaryIO, start: int, count: int) -> list[dict[str, Any]]:
    """Return the complete lines in a byte range of a file."""
    file.seek(max(0, start))
    text = file.read(count).split(b"\n")
    parsed = map(parse, text[start > 0 : -1])
    return [line for line in parsed if line is not None]


def find_last(file: BinaryIO, word: bytes, end: int) -> int | None:
    """Return the offset of the last occurrence of a word, searching from the end."""
    while end > 0:
        start = max(0, end - LONG)
        file.seek(start)
        if (at := file.read(end - start + len(word)).rfind(word)) >= 0:
            return start + at
        end = start
    return None
