"""Progress and metrics of runs, from their files: a page for one run, a table for several."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.table import Table

from ...recipe.metrics import scores_of
from ...recipe.recipe import sample_unit
from ...support.console import format_duration, format_number

RECENT = 50  # steps


def complain(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr)


def run_status(folder: Path, report: Callable[[str], None] = complain) -> dict[str, Any]:
    """Return the status of a run, without torch. `loss` is the mean over the steps before the last
    validation, or over the last steps without one, so that it compares with the validation loss.

    Args:
        folder: the run directory.
        report: called with a line per damaged file.
    """
    from ...training.checkpoints.compatibility import recipe_of
    from .log import excerpt, is_finished

    recipe = recipe_of(folder, report)
    lines, sample, whole = excerpt(folder / "log.jsonl", report)
    steps = [line for line in lines if "loss" in line]
    selected: dict[str, Any] = next(
        (line[name] for line in reversed(lines) for name in ("averaged", "best") if name in line),
        {},
    )
    valid: dict[str, Any] = next(
        (line for line in reversed(lines) if "valid" in line), {"step": 0, "valid": {}}
    )
    saved = sorted(
        p.name for p in (folder / "checkpoints").glob("step-*") if p.name[5:].isdecimal()
    )
    checkpoint_step = int(saved[-1].removeprefix("step-")) if saved else 0
    last = steps[-RECENT:]
    logged = steps[-1]["step"] if steps else 0
    done = max(logged, checkpoint_step)  # the log may be missing
    pace = total(last, "seconds") / max(len(last), 1)
    sampled_steps = [line for line in sample if "loss" in line]
    # For a long log, extrapolate from a sample of its steps
    share = 1 if whole else logged / max(len(sampled_steps), 1)
    unit = sample_unit(recipe.model)
    over = is_finished(folder) and done in (0, recipe.steps)  # 0: only the model remains
    end = valid["step"] or logged
    window = [
        line for line in steps if max(0, end - (recipe.eval_every or RECENT)) < line["step"] <= end
    ]
    step_of_best = {"step": selected["step"]} if "step" in selected else {}
    return {
        "run": str(folder),
        "recipe": recipe.name,
        "step": recipe.steps if over else done,
        "steps": recipe.steps,
        "state": "finished" if over else unfinished_state(folder, bool(done or saved)),
        "finished": over,
        "loss": mean_loss(window, unit),
        "loss_steps": [window[0]["step"], window[-1]["step"]] if window else None,
        "recent_loss": mean_loss(last, unit),
        "valid_loss": valid["valid"].get("loss"),
        "valid_step": valid["step"] or None,
        "metric": recipe.metric,
        "valid_metric": valid["valid"].get(recipe.metric),
        "selected": scores_of(selected, recipe.metric) | step_of_best,
        "unit": unit,
        unit: round(share * total(sampled_steps, unit)),
        "seconds": round(share * total(sampled_steps, "seconds"), 1),
        "estimated": not whole,
        "speed": total(last, unit) / total(last, "seconds") if total(last, "seconds") else None,
        "data_wait": data_wait(last),
        "seconds_left": round(pace * (recipe.steps - done), 1),
        "skipped_steps": skipped_steps(folder, saved, [*steps, *sampled_steps]),
        "expert_load": steps[-1].get("expert_load") if steps else None,
        "checkpoints": saved,
        "checkpoint_step": checkpoint_step,
    }


def unfinished_state(folder: Path, has_begun: bool) -> str:
    from ..lock import is_locked

    if is_locked(folder):
        return "running"
    return "stopped" if has_begun else "not started"


def data_wait(lines: list[dict[str, Any]]) -> float | None:
    """Return the fraction of time that steps waited for data; None if the log lacks it."""
    if not any("data_seconds" in line for line in lines) or not total(lines, "seconds"):
        return None
    share: float = total(lines, "data_seconds") / total(lines, "seconds")
    return share


def total(lines: list[dict[str, Any]], name: str) -> Any:
    return sum(line.get(name) or 0 for line in lines)


def skipped_steps(folder: Path, saved: list[str], lines: list[dict[str, Any]]) -> list[int]:
    """Return the skipped steps from the log and the newest checkpoint, which lists all of them."""
    steps = {line["step"] for line in lines if line.get("skipped_reason")}
    for name in saved[-1:]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            state = json.loads((folder / "checkpoints" / name / "state.json").read_text())
            steps |= {what["step"] for what in state["guard"]["skipped"]}
    return sorted(steps)


def mean_loss(lines: list[dict[str, Any]], unit: str) -> float | None:
    """Return the mean loss over the steps, weighted by tokens, without skipped steps."""
    taken = [
        (line["loss"], line.get(unit) or 0)
        for line in lines
        if line["loss"] is not None and not line.get("skipped_reason")
    ]
    if not taken:
        return None
    mean: float = sum(loss * count for loss, count in taken) / max(
        sum(count for _, count in taken), 1
    )
    return mean


def find_runs(names: list[str]) -> list[Path]:
    """Return the named runs; for a folder of runs, the runs in it."""
    folders: list[Path] = []
    for path in map(Path, names):
        is_run = (path / "recipe.json").exists()
        inside = [] if is_run else sorted(p.parent for p in path.glob("*/recipe.json"))
        folders += inside or [path]
    return list(dict.fromkeys(folders))


def format_metric(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def status_page(status: dict[str, Any]) -> Table:
    """Return the page of one run."""
    page = Table.grid(padding=(0, 2))
    page.add_row("run", f"{status['run']} ({status['recipe']})")
    page.add_row("state", status["state"] + what_is_left(status))
    for name, text in measured_rows(status):
        page.add_row(name, text)
    page.add_row("checkpoints", ", ".join(status["checkpoints"]) or "none yet")
    if status["skipped_steps"]:
        skipped = ", ".join(map(str, status["skipped_steps"][:8]))
        page.add_row("skipped", f"steps {skipped}; see log.jsonl")
    if status["finished"]:
        page.add_row("model", f"{status['run']}/model; curve: {status['run']}/curve.svg")
    return page


def what_is_left(status: dict[str, Any]) -> str:
    step = status["step"]
    steps = status["steps"]
    if status["finished"]:
        return ""
    if step == steps:
        return f" after step {step:,}; the final validation and export remain"
    if not step:
        return f", {steps:,} steps remain"
    duration = format_duration(status["seconds_left"])
    return f", step {step:,} of {steps:,}, about {duration} of training left"


def measured_rows(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of logged quantities."""
    yield from loss_rows(status)
    if status["selected"]:
        yield "selected", selected_text(status["selected"])
    if status["speed"] is not None:
        unit = status["unit"]
        about = "about " if status["estimated"] else ""
        read = f"{about}{format_number(status[unit])} {unit}"
        speed = f"{format_number(status['speed'])} {unit}/s"
        yield "so far", f"{read} in {format_duration(status['seconds'])}, {speed}"
    if status["data_wait"] is not None:
        share = f"{status['data_wait']:.1%}"
        yield "data", f"{share} of the time of the last steps was spent waiting for it"
    if status["expert_load"]:
        load = status["expert_load"]
        entropy = f"load entropy {load['entropy']:.3f} of 1"
        yield "experts", f"{entropy}, largest share {load['max_share']:.1%}"


