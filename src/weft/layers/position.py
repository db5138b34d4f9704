"""Positions: at the input, by rotation, on the score. (At query and key: `Sequence.place_BLD`.)"""
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .mask import Pair
from .roles import Role, with_role


def sinusoid(position_BL: Tensor, width: int, layout: str, dtype: torch.dtype) -> Tensor:
    """sin and cos of pos / 10000^(2i/d) (Vaswani et al. 2017, section 3.5), worked out in fp64."""
    rate_K = 10_000.0 ** -(torch.arange(0, width, 2, device=position_BL.device, dtype=torch.float64) / width)
    angle_BLK = position_BL[..., None] * rate_K
    sin, cos = angle_BLK.sin().to(dtype), angle_BLK.cos().to(dtype)
    return torch.stack((sin, cos), -1).flatten(-2) if layout == "interleaved" else torch.cat((sin, cos), -1)


def sine_grid(rows: int, columns: int, width: int) -> Tensor:
    """MAE's fixed table: half the width for the column, half for the row, sines first (arXiv:2111.06377)."""
    row_N, column_N = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.cat([sinusoid(p_N.flatten(), width // 2, "halves", torch.float32) for p_N in (column_N, row_N)], -1)


def sine_unit(visible_BRC: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """DETR's: row and column as shares of the visible image, times 2π (arXiv:2005.12872, appendix A.4)."""
    visible = visible_BRC.to(torch.float64)
    shares = []
    for axis in (1, 2):
        at = visible.cumsum(axis)
        last = at[:, -1:, :] if axis == 1 else at[:, :, -1:]
        shares.append(at / (last + 1e-6) * 2 * math.pi)
    return torch.cat([sinusoid(s.flatten(1), width // 2, "interleaved", dtype) for s in shares], -1)


def stretch(table_PD: Tensor, grid: tuple[int, int]) -> Tensor:
    """One row per cell of a square grid, interpolated (bicubic) for another grid (ViT, section 3.2); the same grid gives the same table."""
    side = math.isqrt(len(table_PD))
    if grid == (side, side):
        return table_PD
    square_1DRS = table_PD.unflatten(0, (side, side)).permute(2, 0, 1)[None]
    return F.interpolate(square_1DRS, size=grid, mode="bicubic", align_corners=False)[0].flatten(1).T


class Learned2D(nn.Module):
    """Half a vector a row, half a column."""

    def __init__(self, s: S.Learned2D, width: int) -> None:
        super().__init__()
        self.rows, self.columns = (with_role(nn.Embedding(s.count, width // 2), Role.POSITION) for _ in range(2))

    def forward(self, rows: int, columns: int) -> Tensor:
        if max(rows, columns) > self.rows.num_embeddings:
            raise ValueError(f"a grid of {rows}×{columns} cells is larger than the {self.rows.num_embeddings} learned positions")
        row, column = self.rows.weight[:rows, None], self.columns.weight[None, :columns]
        return torch.cat((column.expand(rows, -1, -1), row.expand(-1, columns, -1)), -1).flatten(0, 1)


def angles(s: S.Rotary, position_BL: Tensor, head_width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin of position × frequency (arXiv:2104.09864), worked out in fp64: low precision loses far positions."""
    half = int(head_width * s.fraction) // 2
    rate_K = s.theta ** -(torch.arange(half, device=position_BL.device, dtype=torch.float64) / half)
    if s.stretch is not None:
        turns_K = s.stretch.original * rate_K / (2 * math.pi)
        blend_K = ((turns_K - s.stretch.low) / (s.stretch.high - s.stretch.low)).clamp(0, 1)
        rate_K = rate_K * (blend_K + (1 - blend_K) / s.stretch.factor)
    angle_B1LK = (position_BL[..., None] * rate_K)[:, None]
    return angle_B1LK.cos().to(dtype), angle_B1LK.sin().to(dtype)


def rotate(x_BHLK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + half) of the first 2·half numbers of each head."""
    half = cos.shape[-1]
    a, b, rest = x_BHLK[..., :half], x_BHLK[..., half:2 * half], x_BHLK[..., 2 * half:]
    cos, sin = cos.to(x_BHLK.dtype), sin.to(x_BHLK.dtype)
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


class Buckets(nn.Module):
    """A learned scalar per head for each distance bucket, near ones exact, far ones log-spaced (T5)."""

    def __init__(self, s: S.Buckets, heads: int) -> None:
        super().__init__()
        self.s, self.weight = s, nn.Parameter(torch.empty(s.count, heads))
        with_role(self, Role.POSITION)

    def bucket(self, offset: Tensor) -> Tensor:
        count, side = self.s.count, torch.zeros_like(offset)
        if self.s.sided:
            count //= 2
            side, offset = (offset > 0) * count, offset.abs()
        else:
            offset = (-offset).clamp(min=0)
        exact = count // 2
        share = (offset.clamp(min=1).float() / exact).log() / math.log(self.s.distance / exact)
        far = exact + (share * (count - exact)).long()
        return side + torch.where(offset < exact, offset, far.clamp(max=count - 1))

    def forward(self, pair: Pair) -> Tensor:
        if pair.first is None:
            return F.embedding(self.bucket(pair.offset_BLM), self.weight).permute(0, 3, 1, 2)
        # every diagonal holds one value: look up each distance once, then slide
        L, M = pair.query_BL.shape[1], pair.key_BM.shape[1]
        offset = torch.arange(1 - L - pair.first, M - pair.first, device=self.weight.device)
        return F.embedding(self.bucket(offset), self.weight).T.unfold(1, M, 1).flip(1)[None]


class Alibi(nn.Module):
    """-slope · distance; slopes are powers of 2^(-8/heads) (arXiv:2108.12409, and its code for odd head counts)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        whole = 1 << heads.bit_length() - 1
        first = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
        between = [2.0 ** (-8 * (i + 0.5) / whole) for i in range(heads - whole)]
        self.slopes = first + between

    def forward(self, pair: Pair) -> Tensor:
        slope_H = torch.tensor(self.slopes, device=pair.query_BL.device)
        return -slope_H[:, None, None] * pair.offset_BLM.abs()[:, None]


def build_score(s: S.Buckets | S.Alibi | None, heads: int) -> nn.Module | None:
    if isinstance(s, S.Buckets):
        return Buckets(s, heads)
    return Alibi(heads) if s is not None else None
