"""Mixture of experts: each token is processed by its top-k experts (Shazeer et al. 2017,
arXiv:1701.06538).
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ... import spec as S
from ..kernels.cross_entropy import accumulation_dtype
from ..kernels.dropout import dropout
from ..kernels.keyed_random import Keys, indexed_words, keys_for_shape
from .activations import ACTIVATIONS
from .roles import INPUT, OUTPUT, Role, block_linear, with_role


def loop_experts(x_TD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    """The reference implementation: one matrix product per expert. On the meta device any split has
    the right shapes.
    """
    tokens = len(x_TD)
    experts = len(ends_E)
    even = [tokens * i // experts for i in range(1, experts + 1)]
    ends = even if ends_E.is_meta else ends_E.tolist()
    return torch.cat(
        [F.linear(x_TD[a:b], w) for a, b, w in zip([0, *ends[:-1]], ends, weight_EFD, strict=True)]
    )


def grouped_matmul(x_TD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    """All experts in one kernel, without reading the number of tokens per expert."""
    return F.grouped_mm(x_TD, weight_EFD.transpose(1, 2), offs=ends_E)


def can_use_grouped_matmul(x_TD: Tensor, weight_EFD: Tensor) -> bool:
    if x_TD.device.type == "cpu":  # a compiler's shapes know the kernel in bf16 alone
        return x_TD.dtype == torch.bfloat16 or (
            x_TD.dtype == torch.float32 and not torch.compiler.is_compiling()
        )
    return (
        x_TD.device.type == "cuda"
        and x_TD.dtype == torch.bfloat16
        and all(n % 8 == 0 for n in weight_EFD.shape[1:])
    )


class ExpertLinear(nn.Module):
    """One linear map per expert, over tokens sorted by expert."""

    def __init__(
        self, experts: int, inputs: int, outputs: int, bias: bool, stream_dim: int
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts, outputs)) if bias else None
        with_role(self, Role.MATRIX, stream_dim=stream_dim, scaled_by_gain=True)

    def forward(self, x_TD: Tensor, ends_E: Tensor, expert_T: Tensor) -> Tensor:
        weight_EFD = self.weight.to(x_TD.dtype)
        y_TD = (grouped_matmul if can_use_grouped_matmul(x_TD, weight_EFD) else loop_experts)(
            x_TD, weight_EFD, ends_E
        )
        return y_TD if self.bias is None else y_TD + self.bias.to(y_TD.dtype)[expert_T]


class MixtureOfExpertsLayer(nn.Module):
    def __init__(self, spec: S.MixtureOfExperts, width: int) -> None:
        super().__init__()
        self.s = spec
        e = spec.expert
        self.activation = ACTIVATIONS[e.activation]
        self.dropout = e.dropout
        self.router = block_linear(width, spec.experts, False, INPUT)
        gated = isinstance(e, S.GatedMLP)
        self.gate = ExpertLinear(spec.experts, width, e.hidden, e.bias, INPUT) if gated else None
        self.up = ExpertLinear(spec.experts, width, e.hidden, e.bias, INPUT)
        self.down = ExpertLinear(spec.experts, e.hidden, width, e.bias, OUTPUT)
        self.score_BLE: Tensor | None = None  # the newest router scores, for the auxiliary losses

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"score_BLE": None}  # part of a graph, which no copy can be

    def route(self, score_BLE: Tensor) -> tuple[Tensor, Tensor]:
        """Return the chosen experts of each token and their gates."""
        if self.s.softmax_over == "all":
            gates, chosen = score_BLE.softmax(
                -1, dtype=torch.promote_types(score_BLE.dtype, torch.float32)
            ).topk(self.s.top_k, -1)
            return gates, chosen
        best, chosen = score_BLE.topk(self.s.top_k, -1)
        return best.softmax(-1, dtype=torch.promote_types(best.dtype, torch.float32)), chosen

    def keys(self, x_BLD: Tensor, order_T: Tensor) -> Keys:
        """Return random keys of the hidden vectors, in order: each token's own for each of its
        experts.
        """
        key_BL = keys_for_shape(x_BLD.shape, x_BLD.device).key_BL
        return Keys(indexed_words(key_BL.flatten(), self.s.top_k).flatten()[order_T][None])

    def forward(self, x_BLD: Tensor) -> Tensor:
        self.score_BLE = self.router(x_BLD)
        gates, chosen = self.route(self.score_BLE.flatten(0, 1))
        expert_T, order_T = chosen.flatten().sort(stable=True)
        token_T = order_T // self.s.top_k
        ends_E = torch.searchsorted(
            expert_T,
            torch.arange(self.s.experts, device=expert_T.device),
            right=True,
            out_int32=True,
        )
        # the type of the router output shows autocast
        x_TD = x_BLD.flatten(0, 1)[token_T].to(self.score_BLE.dtype)
        h_TF = self.activation(
            (self.up if self.gate is None else self.gate)(x_TD, ends_E, expert_T)
        )
        if self.gate is not None:
            h_TF = h_TF * self.up(x_TD, ends_E, expert_T)
        if self.training and self.dropout:
            h_TF = dropout(h_TF, self.dropout, self.keys(x_BLD, order_T))
        y_TD = self.down(h_TF, ends_E, expert_T) * gates.flatten()[order_T, None].to(h_TF.dtype)
        return (
            torch.zeros_like(x_BLD)
            .flatten(0, 1)
            .index_add(0, token_T, y_TD.to(x_BLD.dtype))
            .view_as(x_BLD)
        )


class RouterLosses(NamedTuple):
    """The statistics of one router on a batch, without padding."""

    load_balance: Tensor  # sums over tokens or images
    z: Tensor
    load_E: Tensor  # tokens sent to each expert


def router_losses(
    layer: MixtureOfExpertsLayer,
    attention_mask_BL: Tensor | None = None,
    document_ids_BL: Tensor | None = None,
    image: bool = False,
) -> RouterLosses:
    """Return the auxiliary losses of a layer after its forward pass, as sums over tokens, or over
    images with equally many tokens.

    Balance is E · Σ_e f_e · P_e, with f_e the fraction of tokens sent to expert e and P_e its mean
    probability; 1 for balanced experts (Switch, arXiv:2101.03961, equations 4 to 6). Both means are
    over one sequence, not over a batch (DeepSeek-V3, arXiv:2412.19437, equations 17 to 20): a
    product of means over a batch would depend on its division into micro-batches and ranks. A
    sequence is weighted by its tokens. z is logsumexp(scores)² (ST-MoE, arXiv:2202.08906, equation
    5).
    """
    assert layer.score_BLE is not None
    score_BLE = layer.score_BLE.to(accumulation_dtype(layer.score_BLE))
    (B, L, E) = score_BLE.shape
    chosen = layer.s.top_k
    # Sequences of a row, the first of them padding
    num_sequences = 2 if document_ids_BL is None else L + 1
    sequence_BL = attention_mask_BL if document_ids_BL is None else document_ids_BL
    if sequence_BL is None:
        sequence_BL = torch.ones_like(score_BLE[..., 0])
    at_T = (
        sequence_BL.long() + num_sequences * torch.arange(B, device=score_BLE.device)[:, None]
    ).flatten()

    def summed(x_BLE: Tensor) -> Tensor:
        x_SE = x_BLE.new_zeros(B * num_sequences, x_BLE.shape[-1]).index_add(
            0, at_T, x_BLE.flatten(0, 1)
        )
        return x_SE.view(B, num_sequences, -1)[:, 1:].flatten(0, 1)

    sent_SE = summed(torch.zeros_like(score_BLE).scatter(-1, layer.route(score_BLE)[1], 1.0))
    tokens_S1 = sent_SE.sum(-1, keepdim=True) / chosen
    share_SE, probability_SE = (
        x_SE / tokens_S1.clamp(min=1) for x_SE in (sent_SE / chosen, summed(score_BLE.softmax(-1)))
    )
    z_S1 = summed(score_BLE.logsumexp(-1, keepdim=True).square())
    per = L if image else 1
    return RouterLosses(
        (E * share_SE * probability_SE * tokens_S1).sum() / per,
        z_S1.sum() / per,
        sent_SE.detach().sum(0),
    )
