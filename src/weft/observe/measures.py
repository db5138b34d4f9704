"""Statistics of attention maps: entropy, rollout, the weights of one query."""

from collections.abc import Sequence

import torch
from torch import Tensor


def attention_entropy(weight_BHLM: Tensor) -> Tensor:
    """Entropy of each query's weights in nats, (B, H, L); 0 for a single key, log(M) for uniform
    weights (Clark et al. 2019, arXiv:1906.04341, 3.3).

    Args:
        weight_BHLM: attention weights.
    """
    entropy_BHL: Tensor = torch.special.entr(weight_BHLM.float()).sum(-1)
    return entropy_BHL


def attention_rollout(maps: Sequence[Tensor]) -> list[Tensor]:
    """Attention rollout: the share of each input token in each position after every layer, if half
    of each vector comes from the residual connection and half from attention (Abnar and Zuidema
    2020, arXiv:2005.00928, section 3).

    Args:
        maps: the weights of each layer's self-attention from the input to the output, (B, H, L, L).

    Returns:
        After each layer, (B, L, L); every row sums to 1.
    """
    flow_BLL = None
    flows = []
    for weight_BHLL in maps:
        if weight_BHLL.shape[-1] != weight_BHLL.shape[-2]:
            raise ValueError(
                f"rollout needs self-attention over whole rows, not {tuple(weight_BHLL.shape)}"
            )
        step_BLL = weight_BHLL.float().mean(1) + torch.eye(
            weight_BHLL.shape[-1], device=weight_BHLL.device
        )
        step_BLL = step_BLL / step_BLL.sum(-1, keepdim=True)
        flow_BLL = step_BLL if flow_BLL is None else step_BLL @ flow_BLL
        flows.append(flow_BLL)
    return flows


def token_view(maps: Sequence[Tensor], position: int, row: int = 0) -> Tensor:
    """The weights of one query in every layer and head, (Y, H, M) (Vaswani et al. 2017,
    figure 4).

    Args:
        maps: the weights of each layer, (B, H, L, M).
        position: of the query.
        row: of the batch.
    """
    length = maps[0].shape[2]
    if not -length <= position < length:
        raise ValueError(
            f"position = {position} is outside of {length} tokens; give 0 to {length - 1}"
        )
    return torch.stack([weight_BHLM[row, :, position] for weight_BHLM in maps])
