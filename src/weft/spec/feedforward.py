"""Feed-forward layers."""

from collections.abc import Iterator
from typing import Literal

from ..support.registry import choice, implements
from ..support.values import NonNegativeFloat, PositiveInt, Probability
from .parts import Inner, Problem, Shapes, linear_flops, linear_shapes

Activation = Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"]


class FeedForwardSpec(Inner):
    """Base of feed-forward layers on one vector per token. Its implementation is built with
    (feedforward, width) and called with x (B, L, D).
    """


@choice
class MLP(FeedForwardSpec):
    """down(activation(up(x))).

    Args:
        hidden: the width of the hidden layer.
        activation: the activation function; the slope of "prelu" is trained (default: "gelu").
        bias: whether both maps have a bias (default: True).
        dropout: the dropout probability of the hidden layer (default: 0).
    """

    hidden: PositiveInt
    activation: Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "prelu"] = "gelu"
    bias: bool = True
    dropout: Probability = 0.0

    def shapes(self, width: int) -> Shapes:
        if self.activation == "prelu":
            yield "slope", (1,)
        yield from linear_shapes("up", width, self.hidden, self.bias)
        yield from linear_shapes("down", self.hidden, width, self.bias)

    def flops(self, width: int, queries: int, keys: int, side: int) -> int:
        return linear_flops(self.shapes(width), queries)

    def activations(self, width: int) -> float:
        return width + 2 * self.hidden

    def describe(self, width: int) -> str:
        return f"mlp, hidden {self.hidden:,}, {self.activation}"


@choice
class GatedMLP(FeedForwardSpec):
    """down(activation(gate(x)) * up(x)): SwiGLU with silu, GeGLU with gelu (Shazeer 2020,
    arXiv:2002.05202).

    Args:
        hidden: the width of the hidden layer.
        activation: the activation function of the gate (default: "silu").
        bias: whether the maps have a bias (default: True).
        dropout: the dropout probability of the hidden layer (default: 0).
    """

    hidden: PositiveInt
    activation: Activation = "silu"
    bias: bool = True
    dropout: Probability = 0.0

    def shapes(self, width: int) -> Shapes:
        yield from linear_shapes("gate", width, self.hidden, self.bias)
        yield from linear_shapes("up", width, self.hidden, self.bias)
        yield from linear_shapes("down", self.hidden, width, self.bias)

    def flops(self, width: int, queries: int, keys: int, side: int) -> int:
        return linear_flops(self.shapes(width), queries)

    def activations(self, width: int) -> float:
        return width + 3 * self.hidden

    def describe(self, width: int) -> str:
        return f"gatedmlp, hidden {self.hidden:,}, {self.activation}"


@choice
class MixtureOfExperts(FeedForwardSpec):
    """A router sends each token to its `top_k` best experts (Shazeer et al. 2017,
    arXiv:1701.06538).

    Args:
        experts: the number of experts.
        top_k: the number of experts per token.
        expert: the layer of each expert; a closed union, since experts' matrices are stacked and
            multiplied at once.
        softmax_over: "top_k" normalises router scores over the chosen experts (Mixtral), "all" over
            all (Switch). Default: "top_k".
        load_balance_weight: the weight of the load-balancing loss (Switch, arXiv:2101.03961,
            section 2.2; default: 0.01).
        router_z_weight: the weight of the router z-loss (ST-MoE, arXiv:2202.08906, section 2.2;
            default: 0.001).
    """

    experts: PositiveInt
    top_k: PositiveInt
    expert: MLP | GatedMLP
    softmax_over: Literal["top_k", "all"] = "top_k"
    load_balance_weight: NonNegativeFloat = 0.01
    router_z_weight: NonNegativeFloat = 1e-3

    def shapes(self, width: int) -> Shapes:
        yield "router.weight", (self.experts, width)
        for name, shape in self.expert.shapes(width):
            yield name, (self.experts, *shape)

    def flops(self, width: int, queries: int, keys: int, side: int) -> int:
        chosen = self.top_k * self.expert.flops(width, queries, keys, side)
        return 2 * queries * width * self.experts + chosen

    def activations(self, width: int) -> float:
        return self.top_k * (width + 2 * self.expert.hidden)

    def describe(self, width: int) -> str:
        return f"{self.top_k} of {self.experts} experts, {self.expert.describe(width)}"

    def check(self, path: str) -> Iterator[Problem]:
        if self.expert.activation == "prelu":
            yield f"{path}.expert.activation", "'prelu' is not supported in experts; use 'relu'"
        if self.top_k > self.experts:
            yield (
                f"{path}.top_k",
                f"{self.top_k} exceeds experts = {self.experts}; use {self.experts} or less",
            )


implements(MLP, "weft.nn.layers.feedforward:FeedForward")
implements(GatedMLP, "weft.nn.layers.feedforward:FeedForward")
implements(MixtureOfExperts, "weft.nn.layers.mixture_of_experts:MixtureOfExpertsLayer")
