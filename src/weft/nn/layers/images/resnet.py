"""ResNet v1.5 as a backbone: the output is the last stage (He et al. 2015, arXiv:1512.03385; DETR,
section 3.2).

A mask (B, 1, rows, columns) is False at padding. Layers with a mask return zeros there, as a
convolution reads beyond the edge of an unpadded image.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .... import spec as S
from ....spec.stems import RESNET_STEMS
from ..roles import Role, with_role


class FrozenBatchNorm(nn.Module):
    """Batch norm with fixed statistics and affine map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "variance"):
            self.register_buffer(name, torch.empty(width))
        with_role(self, Role.STATISTIC, initial=1.0)
        with_role(self, Role.STATISTIC, "bias", "mean", initial=0.0)

    def forward(self, x_BCRS: Tensor, mask_B1RS: Tensor | None = None) -> Tensor:
        scale = self.weight * (self.variance + 1e-5).rsqrt()
        shift = self.bias - self.mean * scale
        return x_BCRS * scale[:, None, None] + shift[:, None, None]

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor


class GroupNormLayer(nn.GroupNorm):
    """Group norm; statistics of a padded image are those of its visible part."""

    def forward(self, x_BCRS: Tensor, mask_B1RS: Tensor | None = None) -> Tensor:
        if mask_B1RS is None:
            # torch's own function refuses groups of one number, as an image of one pixel has them;
            # their norm is the shift.
            return torch.group_norm(x_BCRS, self.num_groups, self.weight, self.bias, self.eps)
        # As scale and shift of each channel, from sums alone: a third of the time of normalising
        # cell by cell.
        x_BCRS = x_BCRS * mask_B1RS
        dtype = torch.promote_types(x_BCRS.dtype, torch.float32)
        of_group = self.num_channels // self.num_groups
        count_B1 = mask_B1RS.sum((2, 3)) * of_group
        mean_BG = self.sum_groups(x_BCRS.sum((2, 3), dtype=dtype)) / count_B1
        norm_BC = torch.linalg.vector_norm(x_BCRS, dim=(2, 3), dtype=dtype)
        square_BG = self.sum_groups(norm_BC.square()) / count_B1
        variance_BG = (square_BG - mean_BG.square()).clamp(min=0)
        scale_BC = self.weight * (variance_BG + self.eps).rsqrt().repeat_interleave(of_group, 1)
        shift_BC = self.bias - scale_BC * mean_BG.repeat_interleave(of_group, 1)
        scale, shift = (t[..., None, None].to(x_BCRS.dtype) for t in (scale_BC, shift_BC))
        return torch.addcmul(shift, x_BCRS, scale)

    def sum_groups(self, sum_BC: Tensor) -> Tensor:
        sum_BG: Tensor = sum_BC.unflatten(1, (self.num_groups, -1)).sum(2)
        return sum_BG


def build_resnet_norm(norm: S.FrozenBatchNorm | S.GroupNorm, width: int) -> nn.Module:
    if isinstance(norm, S.FrozenBatchNorm):
        return FrozenBatchNorm(width)
    return with_role(GroupNormLayer(norm.groups, width), Role.NORM)


def kaiming_fan_out(weight: Tensor, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(weight, mode="fan_out", generator=generator)


def kaiming_fan_in(weight: Tensor, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(weight, generator=generator)


class ConvNorm(nn.Module):
    def __init__(
        self, spec: S.ResNet, inputs: int, outputs: int, kernel: int, stride: int = 1
    ) -> None:
        super().__init__()
        self.stride = stride
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.convolution = with_role(convolution, Role.CONVOLUTION, formula=kaiming_fan_out)
        self.norm = build_resnet_norm(spec.norm, outputs)

    def forward(self, x: Tensor, mask_B1RS: Tensor | None = None) -> Tensor:
        """`mask_B1RS`: the mask of the output."""
        y: Tensor = self.norm(self.convolution(x), mask_B1RS)
        return y if mask_B1RS is None else y * mask_B1RS


class ResNetBlock(nn.Module):
    """A residual block: 1×1 down, 3×3, 1×1 up, or two 3×3, with a shortcut."""

    def __init__(self, spec: S.ResNet, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        middle = outputs // 4
        self.shortcut = (
            ConvNorm(spec, inputs, outputs, 1, stride) if inputs != outputs or stride > 1 else None
        )
        shapes = (
            ((inputs, middle, 1, 1), (middle, middle, 3, stride), (middle, outputs, 1, 1))
            if spec.block == "bottleneck"
            else ((inputs, outputs, 3, stride), (outputs, outputs, 3, 1))
        )
        self.layers = nn.ModuleList(ConvNorm(spec, *shape) for shape in shapes)

    def forward(self, x: Tensor, mask_B1RS: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        inside = mask_B1RS
        y = x
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, ConvNorm)
            inside = strided(inside, layer.stride)
            y = layer(y if i == 0 else y.relu(), inside)
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x, inside))), inside


def strided(mask_B1RS: Tensor | None, stride: int) -> Tensor | None:
    """Return the mask of a strided convolution's output: a cell is visible if its first pixel
    is.
    """
    return mask_B1RS if mask_B1RS is None or stride == 1 else mask_B1RS[..., ::stride, ::stride]


def max_pool_relu(x_BCRS: Tensor) -> Tensor:
    """Return the maximum of 3 × 3 cells with stride 2, at least 0: the papers' ReLU before pooling,
    on a quarter of the values. Values and gradients are the same.
    """
    return F.max_pool2d(x_BCRS, 3, stride=2, padding=1).relu()


class ResNetLayer(nn.Module):
    def __init__(self, spec: S.ResNet) -> None:
        super().__init__()
        kernel, stride, self.pool_stride = RESNET_STEMS[spec.stem_type]
        self.stem = ConvNorm(spec, spec.channels, spec.stem_width, kernel, stride)
        self.stages = nn.ModuleList()
        before = spec.stem_width
        for i, (depth, width) in enumerate(zip(spec.depths, spec.widths, strict=True)):
            blocks = (
                ResNetBlock(spec, before if j == 0 else width, width, 2 if i and j == 0 else 1)
                for j in range(depth)
            )
            self.stages.append(nn.ModuleList(blocks))
            before = width

    def features(
        self, image_BCRS: Tensor, mask_B1RS: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the feature map of the last stage and, for masked pixels, the mask of its
        cells.
        """
        mask_B1RS = strided(mask_B1RS, self.stem.stride)
        # Channels last: convolutions and pooling on CPU read it as it is, and the cells are tokens
        # without a copy.
        image_BCRS = image_BCRS.contiguous(memory_format=torch.channels_last)
        x = self.stem(image_BCRS, mask_B1RS)
        x = max_pool_relu(x) if self.pool_stride > 1 else x.relu()
        mask_B1RS = strided(mask_B1RS, self.pool_stride)
        if mask_B1RS is not None:
            x = x * mask_B1RS
        for stage in self.stages:
            for block in stage:  # type: ignore[attr-defined]
                x, mask_B1RS = block(x, mask_B1RS)
        return x, mask_B1RS
