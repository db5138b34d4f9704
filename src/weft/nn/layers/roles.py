"""Roles of parameters. Initialisation, optimiser groups, layer decay, Muon, LoRA and export read
the declared role of a parameter, never its name.

A module declares the role of its own tensors (`with_role`) and facts about everything inside it
(`with_scope`). Both are stored on the module, because parameters are replaced when a model is
materialised from the meta device, copied or sharded.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Role(Enum):
    """The role of a parameter."""

    MATRIX = "linear map inside a block"
    PROJECTION = "linear map between the parts of a model: patches, embeddings, stages, stacks"
    HEAD = "linear map of a head"
    LM_HEAD = "linear map from vectors to the logits of a vocabulary"
    CONVOLUTION = "convolution of a network in front of the blocks"
    TABLE = "embedding table: one row per token, segment or query"
    POSITION = "position table: one row per position"
    POSITION_BIAS = "relative position bias, added to attention scores"
    NORM = "gain of a norm, or a layer scale"
    BIAS = "bias of a linear map or of a norm"
    STATISTIC = "fixed number, such as the mean of a frozen batch norm"


def unit_normal(weight: Tensor, generator: torch.Generator) -> None:
    """A formula: numbers of variance 1, as object queries start in DETR and DAB-DETR."""
    weight.normal_(generator=generator)


class Part(Enum):
    """The part of a model that a parameter belongs to."""

    BODY = "everything that stays when the head changes"
    LAYER_MIX = "weights of the layers that the head reads"
    HEAD_TRANSFORM = "the hidden layer of a head, such as BERT's pooler"
    HEAD = "the head"


@dataclass(frozen=True)
class ParameterFacts:
    """The facts of one parameter or buffer.

    Args:
        role: the role.
        initial: the initial constant (default: 1 for a norm, 0 for a bias, else random).
        formula: fills the tensor in place, in place of the spec's initialisation.
        initialised_as: the role whose initialisation it uses, if not its own.
        stream_dim: the dimension of the residual stream's channels; None: none.
        scaled_by_gain: whether it is multiplied by the `init_gain` of its branch (DeepNorm,
            arXiv:2203.00555, figure 2).
        query_heads: the number of heads, if it computes queries.
        inside_block: whether it is inside a block.
        init_gain: the `init_gain` of its branch.
        residual_branches: the number of residual branches of its stack.
        layers_above: the number of blocks between it and the head: 0 for the head and the last
            block.
        part: the part of the model that it belongs to.
    """

    role: Role
    initial: float | None = None
    formula: Callable[[Tensor, torch.Generator], object] | None = field(default=None, compare=False)
    initialised_as: Role | None = None
    stream_dim: int | None = None
    scaled_by_gain: bool = False
    query_heads: int = 0
    inside_block: bool = False
    init_gain: float = 1.0
    residual_branches: int = 1
    layers_above: int = 0
    part: Part = Part.BODY

    @property
    def writes_stream(self) -> bool:
        """Whether it is the weight of a linear map whose output is added to the residual stream."""
        return self.role is Role.MATRIX and self.stream_dim == OUTPUT


# Dimensions of a linear map's weight (…, out, in).
OUTPUT = -2
INPUT = -1
# What torch's own modules are where nothing is declared.
TORCH_ROLES: dict[type[nn.Module], Role] = {
    nn.LayerNorm: Role.NORM,
    nn.RMSNorm: Role.NORM,
    nn.Embedding: Role.TABLE,
    nn.Conv2d: Role.CONVOLUTION,
}


def with_role(module: M, role: Role, *names: str, **facts: Any) -> M:
    """Declare the role of a module's own parameters and buffers.

    Args:
        module: the module; its children declare their own.
        role: the role of its tensors. A tensor called `bias` has the role BIAS unless `names`
            contains it.
        names: the attributes to declare (default: all that are not declared by name).
        facts: fields of `ParameterFacts`.
    """
    declared: dict[str, ParameterFacts] = vars(module).setdefault("declared_roles", {})
    declared |= dict.fromkeys(names or ("",), ParameterFacts(role, **facts))
    return module


def copy_roles(source: nn.Module, target: M) -> M:
    """Copy the declarations of one module to another."""
    names = ("declared_roles", "declared_scope")
    vars(target).update({name: dict(vars(source)[name]) for name in names if name in vars(source)})
    return target


def with_scope(module: M, **facts: Any) -> M:
    """Declare facts of every parameter inside a module; inner modules override them."""
    vars(module).setdefault("declared_scope", {}).update(facts)
    return module


def block_linear(
    inputs: int, outputs: int, bias: bool, stream_dim: int | None = None, **facts: Any
) -> nn.Linear:
    """Build a linear map inside a block; `facts` are fields of `ParameterFacts`."""
    linear = nn.Linear(inputs, outputs, bias=bias)
    return with_role(linear, Role.MATRIX, stream_dim=stream_dim, **facts)


def head_linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """Build a linear map of a head."""
    return with_role(nn.Linear(inputs, outputs, bias=bias), Role.HEAD)


def with_base_rate(linear: nn.Linear, rate: float) -> None:
    """Declare the fraction of positive labels before training: a bias that starts at its log-odds
    need not be learned, and no common vector replaces it (arXiv:1708.02002, section 3.3).
    """
    with_role(linear, Role.BIAS, "bias", initial=-math.log((1 - rate) / rate))


def is_declared(module: nn.Module) -> bool:
    """Return whether a module, or its class if it is PyTorch's, declares the roles of its
    parameters.
    """
    return "declared_roles" in vars(module) or isinstance(module, tuple(TORCH_ROLES))


def own_facts(module: nn.Module, scope: dict[str, Any]) -> Iterator[tuple[str, ParameterFacts]]:
    """Return the facts of a module's own tensors by attribute name, from its declarations, its
    class or tensor shapes.
    """
    declared: dict[str, ParameterFacts] = vars(module).get("declared_roles", {})
    torch_role = next(
        (role for kind, role in TORCH_ROLES.items() if isinstance(module, kind)), None
    )
    matrix = Role.MATRIX if scope.get("inside_block") else Role.HEAD
    for name, tensor in (
        *module.named_parameters(recurse=False),
        *module.named_buffers(recurse=False),
    ):
        by_shape = torch_role or (matrix if tensor.dim() > 1 else Role.NORM)
        facts = declared.get(name) or declared.get("") or ParameterFacts(by_shape)
        if name == "bias" and name not in declared:
            along = facts.role is Role.NORM or facts.stream_dim == OUTPUT
            facts = ParameterFacts(Role.BIAS, stream_dim=-1 if along else None)
        yield name, replace(facts, **scope)


def parameter_facts(module: nn.Module) -> dict[str, ParameterFacts]:
    """Return the facts of every parameter and buffer of a module by name."""

    def walk(part: nn.Module, path: str, scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        scope = scope | vars(part).get("declared_scope", {})
        for name, facts in own_facts(part, scope):
            yield f"{path}{name}", facts
        for name, child in part.named_children():
            yield from walk(child, f"{path}{name}.", scope)

    return dict(walk(module, "", {}))


def check_roles(module: nn.Module) -> None:
    """Raise ValueError if a module inside `module` has parameters without a declared role."""
    for path, part in module.named_modules():
        names = [name for name, _ in part.named_parameters(recurse=False)]
        if names and not is_declared(part):
            raise ValueError(
                f"{type(part).__name__} ({path or 'the module itself'}) declares no role for "
                f"{', '.join(names)}; use "
                "weft.nn.layers.roles.with_role(module, Role.…)"
            )
