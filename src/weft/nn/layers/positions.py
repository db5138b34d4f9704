"""Position layers: added to the input, as rotations, or as a bias on the scores. Positions at
queries and keys are `HiddenStates.query_key_position_BLD`.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import spec as S
from ...support.registry import implementation
from ..kernels.masks import Positions
from .roles import Role, with_role


def sinusoidal_positions(
    position_BL: Tensor, width: int, layout: str, dtype: torch.dtype, temperature: float = 10_000.0
) -> Tensor:
    """Return sin and cos of pos / 10000^(2i/d) (Vaswani et al. 2017, section 3.5), computed in
    float64.
    """
    rate_K = temperature ** -(
        torch.arange(0, width, 2, device=position_BL.device, dtype=torch.float64) / width
    )
    angle_BLK = position_BL[..., None] * rate_K
    sin = angle_BLK.sin().to(dtype)
    cos = angle_BLK.cos().to(dtype)
    return (
        torch.stack((sin, cos), -1).flatten(-2)
        if layout == "interleaved"
        else torch.cat((sin, cos), -1)
    )


def sinusoidal_grid(rows: int, columns: int, width: int) -> Tensor:
    """MAE's fixed table: half the width for the column, half for the row, sines first
    (arXiv:2111.06377).
    """
    row_N, column_N = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return torch.cat(
        [
            sinusoidal_positions(p_N.flatten(), width // 2, "halves", torch.float32)
            for p_N in (column_N, row_N)
        ],
        -1,
    )


@dataclass(frozen=True)
class SinusoidalTable:
    """Fills a position table: zeros for the extra tokens, then the fixed sines of a square grid."""

    side: int
    extra: int

    def __call__(self, table_PD: Tensor, generator: torch.Generator) -> None:
        table_PD.zero_()[self.extra :] = sinusoidal_grid(self.side, self.side, table_PD.shape[1])


def sinusoidal_unit_grid(
    visible_BRC: Tensor, width: int, dtype: torch.dtype, temperature: float = 10_000.0
) -> Tensor:
    """Return DETR's positions: row and column as fractions of the visible image, times 2π
    (arXiv:2005.12872, appendix A.4).
    """
    visible = visible_BRC.to(torch.float64)
    shares = []
    for axis in (1, 2):
        at = visible.cumsum(axis)
        last = at[:, -1:, :] if axis == 1 else at[:, :, -1:]
        shares.append(at / (last + 1e-6) * 2 * math.pi)
    return torch.cat(
        [
            sinusoidal_positions(s.flatten(1), width // 2, "interleaved", dtype, temperature)
            for s in shares
        ],
        -1,
    )


def interpolate_grid(table_PD: Tensor, grid: tuple[int, int]) -> Tensor:
    """One row per cell of a square grid, interpolated (bicubic) for another grid (ViT, section
    3.2); the same grid gives the same table.
    """
    side = math.isqrt(len(table_PD))
    if grid == (side, side):
        return table_PD
    square_1DRS = table_PD.unflatten(0, (side, side)).permute(2, 0, 1)[None]
    return (
        F.interpolate(square_1DRS, size=grid, mode="bicubic", align_corners=False)[0].flatten(1).T
    )


class SinusoidalPositionsLayer(nn.Module):
    """`sinusoidal_positions` of the tokens."""

    def __init__(self, spec: S.SinusoidalPositions, width: int) -> None:
        super().__init__()
        self.layout = spec.layout

    def forward(self, position_BL: Tensor | None, x_BLD: Tensor) -> Tensor:
        if position_BL is None:
            position_BL = torch.arange(x_BLD.shape[1], device=x_BLD.device)[None]
        return sinusoidal_positions(position_BL, x_BLD.shape[-1], self.layout, x_BLD.dtype)


class LearnedPositionsLayer(nn.Module):
    """A table of one vector per position."""

    def __init__(self, spec: S.LearnedPositions, width: int) -> None:
        super().__init__()
        self.offset = spec.offset
        self.weight = nn.Parameter(torch.empty(spec.count + spec.offset, width))
        with_role(self, Role.POSITION)

    def forward(self, position_BL: Tensor | None, x_BLD: Tensor) -> Tensor:
        if position_BL is None:
            return self.weight[self.offset : self.offset + x_BLD.shape[1]]
        return F.embedding(position_BL + self.offset, self.weight)


class LearnedPositions2DLayer(nn.Module):
    """A learned half-width vector per row and per column."""

    def __init__(self, spec: S.LearnedPositions2D, width: int) -> None:
        super().__init__()
        self.rows, self.columns = (
            with_role(nn.Embedding(spec.count, width // 2), Role.POSITION) for _ in range(2)
        )

    def forward(self, rows: int, columns: int) -> Tensor:
        if max(rows, columns) > self.rows.num_embeddings:
            raise ValueError(
                f"a grid of {rows}×{columns} cells exceeds the {self.rows.num_embeddings} learned "
                "rows and columns; resize images to less (Resize.max_size), or train a model with "
                "a larger LearnedPositions2D.count"
            )
        row = self.rows.weight[:rows, None]
        column = self.columns.weight[None, :columns]
        return torch.cat((column.expand(rows, -1, -1), row.expand(-1, columns, -1)), -1).flatten(
            0, 1
        )


def rope_angles(
    spec: S.RoPE, position_BL: Tensor, head_width: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cos and sin of position × frequency (arXiv:2104.09864), computed in float64: low
    precision is inaccurate for far positions.
    """
    half = int(head_width * spec.fraction) // 2
    rate_K = spec.theta ** -(
        torch.arange(half, device=position_BL.device, dtype=torch.float64) / half
    )
    if spec.scaling is not None:
        turns_K = spec.scaling.original_context_length * rate_K / (2 * math.pi)
        blend_K = (
            (turns_K - spec.scaling.low_freq_factor)
            / (spec.scaling.high_freq_factor - spec.scaling.low_freq_factor)
        ).clamp(0, 1)
        rate_K = rate_K * (blend_K + (1 - blend_K) / spec.scaling.factor)
    angle_B1LK = (position_BL[..., None] * rate_K)[:, None]
    return angle_B1LK.cos().to(dtype), angle_B1LK.sin().to(dtype)


