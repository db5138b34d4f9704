"""The parts of a packed stack. TorchScript runs them, so that no Python stands between their steps; what is decided once, such as which
norm there is, is `Final` to it."""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from ..kernels.attention import attention_weights
from ..kernels.packed_linear import PackedNorm, Precision, activate, pack_linears
from ..layers.attention import AttentionLayer
from ..layers.feedforward import FeedForward
from ..model.block import BlockLayer, BranchLayer


def apply_rope_scripted(x_BHLK: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`layers.position.rotate`."""
    half = cos.shape[-1]
    a, b, rest = x_BHLK[..., :half], x_BHLK[..., half : 2 * half], x_BHLK[..., 2 * half :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


def attend_scripted(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMK: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    softcap: float,
    grouped: bool,
) -> Tensor:
    """softmax(cap(q kᵀ · scale) + mask) v; a soft cap of 0 is none."""
    if softcap == 0.0:
        return F.scaled_dot_product_attention(
            q_BHLK, k_BGMK, v_BGMK, mask, 0.0, causal, scale=scale, enable_gqa=grouped
        )
    v_BHMK = v_BGMK.repeat_interleave(q_BHLK.shape[1] // v_BGMK.shape[1], 1)
    return attention_weights(q_BHLK, k_BGMK, mask, causal, scale, softcap) @ v_BHMK


class PackedHeads(nn.Module):
    """Split into heads, normalised each or all together, as `AttentionLayer.split` does."""

    each: Final[bool]

    def __init__(self, heads: int, norm: nn.Module, each: bool) -> None:
        super().__init__()
        self.heads, self.norm, self.each = heads, PackedNorm(norm), each

    def forward(self, t: Tensor) -> Tensor:
        B, L = t.shape[0], t.shape[1]
        if self.each:
            return self.norm(t.view(B, L, self.heads, -1)).transpose(1, 2)  # type: ignore[no-any-return]
        return self.norm(t).view(B, L, self.heads, -1).transpose(1, 2)  # type: ignore[no-any-return]


class PackedBranch(nn.Module):
    """The norms around an update, and what scales it."""

    def __init__(self, branch: BranchLayer) -> None:
        super().__init__()
        self.before, self.out, self.after = (
            PackedNorm(branch.before),
            PackedNorm(branch.out),
            PackedNorm(branch.after),
        )
        self.alpha, self.layer_scale = branch.residual_scale, branch.layer_scale


class PackedAttention(PackedBranch):
    """Base of attention to the tokens read so far, and to the output of the encoder."""

    def __init__(self, branch: BranchLayer, precision: Precision) -> None:
        super().__init__(branch)
        a = branch.inner
        assert isinstance(a, AttentionLayer)
        self.heads, self.groups, self.grouped = a.heads, a.kv_heads, a.heads != a.kv_heads
        self.scale, self.softcap = (
            a.head_dim**-0.5 if a.spec.scale is None else a.spec.scale,
            a.spec.softcap or 0.0,
        )
        self.queries, self.keys = (
            PackedHeads(a.heads, a.query_norm, a.norms_heads),
            PackedHeads(a.kv_heads, a.key_norm, a.norms_heads),
        )
        self.last = pack_linears(precision, a.out)


class PackedSelfAttention(PackedAttention):
    """Attention to the tokens read so far; query, key and value in one map."""

    def __init__(self, branch: BranchLayer, precision: Precision) -> None:
        super().__init__(branch, precision)
        a = branch.inner
        assert isinstance(a, AttentionLayer)
        self.maps = pack_linears(precision, a.query, a.key, a.value)
        self.parts = [a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.value_dim]

    def forward(
        self,
        x_BLD: Tensor,
        keys: Tensor | None,
        values: Tensor | None,
        start: int,
        mask: Tensor | None,
        causal: bool,
        cos: Tensor | None,
        sin: Tensor | None,
    ) -> Tensor:
        B, L = x_BLD.shape[0], x_BLD.shape[1]
        q, k, v = self.maps(self.before(x_BLD)).split(self.parts, -1)
        q_BHLK, k_BGMK, v_BGMK = (
            self.queries(q),
            self.keys(k),
            v.view(B, L, self.groups, -1).transpose(1, 2),
        )
        if cos is not None and sin is not None:
            q_BHLK, k_BGMK = (
                apply_rope_scripted(q_BHLK, cos, sin),
                apply_rope_scripted(k_BGMK, cos, sin),
            )
        if keys is not None and values is not None:
            keys[:, :, start : start + L], values[:, :, start : start + L] = k_BGMK, v_BGMK
            k_BGMK, v_BGMK = keys[:, :, : start + L], values[:, :, : start + L]
        y_BHLK = attend_scripted(
            q_BHLK, k_BGMK, v_BGMK, mask, causal, self.scale, self.softcap, self.grouped
        )
        return self.layer_scale(self.out(self.last(y_BHLK.transpose(1, 2).reshape(B, L, -1))))  # type: ignore[no-any-return]


class PackedCrossAttention(PackedAttention):
    """Attention to the output of the encoder; keys and values in one map. The beams of a sentence are further queries of its row."""

    def __init__(self, branch: BranchLayer, precision: Precision) -> None:
        super().__init__(branch, precision)
        a = branch.inner
        assert isinstance(a, AttentionLayer)
        self.maps = pack_linears(precision, a.key, a.value)
        self.first = pack_linears(precision, a.query)
        self.parts = [a.kv_heads * a.head_dim, a.kv_heads * a.value_dim]

    @torch.jit.export
    def remember(self, memory_BMD: Tensor) -> list[Tensor]:
        k, v = self.maps(memory_BMD).split(self.parts, -1)
        B, M = memory_BMD.shape[0], memory_BMD.shape[1]
        return [
            self.keys(k).contiguous(),
            v.view(B, M, self.groups, -1).transpose(1, 2).contiguous(),
        ]

    def forward(self, x_BLD: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None) -> Tensor:
        B, L, many = x_BLD.shape[0], x_BLD.shape[1], k_BGMK.shape[0]
        q_BHLK = self.queries(self.first(self.before(x_BLD)).view(many, B // many * L, -1))
        y_BHLK = attend_scripted(
            q_BHLK, k_BGMK, v_BGMK, mask, False, self.scale, self.softcap, self.grouped
        )
        return self.layer_scale(self.out(self.last(y_BHLK.transpose(1, 2).reshape(B, L, -1))))  # type: ignore[no-any-return]


class PackedFeedForward(PackedBranch):
    gated: Final[bool]
    activation: Final[str]

    def __init__(self, branch: BranchLayer, activation: str, precision: Precision) -> None:
        super().__init__(branch)
        f = branch.inner
        assert isinstance(f, FeedForward)
        self.gated, self.activation = f.gate is not None, activation
        self.maps, self.last = (
            pack_linears(precision, *([f.up] if f.gate is None else [f.gate, f.up])),
            pack_linears(precision, f.down),
        )

    def forward(self, x_BLD: Tensor) -> Tensor:
        h_BLF = self.maps(self.before(x_BLD))
        if self.gated:
            gate_BLF, up_BLF = h_BLF.chunk(2, -1)
            h_BLF = activate(gate_BLF, self.activation) * up_BLF
        else:
            h_BLF = activate(h_BLF, self.activation)
        return self.layer_scale(self.out(self.last(h_BLF)))  # type: ignore[no-any-return]


class PackedBlock(nn.Module):
    """x <- after(x * alpha + update(x)), as `model.block` has it."""

    parallel: Final[bool]
    crossed: Final[bool]

    def __init__(
        self, block: BlockLayer, spec: S.Block | S.ParallelBlock, precision: Precision
    ) -> None:
        super().__init__()
        inner = spec.feedforward.inner
        assert isinstance(inner, S.MLP | S.GatedMLP)
        self.parallel, self.crossed = block.parallel, block.cross_attention is not None
        self.attention, self.feedforward = (
            PackedSelfAttention(block.attention, precision),
            PackedFeedForward(block.feedforward, inner.activation, precision),
        )
        self.cross_attention = (
            nn.Identity()
            if block.cross_attention is None
            else PackedCrossAttention(block.cross_attention, precision)
        )

    def forward(
        self,
        x: Tensor,
        keys: Tensor | None,
        values: Tensor | None,
        start: int,
        mask: Tensor | None,
        causal: bool,
        cos: Tensor | None,
        sin: Tensor | None,
        memory: list[Tensor],
        across: Tensor | None,
    ) -> Tensor:
        y = self.attention(x, keys, values, start, mask, causal, cos, sin)
        if self.parallel:
            return x + y + self.feedforward(x)  # type: ignore[no-any-return]
        x = self.attention.after(torch.add(y, x, alpha=self.attention.alpha))
        if self.crossed:
            x = self.cross_attention.after(
                torch.add(
                    self.cross_attention(x, memory[0], memory[1], across),
                    x,
                    alpha=self.cross_attention.alpha,  # type: ignore[arg-type]
                )
            )  # type: ignore
        return self.feedforward.after(  # type: ignore[no-any-return]
            torch.add(self.feedforward(x), x, alpha=self.feedforward.alpha)
        )


class PackedBlocks(nn.Module):
    """All blocks of a stack. `keys` and `values` are empty where nothing is stored, `memory` where there is no encoder."""

    crossed: Final[bool]

    def __init__(self, blocks: list[PackedBlock], norm: nn.Module) -> None:
        super().__init__()
        self.blocks, self.norm, self.crossed = (
            nn.ModuleList(blocks),
            PackedNorm(norm),
            blocks[0].crossed,
        )

    def forward(
        self,
        x: Tensor,
        keys: list[Tensor],
        values: list[Tensor],
        decoder_inputs: list[int],
        masks: list[Tensor | None],
        causal: list[bool],
        cos: list[Tensor | None],
        sin: list[Tensor | None],
        memory: list[list[Tensor]],
        across: Tensor | None,
    ) -> Tensor:
        for i, block in enumerate(self.blocks):
            k: Tensor | None = keys[i] if len(keys) > 0 else None
            v: Tensor | None = values[i] if len(keys) > 0 else None
            cross_keys_values = memory[i] if len(memory) > 0 else []
            x = block(
                x,
                k,
                v,
                decoder_inputs[i],
                masks[i],
                causal[i],
                cos[i],
                sin[i],
                cross_keys_values,
                across,
            )
        return self.norm(x)  # type: ignore[no-any-return]

    @torch.jit.export
    def remember(self, memory_BMD: Tensor) -> list[list[Tensor]]:
        cross_keys_values: list[list[Tensor]] = []
        if self.crossed:
            for block in self.blocks:
                cross_keys_values.append(block.cross_attention.remember(memory_BMD))  # type: ignore
        return cross_keys_values
