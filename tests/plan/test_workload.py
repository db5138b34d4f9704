"""The FLOPs of a plan equal those that torch counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils import flop_counter

import weft
from weft import recipe as R
from weft.nn.layers.sequence import HiddenStates
from weft.plan.cost import step_flops
from weft.plan.recipe_workload import (
    Workload,
    holds_average,
    row_flops,
    score_flops,
    workload_of_recipe,
)
from weft.plan.workload import workload_of_spec
from weft.tasks.masked_autoencoding import mask_patches

from .cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_are_those_that_torch_counts(name: str) -> None:
    case = CASES[name]
    model = weft.build(case.spec(2), device="meta").train()
    with flop_counter.FlopCounterMode(display=False) as counter:
        output = model(*case.inputs(1, "meta"))
        forward = counter.get_total_flops()
        output.float().sum().backward()
    flops = row_flops(case.workload(2))
    assert flops.forward == forward
    assert flops.backward == counter.get_total_flops() - forward


def test_a_swin_counts_windows_stages_and_no_gradient_of_pixels() -> None:
    spec = weft.swin("tiny")
    model = weft.build(spec, device="meta")
    with flop_counter.FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 3, 224, 224, device="meta")).sum().backward()
    flops = row_flops(Workload("swin", spec, 1, 224, 1, unit="images"))
    assert flops.training == counter.get_total_flops()


def test_fused_attention_computes_half_of_its_scores_again() -> None:
    """torch's own formulas for the kernels of a GPU."""
    case = CASES["gpt2"]
    workload = case.workload(1)
    shape = (1, 4, case.length, 16)
    forward = flop_counter.sdpa_flop_count(shape, shape, shape)
    backward = flop_counter.sdpa_backward_flop_count(shape, shape, shape, shape)
    flops = row_flops(workload)
    assert score_flops(workload.spec, workload) == forward
    assert flops.computed(checkpointing=False) - flops.training == backward - 2 * forward
    assert flops.computed(checkpointing=True) == flops.computed(checkpointing=False) + flops.forward


def test_only_scored_positions_have_logits() -> None:
    case = CASES["bert"]
    workload = case.workload(1)
    spec = case.spec(1)
    few = Workload("bert", spec, 1, 32, 1, scored=0.25)
    model = weft.build(spec, device="meta")
    with flop_counter.FlopCounterMode(display=False) as counter:
        model.head(
            HiddenStates(torch.zeros(1, 8, 64, device="meta")),
            model.token_embedding_VD,
        )
    body = row_flops(workload).forward - spec.head.flops(spec, 32)
    assert row_flops(few).forward == body + counter.get_total_flops()


def test_tokens_follow_the_compute_optimal_rule() -> None:
    workload = workload_of_spec("gpt2", weft.gpt2("small"))
    assert workload.samples_read == pytest.approx(20 * workload.parameters, rel=1e-3)
    fewer = workload_of_spec("gpt2", weft.gpt2("small"), tokens=1e9)
    assert fewer.samples_read == pytest.approx(1e9, rel=1e-3)
    even = workload.with_rows_for(7)
    assert even.rows % 7 == 0
    assert even.samples_read == pytest.approx(workload.samples_read, rel=1e-2)


def test_a_pair_of_answers_is_two_sequences_and_the_reference_reads_both() -> None:
    recipe = R.load_recipe("recipes/prefer.py:tiny")
    one = recipe.model.flops(1, recipe.batch.length)
    workload = workload_of_recipe(recipe)
    assert workload.rows == 2 * recipe.batch.rows_per_step()
    assert workload.copies == 1 + holds_average(recipe.average)
    assert step_flops(workload) == (3 + 1) * one * workload.rows
    plain = row_flops(replace(workload, references=0))
    assert row_flops(workload).training == plain.training + plain.forward


@pytest.mark.parametrize("mask_rate", [0.75, 0.4])
def test_hidden_patches_cost_the_encoder_nothing(mask_rate: float) -> None:
    spec = weft.mae(
        depth=2,
        width=32,
        heads=2,
        hidden=64,
        image_size=32,
        patch_size=4,
        decoder_depth=1,
        decoder_width=16,
        decoder_heads=2,
        decoder_hidden=32,
    )
    task = R.MaskedAutoencoding(mask_rate=mask_rate)
    masks = mask_patches(np.random.default_rng(0).random(64), int(64 * (1 - mask_rate)), 1)
    places = torch.from_numpy(masks["visible"])[None].to("meta")
    model = weft.build(spec, device="meta").train()
    with flop_counter.FlopCounterMode(display=False) as counter:
        visible = model.embed(torch.zeros(1, 3, 32, 32, device="meta")).select(places)
        rebuilt = model.read(model.encode(visible))
        forward = counter.get_total_flops()
        rebuilt.sum().backward()
    workload = Workload("mae", spec, 1, 32, 1, visible=task.visible_fraction(), unit="images")
    flops = row_flops(workload)
    assert flops.forward == forward
    assert flops.backward == counter.get_total_flops() - forward


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("cct.py:tiny", 0.0),
        ("swin.py:tiny", 0.0),
        ("detr.py:tiny", 5e-4),  # the first content of queries is zero and has no gradient
        ("detr.py:anchors", 0.02),  # and boxes have none from one block to the next
    ],
)
def test_a_step_of_an_image_recipe_is_what_torch_counts(name: str, tolerance: float) -> None:
    recipe = R.load_recipe(f"recipes/{name}")
    workload = workload_of_recipe(recipe)
    model = weft.build(recipe.model, device="meta").train()
    channels = recipe.model.source.channels
    with flop_counter.FlopCounterMode(display=False) as counter:
        output = model(torch.zeros(1, channels, workload.length, workload.length, device="meta"))
        outputs = (output,) if isinstance(output, torch.Tensor) else output[:2]
        sum(x.sum() for x in outputs).backward()
    counted = step_flops(workload) / recipe.batch.rows_per_step()
    assert counted == pytest.approx(counter.get_total_flops(), rel=tolerance, abs=0)


def test_shorter_rows_of_a_schedule_are_more() -> None:
    recipe = R.load_recipe("recipes/gpt_char.py")
    short = workload_of_recipe(recipe, row_length=recipe.batch.length // 2)
    assert short.rows == 2 * recipe.batch.rows_per_step()
    assert step_flops(short) < step_flops(workload_of_recipe(recipe))
