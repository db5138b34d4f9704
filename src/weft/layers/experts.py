"""Mixture of experts: each token goes to its few best experts (Shazeer et al. 2017, arXiv:1701.06538)."""
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .dropout import dropout
from .keyed import Keys, keys_for, numbered
from .loss import wide
from .norm import ACTIVATIONS
from .roles import Role, matrix, with_role


def one_by_one(x_TD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    """The slow twin of `grouped`: a matrix product an expert. On the meta device any split has the right shapes."""
    ends = torch.arange(1, len(ends_E) + 1).mul(len(x_TD)).div(len(ends_E)).int().tolist() if ends_E.is_meta else ends_E.tolist()
    return torch.cat([F.linear(x_TD[a:b], w) for a, b, w in zip([0, *ends[:-1]], ends, weight_EFD, strict=True)])


def grouped(x_TD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    """All experts in one kernel, without asking how many tokens each has."""
    return F.grouped_mm(x_TD, weight_EFD.transpose(1, 2), offs=ends_E)


def can_group(x_TD: Tensor, weight_EFD: Tensor) -> bool:
    if x_TD.device.type == "cpu":          # a compiler's shapes know the kernel in bf16 alone
        return x_TD.dtype == torch.bfloat16 or (x_TD.dtype == torch.float32 and not torch.compiler.is_compiling())
    return x_TD.device.type == "cuda" and x_TD.dtype == torch.bfloat16 and all(n % 8 == 0 for n in weight_EFD.shape[1:])


class Bank(nn.Module):
    """One linear map an expert, over tokens sorted by expert."""

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts, outputs)) if bias else None
        with_role(self, Role.MATRIX)

    def forward(self, x_TD: Tensor, ends_E: Tensor, expert_T: Tensor) -> Tensor:
        weight_EFD = self.weight.to(x_TD.dtype)
        y_TD = (grouped if can_group(x_TD, weight_EFD) else one_by_one)(x_TD, weight_EFD, ends_E)
        return y_TD if self.bias is None else y_TD + self.bias.to(y_TD.dtype)[expert_T]


class Experts(nn.Module):
    def __init__(self, s: S.Experts, width: int) -> None:
        super().__init__()
        self.s, e = s, s.expert
        self.activation, self.dropout = ACTIVATIONS[e.activation], e.dropout
        self.router = matrix(width, s.count, False)
        self.gate = Bank(s.count, width, e.hidden, e.bias) if isinstance(e, S.Gated) else None
        self.up = Bank(s.count, width, e.hidden, e.bias)
        self.down = Bank(s.count, e.hidden, width, e.bias)
        self.score_BLE: Tensor | None = None       # the newest router scores, for `routing`

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"score_BLE": None}     # part of a graph, which no copy can be

    def choose(self, score_BLE: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen experts of each token and their gates."""
        if self.s.gates == "all":
            gates, chosen = score_BLE.softmax(-1, dtype=torch.promote_types(score_BLE.dtype, torch.float32)).topk(self.s.chosen, -1)
            return gates, chosen
        best, chosen = score_BLE.topk(self.s.chosen, -1)
        return best.softmax(-1, dtype=torch.promote_types(best.dtype, torch.float32)), chosen

    def keys(self, x_BLD: Tensor, order_T: Tensor) -> Keys:
        """Of the hidden vectors, in their order: each token's own for each of its experts."""
        key_BL = keys_for(x_BLD.shape, x_BLD.device).key_BL
        return Keys(numbered(key_BL.flatten(), self.s.chosen).flatten()[order_T][None])

    def forward(self, x_BLD: Tensor) -> Tensor:
        self.score_BLE = self.router(x_BLD)
        gates, chosen = self.choose(self.score_BLE.flatten(0, 1))
        expert_T, order_T = chosen.flatten().sort(stable=True)
        token_T = order_T // self.s.chosen
        ends_E = torch.searchsorted(expert_T, torch.arange(self.s.count, device=expert_T.device), right=True, out_int32=True)
        x_TD = x_BLD.flatten(0, 1)[token_T].to(self.score_BLE.dtype)      # autocast shows in what the router said
        h_TF = self.activation((self.up if self.gate is None else self.gate)(x_TD, ends_E, expert_T))
        if self.gate is not None:
            h_TF = h_TF * self.up(x_TD, ends_E, expert_T)
        if self.training and self.dropout:
            h_TF = dropout(h_TF, self.dropout, self.keys(x_BLD, order_T))
        y_TD = self.down(h_TF, ends_E, expert_T) * gates.flatten()[order_T, None].to(h_TF.dtype)
        return torch.zeros_like(x_BLD).flatten(0, 1).index_add(0, token_T, y_TD.to(x_BLD.dtype)).view_as(x_BLD)


class Routing(NamedTuple):
    """What one router did with a batch; padding does not count."""
    balance: Tensor                        # sums over tokens or images
    z: Tensor
    load_E: Tensor                         # tokens sent to each expert


def routing(layer: Experts, keep_BL: Tensor | None = None, image: bool = False) -> Routing:
    """The auxiliary losses of a layer after its forward pass, as sums: over tokens, or over images, whose tokens are as many each.

    Balance is E · Σ_e f_e · P_e: f_e the share of tokens sent to expert e, P_e its mean probability; 1 when all experts work alike
    (Switch, arXiv:2101.03961, equations 4 to 6). Both means are over one sequence and not over a batch (DeepSeek-V3, arXiv:2412.19437,
    equations 17 to 20): a product of means over a batch would depend on how micro-batches and ranks cut it. A sequence weighs as
    its tokens do. z is logsumexp(scores)² (ST-MoE, arXiv:2202.08906, equation 5)."""
    assert layer.score_BLE is not None
    score_BLE = layer.score_BLE.to(wide(layer.score_BLE))
    (B, L, E), chosen = score_BLE.shape, layer.s.chosen
    many = 2 if keep_BL is None or keep_BL.dtype == torch.bool else L + 1      # sequences of a row, the first of them padding
    sequence_BL = score_BLE.new_ones((B, L), dtype=torch.long) if keep_BL is None else keep_BL.long()
    at_T = (sequence_BL + many * torch.arange(B, device=score_BLE.device)[:, None]).flatten()

    def summed(x_BLE: Tensor) -> Tensor:
        x_SE = x_BLE.new_zeros(B * many, x_BLE.shape[-1]).index_add(0, at_T, x_BLE.flatten(0, 1))
        return x_SE.view(B, many, -1)[:, 1:].flatten(0, 1)
    sent_SE = summed(torch.zeros_like(score_BLE).scatter(-1, layer.choose(score_BLE)[1], 1.0))
    tokens_S1 = sent_SE.sum(-1, keepdim=True) / chosen
    share_SE, probability_SE = (x_SE / tokens_S1.clamp(min=1) for x_SE in (sent_SE / chosen, summed(score_BLE.softmax(-1))))
    z_S1 = summed(score_BLE.logsumexp(-1, keepdim=True).square())
    per = L if image else 1
    return Routing((E * share_SE * probability_SE * tokens_S1).sum() / per, z_S1.sum() / per, sent_SE.detach().sum(0))
