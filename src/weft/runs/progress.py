"""Progress of a run on the screen: forecast, live line, rows done."""

import sys
import time
from contextlib import ExitStack
from math import isfinite, nan, prod
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from .. import recipe as R
from ..console import SPINNER_DELAY, format_duration, format_number, spinner
from ..recipe.cost import checkpoint_bytes, run_flops, step_flops
from ..recipe.recipe import sample_unit

if TYPE_CHECKING:
    from ..data.prepare import PrepareProgress
    from ..training.loop import TrainStep
    from .run import RunState

LIVE_SECONDS, PLAIN_SECONDS = 0.2, 10.0  # between two updates on a terminal, and elsewhere


class ProgressLine:
    """One line on stderr: on a terminal a spinner, then a line rewritten in place; elsewhere a plain line every ten seconds."""

    prefix = "weft: "  # of a plain line

    def __init__(self, text: str = "") -> None:
        self.live, self.shown = sys.stderr.isatty(), False
        self.started = time.monotonic()
        # The first line waits as long as a spinner does, or for its turn among plain lines.
        self.next_print = self.started + (SPINNER_DELAY if self.live else PLAIN_SECONDS)
        self.waiting = ExitStack()
        if text:
            self.waiting.enter_context(spinner(text))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self.next_print

    def print(self, line: str) -> None:
        self.waiting.close()
        self.shown = True
        self.next_print = time.monotonic() + (LIVE_SECONDS if self.live else PLAIN_SECONDS)
        print(
            f"\r\x1b[K{line}" if self.live else f"{self.prefix}{line}",
            end="" if self.live else "\n",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        self.waiting.close()
        if self.live and self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class CountProgressLine(ProgressLine):
    """How many are done of how many, and the time left: `evaluated 320 of 1,000 rows, 40 s left`."""

    def __init__(self, done: str, unit: str = "rows", text: str = "") -> None:
        super().__init__(text)
        self.verb, self.unit = done, unit

    def __call__(self, done: int, total: int) -> None:
        if not done:
            self.started = time.monotonic()
            self.next_print = max(self.next_print, self.started + SPINNER_DELAY)
        elif done < total and self.is_due:
            seconds = time.monotonic() - self.started
            self.print(f"{self.verb} {count_left(done, total, self.unit, seconds)}")


def count_left(done: int, total: int, unit: str, seconds: float) -> str:
    """Format how many are done after some seconds, and how long the others will take."""
    left = seconds * (total - done) / done
    return f"{done:,} of {total:,} {unit}{time_left(left)}"


def time_left(seconds: float) -> str:
    return f", {format_duration(seconds)} left" if isfinite(seconds) else ""


# Preparing


class PrepareProgressLine(ProgressLine):
    """Progress of preparing data, with the speed of the tokenizer alone beside that of the whole."""

    last: "PrepareProgress | None" = None

    def show(self, p: "PrepareProgress") -> None:
        self.last = p
        if not self.is_due or (p.done == 1 and not self.live):  # the result says that it is done
            return
        stages = {
            "tokenizer": "training the tokenizer",
            "classes": "collecting the names of the classes",
        }
        speed = f", {prepare_speed(p.speed, p.tokenizer_speed)}" if p.speed else ""
        self.print(
            stages.get(p.stage) or f"preparing {p.stage}: {p.done:.0%}{speed}{time_left(p.left)}"
        )


def prepare_speed(speed: float, tokenizer_speed: float) -> str:
    """Format both speeds, which are in millions of characters per second; of what has no tokenizer, such as images, of bytes."""
    if not tokenizer_speed:
        return f"{format_number(1e6 * speed)} bytes/s"
    alone = f" (tokenizer alone: {format_number(1e6 * tokenizer_speed)})"
    return f"{format_number(1e6 * speed)} characters/s{alone}"


# Training


def forecast(run: "RunState", seconds: float, tokens: int) -> dict[str, Any]:
    """Return the size and cost of a run; the time is extrapolated from one step."""
    from ..training.throughput import peak_flops

    recipe, parameters = run.recipe, sum(p.numel() for p in run.loss.parameters())
    left, most = (
        recipe.steps - run.trainer.step,
        peak_flops(recipe.precision, run.trainer.ranks.device),
    )
    return {
        "recipe": recipe.name,
        "task": type(recipe.task).__name__,
        "parameters": parameters,
        "steps": recipe.steps,
        "done": run.trainer.step,
        "tokens_per_step": tokens,
        "tokens": tokens * recipe.steps,
        "flops": run_flops(recipe),
        "peak_flops": most,
        "flops_utilization": step_flops(recipe, recipe.row_length(run.trainer.step))
        / seconds
        / most,
        "checkpoint_bytes": checkpoint_bytes(recipe, parameters),
        "seconds_per_step": seconds,
        "seconds_left": seconds * left,
        "samples": len(run.store),
        "precision": recipe.precision,
        "device": str(run.trainer.ranks.device),
        "ranks": dict(zip(GRID, recipe.parallel.sizes(run.trainer.ranks.world), strict=True)),
        "unit": sample_unit(recipe),
    }


GRID = ("replicate", "shard", "tensor")


def ranks_row(grid: dict[str, int]) -> dict[str, str]:
    """Return the row of several ranks; one rank has none."""
    if prod(grid.values()) == 1:
        return {}
    return {
        "ranks": f"{prod(grid.values()):,}: "
        + " × ".join(f"{name} {size}" for name, size in grid.items())
    }


def forecast_page(f: dict[str, Any], keep: int) -> Table:
    page = Table.grid(padding=(0, 2))
    rows = {
        "model": f"{f['parameters']:,} trainable parameters, {f['precision']}, {f['device']}",
        "task": f["task"],
        **ranks_row(f["ranks"]),
        "steps": f"{f['steps']:,} of about {f['tokens_per_step']:,} {f['unit']}, {format_number(f['tokens'])} in total"
        + (f"; {f['done']:,} done" if f["done"] else ""),
        "work": f"{format_number(f['flops'], 'FLOP')}; peak of a matrix product here: {format_number(f['peak_flops'], 'FLOP/s')}",
        "disk": f"{format_number(f['checkpoint_bytes'], 'B')} per checkpoint, {keep} kept",
        "time": f"about {format_duration(f['seconds_left'])} ({f['seconds_per_step'] * 1e3:.0f} ms/step, {f['flops_utilization']:.0%} of peak)",
    }
    for name, text in rows.items():
        page.add_row(name, text)
    return page


def moving_average(before: float | None, now: float) -> float:
    return now if before is None else before + 0.05 * (now - before)


class TrainProgressLine(ProgressLine):
    """A bar on a terminal; elsewhere a plain line every ten seconds, and one at each validation and at the end."""

    prefix = ""

    def __init__(self, recipe: R.Recipe, done: int, flops: float, peak: float) -> None:
        super().__init__()
        self.recipe, self.flops, self.peak = recipe, flops, peak
        self.loss: float | None = None
        self.pace: float | None = None
        self.data_pace: float | None = None
        self.valid = ""
        self.validation_started = time.monotonic()
        if self.live:
            from rich.console import Console

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TextColumn("{task.fields[line]}"),
                console=Console(stderr=True),
                refresh_per_second=4,
            )
            self.task = self.bar.add_task(recipe.name, total=recipe.steps, completed=done, line="")
            self.bar.start()

    def show(self, e: "TrainStep") -> None:
        if not e.skipped_reason:
            self.loss = moving_average(self.loss, e.loss)
        self.pace = moving_average(self.pace, e.seconds)
        self.data_pace = moving_average(self.data_pace, e.data_seconds)
        if e.validation is not None:
            scores = self.recipe.scores(e.validation)
            self.valid = "".join(f"  valid {name} {number:.4f}" for name, number in scores.items())
        elif e.step == self.recipe.steps:
            self.valid = ""  # it is of an earlier step; that of the last one follows
        if self.live:
            self.bar.update(self.task, completed=e.step, line=self.line(e))
        elif self.is_due or e.step == self.recipe.steps or e.validation is not None:
            self.print(f"step {e.step:,}/{self.recipe.steps:,}  {self.line(e)}")
        if e.skipped_reason:
            print(
                f"weft: step {e.step:,} was skipped: {e.skipped_reason}",
                file=sys.stderr,
                flush=True,
            )

    def show_validation(self, done: int, total: int) -> None:
        """Show the progress of a validation that takes longer than `SPINNER_DELAY` seconds."""
        if not done:
            self.validation_started = time.monotonic()
        seconds = time.monotonic() - self.validation_started
        if seconds < SPINNER_DELAY or not 0 < done < total:
            return
        line = f"validated {count_left(done, total, 'samples', seconds)}"
        if self.live:
            self.bar.update(self.task, line=line)
        elif self.is_due:
            self.print(line)

    def line(self, e: "TrainStep") -> str:
        assert self.pace is not None
        assert self.data_pace is not None
        return (
            f"loss {nan if self.loss is None else self.loss:.4f}{self.valid}  lr {e.lr:.2e}  "
            f"{format_number(e.tokens / self.pace)} {sample_unit(self.recipe)}/s  "
            f"{self.flops / self.pace / self.peak:.0%} of peak  {self.data_pace / self.pace:.1%} waiting for data  "
            f"{format_duration((self.recipe.steps - e.step) * self.pace)} left"
        )

    def close(self) -> None:
        if self.live:
            self.bar.stop()
