"""Every block its own FSDP2 unit: two gloo ranks equal one process."""

import os
import socket
import sys

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import weft
from weft import recipe as R
from weft.model.block import BlockLayer
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


def worker(rank: int, port: int, name: str, truth: list[float], kind: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2"
    )
    dist.init_process_group("gloo")
    model, mesh = build(name), init_device_mesh("cpu", (2,))
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
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    truth = losses(build(name), name, 0, 1, kind)
    mp.spawn(worker, (port, name, truth, kind), nprocs=2)
