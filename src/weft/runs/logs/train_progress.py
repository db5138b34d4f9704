"""Progress of training on the terminal: a forecast, then a progress line."""

import sys
import time
from math import nan, prod
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from ...plan.cost import run_flops, step_flops
from ...plan.recipe_workload import workload_of_recipe
from ...recipe.metrics import scores_of
from ...recipe.recipe import sample_unit
from ...support.console import SPINNER_DELAY, console, format_duration, format_number
from ...training.step import TrainStep
from ...training.throughput import peak_flops
from ..run import Run
from .progress import PrepareProgressLine, ProgressLine, count_left, moving_average


class TrainScreen:
    """The terminal output of a run: preparation, forecast and steps.

    Args:
        is_first: whether this process is the first rank; the others show only the preparation.
    """

    def __init__(self, is_first: bool) -> None:
        self.is_first = is_first
        self.preparing = PrepareProgressLine("preparing the run")
        self.line: TrainProgressLine | None = None

    def start(self, run: Run, seconds: float, tokens: int) -> None:
        """Show the forecast from the seconds and the tokens of one step."""
        self.preparing.close()
        if not self.is_first:
            return
        facts = forecast(run, seconds, tokens)
        recipe = run.recipe
        console(stderr=True).print(forecast_page(facts, recipe.checkpoints_kept()))
        self.line = TrainProgressLine(
            recipe.name,
            recipe.steps,
            facts["done"],
            unit=facts["unit"],
            metric=recipe.metric,
            seconds_at_peak=facts["flops"] / recipe.steps / facts["peak_flops"],
        )

    def show(self, event: TrainStep) -> None:
        if self.line is not None:
            self.line.show(event)

    def show_validation(self, done: int, total: int) -> None:
        if self.line is not None:
            self.line.show_validation(done, total)

    def close(self) -> None:
        self.preparing.close()
        if self.line is not None:
            self.line.close()


def forecast(run: Run, seconds: float, tokens: int) -> dict[str, Any]:
    """Return the size and cost of a run, with the time extrapolated from one step."""
    recipe = run.recipe
    trainer = run.trainer
    peak = peak_flops(recipe.precision, trainer.ranks.device)
    length = recipe.training_schedule.row_length(trainer.step)
    step = step_flops(workload_of_recipe(recipe, row_length=length))
    return {
        "recipe": recipe.name,
        "task": type(recipe.task).__name__,
        "parameters": sum(p.numel() for p in run.loss.parameters()),
        "steps": recipe.steps,
        "done": trainer.step,
        "tokens_per_step": tokens,
        "tokens": tokens * recipe.steps,
        "flops": run_flops(recipe),
        "peak_flops": peak,
        "flops_utilization": step / seconds / peak,
        "checkpoint_bytes": run.checkpoint_bytes(),
        "seconds_per_step": seconds,
        "seconds_left": seconds * (recipe.steps - trainer.step),
        "samples": len(run.prepared.train),
        "precision": recipe.precision,
        "device": str(trainer.ranks.device),
        "ranks": dict(zip(GRID, recipe.parallel.sizes(trainer.ranks.world), strict=True)),
        "unit": sample_unit(recipe.model),
    }


GRID = ("replicate", "shard", "tensor")


def ranks_row(grid: dict[str, int]) -> dict[str, str]:
    """Return the row for several ranks; empty for one rank."""
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
        "steps": f"{f['steps']:,} of about {f['tokens_per_step']:,} {f['unit']}, "
        f"{format_number(f['tokens'])} in total" + (f"; {f['done']:,} done" if f["done"] else ""),
        "work": f"{format_number(f['flops'], 'FLOP')}; peak on this machine: "
        f"{format_number(f['peak_flops'], 'FLOP/s')}",
        "disk": f"{format_number(f['checkpoint_bytes'], 'B')} per checkpoint, {keep} kept",
        "time": f"about {format_duration(f['seconds_left'])} ({f['seconds_per_step'] * 1e3:.0f} "
        f"ms/step, {f['flops_utilization']:.0%} of peak)",
    }
    for name, text in rows.items():
        page.add_row(name, text)
    return page


class TrainProgressLine(ProgressLine):
    """A bar on a terminal; elsewhere a plain line every ten seconds, at each validation and at the
    end.

    Args:
        name: the name of the recipe.
        steps: the number of steps of the run.
        done: the number of steps before this start.
        unit: the unit of the samples, such as "tokens".
        metric: the metric shown beside the validation loss.
        seconds_at_peak: the seconds of one step at the machine's peak of FLOP/s.
    """

    prefix = ""

    def __init__(
        self,
        name: str,
        steps: int,
        done: int,
        *,
        unit: str,
        metric: str | None,
        seconds_at_peak: float,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.unit = unit
        self.metric = metric
        self.seconds_at_peak = seconds_at_peak
        self.loss: float | None = None
        self.pace: float | None = None
        self.data_pace: float | None = None
        self.valid = ""
        self.validation_started = time.monotonic()
        if self.live:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
                TextColumn("{task.fields[line]}"),
                console=Console(stderr=True),
                refresh_per_second=4,
            )
            self.task = self.bar.add_task(name, total=steps, completed=done, line="")
            self.bar.start()

    def show(self, e: TrainStep) -> None:
        if not e.skipped_reason:
            self.loss = moving_average(self.loss, e.loss)
        self.pace = moving_average(self.pace, e.seconds)
        self.data_pace = moving_average(self.data_pace, e.data_seconds)
        if e.validation is not None:
            scores = scores_of(e.validation, self.metric)
            self.valid = "".join(f"  valid {name} {number:.4f}" for name, number in scores.items())
        elif e.step == self.steps:
            self.valid = ""  # an earlier step's; the last one follows
        if self.live:
            self.bar.update(self.task, completed=e.step, line=self.line(e))
        elif self.is_due or e.step == self.steps or e.validation is not None:
            self.print(f"step {e.step:,}/{self.steps:,}  {self.line(e)}")
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

    def line(self, e: TrainStep) -> str:
        assert self.pace is not None
        assert self.data_pace is not None
        return (
            f"loss {nan if self.loss is None else self.loss:.4f}{self.valid}  lr {e.lr:.2e}  "
            f"{format_number(e.tokens / self.pace)} {self.unit}/s  "
            f"{self.seconds_at_peak / self.pace:.0%} of peak  {self.data_pace / self.pace:.1%} "
            "waiting for data  "
            f"{format_duration((self.steps - e.step) * self.pace)} left"
        )

    def close(self) -> None:
        if self.live:
            self.bar.stop()
