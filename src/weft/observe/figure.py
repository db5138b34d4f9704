"""Attention maps as PNG, SVG or PDF, drawn by matplotlib (extra `viz`)."""

from pathlib import Path
from typing import Any

from ..support.extras import install_extra
from .page import page_html
from .panels import AttentionPanel, Observation

PAGE = (".html", ".htm")
PICTURES = (".png", ".svg", ".pdf")
LABELLED = 48  # tokens: more labels than these cannot be read
INPUT_SHOWN = 60  # characters of the input above a picture


def save_observation(
    observation: Observation,
    path: str | Path,
    *,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write a page, or a picture of every head or of one.

    Args:
        observation: what `weft.look` returns.
        path: the suffix sets the format: .html is the page; .png, .svg and .pdf are drawn by
            matplotlib.
        kind: of the attention to draw, such as "cross" (default: the first).
        layer, head: from 1, of a picture of one head with its tokens (default: all heads;
            the first head of a layer).
    """
    path = Path(path)
    if path.suffix in PAGE:
        path.write_text(page_html(observation), "utf-8")
        return
    path = check_picture(path, *PAGE[:1])
    panel = choose_panel(observation, kind)
    if layer is None and head is None:
        figure = draw_heads(panel)
    else:
        figure = draw_head(panel, layer or 1, head or 1)
    figure.suptitle(caption(observation, panel), fontsize=10)
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=150, bbox_inches="tight", metadata=metadata)


def caption(observation: Observation, panel: AttentionPanel) -> str:
    """The model, the attention and the beginning of the input."""
    text = " ".join(observation.text.split())
    text = text if len(text) <= INPUT_SHOWN else f"{text[: INPUT_SHOWN - 1]}…"
    return f"{observation.title}: {panel.kind} attention" + (f"\n{text}" if text else "")


def check_picture(path: str | Path, *more: str) -> Path:
    """Return the path; raise ValueError unless its suffix is a picture format or one of `more`."""
    path = Path(path)
    if path.suffix not in PICTURES:
        endings = ", ".join((*more, *PICTURES))
        raise ValueError(f"{path}: the suffix {path.suffix!r} is not supported; use {endings}")
    return path


def choose_panel(observation: Observation, kind: str | None) -> AttentionPanel:
    kinds = [panel.kind for panel in observation.panels]
    if not kinds:
        raise ValueError(
            "the observation has no attention map to draw; give an input, or write a page (.html)"
        )
    if kind is not None and kind not in kinds:
        raise ValueError(
            f"unknown attention kind {kind!r}; available: {', '.join(map(repr, kinds))}"
        )
    return observation.panels[kinds.index(kind) if kind is not None else 0]


def new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError(f"pictures are drawn by matplotlib; {install_extra('viz')}") from None
    return Figure(figsize=(width, height), layout="constrained")


def draw_heads(panel: AttentionPanel) -> Any:
    """Small multiples: a row per layer, a column per head; one square root scale up to the largest
    weight, so that small ones are seen."""
    layers = len(panel.maps)
    heads = panel.maps[0].shape[0]
    largest = max(float(weight_HLM.max()) for weight_HLM in panel.maps)
    figure = new_figure(max(4.0, 0.9 * heads + 1.4), max(2.6, 0.9 * layers + 1.2))
    from matplotlib.colors import PowerNorm

    axes = figure.subplots(layers, heads, squeeze=False)
    for y, weight_HLM in enumerate(panel.maps):
        for h in range(heads):
            cell = axes[y, h]
            image = cell.imshow(
                weight_HLM[h].float().cpu().numpy(),
                cmap="Blues",
                norm=PowerNorm(0.5, vmin=0, vmax=largest),
                aspect="auto",
            )
            cell.set(xticks=[], yticks=[])
            if y == 0:
                cell.set_title(str(h + 1), fontsize=8)
            if h == 0:
                cell.set_ylabel(str(panel.layers[y] + 1), fontsize=8)
    figure.supxlabel("head; in each map, columns are the tokens attended to", fontsize=9)
    figure.supylabel("layer", fontsize=9)
    add_scale(figure, image, axes)
    return figure


def add_scale(figure: Any, image: Any, axes: Any) -> None:
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=30)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)


def draw_head(panel: AttentionPanel, layer: int, head: int) -> Any:
    """One map with its tokens; rows attend to columns."""
    if layer - 1 not in panel.layers:
        raise ValueError(
            f"{panel.kind} has no layer {layer}; its layers are {panel.layers[0] + 1} to "
            f"{panel.layers[-1] + 1}"
        )
    weight_HLM = panel.maps[panel.layers.index(layer - 1)]
    if not 1 <= head <= len(weight_HLM):
        raise ValueError(f"{panel.kind} has no head {head}; its heads are 1 to {len(weight_HLM)}")
    rows = len(panel.queries)
    columns = len(panel.keys)
    figure = new_figure(
        max(4.4, min(10.4, 0.24 * columns + 1.4)), max(3.6, min(9.6, 0.24 * rows + 0.6))
    )
    axes = figure.subplots()
    image = axes.imshow(weight_HLM[head - 1].float().cpu().numpy(), cmap="Blues", vmin=0)
    axes.set_title(f"layer {layer}, head {head}", fontsize=9)
    axes.set_xlabel("token attended to", fontsize=8)
    axes.set_ylabel("token that attends", fontsize=8)
    add_scale(figure, image, axes)
    if max(rows, columns) <= LABELLED:
        axes.set_xticks(range(columns), panel.keys, rotation=90, fontsize=7)
        axes.set_yticks(range(rows), panel.queries, fontsize=7)
    return figure
