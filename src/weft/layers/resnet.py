"""A ResNet v1.5 with frozen batch norm, read at its last stage (He et al. 2015, arXiv:1512.03385; DETR, section 3.2)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .roles import Role, with_role


class FrozenBatchNorm(nn.Module):
    """Batch norm whose statistics and affine map are fixed numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "variance"):
            self.register_buffer(name, torch.empty(width))
        with_role(self, Role.STATISTIC, initial=1.0)
        with_role(self, Role.STATISTIC, "bias", "mean", initial=0.0)

    def forward(self, x_BCRS: Tensor) -> Tensor:
        scale = self.weight * (self.variance + 1e-5).rsqrt()
        shift = self.bias - self.mean * scale
        return x_BCRS * scale[:, None, None] + shift[:, None, None]

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor


def kaiming_fan_out(weight: Tensor, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(weight, mode="fan_out", generator=generator)


def kaiming_fan_in(weight: Tensor, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(weight, generator=generator)


class ConvNorm(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.convolution = with_role(convolution, Role.CONVOLUTION, formula=kaiming_fan_out)
        self.norm = FrozenBatchNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.convolution(x))
        return y


class Bottleneck(nn.Module):
    """1×1 down, 3×3, 1×1 up, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        middle = outputs // 4
        self.shortcut = (
            ConvNorm(inputs, outputs, 1, stride)
            if inputs != outputs or stride > 1
            else nn.Identity()
        )
        self.layers = nn.ModuleList(
            (
                ConvNorm(inputs, middle, 1),
                ConvNorm(middle, middle, 3, stride),
                ConvNorm(middle, outputs, 1),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers[2](self.layers[1](self.layers[0](x).relu()).relu())
        return F.relu(y + self.shortcut(x))


class ResNetLayer(nn.Module):
    def __init__(self, spec: S.ResNet) -> None:
        super().__init__()
        self.stem = ConvNorm(spec.channels, spec.stem_width, 7, 2)
        self.stages = nn.ModuleList()
        before = spec.stem_width
        for i, (depth, width) in enumerate(zip(spec.depths, spec.widths, strict=True)):
            self.stages.append(
                nn.Sequential(
                    *(
                        Bottleneck(before if j == 0 else width, width, 2 if i and j == 0 else 1)
                        for j in range(depth)
                    )
                )
            )
            before = width

    def features(self, image_BCRS: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(image_BCRS).relu(), 3, stride=2, padding=1)
        for stage in self.stages:
            x = stage(x)
        return x
