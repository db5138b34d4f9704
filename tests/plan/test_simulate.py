"""The closed formulas are close to a simulation of one rank with the real model and parallelism."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import weft
from weft.plan.layout import Layout
from weft.plan.memory import peak_memory
from weft.plan.recipe_workload import Workload
from weft.plan.simulate import Simulation, one_pass, simulate
from weft.plan.traffic import step_traffic
from weft.plan.workload import workload_of_spec

GPT: dict[str, Any] = {"depth": 4, "width": 4096, "heads": 32, "vocab_size": 5000, "positions": 256}
PALM: dict[str, Any] = {"depth": 4, "width": 4096, "heads": 16, "vocab_size": 4096}
LAYOUT = Layout(tensor=8, shard=8, checkpointing=True)


def simulated(spec: Any, layout: Layout, **more: Any) -> tuple[Workload, Simulation]:
    workload = replace(workload_of_spec("small", spec, length=256), **more)
    workload = one_pass(workload, layout)
    return workload, simulate(workload, layout)


@pytest.fixture(scope="module")
def gpt() -> tuple[Workload, Simulation]:
    return simulated(weft.gpt2(**GPT), LAYOUT)


def test_memory_is_that_of_the_formula(gpt: tuple[Workload, Simulation]) -> None:
    workload, simulation = gpt
    assert peak_memory(workload, LAYOUT).total == pytest.approx(simulation.memory, rel=0.05)


def test_every_block_is_gathered_twice_and_scattered_once(
    gpt: tuple[Workload, Simulation],
) -> None:
    workload, simulation = gpt
    calls = simulation.collectives
    received = simulation.received
    blocks = 4
    assert calls["_allgather_base_"] == 2 * blocks + 1
    assert calls["_reduce_scatter_base_"] == blocks + 1
    # Scattered gradients are counted by what a rank keeps.
    sent = 7 / 8 * (received["_allgather_base_"] + 8 * received["_reduce_scatter_base_"])
    assert sent == pytest.approx(step_traffic(workload, LAYOUT).shard, rel=0.01)


def test_branches_gather_before_and_sum_after(gpt: tuple[Workload, Simulation]) -> None:
    """Two more gathers and sums are those of embedding and logits."""
    workload, simulation = gpt
    blocks = 4
    tokens = 256 * 4096 * 2
    assert simulation.collectives["all_gather_into_tensor"] == 6 * blocks + 2
    assert simulation.collectives["reduce_scatter_tensor"] == 5 * blocks
    formula = step_traffic(workload, LAYOUT).tensor
    assert formula == pytest.approx(7 / 8 * 11 * blocks * tokens)
    received = simulation.received
    sent = received["all_gather_into_tensor"] + 8 * received["reduce_scatter_tensor"]
    assert 7 / 8 * sent == pytest.approx(formula, rel=0.05)


def test_the_same_without_simulated_ranks_leaves_no_process_group() -> None:
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "layout"),
    [
        (weft.gpt2(**GPT), Layout(shard=64, checkpointing=True)),
        (weft.gpt2(**GPT), Layout(tensor=8, shard=8, micro_batch=2)),
        (weft.gpt2(**GPT), Layout(tensor=2, shard=16, replicate=4, checkpointing=True)),
        (weft.palm(**PALM), LAYOUT),
    ],
    ids=["shard", "stored", "replicate", "palm"],
)
def test_memory_of_other_layouts_is_near(spec: Any, layout: Layout) -> None:
    workload, simulation = simulated(spec, layout)
    assert peak_memory(workload, layout).total == pytest.approx(simulation.memory, rel=0.05)
