"""Embedding layers: from ids or pixels to `HiddenStates`."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import spec as S
from ...support.registry import implementation
from ..kernels.masks import positions_of_tokens, positions_within_documents
from .dropout import Dropout
from .images.resnet import ResNetLayer
from .norms import build_norm
from .positions import (
    LearnedPositions2DLayer,
    SinusoidalTable,
    interpolate_grid,
    sinusoidal_unit_grid,
)
from .roles import Role, with_role
from .sequence import HiddenStates


def token_table(rows: int, width: int) -> nn.Embedding:
    return with_role(nn.Embedding(rows, width), Role.TABLE, stream_dim=-1)


class TokenEmbedding(nn.Module):
    """Token embeddings + positions + segments. The table is an argument if it belongs to another
    layer (`SharedTokens`).
    """

    def __init__(self, spec: S.Tokens | S.SharedTokens, table_width: int, width: int) -> None:
        super().__init__()
        self.s = spec
        self.tokens = (
            token_table(spec.vocab_size, table_width) if isinstance(spec, S.Tokens) else None
        )
        self.positions: nn.Module | None = (
            implementation(spec.positions)(spec.positions, table_width) if spec.positions else None
        )
        segments = spec.token_types if isinstance(spec, S.Tokens) else None
        self.segments = token_table(segments, table_width) if segments else None
        self.norm = build_norm(spec.norm, table_width)
        self.drop = Dropout(spec.dropout)
        wider = self.tokens is not None and table_width != width
        self.project = with_role(nn.Linear(table_width, width), Role.PROJECTION) if wider else None

    def forward(
        self,
        ids_BL: Tensor,
        table: Tensor,
        attention_mask_BL: Tensor | None = None,
        document_ids_BL: Tensor | None = None,
        segments_BL: Tensor | None = None,
        position_BL: Tensor | None = None,
    ) -> HiddenStates:
        s = self.s
        x_BLD = F.embedding(ids_BL, table)
        if s.embedding_scale != 1:
            x_BLD = x_BLD * s.embedding_scale
        if s.positions is not None:
            masks_BL = attention_mask_BL, document_ids_BL
            x_BLD = x_BLD + self.position_embedding(x_BLD, position_BL, *masks_BL)
        if self.segments is not None:
            x_BLD = x_BLD + (
                self.segments.weight[0] if segments_BL is None else self.segments(segments_BL)
            )
        x_BLD = self.drop(self.norm(x_BLD), document_ids_BL)
        if self.project is not None:
            x_BLD = self.project(x_BLD)
        return HiddenStates(x_BLD, attention_mask_BL, document_ids_BL, position_BL)

    def position_embedding(
        self,
        x_BLD: Tensor,
        position_BL: Tensor | None,
        attention_mask_BL: Tensor | None,
        document_ids_BL: Tensor | None,
    ) -> Tensor:
        assert self.s.positions is not None
        assert self.positions is not None
        L = x_BLD.shape[1]
        limit = self.s.positions.max_length
        if limit is not None and limit < L and document_ids_BL is None:
            raise ValueError(f"{L} tokens exceed the {limit} learned positions; truncate them")
        if position_BL is None and document_ids_BL is not None:
            position_BL = positions_within_documents(document_ids_BL)
        elif position_BL is None and attention_mask_BL is not None:
            position_BL = positions_of_tokens(attention_mask_BL)
        place_BLD: Tensor = self.positions(position_BL, x_BLD)
        return place_BLD


class PatchProjection(nn.Conv2d):
    """Patch embedding as one matrix product, which is faster than PyTorch's convolution."""

    def forward(self, image_BCRS: Tensor) -> Tensor:
        p, q = self.kernel_size
        x_BCRpSq = image_BCRS.unflatten(3, (-1, q)).unflatten(2, (-1, p))
        patch_BRSN = x_BCRpSq.permute(0, 2, 4, 1, 3, 5).flatten(3)
        return F.linear(patch_BRSN, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


class PatchEmbedding(nn.Module):
    def __init__(self, spec: S.Patches, width: int) -> None:
        super().__init__()
        self.s = spec
        self.side = spec.image_size // spec.patch_size
        size = spec.patch_size
        self.patch: nn.Module = (
            with_role(PatchProjection(spec.channels, width, size, stride=size), Role.PROJECTION)
            if spec.stem is None
            else implementation(spec.stem)(spec.stem, spec.channels, width)
        )
        self.extra = (
            nn.Parameter(torch.empty(len(spec.extra_tokens), width)) if spec.extra_tokens else None
        )
        with_role(self, Role.TABLE)
        self.positions: nn.Module | None = None
        if isinstance(spec.positions, S.LearnedPositions2D):
            self.positions = LearnedPositions2DLayer(spec.positions, width)
        elif spec.positions is not None:
            learned = isinstance(spec.positions, S.LearnedPositions)
            self.positions = with_role(
                nn.Embedding(self.side**2 + len(spec.extra_tokens), width),
                Role.POSITION,
                formula=None if learned else SinusoidalTable(self.side, len(spec.extra_tokens)),
            )
            self.positions.weight.requires_grad_(learned)
        self.norm = build_norm(spec.norm, width)
        self.drop = Dropout(spec.dropout)

    def forward(self, image_BCRS: Tensor) -> HiddenStates:
        p = self.s.patch_size
        image_BCRS = F.pad(image_BCRS, (0, -image_BCRS.shape[-1] % p, 0, -image_BCRS.shape[-2] % p))
        map_BDRS = self.patch(image_BCRS)
        grid = (map_BDRS.shape[2], map_BDRS.shape[3])
        x_BPD = map_BDRS.flatten(2).transpose(1, 2)
        place_PD = self.position_embedding(grid)
        n = len(self.s.extra_tokens)
        if self.extra is not None:
            x_BPD = torch.cat((self.extra.to(x_BPD.dtype).expand(len(x_BPD), -1, -1), x_BPD), 1)
        if place_PD is not None:
            x_BPD = x_BPD + (
                place_PD if len(place_PD) == x_BPD.shape[1] else F.pad(place_PD, (0, 0, n, 0))
            )
        return HiddenStates(self.drop(self.norm(x_BPD)), grid=None if n else grid)

    def position_embedding(self, grid: tuple[int, int]) -> Tensor | None:
        """Return positions for this grid; a learned table is interpolated to another resolution
        (ViT, section 3.2).
        """
        if self.positions is None or isinstance(self.positions, LearnedPositions2DLayer):
            return None if self.positions is None else self.positions(*grid)
        table_PD = self.positions.weight
        assert isinstance(table_PD, Tensor)
        return table_PD if grid == (self.side, self.side) else self.resize(table_PD, grid)

    def resize(self, table_PD: Tensor, grid: tuple[int, int] | None = None) -> Tensor:
        """Interpolate the position table of another image size for this grid (default: the model's
        own); the rows of extra tokens are unchanged.
        """
        n = len(self.s.extra_tokens)
        return torch.cat(
            (table_PD[:n], interpolate_grid(table_PD[n:], grid or (self.side, self.side)))
        )


class ResNetEmbedding(ResNetLayer):
    """Features of a convolutional network, one token per cell; the mask is True at visible
    pixels.
    """

    def __init__(self, spec: S.ResNet, width: int) -> None:
        super().__init__(spec)
        self.s = spec
        self.project = with_role(nn.Conv2d(spec.widths[-1], width, 1), Role.PROJECTION)
        self.positions = (
            LearnedPositions2DLayer(spec.positions, width)
            if isinstance(spec.positions, S.LearnedPositions2D)
            else None
        )

    def forward(self, image_BCRS: Tensor, pixel_mask_BRS: Tensor | None = None) -> HiddenStates:
        mask_B1RS = None if pixel_mask_BRS is None else pixel_mask_BRS[:, None]
        if self.s.padding == "masked":
            map_BCRS, mask_B1RS = self.features(image_BCRS, mask_B1RS)
        else:
            map_BCRS, _ = self.features(image_BCRS)
        map_BDRS = self.project(map_BCRS)
        grid = (map_BDRS.shape[2], map_BDRS.shape[3])
        if mask_B1RS is not None and self.s.padding == "zeros":
            mask_B1RS = F.interpolate(mask_B1RS.float(), size=grid) != 0
        seen_BRS = None if mask_B1RS is None else mask_B1RS[:, 0]
        x_BPD = map_BDRS.flatten(2).transpose(1, 2)
        place_BPD = None
        if isinstance(self.s.positions, S.SinusoidalPositions2D):
            shown = torch.ones(1, *grid, device=x_BPD.device) if seen_BRS is None else seen_BRS
            place_BPD = sinusoidal_unit_grid(
                shown, x_BPD.shape[-1], x_BPD.dtype, self.s.positions.temperature
            )
        elif self.positions is not None:
            place_BPD = self.positions(*grid)[None]
        if self.s.positions_at == "input" and place_BPD is not None:
            x_BPD = x_BPD + place_BPD
            place_BPD = None
        return HiddenStates(
            x_BPD,
            None if seen_BRS is None else seen_BRS.flatten(1),
            query_key_position_BLD=place_BPD,
            grid=grid,
        )
