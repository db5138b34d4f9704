"""Linear maps packed for decoding on a CPU, in float32, bf16 or int8."""

import warnings
from typing import Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Precision = Literal["fp32", "bf16", "int8"]


class Int8Linear(nn.Module):
    """x Wᵀ + b in int8: fbgemm rounds x by its largest number as it reads it."""

    seven_bits: Final[bool]

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.seven_bits = sums_pairs_in_16_bits()
        scale = (weight.abs().amax(1) / 127).clamp(min=1e-12).double()
        engine, zero = torch.backends.quantized.engine, torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # torch will find another door to these kernels; this is the one there is
            rounded = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
        try:
            torch.backends.quantized.engine = "fbgemm"
            self.packed = torch.ops.quantized.linear_prepack(rounded, bias)
        finally:
            torch.backends.quantized.engine = engine

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, self.seven_bits)  # type: ignore[no-any-return]


def sums_pairs_in_16_bits() -> bool:
    """Whether fbgemm's kernel for this CPU adds two products of 8 bits in 16, where they overflow unless one factor has 7 bits: x86 without
    the VNNI instructions."""
    has = torch.cpu.get_capabilities()
    return has["architecture"] == "x86_64" and not (has["avx512_vnni"] or has.get("avx_vnni"))


class PackedLinear(nn.Module):
    """x Wᵀ + b with W laid out for this machine; one vector alone is quicker by the rows of W as they are."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, torch.zeros_like(weight[:, 0]) if bias is None else bias
        self.laid, self.width = torch.ops.mkldnn._reorder_linear_weight(weight, 8), weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == self.width:
            return torch.addmv(self.bias, self.weight, x.flatten())[None, None]
        return torch.ops.mkldnn._linear_pointwise(x, self.laid, self.bias, "none", [], "")  # type: ignore[no-any-return]


def pack_linear(precision: Precision, weight: Tensor, bias: Tensor | None) -> nn.Module:
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    if precision == "int8":
        return Int8Linear(weight, bias)
    if torch.backends.mkldnn.is_available():
        return PackedLinear(weight, bias)
    plain = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    plain.load_state_dict(
        {"weight": weight} | ({} if bias is None else {"bias": bias}), assign=True
    )
    return plain


def pack_linears(precision: Precision, *maps: nn.Module) -> nn.Module:
    """Maps that read the same vector, as one."""
    weights, biases = [m.weight for m in maps], [m.bias for m in maps]
    bias = None if biases[0] is None else torch.cat(biases)  # type: ignore[arg-type]
    return pack_linear(precision, torch.cat(weights), bias)  # type: ignore[arg-type]


class PackedNorm(nn.Module):
    kind: Final[str]

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.kind = (
            "none"
            if isinstance(norm, nn.Identity)
            else "layer"
            if isinstance(norm, nn.LayerNorm)
            else "rms"
        )
        weight = torch.empty(0) if self.kind == "none" else norm.weight
        bias = getattr(norm, "bias", None)
        assert isinstance(weight, Tensor)
        self.weight, self.eps, self.width = (
            weight.detach(),
            float(getattr(norm, "eps", 0.0)),
            len(weight),
        )
        self.bias: Tensor | None = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "none":
            return x
        if self.kind == "layer":
            return torch.layer_norm(x, [self.width], self.weight, self.bias, self.eps)
        return torch.rms_norm(x, [self.width], self.weight, self.eps)


def activate(x: Tensor, name: str) -> Tensor:
    if name == "relu":
        return torch.relu(x)
    if name == "gelu":
        return F.gelu(x)
    if name == "gelu_tanh":  # ½ (1 + tanh z) = σ(2z), and σ is several times as quick
        return (
            torch.addcmul(torch.full_like(x, 1.5957691216057308), x, x, value=0.07135481627260025)
            .mul_(x)
            .sigmoid_()
            .mul_(x)
        )
    if name == "quick_gelu":
        return torch.sigmoid(1.702 * x) * x
    return F.silu(x) if name == "silu" else torch.tanh(x)
