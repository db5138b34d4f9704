"""Progress of a run on the screen: forecast, live line, rows done."""

import sys
import time
from contextlib import ExitStack
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from .. import recipe as R
from ..console import SPINNER_DELAY, format_duration, format_number, spinner
from ..recipe.cost import checkpoint_bytes, run_flops, step_flops
from ..recipe.recipe import sample_unit

if TYPE_CHECKING:
    from ..data.prepare import PrepareProgress as Done
    from ..training.loop import TrainStep
    from .run import RunState

# Preparing


class PrepareProgressLine:
    """A progress line for preparing data, with the tokenizer's speed beside ours; a spinner until it starts."""

    def __init__(self, text: str) -> None:
        self.patience = ExitStack()
        self.patience.enter_context(spinner(text))
        self.live, self.last_print, self.begin = sys.stderr.isatty(), 0.0, time.monotonic()
        self.last: Done | None = None

    def __enter__(self) -> "PrepareProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, p: "Done") -> None:
        self.patience.close()
        self.last, now = p, time.monotonic()
        if now - self.begin < 2 or now - self.last_print < (0.2 if self.live else 10):
            return
        if p.done == 1 and not self.live:  # what follows says that it is done
            return
        self.last_print = now
        alone = f" (the tokenizer alone: {p.tokenizer_speed:.1f})" if p.tokenizer_speed else ""
        line = {
            "tokenizer": "training the tokenizer",
            "classes": "collecting the names of the classes",
        }.get(
            p.stage,
            f"preparing {p.stage}: {p.done:.0%}, {p.speed:.1f} M characters/s{alone}{time_left(p.left)}",
        )
        print(
            f"\r\x1b[K{line}" if self.live else f"weft: {line}",
            end="" if self.live else "\n",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        self.patience.close()
        if self.live and self.last_print:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def time_left(seconds: float) -> str:
    return f", {format_duration(seconds)} left" if isfinite(seconds) else ""


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
        "unit": sample_unit(recipe),
    }


def forecast_page(f: dict[str, Any], keep: int) -> Table:
    page = Table.grid(padding=(0, 2))
    rows = {
        "model": f"{f['parameters']:,} trainable parameters, {f['precision']}, {f['device']}",
        "task": f["task"],
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


class TrainProgressLine:
    """A live line on a terminal; elsewhere a plain line every ten seconds."""

    def __init__(self, recipe: R.Recipe, done: int, flops: float, peak: float) -> None:
        self.recipe, self.flops, self.peak = recipe, flops, peak
        self.live = sys.stderr.isatty()
        self.last_print = self.begin = time.monotonic()
        self.loss: float | None = None
        self.pace: float | None = None
        self.data_pace: float | None = None
        self.valid = ""
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
        now = time.monotonic()
        if e.validation is not None:
            scores = self.recipe.scores(e.validation)
            self.valid = "".join(f"  valid {name} {number:.4f}" for name, number in scores.items())
        if self.live:
            self.bar.update(self.task, completed=e.step, line=self.line(e))
        elif now - self.last_print > 10 or e.step == self.recipe.steps or e.validation is not None:
            self.last_print = now
            print(
                f"step {e.step:,}/{self.recipe.steps:,}  {self.line(e)}",
                file=sys.stderr,
                flush=True,
            )
        if e.skipped_reason:
            print(
                f"weft: step {e.step:,} was skipped: {e.skipped_reason}",
                file=sys.stderr,
                flush=True,
            )

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


class RowProgressLine:
    """Rows done and time left on stderr, once the work takes long."""

    def __init__(self, what: str) -> None:
        self.what, self.began, self.last, self.screen = (
            what,
            time.perf_counter(),
            0.0,
            sys.stderr.isatty(),
        )

    def __enter__(self) -> "RowProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self.last and self.screen:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, done: int, total: int) -> None:
        spent = time.perf_counter() - self.began
        if (
            spent < SPINNER_DELAY
            or done == total
            or spent - self.last < (0.2 if self.screen else 15)
        ):
            return
        self.last, seconds = spent, spent * (total - done) / done
        line = f"weft: {self.what} {done:,} of {total:,}, {int(seconds // 60)}:{int(seconds % 60):02} left"
        print(
            f"\r{line}\x1b[K" if self.screen else line,
            end="" if self.screen else "\n",
            file=sys.stderr,
            flush=True,
        )
