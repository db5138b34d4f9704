"""Muon of sharded matrices: two gloo ranks equal one process."""

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

from weft.training.optimisers.muon import BatchedMuon


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


# the first has fewer rows than there are ranks, the last is a convolution
MATRICES = [
    (1, 4),
    (3, 8),
    (4, 4),
    (8, 3),
    (3, 2, 2, 2),
]


def updated(spread: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """The matrices after one step of Muon, as `spread` lays them out."""
    g = torch.Generator().manual_seed(0)
    parameters = []
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
