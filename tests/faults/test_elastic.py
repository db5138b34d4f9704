"""Nodes are lost while torchrun watches: it starts again by itself with those that are left, and the run ends with the same bits."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from weft import recipe as R
from weft.runs import run

from .runs import Whole, child, model_bytes, told, train, whole
from .test_exact import exact
from .test_ranks import LIMIT, end, members

__all__ = ["whole"]
NODES = {"first": 1, "second": 1, "third": 2}  # ranks of each
LOST_AT = {4: ("third", 3), 2: ("second", 6)}  # ranks: which node is lost once a step is taken


def main() -> None:
    """What torchrun starts on a node: recipe, run folder, the name of the node."""
    file, out, node = sys.argv[1:]
    world = int(os.environ["WORLD_SIZE"])
    lost, last_step = LOST_AT.get(world, ("", 0))

    def plot(built: run.RunState, event: Any) -> None:
        if event is None:
            return
        if built.trainer.ranks.is_first:
            with Path(out).with_suffix(".steps").open("a") as steps:
                steps.write(json.dumps([world, event.step, event.loss, event.sample_ids]) + "\n")
        if node == lost and event.step == last_step:
            os.kill(os.getppid(), signal.SIGKILL)  # torchrun; its ranks end with it
            time.sleep(LIMIT)

    torch.set_num_threads(1)
    digest = train(R.load_recipe(file), Path(out), plot)
    Path(out).with_suffix(".digest").write_text(digest)


def torchrun(node: str, port: int, file: Path, out: Path) -> subprocess.Popen[bytes]:
    """The command of docs/scale.md on one node of three, with shorter timeouts."""
    options = {
        "nnodes": "1:3",
        "nproc-per-node": str(NODES[node]),
        "max-restarts": "2",
        "rdzv-backend": "c10d",
        "rdzv-endpoint": f"localhost:{port}",
        "rdzv-id": "elastic",
        "rdzv-conf": f"is_host={node == 'first'},last_call_timeout=4,keep_alive_interval=1",
        "local-addr": "localhost",
    }
    with out.with_suffix(f".{node}").open("w") as messages:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *(f"--{name}={value}" for name, value in options.items()),
                *("-m", "tests.faults.test_elastic", str(file), str(out), node),
            ],
            cwd=Path(__file__).parents[2],
            stdout=messages,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )


@pytest.mark.slow
def test_torchrun_starts_again_with_the_nodes_that_are_left_and_the_bits_stay_the_same(
    whole: Whole, tmp_path: Path
) -> None:
    """Four ranks on three nodes, two on two, one on one: nobody types a second command."""
    recipe = exact(whole.recipes["causal"], steps=8)
    digest = child(recipe, tmp_path / "whole")
    assert isinstance(digest, str), digest
    out, file = tmp_path / "run", tmp_path / "recipe.json"
    file.write_text(replace(recipe, timeouts=R.Timeouts(heartbeat=5)).to_json())
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    nodes = {node: torchrun(node, port, file, out) for node in NODES}
    try:
        codes = {node: process.wait(timeout=150) for node, process in nodes.items()}
        assert codes == {"first": 0, "second": -9, "third": -9}, out.with_suffix(
            ".first"
        ).read_text()
        lost = time.time()
        while (left := members(out)) and time.time() < lost + LIMIT:
            time.sleep(0.1)
        assert not left
    finally:
        end(out)
    assert out.with_suffix(".digest").read_text() == digest
    assert model_bytes(out) == model_bytes(tmp_path / "whole")
    assert told(out) == told(tmp_path / "whole")
    steps = [json.loads(line) for line in out.with_suffix(".steps").read_text().splitlines()]
    assert sorted({world for world, *_ in steps}) == [1, 2, 4]
    by_step = {step: rest for _, step, *rest in steps}
    assert sorted(by_step) == list(range(1, 9))
    assert all(by_step[step] == rest for _, step, *rest in steps), "a step read other samples"


if __name__ == "__main__":
    main()
