"""Distributed ranks: process groups, communication of the loop, placement of modules."""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from ... import recipe as R
from ...nn.block import BlockLayer
from ...nn.kernels.devices import resolve_device
from ...support.processes import die_with_parent
from ...support.ranks import Ranks
from ...tasks.base import Loss
from .heartbeat import heartbeat
from .sharding import allocate, initialise_shards
from .tensor_parallel import apply_tensor_parallel

OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # read by torchrun
MESH = ("replicate", "shard", "tensor")
JOIN_TIMEOUT = timedelta(minutes=1)  # to reach the store of rank 0
DOWNLOAD_TIMEOUT = timedelta(days=1)  # limit for waiting while one rank downloads
# What selective checkpointing stores: matrix products and attention.
STORED_OPERATIONS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.baddbmm.default,
    torch.ops.aten._grouped_mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}


class DistributedRanks(Ranks):
    """A single process, or one of those started by torchrun. `rank` and `size` count readers of
    different samples: a tensor group counts once.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        device: torch.device = torch.device("cpu"),
        mesh: DeviceMesh | None = None,
        store: Any = None,
    ) -> None:
        self.world_rank = rank
        self.mesh = mesh
        self.store = store
        self.tensor_size = 1 if mesh is None else mesh["tensor"].size()
        super().__init__(rank // self.tensor_size, size // self.tensor_size)
        self.world = size
        self.device = device

    def arrange(self, parallel: R.Parallel) -> "DistributedRanks":
        """Return these ranks arranged on a grid."""
        sizes = parallel.sizes(self.world)
        if self.world == 1 or self.mesh is not None or not parallel.splits_weights:
            return self
        mesh = init_device_mesh(self.device.type, sizes, mesh_dim_names=MESH)
        return DistributedRanks(self.world_rank, self.world, self.device, mesh, self.store)

    @property
    def is_first(self) -> bool:
        """Whether this process writes shared files."""
        return self.world_rank == 0

    @property
    def splits_weights(self) -> bool:
        """Whether weights are sharded, so that all ranks must run the model together."""
        return self.mesh is not None

    @property
    def weight_parts(self) -> int:
        """The number of parts into which the weights are split."""
        return 1 if self.mesh is None else self.mesh["shard"].size() * self.tensor_size

    @contextmanager
    def no_sync(self, module: nn.Module, yes: bool) -> Iterator[None]:
        """Skip the gradient all-reduce if `yes`, before further micro-batches. Replicas of a
        sharded model are summed after the last one.
        """
        if isinstance(module, FSDPModule):
            module.set_requires_all_reduce(not yes)
        if yes and isinstance(module, DistributedDataParallel):
            with module.no_sync():
                yield
        else:
            yield

    def sum(self, numbers: list[float]) -> list[float]:
        if self.world == 1:
            return numbers
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        summed: list[float] = (total / self.tensor_size).tolist()
        return summed

    def barrier(self) -> None:
        if self.world > 1:
            dist.barrier()

    def wait_for_all(self, name: str) -> None:
        """Wait for all ranks, without the time limit of collective operations. Each name can be
        used once, since the store may survive a restart by torchrun. Heartbeats detect lost ranks.
        """
        if self.store is None:
            return
        if self.store.add(f"{name}/count", 1) == self.world:
            self.store.set(f"{name}/all", "")
        self.store.wait([f"{name}/all"], DOWNLOAD_TIMEOUT)

    def from_first(self, compute: Callable[[], str]) -> str:
        if self.store is None:
            return compute()
        name = f"from-first/{self.common_token()}"
        if self.is_first:
            self.store.set(name, compute())
        self.store.wait([name], DOWNLOAD_TIMEOUT)
        return str(self.store.get(name).decode())

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Broadcast the tensors of the first rank to all ranks."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def common_token(self) -> str:
        """Return a token that is equal on all ranks and unique per call and start."""
        (token,) = self.sum([float(secrets.randbits(48)) if self.is_first else 0.0])
        return f"{int(token):x}"


def place_on_ranks(
    loss: Loss,
    ranks: DistributedRanks,
    *,
    checkpointing: bool | R.ActivationCheckpointing = False,
    compile: bool = False,
    precision: str = "fp32",
    whole_experts: bool = False,
    seed: int = 0,
    average_gradients: bool = True,
) -> nn.Module:
    """Move a task's module to the device of its rank. Tensors on the meta device are allocated and
    initialised.

    Args:
        loss: the task's module.
        ranks: of this process.
        checkpointing, compile, precision, whole_experts: as for `parallelize`.
        seed: seed of the initialisation.
        average_gradients: whether DDP averages the gradients of ranks with whole weights.
    """
    is_on_meta = any(p.is_meta for p in loss.parameters())
    loss._apply(lambda t: t if t.is_meta else t.to(ranks.device))
    parallelize(
        loss,
        ranks.mesh,
        checkpointing=checkpointing,
        compile=compile,
        precision=precision,
        whole_experts=whole_experts,
    )
    if is_on_meta:
        allocate(loss, ranks.device)
        initialise_shards(loss.model, loss.model.spec, seed)
    ddp = ranks.world > 1 and not ranks.splits_weights and average_gradients
    return DistributedDataParallel(loss) if ddp else loss


def parallelize(
    loss: Loss,
    mesh: DeviceMesh | None,
    *,
    checkpointing: bool | R.ActivationCheckpointing = False,
    compile: bool = False,
    precision: str = "fp32",
    whole_experts: bool = False,
) -> nn.Module:
    """Apply tensor parallelism, activation checkpointing, compilation and FSDP to a task's module,
    in this order.

    Args:
        loss: the task's module; its model may be on the meta device.
        mesh: replicate × shard × tensor; None: one process, or DDP.
        checkpointing: parts that are recomputed in the backward pass; True: every block.
        compile: whether each block is compiled.
        precision: "bf16" gathers parameters in bf16 and sums gradients in fp32.
        whole_experts: whether each rank of a tensor group has whole experts of a mixture.

    Returns: The same module.
    """
    blocks = [part for part in loss.modules() if isinstance(part, BlockLayer)]
    if mesh is not None and mesh["tensor"].size() > 1:
        if compile:
            raise ValueError(
                "compile = True does not support tensor parallelism; use compile = False or "
                "parallel.tensor = 1"
            )
        apply_tensor_parallel(loss, mesh["tensor"], whole_experts)
    apply_checkpointing(blocks, checkpointing)
    if compile:
        for block in blocks:
            block.compile()
    if mesh is not None and mesh["replicate"].size() * mesh["shard"].size() > 1:
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if precision == "bf16" else None,
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,
        )
        data = mesh["replicate", "shard"] if mesh["replicate"].size() > 1 else mesh["shard"]
        for part in (*blocks, loss):
            fully_shard(part, mesh=data, mp_policy=policy)
        register_fsdp_forward_method(loss, "outputs_and_sums")
    return loss


def apply_checkpointing(
    blocks: list[BlockLayer], checkpointing: bool | R.ActivationCheckpointing
) -> None:
    if not checkpointing:
        return
    every = checkpointing.every if isinstance(checkpointing, R.CheckpointBlocks) else 1
    more: dict[str, Any] = {}
    if isinstance(checkpointing, R.SelectiveCheckpointing):
        more["context_fn"] = partial(create_selective_checkpoint_contexts, store_products)
    for block in blocks[::every]:
        block.forward = partial(  # type: ignore[method-assign]
            checkpoint, block.forward, use_reentrant=False, preserve_rng_state=True, **more
        )


def store_products(context: Any, operation: Any, *_: Any, **__: Any) -> CheckpointPolicy:
    stored = operation in STORED_OPERATIONS
    return CheckpointPolicy.MUST_SAVE if stored else CheckpointPolicy.PREFER_RECOMPUTE


@contextmanager
def init_ranks(
    timeouts: R.Timeouts = R.Timeouts(),
    device: str = "auto",
    parallel: R.Parallel = R.Parallel(),
) -> Iterator[DistributedRanks]:
    """Join torchrun's process group, if any.

    Args:
        timeouts: time limits in seconds.
        device: an argument of `resolve_device`; "cuda" is the GPU of the local rank.
        parallel: the grid of the ranks.
    """
    rank_device = resolve_device(device)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()  # ranks end when torchrun is killed
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield DistributedRanks(device=rank_device).arrange(parallel)
        return
    rank = int(os.environ.get("RANK", "0"))
    # Forks a child process, so before CUDA starts
    with heartbeat(rank, size, timeouts.heartbeat) as all_joined:
        if rank_device.type == "cuda":
            torch.cuda.set_device(rank_device)
        store, _, _ = next(iter(rendezvous("env://", timeout=JOIN_TIMEOUT)))
        dist.init_process_group(
            "nccl" if rank_device.type == "cuda" else "gloo",
            timeout=timedelta(seconds=timeouts.collective),
            store=store,
            rank=rank,
            world_size=size,
        )
        all_joined()
        try:
            yield DistributedRanks(rank, size, rank_device, store=store).arrange(parallel)
        finally:
            dist.destroy_process_group()


def torchrun_notes() -> list[str]:
    """Return notes on settings that keep torchrun from restarting when a node is lost. Without a
    separate store per start, it reuses the store that ended with the node of group rank 0 (torch
    2.13, elastic/rendezvous/dynamic_rendezvous.py).
    """
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    if nodes == 1 or os.environ.get(OWN_STORE) == "1":
        return []
    return [
        "torchrun cannot restart this run when the node of group rank 0 is lost; set "
        f"{OWN_STORE}=1 in its environment on all {nodes} nodes"
    ]
