"""Convolutional stem layers."""

import torch
from torch import Tensor, nn

from .... import spec as S
from ..roles import Role, with_role
from .resnet import ResNetLayer, kaiming_fan_in, max_pool_relu


class ConvStemLayer(nn.ModuleList):
    def __init__(self, stem: S.ConvStem, channels: int, width: int) -> None:
        kernel = stem.kernel_size
        stride = stem.convolution_stride
        super().__init__(
            with_role(
                nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False),
                Role.CONVOLUTION,
                formula=kaiming_fan_in,
            )
            for before, after in zip((channels, *stem.widths), (*stem.widths, width), strict=True)
        )

    def forward(self, x_BCRS: Tensor) -> Tensor:
        x_BCRS = x_BCRS.contiguous(memory_format=torch.channels_last)  # as in ResNetLayer
        for convolution in self:
            x_BCRS = max_pool_relu(convolution(x_BCRS))
        return x_BCRS


class ResNetStemLayer(nn.Module):
    def __init__(self, stem: S.ResNetStem, channels: int, width: int) -> None:
        super().__init__()
        self.resnet = ResNetLayer(
            S.ResNet(
                depths=stem.depths,
                widths=stem.widths,
                stem_width=stem.stem_width,
                stem_type=stem.stem_type,
                channels=channels,
                block=stem.block,
                norm=stem.norm,
            )
        )
        self.project = with_role(nn.Conv2d(stem.widths[-1], width, 1), Role.PROJECTION)

    def forward(self, x_BCRS: Tensor) -> Tensor:
        cells_BDRS: Tensor = self.project(self.resnet.features(x_BCRS)[0])
        return cells_BDRS
