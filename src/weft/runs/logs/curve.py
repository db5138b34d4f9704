"""The curve of a run as SVG: loss, metric and learning rate over the steps."""

from collections.abc import Iterable
from html import escape
from math import floor, isfinite, log10, nan
from typing import Any, NamedTuple

WIDE = 760
LEFT = 78
RIGHT = 18
TOP = 34
DOWN = 40
GAP = 26
COLOURS = {
    "training": "#9db8d9",
    "running mean": "#1f5fa8",
    "validation": "#c2410c",
    "averaged": "#15803d",
    "best": "#15803d",
    "lr": "#6b7280",
}
Points = list[tuple[int, float]]


class Panel(NamedTuple):
    """One quantity over the steps."""

    label: str  # of the y axis
    series: dict[str, Points]  # by name, in the order they are drawn
    high: int  # pixels


def curve(
    lines: Iterable[dict[str, Any]], title: str, unit: str = "nats", metric: str | None = None
) -> str:
    """Plot the training loss (thin), its running mean, the validation loss, and the selected
    weights at their step.
    """
    lines = list(lines)
    loss = [
        (line["step"], line["loss"])
        for line in lines
        if line.get("loss") is not None and not line.get("skipped_reason")
    ]
    if not loss:
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{TOP}"/>'
    panels = [
        Panel(
            f"loss ({unit})",
            {
                "training": downsample(loss),
                "running mean": downsample(running_mean(loss)),
                **validation_series(lines, "loss"),
            },
            300,
        )
    ]
    if metric is not None and (series := validation_series(lines, metric)):
        panels.append(Panel(metric, series, 130))
    if rates := [(line["step"], line["lr"]) for line in lines if "lr" in line]:
        panels.append(Panel("learning rate", {"lr": downsample(rates)}, 70))
    parts = [f'<text x="{LEFT}" y="20" font-weight="600">{escape(title)}</text>']
    top = TOP
    last = max(line["step"] for line in lines)
    for panel in panels:
        parts += draw_panel(panel, top, last)
        top += panel.high + GAP
    parts += [
        f'<text x="{x_position(v, last):.1f}" y="{top - GAP + 17}" '
        f'text-anchor="middle">{v:,.0f}</text>'
        for v in ticks(0, last)
    ]
    high = top - GAP + DOWN
    parts.append(
        f'<text x="{(LEFT + WIDE - RIGHT) / 2}" y="{high - 6}" text-anchor="middle">step</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{high}" '
        'font-family="sans-serif" font-size="12" '
        f'fill="#374151"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def validation_series(lines: list[dict[str, Any]], name: str) -> dict[str, Points]:
    """Return the validation metrics called `name`; the line of the best weights names their earlier
    step.
    """
    series = {
        label: [
            (line[key].get("step", line["step"]), line[key][name])
            for line in lines
            if isfinite(line.get(key, {}).get(name, nan))
        ]
        for key, label in (("valid", "validation"), ("averaged", "averaged"), ("best", "best"))
    }
    return {label: points for label, points in series.items() if points}


def x_position(step: float, last: int) -> float:
    return LEFT + (WIDE - LEFT - RIGHT) * step / last


def draw_panel(panel: Panel, top: float, last: int) -> list[str]:
    values = sorted(y for points in panel.series.values() for _, y in points)
    low: float = min(values[0], 0.0) if "lr" in panel.series else values[0]
    # Outliers may exceed the plot
    spikes = int(len(values) * 0.005) if "training" in panel.series else 0
    high: float = max(values[-1 - spikes], low + 1e-9)

    def y(value: float) -> float:
        return top + panel.high * (high - min(value, high)) / (high - low)

    middle = top + panel.high / 2
    parts = [
        f'<text x="16" y="{middle:.1f}" text-anchor="middle" transform="rotate(-90 16 '
        f'{middle:.1f})">{escape(panel.label)}</text>'
    ]
    parts += [
        f'<path d="M{LEFT} {y(v):.1f}H{WIDE - RIGHT}" stroke="#e5e7eb"/>'
        f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>'
        for v in ticks(low, high, 6 if panel.high > 100 else 2)
    ]
    # Curves are rare in this corner
    legend = (
        top + 14 if "training" in panel.series else top + panel.high + 11 - 17 * len(panel.series)
    )
    for i, (name, points) in enumerate(panel.series.items()):
        colour = COLOURS[name]
        line = " ".join(f"{x_position(a, last):.1f},{y(b):.1f}" for a, b in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" '
            f'stroke-width="{1 if name == "training" else 2}"/>'
        )
        if name in ("validation", "averaged", "best"):
            size = 3 if name == "validation" else 5
            parts += [
                f'<circle class="{name}" cx="{x_position(a, last):.1f}" cy="{y(b):.1f}" r="{size}" '
                f'fill="{colour}"/>'
                for a, b in points
            ]
        at = f" at step {points[-1][0]:,}" if name == "best" else ""
        labels = {"training": "training", "lr": ""}
        label = labels.get(name, f"{name} {points[-1][1]:.4f}{at}")
        parts.append(
            f'<text x="{WIDE - 24}" y="{legend + 17 * i}" text-anchor="end" '
            f'fill="{colour}">{label}</text>'
        )
    return parts


def running_mean(points: Points) -> Points:
    """Return a running mean over about a fiftieth of the run."""
    share = min(1.0, 50 / len(points))
    mean = points[0][1]
    smoothed = []
    for step, value in points:
        mean += share * (value - mean)
        smoothed.append((step, mean))
    return smoothed


def downsample(points: Points, limit: int = 600) -> Points:
    stride = -(-len(points) // limit)
    return [*points[:-1:stride], points[-1]]


def ticks(low: float, high: float, limit: int = 6) -> list[float]:
    """Return about five round numbers in a range, as axis ticks."""
    unit = 10 ** floor(log10(max(high - low, 1e-9) / 4))
    step = next(unit * m for m in (1, 2, 5, 10, 20, 50) if (high - low) / (unit * m) <= limit)
    first = -(-low // step)
    return [
        round(step * (first + i), 10) for i in range(int((high - first * step) / step + 1e-9) + 1)
    ]