def loss_rows(status: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if status["loss"] is not None:
        first, last = status["loss_steps"]
        yield "loss", f"training {status['loss']:.4f}, mean of steps {first:,} to {last:,}"
    if status["valid_loss"] is None:
        return
    metric = ""
    if status["valid_metric"] is not None:
        metric = f", {status['metric']} {status['valid_metric']:.4f}"
    step = status["valid_step"]
    yield "", f"validation {status['valid_loss']:.4f}{metric}, at step {step:,}"
    if status["step"] > step:
        recent = format_metric(status["recent_loss"])
        yield "", f"training {recent}, mean of the last {RECENT} steps"


def selected_text(selected: dict[str, float]) -> str:
    """Describe the final weights; the best ones have a step."""
    scores = [f"{name} {value:.4f}" for name, value in selected.items() if name != "step"]
    measured = f"weights: validation {', '.join(scores)}"
    if "step" in selected:
        return f"best {measured}, at step {selected['step']:,}"
    return f"averaged {measured}"


def status_table(statuses: list[dict[str, Any]]) -> Table:
    """Return a table with one row per run."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    same = statuses[0]["unit"] if len({s["unit"] for s in statuses}) == 1 else ""
    for head in (
        "run",
        "step",
        "state",
        "train",
        "valid",
        "metric",
        same or "read",
        "speed",
        "left",
    ):
        table.add_column(
            head,
            justify="left" if head in ("run", "state", "metric") else "right",
            overflow="fold",
            no_wrap=head != "run",
        )
    for s in statuses:
        metric_text = "" if s["valid_metric"] is None else f"{s['metric']} {s['valid_metric']:.4f}"
        read = format_number(s[s["unit"]]) + (f" {s['unit']}" if not same else "")
        table.add_row(
            Path(s["run"]).name,
            f"{s['step']:,}/{s['steps']:,}",
            s["state"],
            format_metric(s["loss"]),
            format_metric(s["valid_loss"]),
            metric_text,
            read,
            "" if s["speed"] is None else f"{format_number(s['speed'])}/s",
            "" if s["finished"] or not s["step"] else format_duration(s["seconds_left"]),
        )
    return table
