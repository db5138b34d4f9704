"""The parts of a packed stack. TorchScript runs them, so that no Python stands between their steps; what is decided once, such as which
norm there is, is `Final` to it."""
import warnings
from typing import Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from ..layers.attention import Attention, weights
from ..layers.feedforward import FeedForward
from ..model.block import Block, Branch

Precision = Literal["float32", "bf16", "int8"]


class Rounded(nn.Module):
    """x Wᵀ + b in int8: fbgemm rounds x by its largest number as it reads it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        scale = (weight.abs().amax(1) / 127).clamp(min=1e-12).double()
        engine, zero = torch.backends.quantized.engine, torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)       # torch will find another door to these kernels; this is the one there is
            rounded = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
        try:
            torch.backends.quantized.engine = "fbgemm"
            self.held = torch.ops.quantized.linear_prepack(rounded, bias)
        finally:
            torch.backends.quantized.engine = engine

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.held)    # type: ignore[no-any-return]


class Laid(nn.Module):
    """x Wᵀ + b with W laid out for this machine; one vector alone is quicker by the rows of W as they are."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, torch.zeros_like(weight[:, 0]) if bias is None else bias
        self.laid, self.width = torch.ops.mkldnn._reorder_linear_weight(weight, 8), weight.shape[1]

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == self.width:
            return torch.addmv(self.bias, self.weight, x.flatten())[None, None]
        return torch.ops.mkldnn._linear_pointwise(x, self.laid, self.bias, "none", [], "")     # type: ignore[no-any-return]


def lay(precision: Precision, weight: Tensor, bias: Tensor | None) -> nn.Module:
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    if precision == "int8":
        return Rounded(weight, bias)
    if torch.backends.mkldnn.is_available():
        return Laid(weight, bias)
    plain = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    plain.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}), assign=True)
    return plain


def join(precision: Precision, *maps: nn.Module) -> nn.Module:
    """Maps that read the same vector, as one."""
    weights, biases = [m.weight for m in maps], [m.bias for m in maps]
    return lay(precision, torch.cat(weights), None if biases[0] is None else torch.cat(biases))    # type: ignore[arg-type]


class PackedNorm(nn.Module):
    kind: Final[str]

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.kind = "none" if isinstance(norm, nn.Identity) else "layer" if isinstance(norm, nn.LayerNorm) else "rms"
        weight = torch.empty(0) if self.kind == "none" else norm.weight
        bias = getattr(norm, "bias", None)
        assert isinstance(weight, Tensor)
        self.weight, self.eps, self.width = weight.detach(), float(getattr(norm, "eps", 0.0)), len(weight)
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
    if name == "gelu_tanh":                        # ½ (1 + tanh z) = σ(2z), and σ is several times as quick
        return torch.addcmul(torch.full_like(x, 1.5957691216057308), x, x, value=0.07135481627260025).mul_(x).sigmoid_().mul_(x)
    if name == "gelu_sigmoid":
        return torch.sigmoid(1.702 * x) * x
    return F.silu(x) if name == "swish" else torch.tanh(x)


