"""The interface of a block's parts: parameter shapes, FLOPs and a description.

User-defined parts need not implement it: Weft then builds the part on the meta device and measures
it.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

from ..support.registry import resolve
from ..support.value_tree import format_inline

Shapes = Iterator[tuple[str, tuple[int, ...]]]
Problem = tuple[str, str]  # the path of a field in the spec, and a message


def with_prefix(path: str, rows: Shapes) -> Shapes:
    yield from ((f"{path}.{name}", shape) for name, shape in rows)


def linear_shapes(name: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def linear_flops(rows: Shapes, count: int, *names: str) -> int:
    """Return the FLOPs of every matrix among the rows (or of those with these names) for `count`
    tokens.
    """
    return sum(
        2 * count * prod(shape)
        for name, shape in rows
        if len(shape) == 2 and name.endswith(".weight") and (not names or name[:-7] in names)
    )


def measured_shapes(part: Any, *arguments: Any) -> Shapes:
    """Yield the parameter names and shapes of the layer built from `part` and `arguments`; imports
    torch.
    """
    yield from resolve("weft.nn.layers.measure:parameter_shapes")(part, *arguments)


def measured_flops(part: Any, width: int, tokens: int) -> int:
    """Return the FLOPs of the layer built from `part` for `tokens` vectors of a width; imports
    torch.
    """
    counted: int = resolve("weft.nn.layers.measure:forward_flops")(part, width, tokens)
    return counted


class Inner:
    """Base of the function of a residual branch: `Attention` or a `FeedForwardSpec`."""

    def shapes(self, width: int) -> Shapes:
        """Yield name and shape of every parameter, as the layer registers them."""
        return measured_shapes(self, width)

    def flops(self, width: int, queries: int, keys: int, side: int) -> int:
        """Return the FLOPs of one sequence.

        Args:
            width: the model width D.
            queries: the number of query tokens.
            keys: the number of key tokens.
            side: rows of the image grid; 0 for text.
        """
        return measured_flops(self, width, queries)

    def activations(self, width: int) -> float:
        """Return the number of values per token that the backward pass needs."""
        rows = (shape for _, shape in self.shapes(width) if len(shape) > 1)
        return float(sum(shape[-1] + shape[-2] for shape in rows))

    def describe(self, width: int) -> str:
        """Return the part in a few words, as `weft show` prints it."""
        return format_inline(self)

    def check(self, path: str) -> Iterator[Problem]:
        """Yield the problems of this part."""
        return iter(())
