"""Small pictures without a plotting library: image tiles with Pillow, scatter plots as SVG."""

from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image
from torch import Tensor

WIDE = 560
HIGH = 300
LEFT = 60
DOWN = 44


def scale_to_bytes(x: np.ndarray) -> np.ndarray:
    low = float(x.min())
    high = float(x.max())
    scaled: np.ndarray = np.rint(255 * (x - low) / max(high - low, 1e-12)).astype(np.uint8)
    return scaled


def tile(tiles: Sequence[np.ndarray], columns: int, gap: int = 1) -> Image.Image:
    """Pictures of one size in rows of `columns`, on grey."""
    rows = -(-len(tiles) // columns)
    height, width = tiles[0].shape[:2]
    shape = (rows * (height + gap) + gap, columns * (width + gap) + gap, *tiles[0].shape[2:])
    sheet = np.full(shape, 128, np.uint8)
    for i, picture in enumerate(tiles):
        top, left = (
            n * (size + gap) + gap
            for n, size in zip(divmod(i, columns), (height, width), strict=True)
        )
        sheet[top : top + height, left : left + width] = picture
    return Image.fromarray(sheet)


def filter_picture(filters_NCRS: Tensor, columns: int = 7) -> Image.Image:
    """Scale each filter to its own range; average the channels unless there are three."""
    filters = filters_NCRS.cpu().numpy()
    if filters.shape[1] != 3:
        return tile([scale_to_bytes(one.mean(0)) for one in filters], columns)
    return tile([scale_to_bytes(one.transpose(1, 2, 0)) for one in filters], columns)


def similarity_picture(similarity_PP: Tensor, columns: int) -> Image.Image:
    """A grid of maps, one per cell: its similarity with all cells; black is the minimum, white is
    1.
    """
    tiles = scale_to_bytes(similarity_PP.cpu().numpy())
    return tile([one.reshape(-1, columns) for one in tiles], columns)


def scatter_svg(rows: Sequence[Sequence[float]], x_label: str, y_label: str) -> str:
    """One column of points per row of numbers, with a title on each point."""
    high = max((max(row) for row in rows), default=1.0) or 1.0
    step = (WIDE - LEFT - 20) / max(1, len(rows))

    def y(value: float) -> float:
        return HIGH - DOWN - (HIGH - DOWN - 12) * value / high

    parts = [
        f'<path d="M{LEFT} {y(v):.1f}H{WIDE - 10}" stroke="currentColor" stroke-opacity=".25"/>'
        f'<text x="{LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        for v in (0, high / 2, high)
    ]
    for i, row in enumerate(rows):
        x = LEFT + step * (i + 0.5)
        parts.append(
            f'<text x="{x:.1f}" y="{HIGH - DOWN + 18}" text-anchor="middle">{i + 1}</text>'
        )
        parts += [
            f'<circle cx="{x:.1f}" cy="{y(value):.1f}" r="4" fill="currentColor" fill-opacity=".6">'
            f"<title>layer {i + 1}, head {h + 1}: {value:.2f}</title></circle>"
            for h, value in enumerate(row)
        ]
    middle = (LEFT + WIDE) / 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" '
        'role="img" font-size="12" '
        f'font-family="sans-serif" fill="currentColor"><title>{escape(y_label)} by '
        f"{escape(x_label)}</title>{''.join(parts)}"
        f'<text x="{middle}" y="{HIGH - 6}" text-anchor="middle">{escape(x_label)}</text>'
        f'<text x="14" y="{HIGH / 2 - 10}" text-anchor="middle" transform="rotate(-90 14 '
        f'{HIGH / 2 - 10})">{escape(y_label)}</text></svg>'
    )
