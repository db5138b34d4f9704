"""What a part of a block declares: shapes of parameters, FLOPs, a description.

A user-defined part need not: its numbers are then measured by building it on the meta device.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

from ..support.registry import resolve
from ..support.value_tree import format_inline

Shapes = Iterator[tuple[str, tuple[int, ...]]]
Problem = tuple[str, str]  # a path in the spec, and what is wrong there


def with_prefix(path: str, rows: Shapes) -> Shapes:
    yield from ((f"{path}.{name}", shape) for name, shape in rows)


def linear_shapes(name: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def linear_flops(rows: Shapes, count: int, *names: str) -> int:
    """Linear maps of `count` tokens: every matrix among the rows (with these names)."""
    return sum(
        2 * count * prod(shape)
        for name, shape in rows
        if len(shape) == 2 and name.endswith(".weight") and (not names or name[:-7] in names)
    )


def measured_shapes(part: Any, *arguments: Any) -> Shapes:
    """Names and shapes of the parameters of what builds `part` with `arguments`; torch is imported
    here.
    """
    yield from resolve("weft.nn.layers.measure:parameter_shapes")(part, *arguments)


def measured_flops(part: Any, width: int, tokens: int) -> int:
    """FLOPs of the layer that `part` builds for a width, on `tokens` vectors; torch is imported
    here.
    """
    counted: int = resolve("weft.nn.layers.measure:forward_flops")(part, width, tokens)
    return counted


class Inner:
    """Base of what a residual branch computes: `Attention` or a `FeedForwardSpec`."""

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter, as the layer registers them."""
        return measured_shapes(self, width)

    def flops(self, width: int, queries: int, keys: int, side: int) -> int:
        """Return the FLOPs of one sequence.

        Args:
            width: of the model.
            queries: number of tokens.
            keys: number of tokens that are attended to.
            side: side of the image grid, 0 for text.
        """
        return measured_flops(self, width, queries)

    def activations(self, width: int) -> float:
        """Return the numbers per token that the backward pass needs."""
        rows = (shape for _, shape in self.shapes(width) if len(shape) > 1)
        return float(sum(shape[-1] + shape[-2] for shape in rows))

    def describe(self, width: int) -> str:
        """Return the part in a few words, as `weft show` prints it."""
        return format_inline(self)

    def check(self, path: str) -> Iterator[Problem]:
        """Yield what does not fit together in it."""
        return iter(())
