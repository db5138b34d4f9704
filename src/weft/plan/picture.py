"""Plot a plan: memory of one device by part, and training time, against the number of devices."""

from pathlib import Path
from typing import Any

from ..support.console import format_number
from ..support.extras import install_extra
from .plan import Plan

COLOURS = {
    "weights": "#4c72b0",
    "gradients": "#55a868",
    "optimiser": "#8172b2",
    "activations": "#dd8452",
    "logits": "#c44e52",
    "buffers": "#937860",
    "batch": "#8c8c8c",
}


def draw(best: Plan, scaling: list[Plan], path: str) -> None:
    """Write the plot in the format of the file's suffix.

    Raises:
        ValueError: if matplotlib is missing, or does not write such a file.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(f"--picture draws with matplotlib; {install_extra('viz')}") from None
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    if (ending := Path(path).suffix.lstrip(".")) not in figure.canvas.get_supported_filetypes():
        raise ValueError(
            f"--picture {path}: the suffix {ending!r} is not supported; use .png or .svg"
        )
    memory, time = figure.subplots(1, 2)
    names = [f"{plan.layout.devices:,}" for plan in scaling]
    bottom = [0.0] * len(scaling)
    for part, colour in COLOURS.items():
        heights = [getattr(plan.memory, part) / 1e9 for plan in scaling]
        memory.bar(names, heights, bottom=bottom, label=part, color=colour)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    room = best.device.memory / 1e9
    memory.axhline(
        room, color="black", linestyle="--", linewidth=1, label=f"{room:.0f} GB available"
    )
    devices_label = f"number of devices ({best.device.name})"
    memory.set(xlabel=devices_label, ylabel="GB", title="memory of one device at its fullest")
    memory.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))
    draw_time(time, best, scaling)
    time.set_xlabel(devices_label)
    w = best.workload
    figure.suptitle(f"{w.name}: {format_number(w.samples_read)} {w.unit}, {w.precision}")
    figure.savefig(path)


def draw_time(axes: Any, best: Plan, scaling: list[Plan]) -> None:
    """Draw the time of the run against the number of devices, and linear scaling."""
    devices = [plan.layout.devices for plan in scaling]
    unit, seconds = ("days", 86_400) if best.seconds >= 172_800 else ("hours", 3600)
    durations = [plan.seconds / seconds for plan in scaling]
    straight = [best.seconds / seconds * best.layout.devices / number for number in devices]
    axes.loglog(devices, durations, marker="o", label="planned")
    axes.loglog(devices, straight, color="grey", linestyle=":", label="in proportion")
    axes.set(ylabel=unit, title="time of the run")
    axes.set_xticks(devices, [f"{number:,}" for number in devices])
    axes.set_yticks(durations, [f"{number:.3g}" for number in durations])
    axes.minorticks_off()
    axes.legend(fontsize="x-small")
