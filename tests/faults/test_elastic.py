"""Nodes are lost while torchrun watches: it starts again by itself with those that are left, and
the run ends with the same bits.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from weft import recipe as R
from weft.runs import run

from .runs import Whole, child, free_port, model_bytes, told, train, whole
from .test_exact import exact
from .test_ranks import LIMIT, PATIENCE, end, members

__all__ = ["whole"]
RANKS = {"first": 1, "second": 1, "third": 2}  # of each node; "first" is HOST
Lost = dict[str, tuple[str, int]]  # by the number of ranks: which node is lost, after which step
ALL_BUT_HOST: Lost = {"4": ("third", 3), "2": ("second", 6)}


def main() -> None:
    """What torchrun starts on a node: recipe, run folder, the name of the node, what is lost."""
    file, out, node, losses = sys.argv[1:]
    world = int(os.environ["WORLD_SIZE"])
    lost, last_step = json.loads(losses).get(str(world), ("", 0))

    def plot(built: run.Run, event: Any) -> None:
        if event is None:
            return
        if built.trainer.ranks.is_first:
            step = [world, node, event.step, event.loss, event.sample_ids]
            with Path(out).with_suffix(".steps").open("a") as steps:
                steps.write(json.dumps(step) + "\n")
        if node == lost and event.step == last_step:
            Path(out).with_suffix(".lost").touch()
            os.kill(os.getppid(), signal.SIGKILL)  # torchrun; its ranks end with it
            time.sleep(LIMIT)

    def report(line: str) -> None:
        print(f"weft: {line}", file=sys.stderr, flush=True)

    torch.set_num_threads(1)
    digest = train(R.load_recipe(file), Path(out), plot, report)
    Path(out).with_suffix(".digest").write_text(digest)


def torchrun(
    node: str, port: int, file: Path, out: Path, lost: Lost, *, host: str = "first"
) -> subprocess.Popen[bytes]:
    """The command of docs/scale.md on one node of three, with shorter timeouts."""
    options = {
        "nnodes": "1:3",
        "nproc-per-node": str(RANKS[node]),
        "max-restarts": "9",
        "rdzv-backend": "c10d",
        "rdzv-endpoint": f"localhost:{port}",
        "rdzv-id": "elastic",
        "rdzv-conf": f"is_host={node == host},last_call_timeout=10,keep_alive_interval=3",
        "local-addr": "localhost",
    }
    with out.with_suffix(f".{node}").open("a") as messages:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *(f"--{name}={value}" for name, value in options.items()),
                *("-m", "tests.faults.test_elastic", str(file), str(out), node, json.dumps(lost)),
            ],
            cwd=Path(__file__).parents[2],
            stdout=messages,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ
            | {
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            },
        )


def await_nobody(out: Path, seconds: float) -> None:
    limit = time.time() + seconds
    while (left := members(out)) and time.time() < limit:
        time.sleep(0.1)
    assert not left


def same_as_whole(recipe: R.Recipe, out: Path) -> list[list[Any]]:
    """The steps of a run that ended as one that nothing happened to: ranks, node of the first,
    step.
    """
    expected = out.with_name("whole")
    digest = child(recipe, expected)
    assert isinstance(digest, str), digest
    assert out.with_suffix(".digest").read_text() == digest
    assert model_bytes(out) == model_bytes(expected)
    assert told(out) == told(expected)
    steps = [json.loads(line) for line in out.with_suffix(".steps").read_text().splitlines()]
    by_step = {step: rest for _, _, step, *rest in steps}
    assert sorted(by_step) == list(range(1, recipe.steps + 1))
    assert all(by_step[step] == rest for _, _, step, *rest in steps), "a step read other samples"
    return [step[:3] for step in steps]


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [("first", "second", "third"), ("third", "second", "first")], ids="-".join
)
def test_torchrun_starts_again_with_the_nodes_that_are_left_and_the_bits_stay_the_same(
    order: tuple[str, ...], whole: Whole, tmp_path: Path
) -> None:
    """Four ranks on three nodes, two on two, one on one: nobody types a second command. The node
    that starts first has the first rank (torchrun sorts by address and process): with "third",
    "second", "first" it is lost each time.
    """
    recipe = exact(whole.recipes["causal"], steps=8)
    out = tmp_path / "run"
    file = tmp_path / "recipe.json"
    file.write_text(recipe.to_json())
    port = free_port()
    nodes = {node: torchrun(node, port, file, out, ALL_BUT_HOST) for node in order}
    try:
        codes = {node: process.wait(timeout=PATIENCE) for node, process in nodes.items()}
        messages = out.with_suffix(".first").read_text()
        assert codes == {"first": 0, "second": -9, "third": -9}, messages
        await_nobody(out, LIMIT)
    finally:
        end(out)
    steps = same_as_whole(recipe, out)
    starts = list(dict.fromkeys((world, node) for world, node, _ in steps))
    left = [node for node in order if node != "third"]
    assert starts == [(4, order[0]), (2, left[0]), (1, "first")], messages


@pytest.mark.slow
def test_when_host_is_lost_all_end_and_the_same_command_on_another_one_continues(
    whole: Whole, tmp_path: Path
) -> None:
    recipe = exact(whole.recipes["causal"], steps=6)
    out = tmp_path / "run"
    file = tmp_path / "recipe.json"
    file.write_text(recipe.to_json())
    port = free_port()
    lost: Lost = {"2": ("first", 3)}
    nodes = {node: torchrun(node, port, file, out, lost) for node in ("first", "second")}
    try:
        assert nodes["first"].wait(timeout=PATIENCE) == -9
        assert nodes["second"].wait(timeout=PATIENCE) != 0
        print(
            "seconds until all had ended:", time.time() - out.with_suffix(".lost").stat().st_mtime
        )
        await_nobody(out, LIMIT)
        again = torchrun("second", free_port(), file, out, {}, host="second")
        assert again.wait(timeout=PATIENCE) == 0, out.with_suffix(".second").read_text()
    finally:
        end(out)
    assert {world for world, *_ in same_as_whole(recipe, out)} == {1, 2}


if __name__ == "__main__":
    main()
