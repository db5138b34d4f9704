"""The same maps as PNG or SVG, drawn by matplotlib (extra `viz`)."""

from pathlib import Path
from typing import Any

from .page import page_html
from .panels import AttentionPanel, Observation

PAGE, PICTURES = (".html", ".htm"), (".png", ".svg", ".pdf")
LABELLED = 48  # tokens: more labels than these cannot be read


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
        path: its ending decides: .html is the page; .png, .svg and .pdf are drawn by matplotlib.
        kind: of the attention to draw, such as "cross" (default: the first).
        layer, head: from 1, of a picture of one head with its tokens (default: all heads; the first head of a layer).
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
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=150, bbox_inches="tight", metadata=metadata)


def check_picture(path: str | Path, *more: str) -> Path:
    """The path of a picture; ValueError if its ending names no picture, nor one of `more` formats."""
    path = Path(path)
    if path.suffix not in PICTURES:
        endings = ", ".join((*more, *PICTURES))
        raise ValueError(f"{path}: {path.suffix or 'no ending'} is not written; use {endings}")
    return path


def choose_panel(observation: Observation, kind: str | None) -> AttentionPanel:
    kinds = [panel.kind for panel in observation.panels]
    if not kinds:
        raise ValueError("there is no attention map to draw; give an input, or write a page, .html")
    if kind is not None and kind not in kinds:
        raise ValueError(f"there is no attention {kind!r}; there are {', '.join(map(repr, kinds))}")
    return observation.panels[kinds.index(kind) if kind is not None else 0]


def new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("pictures are drawn by matplotlib; pip install 'weft[viz]'") from None
    return Figure(figsize=(width, height))


def draw_heads(panel: AttentionPanel) -> Any:
    """Small multiples: a row per layer, a column per head."""
    layers, heads = len(panel.maps), panel.maps[0].shape[0]
    figure = new_figure(0.9 * heads + 0.8, 0.9 * layers + 0.8)
    axes = figure.subplots(
        layers, heads, squeeze=False, gridspec_kw={"wspace": 0.08, "hspace": 0.08}
    )
    for y, weight_HLM in enumerate(panel.maps):
        for h in range(heads):
            cell = axes[y, h]
            cell.imshow(
                weight_HLM[h].float().cpu().sqrt().numpy(),
                cmap="Blues",
                vmin=0,
                vmax=1,
                aspect="auto",
            )
            cell.set(xticks=[], yticks=[])
            if y == 0:
                cell.set_title(str(h + 1), fontsize=8)
            if h == 0:
                cell.set_ylabel(str(panel.layers[y] + 1), fontsize=8)
    figure.supxlabel("head", fontsize=9, y=0.05)
    figure.supylabel("layer", fontsize=9, x=0.08)
    return figure


def draw_head(panel: AttentionPanel, layer: int, head: int) -> Any:
    """One map with its tokens; rows attend to columns."""
    if layer - 1 not in panel.layers:
        raise ValueError(
            f"{panel.kind} has no layer {layer}; its layers are {panel.layers[0] + 1} to {panel.layers[-1] + 1}"
        )
    weight_HLM = panel.maps[panel.layers.index(layer - 1)]
    if not 1 <= head <= len(weight_HLM):
        raise ValueError(f"{panel.kind} has no head {head}; its heads are 1 to {len(weight_HLM)}")
    rows, columns = len(panel.queries), len(panel.keys)
    figure = new_figure(max(3.0, min(9.0, 0.24 * columns)), max(3.0, min(9.0, 0.24 * rows)))
    axes = figure.subplots()
    axes.imshow(weight_HLM[head - 1].float().cpu().numpy(), cmap="Blues", vmin=0)
    axes.set_title(f"{panel.kind}, layer {layer}, head {head}", fontsize=9)
    if max(rows, columns) <= LABELLED:
        axes.set_xticks(range(columns), panel.keys, rotation=90, fontsize=7)
        axes.set_yticks(range(rows), panel.queries, fontsize=7)
    return figure