def apply_rope(x_BHLK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + half) of the first 2·half dimensions of each head."""
    half = cos.shape[-1]
    a = x_BHLK[..., :half]
    b = x_BHLK[..., half : 2 * half]
    rest = x_BHLK[..., 2 * half :]
    cos = cos.to(x_BHLK.dtype)
    sin = sin.to(x_BHLK.dtype)
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


class RelativeBiasLayer(nn.Module):
    """A learned scalar per head and distance bucket: near distances exact, far ones log-spaced
    (T5).
    """

    def __init__(self, spec: S.RelativeBias, heads: int) -> None:
        super().__init__()
        self.s = spec
        self.weight = nn.Parameter(torch.empty(spec.buckets, heads))
        with_role(self, Role.POSITION_BIAS)

    def bucket(self, offset: Tensor) -> Tensor:
        count = self.s.buckets
        side = torch.zeros_like(offset)
        if self.s.bidirectional:
            count //= 2
            side = torch.where(offset > 0, count, 0)
            offset = offset.abs()
        else:
            offset = (-offset).clamp(min=0)
        exact = count // 2
        share = (offset.clamp(min=1).float() / exact).log() / math.log(self.s.max_distance / exact)
        far = exact + (share * (count - exact)).long()
        return side + torch.where(offset < exact, offset, far.clamp(max=count - 1))

    def forward(self, positions: Positions) -> Tensor:
        if positions.first_query_slot is None:
            return F.embedding(self.bucket(positions.offset_BLM), self.weight).permute(0, 3, 1, 2)
        # every diagonal holds one value: look up each distance once, then slide
        L = positions.query_BL.shape[1]
        M = positions.key_BM.shape[1]
        offset = torch.arange(
            1 - L - positions.first_query_slot,
            M - positions.first_query_slot,
            device=self.weight.device,
        )
        return F.embedding(self.bucket(offset), self.weight).T.unfold(1, M, 1).flip(1)[None]


class ALiBiLayer(nn.Module):
    """-slope · distance; slopes are powers of 2^(-8/heads) (arXiv:2108.12409, and its code for odd
    head counts).
    """

    def __init__(self, spec: S.ALiBi, heads: int) -> None:
        super().__init__()
        whole = 1 << heads.bit_length() - 1
        first = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
        between = [2.0 ** (-8 * (i + 0.5) / whole) for i in range(heads - whole)]
        self.slopes = first + between

    def forward(self, positions: Positions) -> Tensor:
        slope_H = torch.tensor(self.slopes, device=positions.query_BL.device)
        return -slope_H[:, None, None] * positions.offset_BLM.abs()[:, None]


def build_position_bias(spec: S.PositionBias | None, heads: int) -> nn.Module | None:
    return None if spec is None else implementation(spec)(spec, heads)
