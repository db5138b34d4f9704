"""Compact Transformers: the stem, sequence pooling and the whole of CCT, compared with slow
references written from the paper.
"""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft import spec as S
from weft.families import family
from weft.interop.huggingface.convert import ForeignTensors
from weft.interop.loading import fill_model
from weft.nn.heads import pool_by_score
from weft.nn.layers.embedding import ResNetEmbedding
from weft.nn.layers.images.resnet import max_pool_relu
from weft.nn.layers.sequence import HiddenStates
from weft.testing.model_part import random_model

SMALL = {"depth": 2, "width": 16, "heads": 2, "hidden": 24, "image_size": 16, "classes": 5}


@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_stem_convolves_rectifies_and_pools_once_per_layer(kernel: int, layers: int) -> None:
    stem = S.ConvStem(widths=(6,) * (layers - 1), kernel_size=kernel)
    source = S.Patches(image_size=64, patch_size=stem.stride, extra_tokens=(), stem=stem)
    spec = S.replace(weft.cct(**SMALL), source=source)
    model = weft.build(spec).double()
    image = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    x = image
    for i in range(layers):
        weight = model.state_dict()[f"source.patch.{i}.weight"]
        stride = 2 if kernel == 7 else 1
        rows = F.unfold(x, kernel, padding=kernel // 2, stride=stride)
        side = math.isqrt(rows.shape[-1])
        x = (weight.flatten(1) @ rows).clamp(min=0).unflatten(-1, (side, side))
        padded = F.pad(x, (1, 1, 1, 1), value=0.0)  # after ReLU nothing is below 0
        x = padded.unfold(2, 3, 2).unfold(3, 3, 2).amax((-1, -2))
    cells = 64 // stem.stride
    assert x.shape[-1] == cells
    got = model.embed(image).x_BLD
    assert torch.allclose(got, x.flatten(2).mT, atol=1e-12, rtol=0)


def test_relu_after_the_pooling_has_the_values_and_gradients_of_relu_before_it() -> None:
    x = torch.randn(3, 4, 15, 16) - 0.8  # many windows without a positive number
    x[:, :, 4:8] = 0.5  # and many with equal ones
    results = []
    for pool in (max_pool_relu, lambda x: F.max_pool2d(x.relu(), 3, stride=2, padding=1)):
        leaf = x.clone().requires_grad_()
        y = pool(leaf)
        (y * torch.arange(y.numel()).view_as(y)).sum().backward()
        results.append((y, leaf.grad))
    (y, grad), (twin, twin_grad) = results
    assert (y == 0).any()
    assert torch.equal(y, twin)
    assert torch.equal(grad, twin_grad)


@pytest.mark.parametrize(
    ("stem", "path"),
    [
        (S.ResNetStem(depths=()), "source.stem.depths: is empty"),
        (S.ResNetStem(depths=(1,), widths=(8, 16)), "source.stem.depths: has "),
        (S.ResNetStem(depths=(1,), widths=(30,), block="basic"), "source.stem.norm.groups"),
    ],
)
def test_a_stem_that_is_no_resnet_is_refused(stem: S.ResNetStem, path: str) -> None:
    with pytest.raises(ValueError, match=path):
        weft.cct(**SMALL, stem=stem)


def test_a_hybrid_reads_the_map_that_a_resnet_of_the_same_weights_gives() -> None:
    norm = S.GroupNorm(groups=2)
    stem = S.ResNetStem(depths=(1, 2), widths=(8, 16), stem_width=4, norm=norm)
    spec = weft.vit(
        depth=1, width=16, heads=2, hidden=16, image_size=32, patch_size=8, classes=3, stem=stem
    )
    model = weft.build(spec).double().eval()
    resnet = S.ResNet(depths=(1, 2), widths=(8, 16), stem_width=4, norm=norm, positions=None)
    backbone = ResNetEmbedding(resnet, 16).double()
    state = {
        name.removeprefix("source.patch.").removeprefix("resnet."): tensor
        for name, tensor in model.state_dict().items()
        if name.startswith("source.patch.")
    }
    backbone.load_state_dict(state)
    image = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    table = model.state_dict()["source.positions.weight"]
    cells = model.embed(image).x_BLD[:, 1:] - table[1:]
    assert torch.allclose(cells, backbone(image).x_BLD, atol=1e-12, rtol=0)
    logits = model(image)
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.source.patch.parameters())


def slow_basic_block(weights: dict[str, Tensor], x: Tensor, stride: int) -> Tensor:
    """Two 3 × 3 convolutions with group norm beside a shortcut (He et al. 2015, figure 2 and
    section 4.2).
    """

    def step(name: str, x: Tensor, stride: int) -> Tensor:
        weight = weights[f"{name}.convolution.weight"]
        y = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        groups = y.unflatten(1, (2, -1))
        mean = groups.mean((2, 3, 4), keepdim=True)
        variance = groups.var((2, 3, 4), keepdim=True, unbiased=False)
        y = ((groups - mean) / (variance + 1e-5).sqrt()).flatten(1, 2)
        scale = weights[f"{name}.norm.weight"]
        shift = weights[f"{name}.norm.bias"]
        return y * scale[:, None, None] + shift[:, None, None]

    if "layers.0.convolution.weight" not in weights:  # the stem: one of these steps
        return step("stem", x, stride).clamp(min=0)
    y = step("layers.1", step("layers.0", x, stride).clamp(min=0), 1)
    short = step("shortcut", x, stride) if "shortcut.convolution.weight" in weights else x
    return (y + short).clamp(min=0)


