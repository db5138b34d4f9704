"""Attention in shifted square windows of an image grid (Swin, arXiv:2103.14030, section 3.2)."""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .attention import Attention, Store, View, add_score


class WindowAttention(Attention):
    def __init__(self, s: S.Attention, width: int) -> None:
        super().__init__(s, width)
        assert isinstance(s.pattern, S.Windows)
        self.size, self.shift = s.pattern.size, s.pattern.shift
        self.offsets = nn.Embedding((2 * self.size - 1) ** 2, s.heads) if s.pattern.bias else None

    def forward(self, x_BLD: Tensor, memory_BMD: Tensor | None, view: View, store: Store | None = None) -> Tensor:
        assert view.grid is not None, "windows need the image grid"
        (rows, columns), size = view.grid, self.size
        shift = self.shift if min(rows, columns) > size else 0       # one window sees all: nothing to shift
        windows = self.cut(x_BLD, view.grid, shift)
        padded = (-(-rows // size) * size, -(-columns // size) * size)
        mask = self.mask(padded, shift, view, len(x_BLD))
        y = super().forward(windows, None, view._replace(mask=mask, causal=False))
        R, C = padded[0] // size, padded[1] // size
        y = y.view(-1, R, C, size, size, y.shape[-1]).transpose(2, 3).reshape(-1, *padded, y.shape[-1])
        if shift:
            y = y.roll((shift, shift), (1, 2))
        return y[:, :rows, :columns].flatten(1, 2)

    def cut(self, x_BLD: Tensor, grid: tuple[int, int], shift: int) -> Tensor:
        """(windows, cells, D); cells beyond the grid are zeros."""
        size = self.size
        x = x_BLD.unflatten(1, grid)
        x = F.pad(x, (0, 0, 0, -grid[1] % size, 0, -grid[0] % size))
        if shift:
            x = x.roll((-shift, -shift), (1, 2))
        x = x.view(len(x), x.shape[1] // size, size, x.shape[2] // size, size, x.shape[3])
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)

    def mask(self, padded: tuple[int, int], shift: int, view: View, batch: int) -> Tensor | None:
        """Learned bias by offset, and -inf between cells that the shift brought together from far."""
        mask = self.bias() if self.offsets is not None else None
        if shift:
            region = self.regions(padded, shift, view.pair.query_BL.device)
            apart = (region[:, :, None] == region[:, None, :])[:, None]          # (windows, 1, cells, cells)
            apart = apart.expand(batch, *apart.shape).flatten(0, 1)
            mask = apart if mask is None else add_score(mask, apart)
        return mask

    def bias(self) -> Tensor:
        assert self.offsets is not None
        at = torch.arange(self.size, device=self.offsets.weight.device)
        row, column = (t.flatten() for t in torch.meshgrid(at, at, indexing="ij"))
        row, column = row[:, None] - row + self.size - 1, column[:, None] - column + self.size - 1
        bias: Tensor = self.offsets(row * (2 * self.size - 1) + column)
        return bias.permute(2, 0, 1)[None]

    def regions(self, padded: tuple[int, int], shift: int, device: torch.device) -> Tensor:
        """Number the parts that were neighbours before the shift, then cut into windows."""
        def part(length: int) -> Tensor:
            at = torch.arange(length, device=device)
            return (at >= length - self.size).long() + (at >= length - shift).long()
        region = part(padded[0])[:, None] * 3 + part(padded[1])
        size = self.size
        region = region.view(padded[0] // size, size, padded[1] // size, size)
        return region.transpose(1, 2).reshape(-1, size * size)
