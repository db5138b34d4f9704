"""What each parameter is for. A part declares it; optimiser groups read it, never the string of a parameter's name."""
from enum import Enum
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


class Role(Enum):
    """What a parameter is for, as an optimiser needs to know."""
    MATRIX = "linear map inside a block"
    PROJECTION = "linear map between the parts of a model: embeddings, stages, stacks"
    HEAD = "linear map of a head"
    CONVOLUTION = "convolution, such as the patch map"
    TABLE = "embedding table: one row per token, segment or query"
    POSITION = "position table or relative position bias"
    NORM = "gain or bias of a norm, or a layer scale"
    BIAS = "bias of a linear map"


# What torch's own modules are where nothing is declared. A linear map then belongs to a head: an objective may own one.
DEFAULT: dict[type[nn.Module], Role] = {
    nn.LayerNorm: Role.NORM, nn.RMSNorm: Role.NORM, nn.Embedding: Role.TABLE, nn.Conv2d: Role.CONVOLUTION, nn.Linear: Role.HEAD}


def with_role(module: M, role: Role) -> M:
    """Declare the role of a module's own parameters, but for its bias.

    It is kept on the module, because a parameter is replaced when a model leaves the meta device, is copied or is sharded."""
    module.role = role  # type: ignore[assignment]
    return module


def matrix(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    """A linear map inside a block."""
    return with_role(nn.Linear(inputs, outputs, bias=bias), Role.MATRIX)


def role_of(module: nn.Module) -> Role:
    """The declared role of a module's own parameters, or what its class says."""
    role: Role | None = getattr(module, "role", None)
    return role or next((known for kind, known in DEFAULT.items() if isinstance(module, kind)), Role.HEAD)


def roles_of(module: nn.Module) -> dict[str, Role]:
    """The role of every parameter, by its name."""
    found: dict[str, Role] = {}
    for path, part in module.named_modules():
        role = role_of(part)
        for name, _ in part.named_parameters(recurse=False):
            found[f"{path}.{name}".lstrip(".")] = Role.BIAS if name == "bias" and role is not Role.NORM else role
    return found
