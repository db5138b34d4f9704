"""Weight initialisation: one rule per role of a parameter.

Each tensor has its own generator, seeded by the seed and the tensor's path, so initial weights do
not depend on build order or sharding.
"""

import hashlib
from collections.abc import Container
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .. import spec as S
from ..support.registry import implementation
from .layers.roles import ParameterFacts, Role, parameter_facts

CONSTANTS = {Role.NORM: 1.0, Role.BIAS: 0.0}
TABLES = (Role.TABLE, Role.POSITION, Role.POSITION_BIAS)
CONVOLUTION_DIMS = 4


def initialise_weights(
    module: nn.Module, spec: S.Spec, seed: int = 0, only: Container[str] | None = None
) -> None:
    """Initialise the parameters and buffers of a module, or some of them.

    Args:
        module: a model, or a task's module that owns one.
        s: the spec whose initialisation is used.
        seed: the seed of random numbers, combined with each tensor's path.
        only: the names of the tensors to initialise (default: all).
    """
    facts = parameter_facts(module)
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if only is None or name in only:
                generator = torch.Generator(tensor.device).manual_seed(parameter_seed(seed, name))
                initialise_parameter(tensor, facts[name], spec, generator)


def parameter_seed(seed: int, name: str) -> int:
    return (
        int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "big")
        >> 1
    )


def initialise_parameter(
    t: Tensor, facts: ParameterFacts, spec: S.Spec, generator: torch.Generator
) -> None:
    """Fill one tensor: a constant, its own formula, or the spec's rule for tables and matrices."""
    role = facts.initialised_as or facts.role
    initial = CONSTANTS.get(role) if facts.initial is None else facts.initial
    rule: InitRule = implementation(spec.init)
    if initial is not None:
        t.fill_(initial)
    elif facts.formula is not None:
        facts.formula(t, generator)
    elif role in TABLES:
        rule.table(spec.init, t, role, spec.width, generator)
    else:
        rule.matrix(spec.init, t, facts, generator)
        if facts.scaled_by_gain and facts.init_gain != 1:
            t.mul_(facts.init_gain)


class InitRule(Protocol):
    """The implementation of an `Init`: fills a matrix and an embedding table in place."""

    def matrix(
        self, init: Any, t: Tensor, facts: ParameterFacts, generator: torch.Generator
    ) -> None: ...

    def table(
        self, init: Any, t: Tensor, role: Role, width: int, generator: torch.Generator
    ) -> None: ...


class NormalRule:
    @staticmethod
    def matrix(
        init: S.NormalInit, t: Tensor, facts: ParameterFacts, generator: torch.Generator
    ) -> None:
        scaled = init.scale_by_depth and facts.writes_stream
        fill_normal(t, init, facts.residual_branches**-0.5 if scaled else 1, generator)

    @staticmethod
    def table(
        init: S.NormalInit, t: Tensor, role: Role, width: int, generator: torch.Generator
    ) -> None:
        fill_normal(t, init, 1, generator)


def fans(t: Tensor) -> tuple[int, int]:
    """Return outputs and inputs of a matrix, possibly stacked (…, out, in), or of a convolution
    (out, in, rows, columns).
    """
    return (t.shape[0], t[0].numel()) if t.dim() == CONVOLUTION_DIMS else (t.shape[-2], t.shape[-1])


class XavierRule:
    @staticmethod
    def matrix(init: S.Init, t: Tensor, facts: ParameterFacts, generator: torch.Generator) -> None:
        bound = (6 / sum(fans(t))) ** 0.5
        t.uniform_(-bound, bound, generator=generator)

    @staticmethod
    def table(init: S.Init, t: Tensor, role: Role, width: int, generator: torch.Generator) -> None:
        t.normal_(0, t.shape[-1] ** -0.5, generator=generator)


class T5Rule:
    @staticmethod
    def matrix(
        init: S.T5Init, t: Tensor, facts: ParameterFacts, generator: torch.Generator
    ) -> None:
        if t.dim() == CONVOLUTION_DIMS:
            XavierRule.matrix(init, t, facts, generator)
        else:
            t.normal_(0, t5_std(t, facts, init), generator=generator)

    @staticmethod
    def table(
        init: S.T5Init, t: Tensor, role: Role, width: int, generator: torch.Generator
    ) -> None:
        by_width = width**-0.5 if role is Role.POSITION_BIAS else 1.0
        t.normal_(0, init.factor * by_width, generator=generator)


class FanInRule:
    @staticmethod
    def matrix(init: S.Init, t: Tensor, facts: ParameterFacts, generator: torch.Generator) -> None:
        _, fan_in = fans(t)
        t.normal_(0, fan_in**-0.5, generator=generator)

    @staticmethod
    def table(init: S.Init, t: Tensor, role: Role, width: int, generator: torch.Generator) -> None:
        t.normal_(0, 1, generator=generator)


def t5_std(t: Tensor, facts: ParameterFacts, init: S.T5Init) -> float:
    """Normal weights by fan-in. Scores are not divided by √d_k, so the query is (Raffel et al.
    2019; Mesh TensorFlow).
    """
    if facts.role is Role.LM_HEAD:
        return init.factor
    fan_out, fan_in = t.shape[-2:]
    std: float = init.factor * fan_in**-0.5
    return std * (fan_out // facts.query_heads) ** -0.5 if facts.query_heads else std


def fill_normal(t: Tensor, init: S.NormalInit, scale: float, generator: torch.Generator) -> None:
    std = init.std * scale
    if init.truncate_at is None:
        t.normal_(0, std, generator=generator)
    else:
        nn.init.trunc_normal_(
            t, 0, std, -init.truncate_at * std, init.truncate_at * std, generator=generator
        )
