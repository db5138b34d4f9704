"""Draw the pictures of README: the block as its equation, and the results as their receipts hold
them.

python -m benchmarks.plots                # writes docs/block.svg, docs/results/speed.svg,
docs/results/tune.svg
"""

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

DOCS = Path(__file__).parents[1] / "docs"
INK = "#374151"
WEFT = "#0f766e"
LIGHT = "#5eead4"
OTHER = "#9ca3af"
PALE = "#ccfbf1"
# Any: the names are a Literal that matplotlib does not export
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "weft",  # the same picture is the same file
    "svg.fonttype": "none",
}
BRANCH = ("before", "inner", "out", "drop")


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "results" / f"{name}.json").read_text())["result"]
    return found


def draw_block() -> Figure:
    """Draw one residual branch, every place of its equation a box."""
    figure, axes = plt.subplots(figsize=(8.6, 2.9))
    axes.set(xlim=(0, 100), ylim=(0, 34))
    axes.axis("off")
    axes.text(50, 31, "x <- after(x * residual_scale + drop(layer_scale * out(inner(before(x)))))",
              ha="center", va="center", fontsize=12, family="monospace")  # fmt: skip
    for i, name in enumerate(BRANCH):
        add_box(axes, 13 + 16 * i, 17, name, filled=name == "inner")
    add_box(axes, 85, 17, "after")
    axes.text(2, 17, "x", ha="center", va="center", fontsize=12)
    axes.text(98.5, 17, "x", ha="center", va="center", fontsize=12)
    axes.text(75, 17, "+", ha="center", va="center", fontsize=16)
    for start, end in ((3.5, 7.5), (18.5, 23.5), (34.5, 39.5), (50.5, 55.5), (66.5, 73.2)):
        add_arrow(axes, (start, 17), (end, 17))
    for start, end in ((76.8, 79.5), (90.5, 97)):
        add_arrow(axes, (start, 17), (end, 17))
    add_arrow(axes, (2, 15), (75, 14.5), bend=0.15)
    axes.text(38.5, 5.4, "* residual_scale", ha="center", va="center", fontsize=9)
    captions = (
        (13, 22.2, "norm (pre-norm)"),
        (29, 22.2, "attention or\nfeed-forward"),
        (45, 22.2, "norm (sandwich)"),
        (61, 22.2, "layer scale,\ndropout"),
        (85, 22.2, "norm (post-norm)"),
    )
    for x, y, text in captions:
        axes.text(x, y, text, ha="center", va="center", fontsize=8.5, style="italic")
    return figure


def add_box(axes: Axes, x: float, y: float, text: str, filled: bool = False) -> None:
    box = FancyBboxPatch(
        (x - 5, y - 2.6),
        10,
        5.2,
        boxstyle="round,pad=0.3",
        edgecolor=WEFT,
        facecolor=PALE if filled else "white",
    )
    axes.add_patch(box)
    axes.text(x, y, text, ha="center", va="center", family="monospace")


def add_arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0
) -> None:
    arrow = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=10,
        color=INK,
        connectionstyle=f"arc3,rad={bend}",
    )
    axes.add_patch(arrow)


def training_label(name: str) -> str:
    """Say what both sides of a row of `train_speed` read."""
    model, _, dropout = name.partition("/dropout ")
    read = {
        "bert": "bert, ours packed, theirs padded",
        "bert_packed": "bert, both packed",
    }.get(model, model)
    return f"train {read}, dropout {float(dropout):g}"


def draw_speed() -> Figure:
    """Draw how many times as fast as transformers a training step and decoding are, in the same
    precision.
    """
    rows = [
        (training_label(name), "bf16", row["ratio"], WEFT)
        for name, row in result("train_speed").items()
    ]
    for name, row in result("decode").items():
        label = f"decode {name.replace('/', ', ')}"
        rows.append((label, "float32", row["float32 / transformers float32"], LIGHT))
        rows.append((label, "bf16", row["bf16 / transformers bf16"], LIGHT))
    figure, axes = plt.subplots(figsize=(6.8, 4))
    bars = axes.barh(
        [f"{label} ({precision})" for label, precision, _, _ in rows],
        [ratio for *_, ratio, _ in rows],
        color=[colour for *_, colour in rows],
        height=0.62,
    )
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.axvline(1, color=OTHER, linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel("times as fast as transformers (1: equal)")
    return figure


def draw_tune() -> Figure:
    """Draw the scores of fine-tuning beside transformers' Trainer: mean and standard deviation over
    the seeds.
    """
    tasks = result("tune")["tasks"]
    figure, axes = plt.subplots(figsize=(6.4, 2.8))
    for offset, (side, colour, label) in zip(
        (-0.19, 0.19),
        (("weft", WEFT, "Weft"), ("trainer", OTHER, "transformers' Trainer")),
        strict=True,
    ):
        scores = [
            [100 * run["score"] for run in task["runs"] if run["side"] == side]
            for task in tasks.values()
        ]
        axes.bar(
            [i + offset for i in range(len(scores))],
            [mean(own) for own in scores],
            width=0.36,
            yerr=[stdev(own) for own in scores],
            color=colour,
            ecolor=INK,
            capsize=2,
            label=label,
        )
    axes.set_xticks(
        range(len(tasks)), [f"{name}\n{task['metric']}" for name, task in tasks.items()]
    )
    axes.set_ylabel("score")
    axes.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, 1.18))
    return figure


PICTURES = {
    "block.svg": draw_block,
    "results/speed.svg": draw_speed,
    "results/tune.svg": draw_tune,
}


def write(folder: Path) -> None:
    """Write every picture below `folder`."""
    with plt.rc_context(STYLE):
        for name, draw in PICTURES.items():
            figure = draw()
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(
                folder / name, bbox_inches="tight", facecolor="white", metadata={"Date": None}
            )
            plt.close(figure)


if __name__ == "__main__":
    write(DOCS)