def turn(x_BHLK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`layers.position.rotate`."""
    half = cos.shape[-1]
    a, b, rest = x_BHLK[..., :half], x_BHLK[..., half:2 * half], x_BHLK[..., 2 * half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


def attend(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, causal: bool, scale: float, softcap: float,
           grouped: bool) -> Tensor:
    """softmax(cap(q kᵀ · scale) + mask) v; a soft cap of 0 is none."""
    if softcap == 0.0:
        return F.scaled_dot_product_attention(q_BHLK, k_BGMK, v_BGMK, mask, 0.0, causal, scale=scale, enable_gqa=grouped)
    v_BHMK = v_BGMK.repeat_interleave(q_BHLK.shape[1] // v_BGMK.shape[1], 1)
    return weights(q_BHLK, k_BGMK, mask, causal, scale, softcap) @ v_BHMK


class Heads(nn.Module):
    """Heads apart, each or all together normalised, as `Attention.split` does."""
    each: Final[bool]

    def __init__(self, heads: int, norm: nn.Module, each: bool) -> None:
        super().__init__()
        self.heads, self.norm, self.each = heads, PackedNorm(norm), each

    def forward(self, t: Tensor) -> Tensor:
        B, L = t.shape[0], t.shape[1]
        if self.each:
            return self.norm(t.view(B, L, self.heads, -1)).transpose(1, 2)     # type: ignore[no-any-return]
        return self.norm(t).view(B, L, self.heads, -1).transpose(1, 2)         # type: ignore[no-any-return]


class Look(nn.Module):
    """Attention to what was read; query, key and value in one map."""

    def __init__(self, branch: Branch, precision: Precision) -> None:
        super().__init__()
        a = branch.inner
        assert isinstance(a, Attention)
        self.before, self.out, self.after = PackedNorm(branch.before), PackedNorm(branch.out), PackedNorm(branch.after)
        self.alpha, self.layer_scale = branch.alpha, branch.layer_scale
        self.maps, self.last = join(precision, a.query, a.key, a.value), join(precision, a.out)
        self.heads, self.groups, self.grouped = a.heads, a.groups, a.heads != a.groups
        self.scale, self.softcap = a.key_width ** -0.5 if a.s.scale is None else a.s.scale, a.s.softcap or 0.0
        self.queries, self.keys = Heads(a.heads, a.query_norm, a.norms_heads), Heads(a.groups, a.key_norm, a.norms_heads)
        self.parts = [a.heads * a.key_width, a.groups * a.key_width, a.groups * a.value_width]

    def forward(self, x_BLD: Tensor, keys: Tensor | None, values: Tensor | None, start: int, mask: Tensor | None, causal: bool,
                cos: Tensor | None, sin: Tensor | None) -> Tensor:
        B, L = x_BLD.shape[0], x_BLD.shape[1]
        q, k, v = self.maps(self.before(x_BLD)).split(self.parts, -1)
        q_BHLK, k_BGMK, v_BGMK = self.queries(q), self.keys(k), v.view(B, L, self.groups, -1).transpose(1, 2)
        if cos is not None and sin is not None:
            q_BHLK, k_BGMK = turn(q_BHLK, cos, sin), turn(k_BGMK, cos, sin)
        if keys is not None and values is not None:
            keys[:, :, start:start + L], values[:, :, start:start + L] = k_BGMK, v_BGMK
            k_BGMK, v_BGMK = keys[:, :, :start + L], values[:, :, :start + L]
        y_BHLK = attend(q_BHLK, k_BGMK, v_BGMK, mask, causal, self.scale, self.softcap, self.grouped)
        return self.layer_scale(self.out(self.last(y_BHLK.transpose(1, 2).reshape(B, L, -1))))   # type: ignore[no-any-return]


class LookBack(nn.Module):
    """Attention to the encoder's output; keys and values in one map, beams of one sentence so many queries of its own."""

    def __init__(self, branch: Branch, precision: Precision) -> None:
        super().__init__()
        a = branch.inner
        assert isinstance(a, Attention)
        self.before, self.out, self.after = PackedNorm(branch.before), PackedNorm(branch.out), PackedNorm(branch.after)
        self.alpha, self.layer_scale = branch.alpha, branch.layer_scale
        self.maps, self.first, self.last = join(precision, a.key, a.value), join(precision, a.query), join(precision, a.out)
        self.heads, self.groups, self.grouped = a.heads, a.groups, a.heads != a.groups
        self.scale, self.softcap = a.key_width ** -0.5 if a.s.scale is None else a.s.scale, a.s.softcap or 0.0
        self.queries, self.keys = Heads(a.heads, a.query_norm, a.norms_heads), Heads(a.groups, a.key_norm, a.norms_heads)
        self.parts = [a.groups * a.key_width, a.groups * a.value_width]

    @torch.jit.export
    def remember(self, memory_BMD: Tensor) -> list[Tensor]:
        k, v = self.maps(memory_BMD).split(self.parts, -1)
        B, M = memory_BMD.shape[0], memory_BMD.shape[1]
        return [self.keys(k).contiguous(), v.view(B, M, self.groups, -1).transpose(1, 2).contiguous()]

    def forward(self, x_BLD: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None) -> Tensor:
        B, L, many = x_BLD.shape[0], x_BLD.shape[1], k_BGMK.shape[0]
        q_BHLK = self.queries(self.first(self.before(x_BLD)).view(many, B // many * L, -1))
        y_BHLK = attend(q_BHLK, k_BGMK, v_BGMK, mask, False, self.scale, self.softcap, self.grouped)
        return self.layer_scale(self.out(self.last(y_BHLK.transpose(1, 2).reshape(B, L, -1))))   # type: ignore[no-any-return]


class Feed(nn.Module):
    gated: Final[bool]
    activation: Final[str]

    def __init__(self, branch: Branch, activation: str, precision: Precision) -> None:
        super().__init__()
        f = branch.inner
        assert isinstance(f, FeedForward)
        self.before, self.out, self.after = PackedNorm(branch.before), PackedNorm(branch.out), PackedNorm(branch.after)
        self.alpha, self.layer_scale = branch.alpha, branch.layer_scale
        self.gated, self.activation = f.gate is not None, activation
        self.maps, self.last = join(precision, *([f.up] if f.gate is None else [f.gate, f.up])), join(precision, f.down)

    def forward(self, x_BLD: Tensor) -> Tensor:
        h_BLF = self.maps(self.before(x_BLD))
        if self.gated:
            gate_BLF, up_BLF = h_BLF.chunk(2, -1)
            h_BLF = activate(gate_BLF, self.activation) * up_BLF
        else:
            h_BLF = activate(h_BLF, self.activation)
        return self.layer_scale(self.out(self.last(h_BLF)))      # type: ignore[no-any-return]


class PackedBlock(nn.Module):
    """x <- after(x * alpha + update(x)), as `model.block` has it."""
    parallel: Final[bool]
    crossed: Final[bool]

    def __init__(self, block: Block, s: S.Block | S.Parallel, precision: Precision) -> None:
        super().__init__()
        inner = s.feedforward.inner
        assert isinstance(inner, S.Dense | S.Gated)
        self.parallel, self.crossed = block.parallel, block.cross is not None
        self.attention, self.feedforward = Look(block.attention, precision), Feed(block.feedforward, inner.activation, precision)
        self.cross = nn.Identity() if block.cross is None else LookBack(block.cross, precision)

    def forward(self, x: Tensor, keys: Tensor | None, values: Tensor | None, start: int, mask: Tensor | None, causal: bool,
                cos: Tensor | None, sin: Tensor | None, memory: list[Tensor], across: Tensor | None) -> Tensor:
        y = self.attention(x, keys, values, start, mask, causal, cos, sin)
        if self.parallel:
            return x + y + self.feedforward(x)     # type: ignore[no-any-return]
        x = self.attention.after(torch.add(y, x, alpha=self.attention.alpha))
        if self.crossed:
            x = self.cross.after(torch.add(self.cross(x, memory[0], memory[1], across), x, alpha=self.cross.alpha))    # type: ignore
        return self.feedforward.after(torch.add(self.feedforward(x), x, alpha=self.feedforward.alpha))     # type: ignore[no-any-return]


class Blocks(nn.Module):
    """All blocks of a stack. `keys` and `values` are empty where nothing is stored, `memory` where there is no encoder."""
    crossed: Final[bool]

    def __init__(self, blocks: list[PackedBlock], norm: nn.Module) -> None:
        super().__init__()
        self.blocks, self.norm, self.crossed = nn.ModuleList(blocks), PackedNorm(norm), blocks[0].crossed

    def forward(self, x: Tensor, keys: list[Tensor], values: list[Tensor], starts: list[int], masks: list[Tensor | None],
                causal: list[bool], cos: list[Tensor | None], sin: list[Tensor | None], memory: list[list[Tensor]],
                across: Tensor | None) -> Tensor:
        for i, block in enumerate(self.blocks):
            k: Tensor | None = keys[i] if len(keys) > 0 else None
            v: Tensor | None = values[i] if len(keys) > 0 else None
            held = memory[i] if len(memory) > 0 else []
            x = block(x, k, v, starts[i], masks[i], causal[i], cos[i], sin[i], held, across)
        return self.norm(x)                # type: ignore[no-any-return]

    @torch.jit.export
    def remember(self, memory_BMD: Tensor) -> list[list[Tensor]]:
        found: list[list[Tensor]] = []
        if self.crossed:
            for block in self.blocks:
                found.append(block.cross.remember(memory_BMD))     # type: ignore
        return found
