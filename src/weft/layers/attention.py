"""Attention: one replaceable kernel, and the maps around it (Vaswani et al. 2017, section 3.2)."""
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from ..count import widths
from .dropout import drop_weights
from .keyed import Keys, drawing
from .mask import Pair
from .norm import build_norm, cap
from .position import build_score, rotate
from .precision import cast_once, plain_cpu
from .products import products
from .roles import matrix


class Kernel(Protocol):
    """softmax(cap(q kᵀ · scale) + mask) v. A mask is boolean (True: may look) or added; a row that sees nothing gives 0."""

    def __call__(self, q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, *,
                 causal: bool, scale: float | None, dropout: float, softcap: float | None = None) -> Tensor: ...


def fused(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, *,
          causal: bool, scale: float | None, dropout: float, softcap: float | None = None) -> Tensor:
    """torch's own kernel, which has no soft cap; where its backward is slow, two matrix products."""
    if softcap is not None:
        return opened(q_BHLK, k_BGMK, v_BGMK, mask, causal=causal, scale=scale, dropout=dropout, softcap=softcap)
    if backward_is_slow(q_BHLK, k_BGMK) or (dropout and plain_cpu(q_BHLK)):    # torch's own has no fused dropout on a CPU either
        return products(q_BHLK, k_BGMK, v_BGMK, mask, causal=causal, scale=scale, dropout=dropout)
    return F.scaled_dot_product_attention(q_BHLK, k_BGMK, v_BGMK, attn_mask=mask, is_causal=causal, scale=scale,
                                          dropout_p=dropout, enable_gqa=q_BHLK.shape[1] != k_BGMK.shape[1])


def backward_is_slow(q_BHLK: Tensor, k_BGMK: Tensor) -> bool:
    """On the CPU, torch's bf16 backward takes several times the matrix products; these keep the weights, so not for long inputs."""
    return (q_BHLK.dtype == torch.bfloat16 and plain_cpu(q_BHLK) and q_BHLK.requires_grad and torch.is_grad_enabled()
            and q_BHLK.shape[:3].numel() * k_BGMK.shape[2] <= 1 << 25)


