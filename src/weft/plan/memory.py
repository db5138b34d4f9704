"""Memory of one device, in closed formulas:
what it holds at each moment of a step that may be the fullest."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import prod

from .. import spec as S
from ..spec.attention import head_dims
from ..spec.count import block_shapes, iterate_blocks, shapes_outside_blocks
from .activations import Storage, row_activations, storage_of
from .layout import Layout
from .recipe_workload import Workload


@dataclass(frozen=True)
class Memory:
    """Bytes of one device at one moment.

    Attributes:
        weights: in fp32, this device's part.
        gradients: in fp32, this device's part.
        optimiser: the optimiser's moments and averaged weights, this device's part.
        activations: what the backward pass will need.
        logits: and their gradient.
        buffers: weights that are gathered or cast to compute with, and gradients on their way.
        batch: what a step reads.
    """

    weights: float
    gradients: float
    optimiser: float
    activations: float
    logits: float
    buffers: float
    batch: float

    @property
    def total(self) -> float:
        total: float = sum(getattr(self, part.name) for part in fields(self))
        return total


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of one device of a tensor group, before they are sharded."""

    blocks: float
    largest: float  # of one block
    outside: float  # tables, last norms, heads

    @property
    def total(self) -> float:
        return self.blocks + self.outside


def count_parameters(workload: Workload, tensor: int) -> ParameterCount:
    blocks = 0.0
    largest = 0.0
    outside = 0.0
    for spec in (workload.spec, *workload.extra):
        outside += sum(
            prod(shape) / (tensor if name.endswith(("tokens.weight", "out.weight")) else 1)
            for name, shape in shapes_outside_blocks(spec)
        )
        counts: dict[
            tuple[int, int], float
        ] = {}  # a block that stands at many depths is counted once
        for _, width, block, *_ in iterate_blocks(spec):
            if (id(block), width) not in counts:
                counts[id(block), width] = block_parameters(block, width, tensor)
            here = counts[id(block), width]
            blocks += here
            largest = max(largest, here)
    return ParameterCount(blocks, largest, outside)


def block_parameters(block: S.Block | S.ParallelBlock, width: int, tensor: int) -> float:
    """Matrices are split by columns and rows; norms,
    and heads of keys and values that are too few, are repeated."""
    repeated = tuple(
        f"{name}.inner.{part}"
        for name in attentions_with_few_heads(block, width, tensor)
        for part in ("key.", "value.")
    )
    total = 0.0
    for name, shape in block_shapes(block, width):
        whole = (
            tensor == 1
            or ".inner." not in name
            or name.startswith(repeated)
            or name.endswith(("out.bias", "down.bias"))
        )
        total += prod(shape) / (1 if whole else tensor)
    return total


def attentions_with_few_heads(
    block: S.Block | S.ParallelBlock, width: int, tensor: int
) -> Iterator[str]:
    for name in ("attention", "cross_attention"):
        inner = getattr(getattr(block, name, None), "inner", None)
        if isinstance(inner, S.Attention) and head_dims(inner, width)[2] % tensor:
            yield name


def moments_of_step(
    workload: Workload, layout: Layout, storage: Storage | None = None
) -> dict[str, Memory]:
    """The moments of a step at which memory may be fullest, by name.

    "loss": the forward pass is done and the logits have a gradient. "first block" and "last block":
    the backward pass is in the first or last of the blocks that it reaches while another's gradient
    is on its way. "update": all gradients are there.
    """
    s = storage or storage_of(workload, layout)
    parameters = count_parameters(workload, layout.tensor)
    row = row_activations(workload, s)
    rows = layout.micro_batch
    part = parameters.total / layout.shard
    tokens = workload.unit == "tokens"
    state = {
        "weights": 4 * part,
        "optimiser": 4 * (workload.moments + workload.copies) * part,
        "batch": 16.0 * rows * workload.units_per_row if tokens else 0.0,
    }
    kept = rows * (row.inputs if layout.checkpointing else row.blocks)
    before = 4 * part if layout.micro_batches(workload) > 1 else 0.0  # of other micro-batches
    blocks = max(parameters.blocks - 2 * parameters.largest, 0) * 4 / layout.shard
    # computed again; else the block before is done with, and this one not yet
    one = rows * row.largest
    first = kept + one if layout.checkpointing else max(kept - one, one)
    gathered, reduced = buffers(workload, layout, parameters)

    def moment(gradients: float, activations: float, logits: float, buffers: float) -> Memory:
        return Memory(
            **state, gradients=gradients, activations=activations, logits=logits, buffers=buffers
        )

    return {
        "loss": moment(before, kept + rows * row.ends, 2 * rows * row.logits, gathered),
        "first block": moment(before, first, 0.0, reduced),
        "last block": moment(max(before, blocks), one, 0.0, reduced),
        "update": moment(4 * part, 0.0, 0.0, 0.0),
    }


def buffers(workload: Workload, layout: Layout, parameters: ParameterCount) -> tuple[float, float]:
    """Bytes of gathered weights and of gradients on their way, at the loss and inside a block.

    FSDP gathers the block that computes and the next one, in the dtype of the computation; a
    block's gradient is in that dtype too, and the one before it is being summed in fp32 (Zhao et
    al. 2023, arXiv:2304.11277, section 3). What is outside of blocks stays gathered.
    """
    size = 2 if workload.precision == "bf16" else 4
    if layout.shard == 1:
        cast = size * parameters.total if size == 2 else 0.0
        copies = 4 * parameters.total if layout.replicate > 1 else 0.0  # DDP's buckets
        return cast + copies, cast + copies
    outside = size * parameters.outside
    inside = parameters.largest * (3 * size + 4)
    return outside, 2 * outside + inside


def peak_memory(workload: Workload, layout: Layout, storage: Storage | None = None) -> Memory:
    """The fullest moment of a step."""
    return max(moments_of_step(workload, layout, storage).values(), key=lambda m: m.total)
