"""Plans: memory and time of a workload on devices, and the search for a plan that fits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..spec.count import iterate_blocks
from ..support.console import format_number
from .hardware import Accelerator
from .layout import Layout
from .memory import Memory, peak_memory
from .recipe_workload import RowFlops, Workload, row_flops
from .traffic import Traffic, step_traffic

# usable share of a device's memory: kernels, communication libraries and fragmentation need the
# rest
USABLE = 0.92
MAX_DEVICES = 1 << 17


@dataclass(frozen=True)
class Plan:
    """What a run needs on some devices."""

    workload: Workload
    device: Accelerator
    layout: Layout
    memory: Memory
    traffic: Traffic
    flops: RowFlops

    @property
    def fits(self) -> bool:
        return self.memory.total <= USABLE * self.device.memory

    @property
    def step_flops(self) -> float:
        """FLOPs per step that the model needs, over all devices."""
        return self.flops.training * self.workload.rows

    @property
    def compute_seconds(self) -> float:
        """Seconds of matrix products per step on one device."""
        layout = self.layout
        rows = layout.micro_batches(self.workload) * layout.micro_batch
        flops = rows * self.flops.computed(layout.checkpointing) / layout.tensor
        return flops / (self.device.flops(self.workload.precision) * self.device.utilisation)

    @property
    def tensor_seconds(self) -> float:
        """Seconds per step spent waiting for other devices of the tensor group."""
        return self.traffic.tensor / self.speed(self.layout.tensor)

    @property
    def shard_seconds(self) -> float:
        """Seconds per step for gathering weights and summing gradients, which overlap with
        computation.
        """
        within = self.layout.tensor * self.layout.shard
        shard = self.traffic.shard / self.speed(within)
        return shard + self.traffic.replicate / self.speed(self.layout.devices)

    def speed(self, devices: int) -> float:
        """Return the bytes/s within a group of this many neighbouring devices."""
        return self.device.link if devices <= self.device.per_node else self.device.network

    @property
    def step_seconds(self) -> float:
        """Seconds per step: tensor-group communication blocks; sharding communication overlaps."""
        return max(self.compute_seconds + self.tensor_seconds, self.shard_seconds)

    @property
    def seconds(self) -> float:
        return self.step_seconds * self.workload.steps

    @property
    def utilisation(self) -> float:
        """Model FLOPs as a share of the devices' peak (MFU: arXiv:2204.02311, section 4.1)."""
        peak = self.device.flops(self.workload.precision) * self.layout.devices
        return self.step_flops / (self.step_seconds * peak)

    def preference(self) -> tuple[float, int]:
        """Sort key: the fastest plan first, then the one with the largest matrix products."""
        return round(self.step_seconds, 9), -self.layout.micro_batch

    def to_plain(self) -> dict[str, Any]:
        workload = self.workload
        layout = self.layout
        rows = self.workload.units_per_row
        return {
            "name": workload.name,
            "parameters": workload.parameters,
            "unit": workload.unit,
            "flops_per_unit": {
                "forward": self.flops.forward / rows,
                "backward": self.flops.backward / rows,
                "attention_scores": self.flops.scores / rows,
            },
            "rows_per_step": workload.rows,
            "length": workload.length,
            "steps": workload.steps,
            workload.unit: workload.samples_read,
            "run_flops": self.step_flops * workload.steps,
            "kind": self.device.name,
            "devices": layout.devices,
            "layout": vars(layout) | {"micro_batches": layout.micro_batches(workload)},
            "memory_bytes": vars(self.memory) | {"total": self.memory.total},
            "device_memory_bytes": self.device.memory,
            "fits": self.fits,
            "bytes_sent_per_step": vars(self.traffic) | {"total": self.traffic.total},
            "step_seconds": {
                "compute": self.compute_seconds,
                "tensor": self.tensor_seconds,
                "shard": self.shard_seconds,
                "total": self.step_seconds,
            },
            "seconds": self.seconds,
            "model_flops_utilisation": self.utilisation,
        }


def make_plan(workload: Workload, device: Accelerator, layout: Layout) -> Plan:
    memory = peak_memory(workload, layout)
    traffic = step_traffic(workload, layout)
    return Plan(workload, device, layout, memory, traffic, row_flops(workload))


@dataclass(frozen=True)
class Wishes:
    """The fields of a layout that a user fixes; the search chooses those that are None."""

    devices: int | None = None
    tensor: int | None = None
    shard: int | None = None
    micro_batch: int | None = None
    checkpointing: bool | None = None

    def with_defaults(
        self,
        parallel: R.Parallel,
        recomputed: bool | R.ActivationCheckpointing,
        sequences: int | None,
    ) -> "Wishes":
        """Fill the fields that are None from a recipe.

        Args:
            parallel: of the recipe.
            recomputed: its activation checkpointing.
            sequences: in one forward pass.
        """
        shard = parallel.shard if isinstance(parallel.shard, int) and parallel.shard > 1 else None
        every_block = recomputed is True or recomputed == R.CheckpointBlocks(every=1)
        checkpointing = every_block if recomputed else None  # partial checkpointing counts as none
        return Wishes(
            self.devices,
            self.tensor or (parallel.tensor if parallel.tensor > 1 else None),
            self.shard or shard,
            self.micro_batch or sequences,
            self.checkpointing or checkpointing,
        )


