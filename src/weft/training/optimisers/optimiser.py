"""Optimisers and their state under the parameters' names."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ... import recipe as R
from ...nn.layers.roles import ParameterFacts, Role, parameter_facts
from ...support.registry import implementation
from ..checkpoints.parts import SavedTensor, read_like
from .muon import BatchedMuon


def has_weight_decay(parameter: Tensor, role: Role) -> bool:
    """Matrices and tables decay; biases, norms and vectors do not (BERT's code; Loshchilov and
    Hutter do not specify it).
    """
    return parameter.dim() >= 2 and role not in (Role.NORM, Role.BIAS)


def uses_muon(parameter: Tensor, role: Role) -> bool:
    """Muon updates the matrices of blocks and convolutions; experts' stacked matrices use the other
    optimiser, as torch's Muon takes one matrix per parameter.
    """
    return role is Role.CONVOLUTION or (role is Role.MATRIX and parameter.dim() == 2)


class Optimiser:
    """One or two torch optimisers over every trainable parameter, each in exactly one group."""

    def __init__(self, spec: R.OptimiserSpec, module: nn.Module) -> None:
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names: dict[Tensor, str] = {p: name for name, p in self.parameters.items()}
        parameters = TrainedParameters(self.parameters, parameter_facts(module))
        self.optimisers: list[Optimizer] = list(implementation(spec)(spec, parameters))
        for optimizer in self.optimisers:
            for group in optimizer.param_groups:
                group["peak_lr"] = group["lr"]

    def step(self, scale: float) -> None:
        for optimizer in self.optimisers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak_lr"] * scale
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimisers:
            optimizer.zero_grad(set_to_none=True)

    @property
    def peak_lr(self) -> float:
        peak_lr: float = max(group["peak_lr"] for group in self.optimisers[0].param_groups)
        return peak_lr

    def state(self) -> dict[str, Tensor]:
        return {
            f"{self.names[p]}/{key}": value
            for optimizer in self.optimisers
            for p, state in optimizer.state.items()
            for key, value in state.items()
            if value is not None
        }

    def restore(self, state: Mapping[str, "SavedTensor | Tensor"]) -> None:
        owner = {
            self.names[p]: optimizer
            for optimizer in self.optimisers
            for group in optimizer.param_groups
            for p in group["params"]
        }
        for key, saved in state.items():
            name, _, field = key.rpartition("/")
            optimizer = owner[name]
            parameter = self.parameters[name]
            value = read_like(parameter, saved)
            # torch keeps the step count on the CPU unless fused
            stays = field == "step" and not optimizer.defaults.get("fused")
            optimizer.state[parameter][field] = (
                value.clone() if stays else value.to(parameter.device, copy=True)
            )


class TrainedParameters(NamedTuple):
    """The trainable parameters with their roles and metadata."""

    named: dict[str, nn.Parameter]
    facts: dict[str, ParameterFacts]

    def groups(self, spec: R.OptimiserSpec) -> list[dict[str, Any]]:
        """Return the parameter groups for a torch optimiser: learning rate and weight decay of
        each.
        """
        return parameter_groups(spec, self.named, self.facts)

    def split(
        self, wanted: Callable[[Tensor, Role], bool]
    ) -> tuple["TrainedParameters", "TrainedParameters"]:
        """Return the parameters for which `wanted(parameter, role)` is true, and the others."""
        taken = {n: p for n, p in self.named.items() if wanted(p, self.facts[n].role)}
        others = {n: p for n, p in self.named.items() if n not in taken}
        return self._replace(named=taken), self._replace(named=others)


def build_adamw(spec: R.AdamW, parameters: TrainedParameters) -> Iterator[Optimizer]:
    groups = parameters.groups(spec)
    yield torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)


def build_adam(spec: R.Adam, parameters: TrainedParameters) -> Iterator[Optimizer]:
    groups = parameters.groups(spec)
    yield torch.optim.Adam(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True)


def build_adafactor(spec: R.Adafactor, parameters: TrainedParameters) -> Iterator[Optimizer]:
    yield torch.optim.Adafactor(parameters.groups(spec), lr=spec.lr)


def build_sgd(spec: R.SGD, parameters: TrainedParameters) -> Iterator[Optimizer]:
    yield torch.optim.SGD(parameters.groups(spec), lr=spec.lr, momentum=spec.momentum)


def build_muon(spec: R.Muon, parameters: TrainedParameters) -> Iterator[Optimizer]:
    matrices, others = parameters.split(uses_muon)
    if matrices.named:
        yield BatchedMuon(
            matrices.named.values(),
            lr=spec.lr,
            weight_decay=spec.weight_decay,
            momentum=spec.momentum,
        )
    yield from build_adamw(spec.other, others)


def parameter_groups(
    spec: Any, named: dict[str, nn.Parameter], facts: dict[str, ParameterFacts]
) -> list[dict[str, Any]]:
    """Group parameters by weight decay and, with layer-wise decay, by distance from the head
    (ELECTRA, arXiv:2003.10555, appendix B), and by decay.
    """
    layers = getattr(spec, "layer_decay", None) or 1.0
    decay = getattr(spec, "weight_decay", 0.0)
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, p in named.items():
        above = facts[name].layers_above if layers < 1 else 0
        groups.setdefault((above, not has_weight_decay(p, facts[name].role)), []).append(p)
    return [
        {
            "params": parameters,
            "weight_decay": 0.0 if plain else decay,
            "lr": spec.lr * layers**down,
        }
        for (down, plain), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]
