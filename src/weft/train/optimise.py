"""Optimisers, all of them PyTorch's own, and their state under the parameters' names."""
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .. import recipe as R
from ..layers.roles import Role, roles_of
from ..model.block import Block


def decays(parameter: Tensor, role: Role) -> bool:
    """Matrices and tables decay; biases, norms and lone vectors do not (BERT's code; Loshchilov and Hutter leave it open)."""
    return parameter.dim() >= 2 and role not in (Role.NORM, Role.BIAS)


def is_orthogonalised(parameter: Tensor, role: Role) -> bool:
    """Muon is for the matrices of blocks; torch's takes one matrix per parameter, so experts' stacked ones go to the other optimiser."""
    return role is Role.MATRIX and parameter.dim() == 2


def blocks_of(module: nn.Module) -> list[str]:
    """The names of the trunk's blocks, from the input to the head."""
    return [name for name, part in module.named_modules() if isinstance(part, Block)
            and name.startswith(("model.encoder.", "model.decoder.", "encoder.", "decoder."))]


def below(name: str, blocks: list[str]) -> int:
    """How many blocks lie between a parameter and the head: none for the head, all for an embedding."""
    own = next((i for i, block in enumerate(blocks) if name.startswith(f"{block}.")), None)
    if own is not None:
        return len(blocks) - 1 - own
    if ".merges." in name:                 # a pyramid's, behind their stage
        stage = int(name.split(".merges.")[1].split(".")[0])
        return sum(int(block.split(".stages.")[1].split(".")[0]) > stage for block in blocks)
    first = name.removeprefix("model.").split(".")
    return len(blocks) if first[0] in ("source", "target") or "score" in first else 0


class Optimiser:
    """One or two torch optimisers over every trainable parameter, each in exactly one group."""

    def __init__(self, s: Any, module: nn.Module) -> None:
        self.named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names: dict[Tensor, str] = {p: name for name, p in self.named.items()}
        self.parts: list[Optimizer] = list(build(s, self.named, roles_of(module), blocks_of(module)))
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
        peak: float = max(group["peak"] for group in self.parts[0].param_groups)
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


def build(s: Any, named: dict[str, nn.Parameter], roles: dict[str, Role], blocks: list[str]) -> Iterator[Optimizer]:
    if isinstance(s, R.Muon):
        inner = {n: p for n, p in named.items() if is_orthogonalised(p, roles[n])}
        if inner:
            yield torch.optim.Muon(inner.values(), lr=s.rate, weight_decay=s.decay, momentum=s.momentum, adjust_lr_fn="match_rms_adamw")
        yield from build(s.other, {n: p for n, p in named.items() if n not in inner}, roles, blocks)
        return
    groups = grouped(s, named, roles, blocks)
    if isinstance(s, R.AdamW):
        yield torch.optim.AdamW(groups, lr=s.rate, betas=s.betas, eps=s.eps, fused=True)
    elif isinstance(s, R.Adam):
        yield torch.optim.Adam(groups, lr=s.rate, betas=s.betas, eps=s.eps, fused=True)
    elif isinstance(s, R.Adafactor):
        yield torch.optim.Adafactor(groups, lr=s.rate)
    else:
        yield torch.optim.SGD(groups, lr=s.rate, momentum=s.momentum)


def grouped(s: Any, named: dict[str, nn.Parameter], roles: dict[str, Role], blocks: list[str]) -> list[dict[str, Any]]:
    """Parameters by how far below the head they are, where that matters (ELECTRA, arXiv:2003.10555, appendix B), and by decay."""
    layers, decay = getattr(s, "layers", None) or 1.0, 0.0 if isinstance(s, R.Adam) else s.decay
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, p in named.items():
        groups.setdefault((below(name, blocks) if layers < 1 else 0, not decays(p, roles[name])), []).append(p)
    return [{"params": own, "weight_decay": 0.0 if plain else decay, "lr": s.rate * layers ** down}
            for (down, plain), own in sorted(groups.items(), key=lambda item: item[0])]
