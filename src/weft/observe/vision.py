"""Inspection of image models: attention distance, patch filters, position similarity, windows
(Dosovitskiy et al. 2020, arXiv:2010.11929, section 4.5).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import spec as S
from ..nn.layers.embedding import PatchEmbedding
from ..nn.layers.images.shifted_windows import ShiftedWindowAttention, partition_windows
from ..nn.model import Model


def cell_distances(rows: int, columns: int) -> Tensor:
    """Distance between the centres of every two cells, in cells, (P, P)."""
    at_P2 = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).float()
    return torch.cdist(at_P2.view(-1, 2), at_P2.view(-1, 2))


def attention_distance(
    weight_HLM: Tensor, grid: tuple[int, int], extra: int = 0, cell: float = 1.0
) -> Tensor:
    """Mean distance between a patch and what it attends to, per head, (H,): the size of a head's
    receptive field (figure 7, right).

    Attention to extra tokens has no distance: the weights of the patches are scaled to sum to 1.

    Args:
        weight_HLM: of self-attention over the cells of an image.
        grid: rows and columns of cells.
        extra: tokens before the cells, such as the class token.
        cell: pixels per cell.
    """
    weight_HPP = weight_HLM[:, extra:, extra:].float()
    distance_PP = cell_distances(*grid).to(weight_HPP.device)
    if weight_HPP.shape[1:] != distance_PP.shape:
        raise ValueError(
            f"{tuple(weight_HLM.shape[1:])} tokens do not match a grid of {grid} cells with "
            f"{extra} extra tokens"
        )
    mean_HP = (weight_HPP * distance_PP).sum(-1) / weight_HPP.sum(-1).clamp(min=1e-12)
    return cell * mean_HP.mean(-1)


def position_similarity(model: Model) -> Tensor | None:
    """Cosine similarity of the position embedding of every cell with that of every other, (P, P)
    (figure 7, middle); None without any."""
    source = model.source
    if not isinstance(source, PatchEmbedding):
        return None
    table_PD = source.position_embedding((source.side, source.side))
    if table_PD is None:
        return None
    table_PD = F.normalize(table_PD.detach().float()[-(source.side**2) :], dim=-1)
    return table_PD @ table_PD.T


def patch_filters(model: Model, count: int = 28) -> Tensor | None:
    """Principal components of the filters that embed patches, (count, C, R, S), the largest first
    (figure 7, left); None without patches."""
    patch = getattr(model.source, "patch", None)
    if not isinstance(patch, torch.nn.Conv2d) or not isinstance(model.spec.source, S.Patches):
        return None
    weight_DF = patch.weight.detach().float().flatten(1)
    _, _, components_RF = torch.linalg.svd(weight_DF - weight_DF.mean(0), full_matrices=False)
    filters_NCRS: Tensor = components_RF[:count].view(-1, *patch.weight.shape[1:])
    return filters_NCRS


def windows_on_grid(
    weight_BHLM: Tensor, layer: ShiftedWindowAttention, grid: tuple[int, int]
) -> Tensor:
    """The maps of all windows of one image, put back on its cells, (H, P, P);
    0 between cells of different windows.

    Args:
        weight_BHLM: (windows, H, cells, cells) of one image.
        layer: that computed them.
        grid: rows and columns of cells.
    """
    rows, columns = grid
    height, width = window = layer.window_size(grid)
    P = rows * columns
    padded = (-(-rows // height) * height, -(-columns // width) * width)
    cell_RS = F.pad(
        torch.arange(P).view(rows, columns),
        (0, padded[1] - columns, 0, padded[0] - rows),
        value=P,  # padding: one cell that is cut off
    )
    if layer.shift and min(grid) > layer.size:
        cell_RS = cell_RS.roll((-layer.shift, -layer.shift), (0, 1))
    cell_BL = partition_windows(cell_RS[None, :, :, None], window)[..., 0].to(weight_BHLM.device)
    if len(cell_BL) != len(weight_BHLM):
        raise ValueError(
            f"{len(weight_BHLM)} windows are not those of one image of {rows} × {columns} "
            f"cells, {len(cell_BL)}"
        )
    heads = weight_BHLM.shape[1]
    whole_HPP = weight_BHLM.new_zeros(heads, P + 1, P + 1)
    whole_HPP[:, cell_BL[:, :, None], cell_BL[:, None, :]] = weight_BHLM.transpose(0, 1)
    return whole_HPP[:, :P, :P]
