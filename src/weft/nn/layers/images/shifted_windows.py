"""Attention in shifted square windows of an image grid (Swin, arXiv:2103.14030, section 3.2)."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .... import spec as S
from ...kernels.attention import AttentionBackend, add_position_bias
from ...kernels.precision import cast_for_autocast
from ..attention import AttentionContext, AttentionLayer, KeyValueStore
from ..positions import interpolate_grid
from ..roles import Role, with_role


class ShiftedWindowAttention(AttentionLayer):
    """Attention inside each window, with a learned bias per offset between two cells.

    A grid that fits in the window is one window, without shift or padding. A grid that is too
    narrow in one direction is divided into squares of its shorter side (the authors' code: window =
    min(input_resolution)). In both cases the bias of an offset keeps its row of the table. Other
    grids that are not a multiple of the window are padded with zeros at the right and bottom; cells
    attend to the padding, as in transformers, whose outputs these match.
    """

    def __init__(self, spec: S.Attention, width: int) -> None:
        super().__init__(spec, width)
        assert isinstance(spec.pattern, S.ShiftedWindows)
        self.size = spec.pattern.size
        self.shift = spec.pattern.shift
        self.offsets = (
            with_role(
                nn.Embedding((2 * self.size - 1) ** 2, spec.heads),
                Role.POSITION_BIAS,
                initialised_as=Role.TABLE,
            )
            if spec.pattern.bias
            else None
        )

    def forward(
        self,
        x_BLD: Tensor,
        memory_BMD: Tensor | None,
        context: AttentionContext,
        store: KeyValueStore | None = None,
    ) -> Tensor:
        assert context.grid is not None, "windows need the image grid"
        rows, columns = context.grid
        height, width = window = self.window_size(context.grid)
        shift = self.shift if min(rows, columns) > self.size else 0
        down = -(-rows // height)
        across = -(-columns // width)
        padded = (down * height, across * width)
        x = cast_for_autocast(x_BLD).unflatten(1, context.grid)
        x = F.pad(x, (0, 0, 0, padded[1] - columns, 0, padded[0] - rows))
        if shift:
            x = x.roll((-shift, -shift), (1, 2))
        windows = partition_windows(x, window)
        context = context._replace(mask=self.mask(padded, window, shift, context), causal=False)
        if shift:
            context = context._replace(split_backend=windows_as_heads(down * across))
        y = super().forward(windows, None, context)
        y = y.view(-1, down, across, height, width, y.shape[-1])
        y = y.transpose(2, 3).reshape(-1, *padded, y.shape[-1])
        if shift:
            y = y.roll((shift, shift), (1, 2))
        return y[:, :rows, :columns].flatten(1, 2)

    def window_size(self, grid: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of the windows on this grid."""
        if max(grid) <= self.size:
            return grid
        side = min(*grid, self.size)
        return side, side

    def mask(
        self,
        padded: tuple[int, int],
        window: tuple[int, int],
        shift: int,
        context: AttentionContext,
    ) -> Tensor | None:
        """Return the learned bias by offset; for shifted windows also -inf between cells that are
        adjacent only through the shift, (1, windows · H, L, M).
        """
        mask = self.bias(window) if self.offsets is not None else None
        if shift:
            region = self.regions(padded, shift, context.positions.query_BL.device)
            same_region = region[:, None, :, None] == region[:, None, None, :]  # of a window
            mask = same_region if mask is None else add_position_bias(mask, same_region)
            mask = mask.expand(-1, self.heads, -1, -1).flatten(0, 1)[None]
        return mask

    def bias(self, window: tuple[int, int]) -> Tensor:
        assert self.offsets is not None
        cell = [torch.arange(n, device=self.offsets.weight.device) for n in window]
        row, column = (t.flatten() for t in torch.meshgrid(*cell, indexing="ij"))
        row = row[:, None] - row + self.size - 1
        column = column[:, None] - column + self.size - 1
        bias: Tensor = self.offsets(row * (2 * self.size - 1) + column)
        return bias.permute(2, 0, 1)[None]

    def resize(self, table: Tensor) -> Tensor:
        """Interpolate the bias table of another window size (section 4.1: fine-tuning with a larger
        window).
        """
        return interpolate_grid(table, (2 * self.size - 1, 2 * self.size - 1))

    def regions(self, padded: tuple[int, int], shift: int, device: torch.device) -> Tensor:
        """Number the regions of adjacent cells before the shift, then split them into windows."""

        def part(length: int) -> Tensor:
            at = torch.arange(length, device=device)
            return (at >= length - self.size).long() + (at >= length - shift).long()

        region = part(padded[0])[:, None] * 3 + part(padded[1])
        return partition_windows(region[None, :, :, None], (self.size, self.size))[..., 0]


def windows_as_heads(count: int) -> Callable[[AttentionBackend], AttentionBackend]:
    """Treat the windows of an image as heads, so that the mask of the shift, one per window, is the
    same for all images.
    """

    def split(kernel: AttentionBackend) -> AttentionBackend:
        def attend(
            q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, **options: Any
        ) -> Tensor:
            q, k, v = (t.unflatten(0, (-1, count)).flatten(1, 2) for t in (q_BHLK, k_BGMK, v_BGMK))
            y_BHLK: Tensor = kernel(q, k, v, mask, **options).unflatten(1, (count, -1))
            return y_BHLK.flatten(0, 1)

        return attend

    return split


def partition_windows(x: Tensor, window: tuple[int, int]) -> Tensor:
    """Split a padded grid (B, rows, columns, D) into windows: (windows, cells, D)."""
    x = x.unflatten(2, (-1, window[1])).unflatten(1, (-1, window[0]))
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)
