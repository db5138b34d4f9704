"""Simulation of many ranks in one process: the real model on the meta device, the real
`training.parallel` on a fake process group, and torch's own tools to measure memory and
collectives. Private modules of torch are imported only here.
"""

import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import recipe as R
from .. import spec as S
from ..tasks.base import Batch, EncoderDecoderLoss, Loss, TaskContext
from ..tasks.causal_lm import CausalLMLoss
from ..training.parallel.ranks import MESH, parallelize
from ..training.parallel.sharding import allocate
from .layout import Layout
from .recipe_workload import Workload

CPU = torch.device("cpu")
COLLECTIVES = ("all_gather", "allgather", "reduce_scatter", "all_reduce", "allreduce", "all_to_all")


@dataclass(frozen=True)
class Simulation:
    """Memory and collectives of one rank for one forward pass, backward pass and update.

    Attributes:
        memory: peak bytes of tensors.
        parts: the peak by category, as named by torch's MemTracker.
        collectives: number of calls by name.
        received: bytes of their results by name.
        seconds: duration of the simulation.
    """

    memory: float
    parts: dict[str, float]
    collectives: dict[str, int]
    received: dict[str, float]
    seconds: float


def one_pass(workload: Workload, layout: Layout) -> Workload:
    """The workload with steps of one forward pass, and without dropout, which the CPU's fused
    attention does not have."""
    rows = layout.readers * layout.micro_batch
    spec = S.with_dropout(workload.spec, 0.0)
    return replace(workload, spec=spec, rows=rows, any_rows=False)


def simulate(workload: Workload, layout: Layout) -> Simulation:
    """Simulate one step of one forward pass on rank 0."""
    begin = time.perf_counter()
    with fake_ranks(layout.devices):
        sizes = (layout.replicate, layout.shard, layout.tensor)
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=MESH)
        # DTensor propagates each new operation on whole tensors, which exceed a rank's memory: a
        # shallow # model fills its cache first.
        first, loss = (
            build_sharded(spec, workload, layout, mesh)
            for spec in (shallow(workload.spec), workload.spec)
        )
        with FakeTensorMode(allow_non_fake_inputs=True):
            batch = make_batch(workload, layout.micro_batch)
            run_step(first, allocate_rank(first), batch)
            optimizer = allocate_rank(loss)
            create_moments(optimizer)
            tracker = RankMemory()
            traffic = CollectiveBytes()
            counter = CommDebugMode()
            tracker.track_external(loss, optimizer)
            with counter, traffic, tracker:
                run_step(loss, optimizer, batch)
    peak = tracker.get_tracker_snapshot("peak")[CPU]
    parts = {str(getattr(kind, "value", kind)): float(size) for kind, size in peak.items()}
    return Simulation(
        parts.pop("Total"),
        parts,
        {str(name).rpartition(".")[2]: count for name, count in counter.get_comm_counts().items()},
        dict(traffic.received),
        time.perf_counter() - begin,
    )


def build_sharded(spec: S.Spec, workload: Workload, layout: Layout, mesh: DeviceMesh) -> Loss:
    """The module that rank 0 trains, on the meta device."""
    loss = build_loss(spec)
    precision = "bf16" if workload.precision == "bf16" else "fp32"
    parallelize(loss, mesh, checkpointing=layout.checkpointing, precision=precision)
    return loss.train()


def allocate_rank(loss: Loss) -> torch.optim.Optimizer:
    """Give the rank's parts fake memory; return their optimiser."""
    allocate(loss, CPU)
    return torch.optim.AdamW(loss.parameters(), fused=True)


def shallow(spec: S.Spec) -> S.Spec:
    """The model with two blocks per stack."""
    stacks: dict[str, Any] = {
        name: replace(stack, blocks=stack.blocks[:2])
        for name in ("encoder", "decoder")
        if isinstance(stack := getattr(spec, name), S.Stack)
    }
    return replace(spec, **stacks)


@contextmanager
def fake_ranks(world: int) -> Iterator[None]:
    """A fake process group with only rank 0."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        with warnings.catch_warnings():
            # hooks of torch's tracker warn of themselves
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        dist.destroy_process_group()


def build_loss(spec: S.Spec) -> Loss:
    """The task's module of a language model, on the meta device."""
    if not isinstance(spec.head, S.LMHead) or spec.decoder is None:
        raise ValueError(
            "--simulate supports models with a decoder that predicts tokens, such as gpt3-175b "
            "or t5-11b; omit it for this model"
        )
    context = TaskContext(spec, None, device="meta")  # type: ignore[arg-type]
    if spec.encoder is None:
        return CausalLMLoss(R.CausalLM(), context)
    return EncoderDecoderLoss(R.TextToText(), context)


def make_batch(workload: Workload, rows: int) -> Batch:
    tokens = workload.length
    labels = workload.target_length or workload.length
    batch = {
        "tokens": torch.zeros(rows, tokens, dtype=torch.long),
        "labels": torch.zeros(rows, labels, dtype=torch.long),
        "labels_at": torch.arange(rows * labels),
    }
    if workload.target_length is not None:
        batch["target"] = torch.zeros(rows, labels, dtype=torch.long)
    return batch


def create_moments(optimizer: torch.optim.Optimizer) -> None:
    """Run an update with zero gradients, which allocates the optimiser's state."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def run_step(loss: Loss, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    loss(batch)["token"].backward()
    optimizer.step()
    optimizer.zero_grad()


class RankMemory(MemTracker):
    """torch's tracker without its statistics per module, which cost the square of the depth. Inside
    a layer of a tensor group, parameters are local views, which are not leaves and accept no hooks.
    """

    def _track_module_params_and_buffers(
        self, module: nn.Module, install_grad_hooks: bool = True
    ) -> tuple[int, int]:
        leaves = all(parameter.is_leaf for parameter in module.parameters())
        sizes: tuple[int, int] = super()._track_module_params_and_buffers(
            module, install_grad_hooks and leaves
        )
        return sizes

    def get_tracker_snapshot(self, type: str = "current") -> Any:
        """Return copies of the totals, which every module hook reads."""
        snapshots = self._curr_mem_snap if type == "current" else self._peak_mem_snap
        return {device: dict(snapshot) for device, snapshot in snapshots.items()}

    def _update_peak_stats(self, peak_state: Any) -> None:
        for device, snapshot in self._curr_mem_snap.items():
            if self._peak_mem.get(device, 0) < snapshot["Total"]:
                self._peak_mem[device] = snapshot["Total"]
                self._peak_mem_snap[device] = dict(snapshot)


class CollectiveBytes(TorchDispatchMode):
    """Sum the sizes of the results of collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.received: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        if any(word in name for word in COLLECTIVES) and "c10d" in func._schema.name:
            self.received[name] += sum(
                t.numel() * t.element_size() for t in tree_leaves(results) if isinstance(t, Tensor)
            )
        return results
