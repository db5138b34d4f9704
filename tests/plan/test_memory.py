"""Memory of a plan by category."""

from dataclasses import replace

import pytest

import weft
from weft.plan.layout import Layout
from weft.plan.memory import count_parameters, moments_of_step, peak_memory
from weft.plan.workload import workload_of_spec

from .cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_all_parameters_are_counted(name: str) -> None:
    workload = CASES[name].workload(2)
    assert count_parameters(workload, 1).total == workload.spec.parameter_count()


def test_state_is_sixteen_bytes_per_parameter_over_all_devices() -> None:
    workload = workload_of_spec("gpt2", weft.gpt2("small"))
    for layout in (Layout(), Layout(shard=8), Layout(shard=4, replicate=2)):
        memory = moments_of_step(workload, layout)["update"]
        state = memory.weights + memory.gradients + memory.optimiser
        assert state * layout.shard == pytest.approx(16 * workload.parameters)


def test_a_tensor_group_splits_matrices_and_tables_and_repeats_norms_and_lone_heads() -> None:
    workload = CASES["palm"].workload(2)
    whole = count_parameters(workload, 1)
    part = count_parameters(workload, 4)
    # of a block
    norms = 2 * 64
    keys_and_values = 2 * 16 * 64
    repeated = norms + keys_and_values
    assert part.largest == pytest.approx(repeated + (whole.largest - repeated) / 4)
    assert part.outside == pytest.approx(64 + (whole.outside - 64) / 4)  # the last norm


def test_checkpointing_trades_activations_for_flops() -> None:
    workload = workload_of_spec("gpt2", weft.gpt2("small"))
    layout = Layout(shard=8, micro_batch=4)
    stored = peak_memory(workload, layout)
    again = peak_memory(workload, replace(layout, checkpointing=True))
    assert again.activations < stored.activations / 4


def test_accumulation_keeps_gradients_from_the_first_pass_on() -> None:
    workload = workload_of_spec("gpt2", weft.gpt2("small"))
    once = Layout(shard=8, micro_batch=-(-workload.rows // 8))
    assert once.micro_batches(workload) == 1
    many = replace(once, micro_batch=1)
    assert moments_of_step(workload, once)["loss"].gradients == 0
    kept = moments_of_step(workload, many)["loss"].gradients
    assert kept == pytest.approx(4 * workload.parameters / 8)
