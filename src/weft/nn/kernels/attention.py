"""Attention backends: softmax(q kᵀ · scale + mask) v."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ...support.registry import register_named
from .dropout import attention_dropout
from .masks import PatternMask, Positions
from .matmul_attention import matmul_attention
from .precision import is_eager_cpu


class AttentionBackend(Protocol):
    """softmax(cap(q kᵀ · scale) + mask) v. A mask is boolean (True: attend) or added to the scores;
    the result of a row that attends to nothing is 0.
    """

    def __call__(
        self,
        q_BHLK: Tensor,
        k_BGMK: Tensor,
        v_BGMK: Tensor,
        mask: Tensor | None,
        *,
        causal: bool,
        scale: float | None,
        dropout: float,
        softcap: float | None = None,
    ) -> Tensor: ...


class AttentionSplit(Protocol):
    """A backend that computes long rows in parts, without the whole mask: converts a backend into
    one that is called with whole rows.

    `pair`, if it has one, are the positions of one part, for a position bias.
    """

    def __call__(self, kernel: AttentionBackend) -> AttentionBackend: ...


class PatternBackend(Protocol):
    """A faster equivalent of a mask for a pattern; None if it does not apply to these rows.

    `biased`: whether a position bias is added to the scores.
    """

    def __call__(
        self, pattern: PatternMask, positions: Positions, biased: bool
    ) -> AttentionSplit | None: ...


register_named(AttentionBackend, "sdpa", "weft.nn.kernels.attention:sdpa_attention")
register_named(AttentionBackend, "eager", "weft.nn.kernels.attention:eager_attention")
register_named(AttentionBackend, "matmul", "weft.nn.kernels.matmul_attention:matmul_attention")
register_named(PatternBackend, "block-local", "weft.nn.kernels.block_local:block_local_attention")
register_named(
    PatternBackend, "per-document", "weft.nn.kernels.document_attention:per_document_attention"
)


def sdpa_attention(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMK: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None,
    dropout: float,
    softcap: float | None = None,
) -> Tensor:
    """PyTorch's fused kernel, which has no soft cap; two matrix products where its backward is
    slow.
    """
    if softcap is not None:
        return eager_attention(
            q_BHLK,
            k_BGMK,
            v_BGMK,
            mask,
            causal=causal,
            scale=scale,
            dropout=dropout,
            softcap=softcap,
        )
    # PyTorch's kernel has no fused dropout on a CPU either.
    drops_on_cpu = dropout and is_eager_cpu(q_BHLK)
    if drops_on_cpu or sdpa_backward_is_slow(q_BHLK, k_BGMK, mask):
        return matmul_attention(
            q_BHLK, k_BGMK, v_BGMK, mask, causal=causal, scale=scale, dropout=dropout
        )
    return F.scaled_dot_product_attention(
        q_BHLK,
        k_BGMK,
        v_BGMK,
        attn_mask=mask,
        is_causal=causal,
        scale=scale,
        dropout_p=dropout,
        enable_gqa=q_BHLK.shape[1] != k_BGMK.shape[1],
    )


def sdpa_backward_is_slow(q_BHLK: Tensor, k_BGMK: Tensor, mask: Tensor | None) -> bool:
    """Return whether matrix products are faster. On the CPU, PyTorch's bf16 backward takes several
    times as long, and a learned mask has no fused kernel; the products store the weights, so not
    for long inputs.
    """
    return (
        (q_BHLK.dtype == torch.bfloat16 or (mask is not None and mask.requires_grad))
        and is_eager_cpu(q_BHLK)
        and q_BHLK.requires_grad
        and torch.is_grad_enabled()
        and q_BHLK.shape[:3].numel() * k_BGMK.shape[2] <= 1 << 25
    )


def attention_weights(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float | None,
    softcap: float | None = None,
) -> Tensor:
    """Return the attention weights, (B, H, L, M)."""
    k_BHMK = k_BGMK.repeat_interleave(q_BHLK.shape[1] // k_BGMK.shape[1], 1)
    score_BHLM = q_BHLK @ k_BHMK.transpose(-1, -2)
    if softcap is not None and score_BHLM.dtype != torch.float64:
        score_BHLM = score_BHLM.float()  # each step in bf16 would round again
    score_BHLM = score_BHLM * (q_BHLK.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        score_BHLM = apply_softcap(score_BHLM, softcap)
    if causal:
        mask = torch.ones(score_BHLM.shape[-2:], dtype=torch.bool, device=score_BHLM.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        score_BHLM = score_BHLM.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        score_BHLM = score_BHLM + mask
    seen = (score_BHLM > float("-inf")).any(-1, keepdim=True)
    return (score_BHLM.masked_fill(~seen, 0.0).softmax(-1) * seen).to(q_BHLK.dtype)


def eager_attention(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMK: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None,
    dropout: float,
    softcap: float | None = None,
) -> Tensor:
    """The reference implementation of `sdpa_attention`, which also exposes the weights."""
    weight_BHLM = attention_weights(q_BHLK, k_BGMK, mask, causal, scale, softcap)
    if dropout:
        weight_BHLM = attention_dropout(weight_BHLM, dropout)
    return weight_BHLM @ v_BGMK.repeat_interleave(q_BHLK.shape[1] // v_BGMK.shape[1], 1)


def add_position_bias(score: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return score
    return score.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else score + mask


def apply_softcap(x: Tensor, softcap: float) -> Tensor:
    """Bound scores by ± softcap (Gemma 2, arXiv:2408.00118, section 2)."""
    return torch.tanh(x / softcap) * softcap
