"""How far runs are and how good, from their files alone: one on a page, several in a table."""
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import recipe as R
from .cost import units
from .say import clock, short

if TYPE_CHECKING:
    from rich.table import Table

RECENT = 50                                # steps


def status(folder: Path) -> dict[str, Any]:
    """One run; torch is not needed. `loss` is a mean over the steps before the last validation, or over the last few without one:
    over samples, as the validation's own is, and not one step's."""
    from .train.lock import held
    from .train.log import excerpt, finished
    from .train.same import recipe_of
    recipe = recipe_of(folder, complain)
    lines, sample, whole = excerpt(folder / "log.jsonl", complain)
    steps = [line for line in lines if "loss" in line]
    kept: dict[str, Any] = next((line[name] for line in reversed(lines) for name in ("averaged", "best") if name in line), {})
    valid: dict[str, Any] = next((line for line in reversed(lines) if "valid" in line), {"step": 0, "valid": {}})
    saved = sorted(p.name for p in (folder / "checkpoints").glob("step-*") if p.name[5:].isdecimal())
    last, done = steps[-RECENT:], steps[-1]["step"] if steps else 0
    pace = total(last, "seconds") / max(len(last), 1)
    taken = [line for line in sample if "loss" in line]
    share = 1 if whole else done / max(len(taken), 1)          # of a long log, what a sample of its steps comes to
    unit, over = units(recipe), done == recipe.steps and finished(folder)
    end = valid["step"] or done
    window = [line for line in steps if max(0, end - (recipe.evaluate or RECENT)) < line["step"] <= end]
    return {"run": str(folder), "recipe": recipe.name, "step": done, "steps": recipe.steps,
            "state": "finished" if over else "running" if held(folder) else "stopped", "finished": over,
            "loss": mean(window, unit), "loss_steps": [window[0]["step"], window[-1]["step"]] if window else None,
            "recent_loss": mean(last, unit), "valid": valid["valid"].get("loss"), "valid_step": valid["step"] or None,
            "metric": R.metric(recipe), "valid_metric": valid["valid"].get(R.metric(recipe)),
            "kept": R.scores(recipe, kept) | ({"step": kept["step"]} if "step" in kept else {}),
            "units": unit, unit: round(share * total(taken, unit)),
            "seconds": round(share * total(taken, "seconds"), 1), "estimated": not whole,
            "speed": total(last, unit) / total(last, "seconds") if total(last, "seconds") else None,
            "seconds_left": round(pace * (recipe.steps - done), 1), "refused": refused(folder, saved, [*steps, *taken]),
            "experts": steps[-1].get("experts") if steps else None, "checkpoints": saved,
            "saved": int(saved[-1].removeprefix("step-")) if saved else 0}


def total(lines: list[dict[str, Any]], name: str) -> Any:
    return sum(line.get(name) or 0 for line in lines)


def complain(line: str) -> None:
    print(f"weft: {line}", file=sys.stderr)


def refused(folder: Path, saved: list[str], lines: list[dict[str, Any]]) -> list[int]:
    """The steps that were not taken, of the log and of the newest checkpoint, which knows them all."""
    steps = {line["step"] for line in lines if line.get("refused")}
    for name in saved[-1:]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            steps |= {what["step"] for what in json.loads((folder / "checkpoints" / name / "state.json").read_text())["guard"]["refused"]}
    return sorted(steps)


def mean(lines: list[dict[str, Any]], unit: str) -> float | None:
    """Of the steps that were taken, each by what it read."""
    taken = [(line["loss"], line.get(unit) or 0) for line in lines if line["loss"] is not None and not line.get("refused")]
    return sum(loss * many for loss, many in taken) / max(sum(many for _, many in taken), 1) if taken else None


def runs(names: list[str]) -> list[Path]:
    """The runs that are named; of a folder that is none, those in it."""
    found: list[Path] = []
    for path in map(Path, names):
        inside = sorted(p.parent for p in path.glob("*/recipe.json")) if path.is_dir() and not (path / "recipe.json").exists() else []
        found += inside or [path]
    return list(dict.fromkeys(found))


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def page(s: dict[str, Any]) -> "Table":
    from rich.table import Table
    page = Table.grid(padding=(0, 2))
    left = "" if s["finished"] else f", step {s['step']:,} of {s['steps']:,}, about {clock(s['seconds_left'])} of training left"
    page.add_row("run", f"{s['run']} ({s['recipe']})")
    page.add_row("state", s["state"] + left)
    if s["loss"] is not None:
        page.add_row("loss", f"{s['loss']:.4f} in training, the mean of steps {s['loss_steps'][0]:,} to {s['loss_steps'][1]:,}")
    if s["valid"] is not None:
        own = f", {s['metric']} {s['valid_metric']:.4f}" if s["valid_metric"] is not None else ""
        page.add_row("", f"{s['valid']:.4f} in validation{own}, at step {s['valid_step']:,}")
    if s["valid"] is not None and s["step"] > s["valid_step"]:
        page.add_row("", f"{number(s['recent_loss'])} in training, the mean of the last {RECENT} steps")
    if s["kept"]:
        at = f", at step {s['kept']['step']:,}" if "step" in s["kept"] else ""
        said = ", ".join(f"{name} {value:.4f}" for name, value in s["kept"].items() if name != "step")
        page.add_row("kept", f"{'the best' if at else 'averaged'} weights: {said} in validation{at}")
    if s["speed"] is not None:
        about = "about " * s["estimated"]
        page.add_row("so far", f"{about}{short(s[s['units']])} {s['units']} in {clock(s['seconds'])}, {short(s['speed'])} {s['units']}/s")
    if s["experts"]:
        page.add_row("experts", f"load entropy {s['experts']['entropy']:.3f} of 1, largest share {s['experts']['max_share']:.1%}")
    page.add_row("checkpoints", ", ".join(s["checkpoints"]) or "none yet")
    if s["refused"]:
        page.add_row("refused", f"steps {', '.join(map(str, s['refused'][:8]))}: see log.jsonl")
    if s["finished"]:
        page.add_row("model", f"{s['run']}/model; the curve: {s['run']}/curve.svg")
    return page


def table(found: list[dict[str, Any]]) -> "Table":
    """Runs side by side."""
    from rich.table import Table
    made = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    same = found[0]["units"] if len({s["units"] for s in found}) == 1 else ""
    for head in ("run", "step", "state", "train", "valid", "metric", same or "read", "speed", "left"):
        made.add_column(head, justify="left" if head in ("run", "state", "metric") else "right", overflow="fold", no_wrap=head != "run")
    for s in found:
        own = "" if s["valid_metric"] is None else f"{s['metric']} {s['valid_metric']:.4f}"
        read = short(s[s["units"]]) + (f" {s['units']}" if not same else "")
        made.add_row(Path(s["run"]).name, f"{s['step']:,}/{s['steps']:,}", s["state"], number(s["loss"]), number(s["valid"]), own, read,
                     "" if s["speed"] is None else f"{short(s['speed'])}/s", "" if s["finished"] else clock(s["seconds_left"]))
    return made
