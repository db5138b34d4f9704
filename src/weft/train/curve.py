"""A run's loss as a picture: SVG, which every browser opens."""
from collections.abc import Iterable
from html import escape
from math import floor, log10
from typing import Any

WIDE, HIGH, LEFT, DOWN, TOP = 760, 420, 64, 44, 34
COLOURS = {"loss": "#9db8d9", "smooth": "#1f5fa8", "valid": "#c2410c", "averaged": "#15803d", "best": "#15803d"}


def curve(lines: Iterable[dict[str, Any]], title: str) -> str:
    """Training loss (thin), its running mean, and the validation loss, over the steps."""
    lines = list(lines)
    loss = [(line["step"], line["loss"]) for line in lines if "loss" in line and not line.get("refused")]
    rest = {name: [(line["step"], line[name]["loss"]) for line in lines if name in line] for name in ("valid", "averaged", "best")}
    if not loss:
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}"/>'
    drawn = {"loss": thin(loss), "smooth": thin(running(loss)), **{n: p for n, p in rest.items() if p}}
    values = sorted(y for points in drawn.values() for _, y in points)
    low: float = values[0]
    high: float = max(values[int(len(values) * 0.995) - 1], values[0] + 1e-6)
    last: int = loss[-1][0]

    def x(step: float) -> float:
        return LEFT + (WIDE - LEFT - 18) * step / last

    def y(value: float) -> float:
        return TOP + (HIGH - TOP - DOWN) * (high - min(value, high)) / (high - low)

    parts = [f'<text x="{LEFT}" y="22" font-weight="600">{escape(title)}</text>']
    parts += [f'<path d="M{LEFT} {y(v):.1f}H{WIDE - 18}" stroke="#e5e7eb"/>'
              f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>' for v in ticks(low, high)]
    parts += [f'<text x="{x(v):.1f}" y="{HIGH - 22}" text-anchor="middle">{v:,.0f}</text>' for v in ticks(0, last)]
    parts.append(f'<text x="{(LEFT + WIDE) / 2}" y="{HIGH - 5}" text-anchor="middle">step</text>')
    for i, (name, points) in enumerate(drawn.items()):
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[name]}" stroke-width="{1 if name == "loss" else 2}"/>')
        if name in rest:
            parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{COLOURS[name]}"/>' for a, b in points]
        label = {"loss": "training loss", "smooth": f"running mean {points[-1][1]:.4f}"}.get(name, f"{name} {points[-1][1]:.4f}")
        parts.append(f'<text x="{WIDE - 24}" y="{TOP + 16 + 17 * i}" text-anchor="end" fill="{COLOURS[name]}">{label}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" font-family="sans-serif" font-size="12" '
            f'fill="#374151"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n')


def running(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """A mean over about a fiftieth of the run."""
    share, mean, found = min(1.0, 50 / len(points)), points[0][1], []
    for step, value in points:
        mean += share * (value - mean)
        found.append((step, mean))
    return found


def thin(points: list[tuple[int, float]], most: int = 600) -> list[tuple[int, float]]:
    stride = -(-len(points) // most)
    return [*points[:-1:stride], points[-1]]


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two."""
    unit = 10 ** floor(log10(max(high - low, 1e-9) / 4))
    step = next(unit * m for m in (1, 2, 5, 10) if (high - low) / (unit * m) <= 6)
    first = -(-low // step)
    return [round(step * (first + i), 10) for i in range(int((high - first * step) / step) + 1)]