def find_plan(workload: Workload, device: Accelerator, wishes: Wishes = Wishes()) -> Plan:
    """Return the fastest plan that fits within the wishes: on the given number of devices, or on
    the fewest that fit.

    Raises:
        ValueError: if none fits; the message gives the memory of the smallest plan and the fewest
            devices that fit.
    """
    check_tensor(workload, wishes)
    fitting, least = search(workload, device, wishes)
    if fitting is not None:
        return fitting
    if least is None:
        raise ValueError(no_layout(workload, wishes))
    raise ValueError(f"{refusal(least)}; {advice(workload, device, wishes)}")


def search(
    workload: Workload, device: Accelerator, wishes: Wishes
) -> tuple[Plan | None, Plan | None]:
    """Return the fastest plan that fits and the plan with the least memory, or None."""
    least: Plan | None = None
    for devices in [wishes.devices] if wishes.devices else powers_of_two(wishes):
        plans = list(plans_on(workload, device, devices, wishes))
        fitting = [plan for plan in plans if plan.fits]
        if fitting:
            return min(fitting, key=Plan.preference), least
        candidates = [*plans, *([least] if least else [])]
        least = min(candidates, key=lambda plan: plan.memory.total, default=None)
    return None, least


def powers_of_two(wishes: Wishes) -> Iterator[int]:
    devices = (wishes.tensor or 1) * (wishes.shard or 1)
    while devices <= MAX_DEVICES:
        yield devices
        devices *= 2


def plans_on(
    workload: Workload, device: Accelerator, devices: int, wishes: Wishes
) -> Iterator[Plan]:
    """Yield every layout of this many devices: tensor groups stay within a node, each reader has at
    least one row.
    """
    for tensor in [wishes.tensor] if wishes.tensor else tensor_sizes(workload, device, devices):
        if devices % tensor:
            continue
        readers = devices // tensor
        for shard in [wishes.shard] if wishes.shard else sorted({1, readers}):
            if readers % shard or readers > workload.rows:
                continue
            even = workload.with_rows_for(readers)
            for checkpointing in (
                (False, True) if wishes.checkpointing is None else (wishes.checkpointing,)
            ):
                base = Layout(tensor, shard, readers // shard, 1, checkpointing)
                for micro_batch in micro_batches(even, base, wishes):
                    yield make_plan(even, device, replace(base, micro_batch=micro_batch))


def micro_batches(workload: Workload, layout: Layout, wishes: Wishes) -> Iterator[int]:
    """Yield powers of two up to the rows of a reader."""
    if wishes.micro_batch:
        yield wishes.micro_batch
        return
    max_size = -(-workload.rows // layout.readers)
    size = 1
    while size < max_size:
        yield size
        size *= 2
    yield max_size


def tensor_sizes(workload: Workload, device: Accelerator, devices: int) -> list[int]:
    max_size = min(device.per_node, devices)
    sizes = [size for size in (1, 2, 4, 8, 16) if size <= max_size]
    return [size for size in sizes if splits_evenly(workload, size)]


def splits_evenly(workload: Workload, tensor: int) -> bool:
    """Whether a tensor group of this size divides heads and hidden widths."""
    for spec in (workload.spec, *workload.extra):
        for _, _, block, _, stage in iterate_blocks(spec):
            inner = block.attention.inner
            hidden = getattr(block.feedforward.inner, "hidden", tensor)
            heads = inner.heads if isinstance(inner, S.Attention) else tensor
            if heads % tensor or hidden % tensor or (stage is not None and tensor > 1):
                return False
    return True


# Error messages


def check_tensor(workload: Workload, wishes: Wishes) -> None:
    if wishes.tensor and not splits_evenly(workload, wishes.tensor):
        good = [size for size in (1, 2, 4, 8, 16) if splits_evenly(workload, size)]
        raise ValueError(
            f"--tensor {wishes.tensor} does not divide the heads and hidden width of "
            f"{workload.name}; "
            f"give one of {', '.join(map(str, good))}"
        )


def no_layout(workload: Workload, wishes: Wishes) -> str:
    fixed = [(name, getattr(wishes, name)) for name in ("tensor", "shard") if getattr(wishes, name)]
    options = "".join(f" --{name} {value}" for name, value in fixed)
    readers = (wishes.devices or 1) // (wishes.tensor or 1)
    if readers > workload.rows:
        return (
            f"{readers:,} devices cannot share {workload.rows:,} rows per step: each needs at "
            f"least one; "
            "give fewer --gpus "
            "or a larger --tensor"
        )
    return (
        f"--gpus {wishes.devices}{options} do not form a grid: their product must divide the "
        f"number of devices; change one of them"
    )


def refusal(plan: Plan) -> str:
    layout = plan.layout
    memory = plan.memory
    return (
        f"{plan.workload.name} does not fit: {layout.describe()} of {plan.device.name} needs "
        f"{format_number(memory.total, 'B')} per device, "
        f"of which {format_number(memory.weights + memory.gradients + memory.optimiser, 'B')} "
        "for weights, gradients and optimiser, and has "
        f"{format_number(USABLE * plan.device.memory, 'B')}"
    )


def advice(workload: Workload, device: Accelerator, wishes: Wishes) -> str:
    """Return the options of a plan that fits: on the same number of devices, otherwise on the
    fewest.
    """
    for fewer in (Wishes(devices=wishes.devices), Wishes()):
        plan, _ = search(workload, device, fewer)
        if plan is not None:
            return f"the fewest devices that fit are {options_of(plan)}"
    return "use a device with more memory, or shorter rows"


def options_of(plan: Plan) -> str:
    layout = plan.layout
    options = (
        f"--gpus {layout.devices} --tensor {layout.tensor} --shard {layout.shard} "
        f"--micro-batch-size {layout.micro_batch}"
    )
    return options + (" --checkpointing" if layout.checkpointing else "")
