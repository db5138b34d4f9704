"""Network traffic of one device per step, with the ring algorithms that NCCL uses for large
messages.
"""

from dataclasses import dataclass

from ..spec.count import iterate_blocks
from .layout import Layout
from .memory import count_parameters
from .recipe_workload import Workload, input_tokens


@dataclass(frozen=True)
class Traffic:
    """Bytes that one device sends per step.

    Attributes:
        tensor: parts of activations, within a tensor group.
        shard: gathered weights and summed gradients, within a shard group.
        replicate: gradients summed over copies of the model.
    """

    tensor: float
    shard: float
    replicate: float

    @property
    def total(self) -> float:
        return self.tensor + self.shard + self.replicate


def step_traffic(workload: Workload, layout: Layout) -> Traffic:
    size = 2 if workload.precision == "bf16" else 4
    passes = layout.micro_batches(workload)
    parameters = count_parameters(workload, layout.tensor)
    # Blocks are gathered forward and backward, the rest once; gradients are scattered in fp32 (ZeRO
    # 3, arXiv:1910.02054, section 7).
    gathered = size * (2 * parameters.blocks + parameters.outside)
    shard = passes * others(layout.shard) * (gathered + 4 * parameters.total)
    if layout.shard == 1:
        replicate = 2 * others(layout.replicate) * 4 * parameters.total
    else:
        replicate = 2 * others(layout.replicate) * 4 * parameters.total / layout.shard
    tensor = passes * layout.micro_batch * others(layout.tensor) * region_bytes(workload, layout)
    return Traffic(tensor, shard, replicate)


def others(size: int) -> float:
    """Return the share of a tensor that a device exchanges with the rest of its group."""
    return (size - 1) / size


def region_bytes(workload: Workload, layout: Layout) -> float:
    """Return the bytes of one row's activations, gathered before and summed after each branch
    (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2): forward, backward, and forward again
    without the last sum where the block is recomputed.
    """
    size = 2 if workload.precision == "bf16" else 4
    total = 0.0
    for spec in (workload.spec, *workload.extra):
        tokens = input_tokens(spec, workload)
        for placed in iterate_blocks(spec):
            has_cross_attention = getattr(placed.block, "cross_attention", None) is not None
            branches = 3 if has_cross_attention else 2
            times = 4 * branches + (2 * branches - 1 if layout.checkpointing else 0)
            total += times * tokens.read_by(spec, placed) * placed.width * size
    return total
