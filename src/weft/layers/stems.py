"""Convolutions in front of a Transformer."""

import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .resnet import ResNetLayer, kaiming_fan_in
from .roles import Role, with_role


class ConvStemLayer(nn.ModuleList):
    def __init__(self, stem: S.ConvStem, channels: int, width: int) -> None:
        kernel, stride = stem.kernel_size, stem.convolution_stride
        super().__init__(
            with_role(
                nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False),
                Role.CONVOLUTION,
                formula=kaiming_fan_in,
            )
            for before, after in zip((channels, *stem.widths), (*stem.widths, width), strict=True)
        )

    def forward(self, x_BCRS: Tensor) -> Tensor:
        for convolution in self:
            x_BCRS = F.max_pool2d(convolution(x_BCRS).relu(), 3, stride=2, padding=1)
        return x_BCRS


class ResNetStemLayer(nn.Module):
    def __init__(self, stem: S.ResNetStem, channels: int, width: int) -> None:
        super().__init__()
        self.resnet = ResNetLayer(
            S.ResNet(
                depths=stem.depths,
                widths=stem.widths,
                stem_width=stem.stem_width,
                channels=channels,
                block=stem.block,
                norm=stem.norm,
            )
        )
        self.project = nn.Conv2d(stem.widths[-1], width, 1)

    def forward(self, x_BCRS: Tensor) -> Tensor:
        cells_BDRS: Tensor = self.project(self.resnet.features(x_BCRS)[0])
        return cells_BDRS
