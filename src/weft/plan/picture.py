"""The picture of a plan: memory of one device by part, and time, both against the number of devices."""

from pathlib import Path

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
    """Write the picture in the format that the file's ending names.

    Raises:
        ValueError: if matplotlib is missing, or does not write such a file.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--picture draws with matplotlib; pip install 'weft[viz]'") from None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    if (ending := Path(path).suffix.lstrip(".")) not in figure.canvas.get_supported_filetypes():
        raise ValueError(
            f"--picture {path}: {ending!r} is no format of a picture; use .png or .svg"
        )
    memory, time = figure.subplots(1, 2)
    names = [f"{plan.layout.devices:,}" for plan in scaling]
    bottom = [0.0] * len(scaling)
    for part, colour in COLOURS.items():
        heights = [getattr(plan.memory, part) / 1e9 for plan in scaling]
        memory.bar(names, heights, bottom=bottom, label=part, color=colour)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    memory.axhline(best.device.memory / 1e9, color="black", linestyle="--", linewidth=1)
    memory.set(xlabel=f"number of {best.device.name}", ylabel="GB per device", title="memory")
    memory.legend(fontsize="x-small")
    devices = [plan.layout.devices for plan in scaling]
    time.loglog(devices, [plan.seconds / 86_400 for plan in scaling], marker="o")
    time.set(xlabel=f"number of {best.device.name}", ylabel="days", title=best.workload.name)
    time.set_xticks(devices, names)
    time.minorticks_off()
    figure.savefig(path)
