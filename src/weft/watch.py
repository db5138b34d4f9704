"""A run on the screen: what will happen, what happens, what happened. The words are made here; `cli` prints them."""
import json
import sys
import time
from contextlib import ExitStack
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from . import recipe as R
from .cost import checkpoint_bytes, run_flops, step_flops, units
from .say import clock, short, waiting

if TYPE_CHECKING:
    from .data.prepare import Progress as Done
    from .run import Made
    from .train.loop import Event


# Preparing

class Preparing:
    """A line of progress once it takes long, with the tokenizer's own speed beside ours; before and after it, a sign of life."""

    def __init__(self, text: str) -> None:
        self.patience = ExitStack()
        self.patience.enter_context(waiting(text))
        self.live, self.said, self.begin = sys.stderr.isatty(), 0.0, time.monotonic()
        self.last: Done | None = None

    def __enter__(self) -> "Preparing":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, p: "Done") -> None:
        self.patience.close()
        self.last, now = p, time.monotonic()
        if now - self.begin < 2 or now - self.said < (0.2 if self.live else 10):
            return
        self.said = now
        alone = f" (the tokenizer alone: {p.bare:.1f})" if p.bare else ""
        line = {"tokenizer": "training the tokenizer", "classes": "looking for the names of classes"}.get(
            p.stage, f"preparing {p.stage}: {p.done:.0%}, {p.speed:.1f} M characters/s{alone}{left(p.left)}")
        print(f"\r\x1b[K{line}" if self.live else f"weft: {line}", end="" if self.live else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        self.patience.close()
        if self.live and self.said:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def left(seconds: float) -> str:
    return f", {clock(seconds)} left" if isfinite(seconds) else ""


def part(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal()):
        raise ValueError(f"--part {text}: write I/N, such as 0/8")
    return int(index), int(count)


def prepared(folder: Path, preparing: Preparing) -> dict[str, Any]:
    """What a prepared folder holds, from its JSON."""
    data = json.loads((folder / "data.json").read_text())
    splits: dict[str, Any] = {}
    for path in sorted(folder.glob("*/index.json")):
        index = json.loads(path.read_text())
        splits[path.parent.name] = {"rows": index["rows"], "shards": len(index["shards"]), "fingerprint": index["fingerprint"],
                                    "tokens": sum(s["tokens"] for s in index["shards"])}
    quarantined = sum(len(path.read_text().splitlines()) for path in folder.glob("*/quarantine.jsonl"))
    p = preparing.last
    speed = {} if p is None or not p.busy else {"speed": p.speed, "tokenizer_speed": p.bare}
    return {"folder": str(folder), "vocabulary": data["vocabulary"], "labels": data["labels"], "splits": splits, "quarantined": quarantined,
            **speed}


def prepared_page(f: dict[str, Any]) -> Table:
    page = Table.grid(padding=(0, 2))
    page.add_row("folder", f["folder"])
    if f["vocabulary"]:
        page.add_row("vocabulary", f"{f['vocabulary']:,}")
    for name, s in f["splits"].items():
        page.add_row(name, f"{s['rows']:,} rows, {s['tokens']:,} tokens in {s['shards']:,} shards; fingerprint {s['fingerprint'][:12]}")
    if not f["splits"]:
        page.add_row("index", "not yet: other parts are missing")
    if f["quarantined"]:
        page.add_row("quarantined", f"{f['quarantined']:,} rows: see quarantine.jsonl")
    if "speed" in f:
        page.add_row("speed", f"{f['speed']:.1f} M characters/s, the tokenizer alone {f['tokenizer_speed']:.1f}")
    return page


# Training

def forecast(made: "Made", seconds: float, tokens: int) -> dict[str, Any]:
    """What a run will do and cost, the time by a step that was tried out."""
    from .train.meter import peak
    recipe, parameters = made.recipe, sum(p.numel() for p in made.objective.parameters())
    left, most = recipe.steps - made.trainer.step, peak(recipe.precision, made.trainer.world.device)
    return {"recipe": recipe.name, "objective": type(recipe.objective).__name__, "parameters": parameters, "steps": recipe.steps,
            "done": made.trainer.step, "tokens_per_step": tokens, "tokens": tokens * recipe.steps, "flops": run_flops(recipe), "peak": most,
            "share_of_peak": step_flops(recipe, recipe.length(made.trainer.step)) / seconds / most,
            "checkpoint_bytes": checkpoint_bytes(recipe, parameters), "seconds_per_step": seconds, "seconds_left": seconds * left,
            "samples": len(made.store), "precision": recipe.precision, "units": units(recipe)}


def forecast_page(f: dict[str, Any], keep: int) -> Table:
    page = Table.grid(padding=(0, 2))
    rows = {
        "model": f"{f['parameters']:,} parameters in training, {f['precision']}",
        "objective": f["objective"],
        "steps": f"{f['steps']:,} of about {f['tokens_per_step']:,} {f['units']}, {short(f['tokens'])} in all"
                 + (f"; {f['done']:,} done" if f["done"] else ""),
        "work": f"{short(f['flops'], 'FLOP')}; this machine's matrix peak is {short(f['peak'], 'FLOP/s')}",
        "disk": f"{short(f['checkpoint_bytes'], 'B')} a checkpoint, {keep} kept",
        "time": f"about {clock(f['seconds_left'])} ({f['seconds_per_step'] * 1e3:.0f} ms a step, {f['share_of_peak']:.0%} of the peak)",
    }
    for name, text in rows.items():
        page.add_row(name, text)
    return page


class Screen:
    """A live line on a terminal; elsewhere a plain line now and then."""

    def __init__(self, recipe: R.Recipe, done: int, flops: float, peak: float) -> None:
        self.recipe, self.flops, self.peak = recipe, flops, peak
        self.live = sys.stderr.isatty()
        self.said = self.begin = time.monotonic()
        self.loss: float | None = None
        self.pace: float | None = None
        self.valid = ""
        if self.live:
            from rich.console import Console
            self.bar = Progress(TextColumn("{task.description}"), BarColumn(bar_width=24),
                                TextColumn("{task.completed:,.0f}/{task.total:,.0f}"), TextColumn("{task.fields[line]}"),
                                console=Console(stderr=True), refresh_per_second=4)
            self.task = self.bar.add_task(recipe.name, total=recipe.steps, completed=done, line="")
            self.bar.start()

    def show(self, e: "Event") -> None:
        if not e.refused:
            self.loss = e.loss if self.loss is None else self.loss + 0.05 * (e.loss - self.loss)
        self.pace = e.seconds if self.pace is None else self.pace + 0.05 * (e.seconds - self.pace)
        now = time.monotonic()
        if e.valid is not None:
            scores = R.scores(self.recipe, e.valid)
            self.valid = "".join(f"  valid {name} {number:.4f}" for name, number in scores.items())
        if self.live:
            self.bar.update(self.task, completed=e.step, line=self.line(e))
        elif now - self.said > 10 or e.step == self.recipe.steps or e.valid is not None:
            self.said = now
            print(f"step {e.step:,}/{self.recipe.steps:,}  {self.line(e)}", file=sys.stderr, flush=True)
        if e.refused:
            print(f"weft: step {e.step:,} was not taken: {e.refused}", file=sys.stderr, flush=True)

    def line(self, e: "Event") -> str:
        assert self.pace is not None
        return (f"loss {nan if self.loss is None else self.loss:.4f}{self.valid}  rate {e.rate:.2e}  "
                f"{short(e.tokens / self.pace)} {units(self.recipe)}/s  "
                f"{self.flops / self.pace / self.peak:.0%} of peak  {clock((self.recipe.steps - e.step) * self.pace)} left")

    def close(self) -> None:
        if self.live:
            self.bar.stop()
