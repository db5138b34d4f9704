"""Every block its own FSDP2 unit: two gloo ranks equal one process."""

import os
import socket
import sys
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import weft
from weft import recipe as R
from weft.model.block import BlockLayer
from weft.training.muon import BatchedMuon
from weft.training.optimisers import Optimiser

SPECS = {
    "gpt2": (weft.gpt2, dict(depth=2, width=32, heads=4, vocab_size=64, positions=16)),
    "t5": (weft.t5, dict(depth=2, width=32, heads=4, hidden=64, head_dim=8, vocab_size=64)),
    "mixtral": (
        weft.mixtral,
        dict(depth=2, width=32, heads=4, kv_heads=2, hidden=16, vocab_size=64, experts=4, top_k=2),
    ),
}


OPTIMISERS = {
    "SGD": R.SGD(lr=0.1, momentum=0.0),
    "Muon": R.Muon(lr=0.1, other=R.AdamW(lr=0.01)),
}


def losses(
    model: torch.nn.Module, name: str, rank: int, world: int, kind: str = "SGD"
) -> list[float]:
    g = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 64, (4, 12), generator=g)
    mine = ids.chunk(world)[rank]
    optimiser, found = Optimiser(OPTIMISERS[kind], model), []
    for _ in range(3):
        output = model(mine, mine) if name == "t5" else model(mine)
        loss = torch.nn.functional.cross_entropy(
            output[:, :-1].flatten(0, 1), mine[:, 1:].flatten()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step(1.0)
        total = loss.detach().clone()
        if world > 1:
            dist.all_reduce(total)
        found.append(float(total / world))
    return found


def build(name: str) -> weft.Model:
    family, sizes = SPECS[name]
    return weft.build(
        family(
            **sizes,
            **(
                {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}
                if name == "gpt2"
                else {"dropout": 0.0}
                if name == "t5"
                else {}
            ),
        )
    )


def join(rank: int, port: int) -> DeviceMesh:
    torch.set_num_threads(1)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2"
    )
    dist.init_process_group("gloo")
    return init_device_mesh("cpu", (2,))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def worker(rank: int, port: int, name: str, truth: list[float], kind: str) -> None:
    from torch.distributed.fsdp import fully_shard

    mesh, model = join(rank, port), build(name)
    for module in model.modules():
        if isinstance(module, BlockLayer):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    found = losses(model, name, rank, 2, kind)
    dist.destroy_process_group()
    assert max(abs(a - b) for a, b in zip(found, truth, strict=True)) < 1e-5, (found, truth)


@pytest.mark.skipif(sys.platform != "linux", reason="gloo over loopback")
@pytest.mark.parametrize(("name", "kind"), [*((name, "SGD") for name in SPECS), ("gpt2", "Muon")])
def test_two_sharded_ranks_train_like_one_process(name: str, kind: str) -> None:
    truth = losses(build(name), name, 0, 1, kind)
    mp.spawn(worker, (free_port(), name, truth, kind), nprocs=2)


MATRICES = [
    (1, 4),
    (3, 8),
    (4, 4),
    (8, 3),
    (3, 2, 2, 2),
]  # the first has fewer rows than there are ranks, the last is a convolution


def updated(spread: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """The matrices after one step of Muon, as `spread` lays them out."""
    g, parameters = torch.Generator().manual_seed(0), []
    for shape in MATRICES:
        parameters.append(torch.nn.Parameter(spread(torch.randn(shape, generator=g))))
        parameters[-1].grad = spread(torch.randn(shape, generator=g))
    BatchedMuon(parameters, lr=0.1, weight_decay=0.1).step()
    return parameters


def muon_worker(rank: int, port: int) -> None:
    mesh = join(rank, port)
    sharded = updated(lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)]))
    for found, truth in zip(sharded, updated(lambda tensor: tensor), strict=True):
        torch.testing.assert_close(found.full_tensor(), truth, atol=1e-6, rtol=1e-5)
    dist.destroy_process_group()


@pytest.mark.skipif(sys.platform != "linux", reason="gloo over loopback")
def test_muon_of_sharded_matrices_is_muon_of_whole_ones() -> None:
    mp.spawn(muon_worker, (free_port(),), nprocs=2)
