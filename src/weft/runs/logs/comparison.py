"""Comparison of runs: their curves in one plot; runs that differ only in the seed form one curve
with a confidence interval.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ... import recipe as R
from ...support.values import differing_fields
from .curve import Points, downsample, running_mean
from .log import read_log

# 97.5 % quantiles of Student's t by degrees of freedom; the normal distribution approximates the
# rest
STUDENT_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
NORMAL = 1.96
# of a step's line -> label
QUANTITIES = {
    "loss": "training loss",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
}
SMOOTHED = ("training loss", "gradient norm")
COLOURS = ("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#0e7490", "#be185d", "#4d7c0f")


class Curve(NamedTuple):
    """A quantity over the steps: the mean over runs, and half the width of its 95 % interval, which
    is None for one run.
    """

    step_N: np.ndarray
    mean_N: np.ndarray
    half_width_N: np.ndarray | None


class RunGroup(NamedTuple):
    """Runs of the same recipe with different seeds."""

    name: str
    runs: tuple[str, ...]
    series: dict[str, list[Points]]  # quantity -> of each run
    # of the first run, without seed and name; None for one that cannot be read
    recipe: R.Recipe | None


def compare_runs(folders: Sequence[Path]) -> list[RunGroup]:
    """Read the logs of runs, and group runs whose recipes differ only in seed and name.

    Raises:
        ValueError: for a folder without a log, or one given twice.
    """
    groups: dict[Any, list[tuple[Path, dict[str, Points]]]] = {}
    recipes = dict[Path, R.Recipe | None]()
    repeated = [folder for i, folder in enumerate(folders) if folder in folders[:i]]
    if repeated:
        raise ValueError(f"{repeated[0]} is given twice; give each run once")
    for folder in folders:
        lines = read_log(folder / "log.jsonl")
        if not lines:
            raise ValueError(f"{folder} has no log; give a run directory, such as runs/bert")
        recipe = recipes[folder] = recipe_without_seed(folder)
        key = folder if recipe is None else recipe.to_json()
        groups.setdefault(key, []).append((folder, read_series(lines)))
    names = [folder.name for folder in folders]
    distinct = len(set(names)) == len(names)

    def name(folder: Path) -> str:
        return folder.name if distinct else str(folder)

    return [
        RunGroup(
            name(members[0][0]) + count_seeds([folder for folder, _ in members]),
            tuple(str(folder) for folder, _ in members),
            gather(members),
            recipes[members[0][0]],
        )
        for members in groups.values()
    ]


def count_seeds(folders: Sequence[Path]) -> str:
    """Return a text with the number of seeds among the runs of one recipe; runs with the same seed
    are not independent samples.
    """
    if len(folders) < 2:
        return ""
    seeds = len({R.recipe_of_run(folder).seed for folder in folders})
    if seeds == len(folders):
        return f" ({seeds} seeds)"
    return f" ({len(folders)} runs of {'one seed' if seeds == 1 else f'{seeds} seeds'})"


def gather(members: list[tuple[Path, dict[str, Points]]]) -> dict[str, list[Points]]:
    """Return the points per run for each quantity that all runs of a group have."""
    first, *others = (series for _, series in members)
    shared = [name for name in first if all(name in series for series in others)]
    return {name: [series[name] for _, series in members] for name in shared}


def recipe_without_seed(folder: Path) -> R.Recipe | None:
    """Return the recipe without seed and name; None if it is missing or unreadable, so that the run
    forms its own group.
    """
    try:
        recipe = R.recipe_of_run(folder)
    except (ValueError, OSError):
        return None
    return replace(recipe, seed=0, name="run")


def differing_settings(groups: Sequence[RunGroup]) -> dict[str, tuple[Any, ...]]:
    """Return the fields in which the recipes of groups differ, with the value of each group; empty
    unless all recipes are readable.
    """
    recipes = [group.recipe for group in groups]
    if any(recipe is None for recipe in recipes):
        return {}
    return differing_fields(*recipes)


def read_series(lines: Sequence[dict[str, Any]]) -> dict[str, Points]:
    """Return each quantity of a log over the steps, without skipped steps."""
    steps = [line for line in lines if "loss" in line and not line.get("skipped_reason")]
    series: dict[str, Points] = {
        label: [(line["step"], line[key]) for line in steps if line.get(key) is not None]
        for key, label in QUANTITIES.items()
    }
    validations = [line for line in lines if "valid" in line]
    for metric in dict.fromkeys(name for line in validations for name in line["valid"]):
        series[f"validation {metric}"] = [
            (line["step"], line["valid"][metric]) for line in validations if metric in line["valid"]
        ]
    loads = [line for line in steps if line.get("expert_load")]
    for name in ("entropy", "max_share"):
        label = {"entropy": "expert load entropy", "max_share": "largest expert share"}[name]
        series[label] = [(line["step"], line["expert_load"][name]) for line in loads]
    return {label: points for label, points in series.items() if points}


def mean_curve(runs: Sequence[Points], smooth: bool) -> Curve:
    """Return the mean at the steps that all runs have, after smoothing each run, with its 95 %
    interval by Student's t.
    """
    curves = [dict(running_mean(points) if smooth else points) for points in runs]
    steps = sorted(set(curves[0]).intersection(*curves[1:]))
    value_RN = np.array([[curve[step] for step in steps] for curve in curves], float)
    half_width_N = None
    if len(runs) > 1:
        half_width_N = student_t(len(runs) - 1) * value_RN.std(0, ddof=1) / sqrt(len(runs))
    return Curve(np.array(steps), value_RN.mean(0), half_width_N)


def student_t(freedom: int) -> float:
    return STUDENT_T[freedom - 1] if freedom <= len(STUDENT_T) else NORMAL


def last_values(group: RunGroup, quantity: str) -> tuple[float, float | None] | None:
    """Return the last value, averaged over runs, and half the width of its interval; None if the
    quantity is not logged.
    """
    if quantity not in group.series:
        return None
    curve = mean_curve(group.series[quantity], quantity in SMOOTHED)
    if not len(curve.step_N):
        return None
    half = None if curve.half_width_N is None else float(curve.half_width_N[-1])
    return float(curve.mean_N[-1]), half


def quantities(groups: Sequence[RunGroup]) -> list[str]:
    """Return the names of all logged quantities, losses first."""
    names = dict.fromkeys(name for group in groups for name in group.series)
    first = [name for name in ("training loss", "validation loss") if name in names]
    return [*first, *(name for name in names if name not in first)]


def distinct_quantities(groups: Sequence[RunGroup]) -> list[str]:
    """Return all quantities except those that equal an earlier one in every run, such as the only
    term of a loss.
    """

    def repeats(name: str, other: str) -> bool:
        return all(
            group.series[name] == group.series.get(other)
            for group in groups
            if name in group.series
        )

    names = list[str]()
    for name in quantities(groups):
        if not any(repeats(name, other) for other in names):
            names.append(name)
    return names


def draw_comparison(
    groups: Sequence[RunGroup], path: str | Path, names: Sequence[str] = ()
) -> None:
    """Plot each quantity in its own panel, one colour per group, with intervals as bands; the
    training loss of single runs is thin.

    Args:
        groups: the result of `compare_runs`.
        path: the image file: .png, .svg or .pdf.
        names: the quantities to plot (default: all distinct ones).
    """
    from ...observe.figure import check_picture, new_figure

    path = check_picture(path)
    names = names or distinct_quantities(groups)
    columns = 2 if len(names) > 1 else 1
    rows = -(-len(names) // columns)
    figure = new_figure(5.2 * columns, 2.9 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel in axes[len(names) :]:
        panel.set_axis_off()
    for panel, name in zip(axes, names, strict=False):
        for i, group in enumerate(groups):
            if name in group.series:
                draw_curve(panel, group, name, COLOURS[i % len(COLOURS)])
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("step", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {})


def draw_curve(panel: Any, group: RunGroup, name: str, colour: str) -> None:
    if name in SMOOTHED and len(group.runs) == 1:
        steps, values = zip(*downsample(group.series[name][0]), strict=True)
        panel.plot(steps, values, color=colour, alpha=0.25, linewidth=0.8)
    curve = mean_curve(group.series[name], name in SMOOTHED)
    marker = "o" if name.startswith("validation") else ""
    panel.plot(
        curve.step_N, curve.mean_N, color=colour, label=group.name, marker=marker, markersize=3
    )
    if curve.half_width_N is not None:
        low_N = curve.mean_N - curve.half_width_N
        high_N = curve.mean_N + curve.half_width_N
        panel.fill_between(curve.step_N, low_N, high_N, color=colour, alpha=0.2, linewidth=0)
