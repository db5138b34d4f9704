"""Attention layers: projections around one replaceable kernel (Vaswani et al. 2017, section
3.2).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ... import spec as S
from ...spec.attention import head_dims
from ...support.registry import implementation, named, resolve
from ..kernels.attention import AttentionBackend, add_position_bias, sdpa_attention
from ..kernels.keyed_random import Keys, use_keys
from ..kernels.masks import Positions
from ..kernels.precision import cast_for_autocast
from ..kernels.side_by_side import linear_side_by_side, one_product_is_quicker
from .norms import build_norm
from .positions import apply_rope, build_position_bias
from .roles import INPUT, OUTPUT, block_linear


class KeyValueStore(Protocol):
    """The interface of the key-value cache, which `weft.nn.cache` implements."""

    def extend(self, k_BGMK: Tensor, v_BGMK: Tensor) -> tuple[Tensor, Tensor]: ...
    @property
    def memory(self) -> tuple[Tensor, Tensor] | None: ...
    def remember(self, k_BGMK: Tensor, v_BGMK: Tensor) -> None: ...


class AttentionContext(NamedTuple):
    """The inputs of attention other than x; blocks with the same pattern share them."""

    positions: Positions
    mask: Tensor | None = None
    causal: bool = False
    rope_angles: tuple[Tensor, Tensor] | None = None
    position_BLD: Tensor | None = None
    memory_position_BMD: Tensor | None = None
    grid: tuple[int, int] | None = None
    # The random keys of the queries.
    keys: Keys | None = None
    # For long rows: a kernel on parts of them; positions and mask are those of one part.
    split_backend: Callable[[AttentionBackend], AttentionBackend] | None = None


class AttentionLayer(nn.Module):
    def __init__(self, spec: S.Attention, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.heads = spec.heads
        self.head_dim, self.value_dim, self.kv_heads = head_dims(spec, width)
        self.query = block_linear(
            width, spec.heads * self.head_dim, spec.bias, INPUT, query_heads=spec.heads
        )
        self.key = block_linear(width, self.kv_heads * self.head_dim, spec.bias, INPUT)
        self.value = block_linear(
            width, self.kv_heads * self.value_dim, spec.bias, INPUT, scaled_by_gain=True
        )
        self.out = block_linear(
            spec.heads * self.value_dim, width, spec.out_bias, OUTPUT, scaled_by_gain=True
        )
        self.position_bias = build_position_bias(spec.position_bias, spec.heads)
        norm = spec.qk_norm.norm if spec.qk_norm else None
        self.norms_heads = spec.qk_norm is not None and spec.qk_norm.per == "head"
        query_width = self.head_dim if self.norms_heads else self.head_dim * spec.heads
        key_width = self.head_dim if self.norms_heads else self.head_dim * self.kv_heads
        self.query_norm = build_norm(norm, query_width, stream=False)
        self.key_norm = build_norm(norm, key_width, stream=False)
        self.backend: AttentionBackend = sdpa_attention

    def forward(
        self,
        x_BLD: Tensor,
        memory_BMD: Tensor | None,
        context: AttentionContext,
        store: KeyValueStore | None = None,
    ) -> Tensor:
        x_BLD = cast_for_autocast(x_BLD)
        if memory_BMD is None:
            q_BLD, k_BLD, v_BLD = self.self_projections(x_BLD, context.position_BLD)
            q_BHLK = self.split_heads(q_BLD, self.head_dim, self.query_norm)
            k_BGMK = self.split_heads(k_BLD, self.head_dim, self.key_norm)
            v_BGMK = self.split_heads(v_BLD, self.value_dim)
            if context.rope_angles is not None:
                q_BHLK = apply_rope(q_BHLK, *context.rope_angles)
                k_BGMK = apply_rope(k_BGMK, *context.rope_angles)
            if store is not None:
                k_BGMK, v_BGMK = store.extend(k_BGMK, v_BGMK)
        else:
            q_BLD = self.query(add_position(x_BLD, context.position_BLD))
            q_BHLK = self.split_heads(q_BLD, self.head_dim, self.query_norm)
            k_BGMK, v_BGMK = self.cross_keys_values(memory_BMD, context, store)
        if q_BHLK.shape[0] == k_BGMK.shape[0]:
            return self.join_heads(self.attend(q_BHLK, k_BGMK, v_BGMK, context))
        # Beams of one sentence share its keys.
        beams = q_BHLK.shape[0] // k_BGMK.shape[0]
        L = q_BHLK.shape[2]
        q_BHLK = q_BHLK.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)
        y_BHLK = self.attend(q_BHLK, k_BGMK, v_BGMK, context)
        return self.join_heads(y_BHLK.unflatten(2, (beams, L)).transpose(1, 2).flatten(0, 1))

    def self_projections(self, x_BLD: Tensor, position_BLD: Tensor | None) -> tuple[Tensor, ...]:
        """Return queries and keys of x + p, values of x."""
        return self.project(add_position(x_BLD, position_BLD), x_BLD)

    def project(self, placed_BLD: Tensor, x_BLD: Tensor) -> tuple[Tensor, ...]:
        """Return queries and keys of `placed`, values of x; one product computes all three if both
        are the same and it is faster.
        """
        if placed_BLD is x_BLD and one_product_is_quicker(x_BLD):
            maps = self.query, self.key, self.value
            if all(type(m) is nn.Linear and type(m.weight) is nn.Parameter for m in maps):
                return linear_side_by_side(x_BLD, maps)
        return self.query(placed_BLD), self.key(placed_BLD), self.value(x_BLD)

    def cross_keys_values(
        self, memory_BMD: Tensor, context: AttentionContext, store: KeyValueStore | None
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values of the encoder's output, computed once during decoding."""
        if store is not None and store.memory is not None:
            return store.memory
        memory_BMD = cast_for_autocast(memory_BMD)
        k_BMD = self.key(add_position(memory_BMD, context.memory_position_BMD))
        k_BGMK = self.split_heads(k_BMD, self.head_dim, self.key_norm)
        v_BGMK = self.split_heads(self.value(memory_BMD), self.value_dim)
        if store is not None:
            store.remember(k_BGMK, v_BGMK)
        return k_BGMK, v_BGMK

    def attend(
        self, q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, context: AttentionContext
    ) -> Tensor:
        mask = context.mask
        if self.position_bias is not None:
            mask = add_position_bias(self.position_bias(context.positions), mask)
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(q_BHLK.dtype)
        kernel = self.backend
        if context.split_backend is not None:
            kernel = context.split_backend(kernel)
        with use_keys(context.keys):
            return kernel(
                q_BHLK,
                k_BGMK,
                v_BGMK,
                mask,
                causal=context.causal,
                scale=self.spec.scale,
                dropout=self.spec.dropout if self.training else 0.0,
                softcap=self.spec.softcap,
            )

    def split_heads(self, t: Tensor, width: int, norm: nn.Module | None = None) -> Tensor:
        """Split heads and normalise each, or all together. In autocast a norm returns float32,
        which the values do not share.
        """
        if norm is not None and not self.norms_heads:
            t = norm(t).to(t.dtype)
        heads: Tensor = t.unflatten(-1, (-1, width))
        if norm is not None and self.norms_heads:
            heads = norm(heads).to(t.dtype)
        return heads.transpose(1, 2)

    def join_heads(self, y_BHLK: Tensor) -> Tensor:
        out: Tensor = self.out(y_BHLK.transpose(1, 2).flatten(2))
        return out


