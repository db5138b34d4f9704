"""Progress and metrics of runs, read from their files: one as a page, several as a table."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..console import format_duration, format_number
from ..recipe.recipe import sample_unit

if TYPE_CHECKING:
    from rich.table import Table

RECENT = 50  # steps


def complain(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr)


def run_status(folder: Path, report: Callable[[str], None] = complain) -> dict[str, Any]:
    """Return the status of a run, without torch. `loss` is the mean over the steps before the last validation, or over the last few
    without one: a mean over samples, as the validation loss is, not that of one step.

    Args:
        folder: of the run.
        report: takes a line about each damaged file.
    """
    from ..training.compatibility import recipe_of
    from .lock import is_locked
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
    last, logged = steps[-RECENT:], steps[-1]["step"] if steps else 0
    done = max(logged, checkpoint_step)  # the log may be lost
    pace = total(last, "seconds") / max(len(last), 1)
    taken = [line for line in sample if "loss" in line]
    share = (
        1 if whole else logged / max(len(taken), 1)
    )  # of a long log, what a sample of its steps comes to
    unit = sample_unit(recipe.model)
    over = is_finished(folder) and done in (0, recipe.steps)  # 0: the model alone is left
    end = valid["step"] or logged
    window = [
        line for line in steps if max(0, end - (recipe.eval_every or RECENT)) < line["step"] <= end
    ]
    idle = "stopped" if done or saved else "not started"
    return {
        "run": str(folder),
        "recipe": recipe.name,
        "step": recipe.steps if over else done,
        "steps": recipe.steps,
        "state": "finished" if over else "running" if is_locked(folder) else idle,
        "finished": over,
        "loss": mean_loss(window, unit),
        "loss_steps": [window[0]["step"], window[-1]["step"]] if window else None,
        "recent_loss": mean_loss(last, unit),
        "valid_loss": valid["valid"].get("loss"),
        "valid_step": valid["step"] or None,
        "metric": recipe.metric,
        "valid_metric": valid["valid"].get(recipe.metric),
        "selected": recipe.scores(selected)
        | ({"step": selected["step"]} if "step" in selected else {}),
        "unit": unit,
        unit: round(share * total(taken, unit)),
        "seconds": round(share * total(taken, "seconds"), 1),
        "estimated": not whole,
        "speed": total(last, unit) / total(last, "seconds") if total(last, "seconds") else None,
        "data_wait": data_wait(last),
        "seconds_left": round(pace * (recipe.steps - done), 1),
        "skipped_steps": skipped_steps(folder, saved, [*steps, *taken]),
        "expert_load": steps[-1].get("expert_load") if steps else None,
        "checkpoints": saved,
        "checkpoint_step": checkpoint_step,
    }


def data_wait(lines: list[dict[str, Any]]) -> float | None:
    """Return the share of their time that steps waited for data; None where the log does not say."""
    if not any("data_seconds" in line for line in lines) or not total(lines, "seconds"):
        return None
    share: float = total(lines, "data_seconds") / total(lines, "seconds")
    return share


def total(lines: list[dict[str, Any]], name: str) -> Any:
    return sum(line.get(name) or 0 for line in lines)


def skipped_steps(folder: Path, saved: list[str], lines: list[dict[str, Any]]) -> list[int]:
    """Return the skipped steps of the log and of the newest checkpoint, which lists all of them."""
    steps = {line["step"] for line in lines if line.get("skipped_reason")}
    for name in saved[-1:]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            steps |= {
                what["step"]
                for what in json.loads((folder / "checkpoints" / name / "state.json").read_text())[
                    "guard"
                ]["skipped"]
            }
    return sorted(steps)


def mean_loss(lines: list[dict[str, Any]], unit: str) -> float | None:
    """Return the mean loss of the steps, weighted by their tokens; skipped steps do not count."""
    taken = [
        (line["loss"], line.get(unit) or 0)
        for line in lines
        if line["loss"] is not None and not line.get("skipped_reason")
    ]
    return (
        sum(loss * many for loss, many in taken) / max(sum(many for _, many in taken), 1)
        if taken
        else None
    )


def find_runs(names: list[str]) -> list[Path]:
    """Return the named runs; for a folder of runs, those in it."""
    folders: list[Path] = []
    for path in map(Path, names):
        inside = (
            sorted(p.parent for p in path.glob("*/recipe.json"))
            if path.is_dir() and not (path / "recipe.json").exists()
            else []
        )
        folders += inside or [path]
    return list(dict.fromkeys(folders))


def format_metric(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def status_page(status: dict[str, Any]) -> "Table":
    from rich.table import Table

    page = Table.grid(padding=(0, 2))
    left = (
        ""
        if status["finished"]
        else f" after step {status['step']:,}; the final validation and export are left"
        if status["step"] == status["steps"]
        else f", step {status['step']:,} of {status['steps']:,}, about {format_duration(status['seconds_left'])} of training left"
        if status["step"]
        else f", {status['steps']:,} steps are left"
    )
    page.add_row("run", f"{status['run']} ({status['recipe']})")
    page.add_row("state", status["state"] + left)
    if status["loss"] is not None:
        page.add_row(
            "loss",
            f"training {status['loss']:.4f}, mean of steps {status['loss_steps'][0]:,} to {status['loss_steps'][1]:,}",
        )
    if status["valid_loss"] is not None:
        metric_text = (
            f", {status['metric']} {status['valid_metric']:.4f}"
            if status["valid_metric"] is not None
            else ""
        )
        page.add_row(
            "",
            f"validation {status['valid_loss']:.4f}{metric_text}, at step {status['valid_step']:,}",
        )
    if status["valid_loss"] is not None and status["step"] > status["valid_step"]:
        page.add_row(
            "",
            f"training {format_metric(status['recent_loss'])}, mean of the last {RECENT} steps",
        )
    if status["selected"]:
        at = f", at step {status['selected']['step']:,}" if "step" in status["selected"] else ""
        metrics_text = ", ".join(
            f"{name} {value:.4f}" for name, value in status["selected"].items() if name != "step"
        )
        page.add_row(
            "selected", f"{'best' if at else 'averaged'} weights: validation {metrics_text}{at}"
        )
    if status["speed"] is not None:
        about = "about " * status["estimated"]
        page.add_row(
            "so far",
            f"{about}{format_number(status[status['unit']])} {status['unit']} in {format_duration(status['seconds'])}, {format_number(status['speed'])} {status['unit']}/s",
        )
    if status["data_wait"] is not None:
        page.add_row(
            "data",
            f"{status['data_wait']:.1%} of the time of the last steps was spent waiting for it",
        )
    if status["expert_load"]:
        page.add_row(
            "experts",
            f"load entropy {status['expert_load']['entropy']:.3f} of 1, largest share {status['expert_load']['max_share']:.1%}",
        )
    page.add_row("checkpoints", ", ".join(status["checkpoints"]) or "none yet")
    if status["skipped_steps"]:
        page.add_row(
            "skipped", f"steps {', '.join(map(str, status['skipped_steps'][:8]))}: see log.jsonl"
        )
    if status["finished"]:
        page.add_row("model", f"{status['run']}/model; the curve: {status['run']}/curve.svg")
    return page


def status_table(statuses: list[dict[str, Any]]) -> "Table":
    """Return a table with one row per run."""
    from rich.table import Table

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