def test_a_stem_of_3x3_keeps_every_pixel_until_the_second_stage() -> None:
    stem = S.ResNetStem(
        depths=(1, 1),
        widths=(8, 16),
        stem_width=8,
        stem_type="3x3",
        block="basic",
        norm=S.GroupNorm(groups=2),
    )
    model = random_model(weft.cct(**SMALL, stem=stem)).double()
    state = {
        name.removeprefix("source.patch."): tensor
        for name, tensor in model.state_dict().items()
        if name.startswith("source.patch.")
    }
    resnet = {name.removeprefix("resnet."): tensor for name, tensor in state.items()}
    image = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    x = slow_basic_block(resnet, image, 1)
    assert x.shape[-1] == 16
    for stage, stride in (("stages.0.0.", 1), ("stages.1.0.", 2)):
        weights = {
            name.removeprefix(stage): tensor
            for name, tensor in resnet.items()
            if name.startswith(stage)
        }
        x = slow_basic_block(weights, x, stride)
    expected = F.conv2d(x, state["project.weight"], state["project.bias"]).flatten(2).mT
    positions = model.state_dict()["source.positions.weight"]
    assert stem.stride == 2
    cells = model.embed(image).x_BLD - positions
    assert torch.allclose(cells, expected, atol=1e-12, rtol=0)


def test_a_stem_shows_hidden_patches_so_that_no_pixels_are_rebuilt_from_it() -> None:
    mae = weft.mae(depth=1, width=16, heads=2, hidden=16, image_size=16, patch_size=4)
    with pytest.raises(ValueError, match="a stem mixes neighbouring patches"):
        S.replace(mae, source=S.replace(mae.source, stem=S.ConvStem()))


def test_sequence_pooling_is_a_mean_weighted_by_the_softmax_of_scores() -> None:
    x_BLD = torch.randn(3, 5, 4).double()
    score_BL1 = torch.randn(3, 5, 1).double()
    mask_BL = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]).bool()
    pooled = pool_by_score(HiddenStates(x_BLD, mask_BL), score_BL1)
    for b in range(3):
        weights = [math.exp(score_BL1[b, l]) if mask_BL[b, l] else 0.0 for l in range(5)]
        mean = sum(w / sum(weights) * x for w, x in zip(weights, x_BLD[b], strict=True))
        assert torch.allclose(pooled[b], mean, atol=1e-12, rtol=0)


class TwinBlock(nn.Module):
    """x + attention(norm(x)), a norm on the stream, then x + MLP(x)."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.pre_norm = nn.LayerNorm(width)
        self.norm1 = nn.LayerNorm(width)
        self.self_attn = nn.Module()
        self.self_attn.qkv = nn.Linear(width, 3 * width, bias=False)
        self.self_attn.proj = nn.Linear(width, width)
        self.linear1 = nn.Linear(width, hidden)
        self.linear2 = nn.Linear(hidden, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        qkv: Callable[[Tensor], Tensor] = self.self_attn.qkv
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in qkv(self.pre_norm(x)).chunk(3, -1)
        )
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        x = self.norm1(x + self.self_attn.proj((weights @ v).transpose(1, 2).flatten(2)))
        return x + self.linear2(F.gelu(self.linear1(x)))


class TwinCCT(nn.Module):
    """Names as in the published files."""

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = nn.Module()
        self.classifier = nn.Module()
        layers = [
            nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
            )
            for i, o in ((3, 64), (64, 16))
        ]
        self.tokenizer.conv_layers = nn.Sequential(*layers)
        c = self.classifier
        c.positional_emb = nn.Parameter(torch.randn(1, 16, 16))
        c.blocks = nn.Sequential(TwinBlock(16, 2, 24), TwinBlock(16, 2, 24))
        c.norm = nn.LayerNorm(16)
        c.attention_pool = nn.Linear(16, 1)
        c.fc = nn.Linear(16, 5)

    def forward(self, image: Tensor) -> Tensor:
        c = self.classifier
        x = self.tokenizer.conv_layers(image).flatten(2).mT + c.positional_emb
        x = c.norm(c.blocks(x))
        logits: Tensor = c.fc((c.attention_pool(x).softmax(1) * x).sum(1))
        return logits


def test_cct_is_its_paper_with_the_published_names() -> None:
    torch.manual_seed(0)
    twin = TwinCCT().double().eval()
    state = twin.state_dict()
    foreign = ForeignTensors(set(state), state.__getitem__)
    spec = weft.cct(**SMALL)
    model = fill_model(family("cct"), spec, foreign, set(), "cpu", torch.float64, 0, None).eval()
    image = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    assert torch.allclose(model(image), twin(image), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("size", "millions"),  # the authors' table of models; 14-7x2 has ImageNet's 1,000 classes
    [("2-3x2", 0.284), ("4-3x2", 0.482), ("6-3x1", 3.23), ("7-3x1", 3.76), ("14-7x2", 22.36)],
)
def test_cct_has_the_published_number_of_parameters(size: str, millions: float) -> None:
    spec = weft.cct(size, classes=1000 if size == "14-7x2" else 10)
    assert spec.parameter_count() / 1e6 == pytest.approx(millions, rel=2e-3)


def test_drop_path_grows_linearly_from_the_first_block_to_the_last() -> None:
    encoder = weft.with_drop_path(weft.vit(depth=5, width=16, heads=2, hidden=16), 0.4).encoder
    rates = [(b.attention.drop_path, b.feedforward.drop_path) for b in encoder.blocks]
    assert rates == [pytest.approx((0.1 * i, 0.1 * i)) for i in range(5)]
    pyramid = weft.with_drop_path(weft.swin("tiny", drop_path=0.0), 0.22)
    assert pyramid == weft.swin("tiny", drop_path=0.22)
