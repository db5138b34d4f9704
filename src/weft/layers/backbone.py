"""A ResNet v1.5 with frozen batch norm, read at its last stage (He et al. 2015, arXiv:1512.03385; DETR, section 3.2)."""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S


class FrozenNorm(nn.Module):
    """Batch norm whose statistics and affine map are fixed numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "mean", "variance"):
            self.register_buffer(name, torch.empty(width))

    def forward(self, x_BCRS: Tensor) -> Tensor:
        scale = self.weight * (self.variance + 1e-5).rsqrt()
        shift = self.bias - self.mean * scale
        return x_BCRS * scale[:, None, None] + shift[:, None, None]

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor


class Convolution(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = FrozenNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.convolution(x))
        return y


class Bottleneck(nn.Module):
    """1×1 down, 3×3, 1×1 up, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        middle = outputs // 4
        self.shortcut = Convolution(inputs, outputs, 1, stride) if inputs != outputs or stride > 1 else nn.Identity()
        self.layers = nn.ModuleList((Convolution(inputs, middle, 1), Convolution(middle, middle, 3, stride),
                                     Convolution(middle, outputs, 1)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers[2](self.layers[1](self.layers[0](x).relu()).relu())
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, s: S.Backbone) -> None:
        super().__init__()
        self.stem = Convolution(s.channels, s.stem, 7, 2)
        self.stages = nn.ModuleList()
        before = s.stem
        for i, (depth, width) in enumerate(zip(s.depths, s.widths, strict=True)):
            self.stages.append(nn.Sequential(*(
                Bottleneck(before if j == 0 else width, width, 2 if i and j == 0 else 1) for j in range(depth))))
            before = width

    def features(self, image_BCRS: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(image_BCRS).relu(), 3, stride=2, padding=1)
        for stage in self.stages:
            x = stage(x)
        return x
