"""From ids or pixels to a `Sequence`."""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .backbone import ResNet
from .dropout import Dropout
from .norm import build_norm
from .position import Learned2D, sine_unit, sinusoid, stretch
from .roles import Role, with_role
from .sequence import Sequence, count_positions


class Tokens(nn.Module):
    """Rows of a table + positions + segments. The table is handed in where it is another's (`Shared`)."""

    def __init__(self, s: S.Tokens | S.Shared, table_width: int, width: int) -> None:
        super().__init__()
        self.s = s
        self.tokens = nn.Embedding(s.vocabulary, table_width) if isinstance(s, S.Tokens) else None
        learned = s.positions if isinstance(s.positions, S.Learned) else None
        self.positions = with_role(nn.Embedding(learned.count + learned.offset, table_width), Role.POSITION) if learned else None
        segments = s.segments if isinstance(s, S.Tokens) else None
        self.segments = nn.Embedding(segments, table_width) if segments else None
        self.norm, self.drop = build_norm(s.norm, table_width), Dropout(s.dropout)
        wider = self.tokens is not None and table_width != width
        self.project = with_role(nn.Linear(table_width, width), Role.PROJECTION) if wider else None

    def forward(self, ids_BL: Tensor, table: Tensor, keep_BL: Tensor | None = None, segments_BL: Tensor | None = None,
                position_BL: Tensor | None = None) -> Sequence:
        s, x_BLD = self.s, F.embedding(ids_BL, table)
        if s.scale != 1:
            x_BLD = x_BLD * s.scale
        if s.positions is not None:
            x_BLD = x_BLD + self.place(ids_BL, keep_BL, position_BL, x_BLD)
        if self.segments is not None:
            x_BLD = x_BLD + (self.segments.weight[0] if segments_BL is None else self.segments(segments_BL))
        x_BLD = self.drop(self.norm(x_BLD), keep_BL)
        return Sequence(x_BLD if self.project is None else self.project(x_BLD), keep_BL, position_BL)

    def place(self, ids_BL: Tensor, keep_BL: Tensor | None, position_BL: Tensor | None, x_BLD: Tensor) -> Tensor:
        L = ids_BL.shape[1]
        learned, packed = self.s.positions, keep_BL is not None and keep_BL.dtype != torch.bool
        if isinstance(learned, S.Learned) and learned.count < L and not packed:
            raise ValueError(f"{L} tokens are more than the {learned.count} learned positions; cut them")
        if position_BL is None and keep_BL is not None:
            position_BL = count_positions(keep_BL)
        if isinstance(self.s.positions, S.Sinusoid):
            counted = torch.arange(L, device=ids_BL.device)[None] if position_BL is None else position_BL
            return sinusoid(counted, x_BLD.shape[-1], self.s.positions.layout, x_BLD.dtype)
        assert self.positions is not None
        assert isinstance(self.s.positions, S.Learned)
        offset = self.s.positions.offset
        if position_BL is None:
            return self.positions.weight[offset:offset + L]
        place: Tensor = self.positions(position_BL + offset)
        return place


class Patches(nn.Module):
    def __init__(self, s: S.Patches, width: int) -> None:
        super().__init__()
        self.s, self.side = s, s.image // s.patch
        self.patch = nn.Conv2d(s.channels, width, s.patch, stride=s.patch)
        self.extra = nn.Parameter(torch.empty(len(s.tokens), width)) if s.tokens else None
        with_role(self, Role.TABLE)
        self.positions: nn.Module | None = None
        if isinstance(s.positions, S.Learned2D):
            self.positions = Learned2D(s.positions, width)
        elif s.positions is not None:
            self.positions = with_role(nn.Embedding(self.side ** 2 + len(s.tokens), width), Role.POSITION)
            self.positions.weight.requires_grad_(isinstance(s.positions, S.Learned))
        self.norm, self.drop = build_norm(s.norm, width), Dropout(s.dropout)

    def forward(self, image_BCRS: Tensor) -> Sequence:
        p = self.s.patch
        image_BCRS = F.pad(image_BCRS, (0, -image_BCRS.shape[-1] % p, 0, -image_BCRS.shape[-2] % p))
        map_BDRS = self.patch(image_BCRS)
        grid = (map_BDRS.shape[2], map_BDRS.shape[3])
        x_BPD = map_BDRS.flatten(2).transpose(1, 2)
        place_PD = self.place(grid)
        n = len(self.s.tokens)
        if self.extra is not None:
            x_BPD = torch.cat((self.extra.to(x_BPD.dtype).expand(len(x_BPD), -1, -1), x_BPD), 1)
        if place_PD is not None:
            x_BPD = x_BPD + (place_PD if len(place_PD) == x_BPD.shape[1] else F.pad(place_PD, (0, 0, n, 0)))
        return Sequence(self.drop(self.norm(x_BPD)), grid=None if n else grid)

    def place(self, grid: tuple[int, int]) -> Tensor | None:
        """Positions for this grid; a learned table is stretched to another resolution (ViT, section 3.2)."""
        if self.positions is None or isinstance(self.positions, Learned2D):
            return None if self.positions is None else self.positions(*grid)
        table_PD = self.positions.weight
        assert isinstance(table_PD, Tensor)
        return table_PD if grid == (self.side, self.side) else self.resize(table_PD, grid)

    def resize(self, table_PD: Tensor, grid: tuple[int, int] | None = None) -> Tensor:
        """A position table of another image size, for this grid (default: the model's own); the rows of the extra tokens stay."""
        n = len(self.s.tokens)
        return torch.cat((table_PD[:n], stretch(table_PD[n:], grid or (self.side, self.side))))


class Backbone(ResNet):
    """Features of a convolutional network, one token a cell; `keep` marks the visible pixels."""

    def __init__(self, s: S.Backbone, width: int) -> None:
        super().__init__(s)
        self.s = s
        self.project = nn.Conv2d(s.widths[-1], width, 1)
        self.positions = Learned2D(s.positions, width) if isinstance(s.positions, S.Learned2D) else None

    def forward(self, image_BCRS: Tensor, keep_BRS: Tensor | None = None) -> Sequence:
        map_BDRS = self.project(self.features(image_BCRS))
        grid = (map_BDRS.shape[2], map_BDRS.shape[3])
        seen_BRS = None if keep_BRS is None else F.interpolate(keep_BRS[:, None].float(), size=grid)[:, 0] != 0
        x_BPD, place_BPD = map_BDRS.flatten(2).transpose(1, 2), None
        if isinstance(self.s.positions, S.Sine2D):
            shown = torch.ones(1, *grid, device=x_BPD.device) if seen_BRS is None else seen_BRS
            place_BPD = sine_unit(shown, x_BPD.shape[-1], x_BPD.dtype)
        elif self.positions is not None:
            place_BPD = self.positions(*grid)[None]
        if self.s.door == "input" and place_BPD is not None:
            x_BPD, place_BPD = x_BPD + place_BPD, None
        return Sequence(x_BPD, None if seen_BRS is None else seen_BRS.flatten(1), place_BLD=place_BPD, grid=grid)


class Queries(nn.Module):
    """Object queries: zeros at first, told apart by a learned vector at every attention (DETR, section 3.2)."""

    def __init__(self, s: S.Queries, width: int) -> None:
        super().__init__()
        self.queries = nn.Embedding(s.count, width)

    def forward(self, batch: int, dtype: torch.dtype) -> Sequence:
        place_1ND = self.queries.weight[None]
        return Sequence(torch.zeros(batch, *place_1ND.shape[1:], dtype=dtype, device=place_1ND.device), place_BLD=place_1ND)
