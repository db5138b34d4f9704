"""Optimisers, all of them PyTorch's own, and their state under the parameters' names."""
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .. import recipe as R


def decays(parameter: Tensor) -> bool:
    """Matrices and tables decay; biases and norms do not (BERT's code; Loshchilov and Hutter leave it open)."""
    return parameter.dim() >= 2


def is_inner_matrix(name: str, parameter: Tensor) -> bool:
    """A matrix inside a block, which Muon may turn; tables, heads and biases it may not."""
    return parameter.dim() == 2 and ".blocks." in name and ".score." not in name


class Optimiser:
    """One or two torch optimisers over every trainable parameter, each in exactly one group."""

    def __init__(self, s: Any, module: nn.Module) -> None:
        self.named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names: dict[Tensor, str] = {p: name for name, p in self.named.items()}
        self.parts: list[Optimizer] = list(build(s, self.named))
        for part in self.parts:
            for group in part.param_groups:
                group["peak"] = group["lr"]

    def step(self, scale: float) -> None:
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = group["peak"] * scale
            part.step()

    def zero(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    @property
    def peak(self) -> float:
        peak: float = self.parts[0].param_groups[0]["peak"]
        return peak

    def state(self) -> dict[str, Tensor]:
        return {f"{self.names[p]}/{key}": value for part in self.parts for p, state in part.state.items()
                for key, value in state.items() if value is not None}

    def restore(self, state: dict[str, Tensor]) -> None:
        owner = {self.names[p]: part for part in self.parts for group in part.param_groups for p in group["params"]}
        for key, value in state.items():
            name, _, field = key.rpartition("/")
            part, parameter = owner[name], self.named[name]
            stays = field == "step" and not part.defaults.get("fused")     # torch counts on the CPU where it is not fused
            part.state[parameter][field] = value.clone() if stays else value.to(parameter.device, copy=True)


def build(s: Any, named: dict[str, nn.Parameter]) -> Iterator[Optimizer]:
    if isinstance(s, R.Muon):
        inner = {n: p for n, p in named.items() if is_inner_matrix(n, p)}
        if inner:
            yield torch.optim.Muon(inner.values(), lr=s.rate, weight_decay=s.decay, momentum=s.momentum, adjust_lr_fn="match_rms_adamw")
        yield from build(s.other, {n: p for n, p in named.items() if n not in inner})
        return
    decay = 0.0 if isinstance(s, R.Adam) else s.decay
    groups = [{"params": [p for p in named.values() if decays(p)], "weight_decay": decay},
              {"params": [p for p in named.values() if not decays(p)], "weight_decay": 0.0}]
    groups = [g for g in groups if g["params"]]
    if isinstance(s, R.AdamW):
        yield torch.optim.AdamW(groups, lr=s.rate, betas=s.betas, eps=s.eps, fused=True)
    elif isinstance(s, R.Adam):
        yield torch.optim.Adam(groups, lr=s.rate, betas=s.betas, eps=s.eps, fused=True)
    elif isinstance(s, R.Adafactor):
        yield torch.optim.Adafactor(groups, lr=s.rate)
    else:
        yield torch.optim.SGD(groups, lr=s.rate, momentum=s.momentum)