def weights(q_BHLK: Tensor, k_BGMK: Tensor, mask: Tensor | None, causal: bool, scale: float | None, softcap: float | None = None) -> Tensor:
    """The attention weights themselves, (B, H, L, M)."""
    k_BHMK = k_BGMK.repeat_interleave(q_BHLK.shape[1] // k_BGMK.shape[1], 1)
    score_BHLM = q_BHLK @ k_BHMK.transpose(-1, -2)
    if softcap is not None and score_BHLM.dtype != torch.float64:
        score_BHLM = score_BHLM.float()    # each step in bf16 would round anew
    score_BHLM = score_BHLM * (q_BHLK.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        score_BHLM = cap(score_BHLM, softcap)
    if causal:
        mask = torch.ones(score_BHLM.shape[-2:], dtype=torch.bool, device=score_BHLM.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        score_BHLM = score_BHLM.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        score_BHLM = score_BHLM + mask
    seen = (score_BHLM > float("-inf")).any(-1, keepdim=True)
    return (score_BHLM.masked_fill(~seen, 0.0).softmax(-1) * seen).to(q_BHLK.dtype)


def opened(q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, *,
           causal: bool, scale: float | None, dropout: float, softcap: float | None = None) -> Tensor:
    """The slow twin of `fused`, in the open: its oracle, and the way to see the weights."""
    weight_BHLM = weights(q_BHLK, k_BGMK, mask, causal, scale, softcap)
    if dropout:
        weight_BHLM = drop_weights(weight_BHLM, dropout)
    return weight_BHLM @ v_BGMK.repeat_interleave(q_BHLK.shape[1] // v_BGMK.shape[1], 1)


class Store(Protocol):
    """Where decoding keeps keys and values: `layers` asks, `model.cache` holds."""

    def extend(self, k_BGMK: Tensor, v_BGMK: Tensor) -> tuple[Tensor, Tensor]: ...
    @property
    def memory(self) -> tuple[Tensor, Tensor] | None: ...
    def remember(self, k_BGMK: Tensor, v_BGMK: Tensor) -> None: ...


class View(NamedTuple):
    """What an attention is told beside x: the same for all blocks that look the same way."""
    pair: Pair
    mask: Tensor | None = None
    causal: bool = False
    angles: tuple[Tensor, Tensor] | None = None
    place_BLD: Tensor | None = None
    memory_place_BMD: Tensor | None = None
    grid: tuple[int, int] | None = None
    keys: Keys | None = None               # what the queries draw random numbers with
    split: Callable[[Kernel], Kernel] | None = None            # for long rows: the kernel on parts of them; pair and mask are one part's


class Attention(nn.Module):
    def __init__(self, s: S.Attention, width: int) -> None:
        super().__init__()
        self.s, self.heads = s, s.heads
        self.key_width, self.value_width, self.groups = widths(s, width)
        self.query = matrix(width, s.heads * self.key_width, s.bias)
        self.key = matrix(width, self.groups * self.key_width, s.bias)
        self.value = matrix(width, self.groups * self.value_width, s.bias)
        self.out = matrix(s.heads * self.value_width, width, s.out_bias)
        self.score = build_score(s.score, s.heads)
        norm = s.qk_norm.norm if s.qk_norm else None
        self.norms_heads = s.qk_norm is not None and s.qk_norm.over == "head"
        self.query_norm = build_norm(norm, self.key_width * (1 if self.norms_heads else s.heads))
        self.key_norm = build_norm(norm, self.key_width * (1 if self.norms_heads else self.groups))
        self.kernel: Kernel = fused

    def forward(self, x_BLD: Tensor, memory_BMD: Tensor | None, view: View, store: Store | None = None) -> Tensor:
        x_BLD = cast_once(x_BLD)
        placed_BLD = x_BLD if view.place_BLD is None else cast_once(x_BLD + view.place_BLD)
        q_BHLK = self.split(self.query(placed_BLD), self.key_width, self.query_norm)
        if memory_BMD is None:
            k_BGMK = self.split(self.key(placed_BLD), self.key_width, self.key_norm)
            v_BGMK = self.split(self.value(x_BLD), self.value_width)
            if view.angles is not None:
                q_BHLK, k_BGMK = rotate(q_BHLK, *view.angles), rotate(k_BGMK, *view.angles)
            if store is not None:
                k_BGMK, v_BGMK = store.extend(k_BGMK, v_BGMK)
        else:
            k_BGMK, v_BGMK = self.look_back(memory_BMD, view, store)
        beams, L = len(q_BHLK) // len(k_BGMK), q_BHLK.shape[2]
        if beams == 1:
            return self.join(self.attend(q_BHLK, k_BGMK, v_BGMK, view))
        q_BHLK = q_BHLK.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)        # beams of one sentence share its keys
        y_BHLK = self.attend(q_BHLK, k_BGMK, v_BGMK, view)
        return self.join(y_BHLK.unflatten(2, (beams, L)).transpose(1, 2).flatten(0, 1))

    def look_back(self, memory_BMD: Tensor, view: View, store: Store | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, worked out once while decoding."""
        if store is not None and store.memory is not None:
            return store.memory
        memory_BMD = cast_once(memory_BMD)
        placed_BMD = memory_BMD if view.memory_place_BMD is None else memory_BMD + view.memory_place_BMD
        k_BGMK = self.split(self.key(placed_BMD), self.key_width, self.key_norm)
        v_BGMK = self.split(self.value(memory_BMD), self.value_width)
        if store is not None:
            store.remember(k_BGMK, v_BGMK)
        return k_BGMK, v_BGMK

    def attend(self, q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, view: View) -> Tensor:
        mask = view.mask
        if self.score is not None:
            mask = add_score(self.score(view.pair), mask)
        kernel = self.kernel if view.split is None else view.split(self.kernel)
        with drawing(view.keys):
            return kernel(q_BHLK, k_BGMK, v_BGMK, mask if mask is None or mask.dtype == torch.bool else mask.to(q_BHLK.dtype),
                          causal=view.causal, scale=self.s.scale, dropout=self.s.dropout if self.training else 0.0, softcap=self.s.softcap)

    def split(self, t: Tensor, width: int, norm: nn.Module | None = None) -> Tensor:
        """Heads apart, each or all together normalised; in autocast a norm widens its numbers, which the values do not share."""
        if norm is not None and not self.norms_heads:
            t = norm(t).to(t.dtype)
        heads: Tensor = t.unflatten(-1, (-1, width))
        if norm is not None and self.norms_heads:
            heads = norm(heads).to(t.dtype)
        return heads.transpose(1, 2)

    def join(self, y_BHLK: Tensor) -> Tensor:
        out: Tensor = self.out(y_BHLK.transpose(1, 2).flatten(2))
        return out


def add_score(score: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return score
    return score.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else score + mask


@contextmanager
def using(model: nn.Module, kernel: Kernel) -> Iterator[None]:
    """Every attention of a model computes with `kernel` inside the block."""
    found = [m for m in model.modules() if isinstance(m, Attention)]
    before = [m.kernel for m in found]
    try:
        for m in found:
            m.kernel = kernel
        yield
    finally:
        for m, old in zip(found, before, strict=True):
            m.kernel = old