def add_position(x_BLD: Tensor, position_BLD: Tensor | None) -> Tensor:
    return x_BLD if position_BLD is None else cast_for_autocast(x_BLD + position_BLD)


# Layers of `Attention.query_key_positions`, beside "added".
POSITION_LAYERS = {
    "projected": "weft.nn.layers.images.conditional_attention:ProjectedAttention",
    "concatenated": "weft.nn.layers.images.conditional_attention:ConditionalAttention",
    "projected-concatenated": "weft.nn.layers.images.conditional_attention:ConditionalAttention",
}


def build_attention(spec: S.Attention, width: int) -> AttentionLayer:
    """Build the attention layer, by its positions or pattern if they have their own."""
    layer: type = implementation(spec.pattern)
    if spec.query_key_positions != "added":
        layer = resolve(POSITION_LAYERS[spec.query_key_positions])
    kind: type[AttentionLayer] = layer if issubclass(layer, AttentionLayer) else AttentionLayer
    return kind(spec, width)


@contextmanager
def attention_backend(model: nn.Module, backend: AttentionBackend | str) -> Iterator[None]:
    """Context in which every attention of a model uses `backend`, such as "eager"."""
    kernel = named(AttentionBackend, backend) if isinstance(backend, str) else backend
    attentions = [m for m in model.modules() if isinstance(m, AttentionLayer)]
    before = [m.backend for m in attentions]
    try:
        for m in attentions:
            m.backend = kernel
        yield
    finally:
        for m, old in zip(attentions, before, strict=True):
            m.backend = old
