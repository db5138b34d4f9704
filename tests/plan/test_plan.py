"""The search for a plan: fitting layouts, errors and costs."""

from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft import recipe as R
from weft.commands.plan import PlanOptions, describe_gradients, workload_and_wishes
from weft.families import families, spec_of_name
from weft.plan.hardware import KINDS, Accelerator, accelerator
from weft.plan.layout import Layout
from weft.plan.plan import USABLE, Wishes, find_plan, make_plan, plans_on
from weft.plan.recipe_workload import Workload
from weft.plan.traffic import step_traffic
from weft.plan.workload import workload_of_spec
from weft.support.console import format_number

H100 = accelerator("h100")
A100 = accelerator("a100")
GPT2, GPT3 = (
    workload_of_spec(name, spec)
    for name, spec in (("gpt2", weft.gpt2("xl")), ("gpt3", weft.gpt3("175b")))
)


def test_a_plan_fits_and_no_other_layout_is_faster() -> None:
    plan = find_plan(GPT2, H100, Wishes(devices=16))
    assert plan.layout.devices == 16
    assert plan.memory.total <= USABLE * H100.memory
    others = [p for p in plans_on(GPT2, H100, 16, Wishes()) if p.fits]
    assert len(others) > 10
    assert plan.step_seconds == min(p.step_seconds for p in others)


@pytest.mark.parametrize(
    ("activation_checkpointing", "planned"),
    [
        (False, None),
        (True, True),
        (R.CheckpointBlocks(), True),
        (R.CheckpointBlocks(every=4), False),
        (R.SelectiveCheckpointing(), False),
    ],
)
def test_what_is_computed_again_in_part_is_planned_as_stored(
    activation_checkpointing: bool | R.ActivationCheckpointing, planned: bool | None
) -> None:
    """So that no plan fits that does not."""
    wishes = Wishes().with_defaults(R.Parallel(), activation_checkpointing, None)
    assert wishes.checkpointing is planned


def test_without_a_number_of_devices_as_few_as_fit_are_taken() -> None:
    plan = find_plan(GPT3, H100)
    assert plan.fits
    half = list(plans_on(GPT3, H100, plan.layout.devices // 2, Wishes()))
    assert half
    assert not [p for p in half if p.fits]


def test_what_does_not_fit_is_refused_with_a_plan_that_does() -> None:
    with pytest.raises(
        ValueError, match=r"gpt3 does not fit: .*; the fewest devices that fit are --gpus (\d+) "
    ) as refused:
        find_plan(GPT3, H100, Wishes(devices=8))
    words = str(refused.value).split("the fewest devices that fit are ")[1].split()
    given = dict(zip(words[::2], words[1::2], strict=False))
    wishes = Wishes(
        *(int(given[f"--{name}"]) for name in ("gpus", "tensor", "shard", "micro-batch-size")),
        checkpointing="--checkpointing" in words,
    )
    assert find_plan(GPT3, H100, wishes).fits


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        (Wishes(devices=16, tensor=3), "--tensor 3 does not divide the heads"),
        (Wishes(devices=16, tensor=5, shard=3), "do not form a grid"),
        (Wishes(devices=10**6), "give fewer --gpus"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_in_one_line(wishes: Wishes, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        find_plan(GPT2, H100, wishes)
    assert "\n" not in str(refused.value)


def test_time_is_flops_by_rate_where_nothing_is_sent() -> None:
    workload = replace(workload_of_spec("gpt2", weft.gpt2("small")), rows=8, any_rows=False)
    plan = make_plan(workload, A100, Layout(micro_batch=8))
    flops = 8 * plan.flops.computed(checkpointing=False)
    assert plan.traffic.total == 0
    assert plan.step_seconds == pytest.approx(flops / (A100.bf16_flops * A100.utilisation))


def test_a_ring_sends_what_it_must() -> None:
    """FSDP: weights gathered twice in bf16, gradients scattered in fp32; DDP: gradients twice, once
    each way.
    """
    workload = replace(GPT2, rows=8, any_rows=False)
    tokens = 1024
    width = 1600
    blocks = 48
    parameters = GPT2.parameters
    outside = 50257 * width + 1024 * width + 2 * width
    shard = step_traffic(workload, Layout(shard=8)).shard
    assert shard == pytest.approx(
        7 / 8 * (4 * (parameters - outside) + 2 * outside + 4 * parameters)
    )
    assert step_traffic(workload, Layout(replicate=8)).replicate == pytest.approx(
        7 / 8 * 8 * parameters
    )
    tensor = step_traffic(workload, Layout(tensor=5, shard=8)).tensor
    assert tensor == pytest.approx(4 / 5 * 8 * blocks * tokens * width * 2)


def test_gpt3_on_1024_a100_takes_the_published_month() -> None:
    """34 days for 300 billion tokens (Narayanan et al. 2021, arXiv:2104.04473, section 5.1)."""
    workload = workload_of_spec("gpt3-175b", weft.gpt3("175b"), tokens=300e9)
    plan = find_plan(workload, A100, Wishes(devices=1024, tensor=8, checkpointing=True))
    assert plan.seconds / 86_400 == pytest.approx(34, rel=0.15)


def test_every_kind_of_device_is_possible_and_a_users_own_is_found() -> None:
    for kind in KINDS:
        assert accelerator(kind.name) is kind
        assert kind.bf16_flops >= kind.fp32_flops > 0
        assert 0 < kind.utilisation < 1
        assert kind.link >= kind.network > 0
    mine = weft.register(Accelerator("mine", 1e15, 1e14, 1e11, 1e11, 1e10, 8))
    assert accelerator("mine") is mine
    with pytest.raises(ValueError, match="did you mean 'h100'"):
        accelerator("h10")


def test_a_workload_without_memory_for_one_row_says_so() -> None:
    long = Workload("long", weft.gpt2("xl", positions=1 << 24), 1, 1 << 24, 1)
    with pytest.raises(ValueError, match="use a device with more memory, or shorter rows"):
        find_plan(long, accelerator("v100"), Wishes(devices=1))


@pytest.mark.parametrize(
    ("name", "length", "reason"),
    [
        ("llama-7b", 2048, "as it was trained"),
        ("llama-2-70b", 4096, "as it was trained"),
        ("t5-small", 512, "as it was trained"),
        ("palm-8b", 2048, "its context length"),
        ("gpt3-175b", 2048, "as many as it has positions"),
        ("transformer-base", 512, "assumed; --row-length gives another"),
    ],
)
def test_a_model_is_planned_at_the_length_of_its_training_and_says_so(
    name: str, length: int, reason: str
) -> None:
    workload = workload_of_spec(*spec_of_name(name))
    assert (workload.length, workload.length_reason) == (length, reason)
    assert workload_of_spec(*spec_of_name(name), length=64).length_reason == ""


def test_every_training_length_is_that_of_a_size() -> None:
    for family in families():
        if isinstance(family.training_length, dict):
            assert family.training_length.keys() <= family.sizes.keys()


def test_a_finished_run_is_planned_by_its_own_recipe(tmp_path: Path) -> None:
    recipe = R.load_recipe(str(Path(__file__).parents[2] / "recipes" / "gpt_char.py"))
    (tmp_path / "model").mkdir()
    (tmp_path / "recipe.json").write_text(recipe.to_json())
    workload, _ = workload_and_wishes(PlanOptions(name=str(tmp_path)), H100)
    assert (workload.name, workload.steps) == (recipe.name, recipe.steps)


def test_gradients_that_come_later_than_the_fullest_moment_are_named() -> None:
    plan = find_plan(GPT2, H100, Wishes(devices=64))
    later = format_number(4 * GPT2.parameters / plan.layout.shard / plan.layout.tensor, "B")
    assert plan.memory.gradients == 0
    assert describe_gradients(plan) == f"0 B gradients ({later} later, at the update)"


def test_a_picture_of_a_plan_names_model_axes_and_limit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures are drawn with the extra viz")
    from matplotlib import rc_context

    from weft.plan.picture import draw

    plan = find_plan(GPT2, H100, Wishes(devices=16))
    with rc_context({"svg.fonttype": "none"}):
        draw(plan, [plan], str(tmp_path / "plan.svg"))
    text = (tmp_path / "plan.svg").read_text()
    for words in ("gpt2: ", "number of devices (h100)", "80 GB available", "time of the run"):
        assert words in text


@pytest.mark.parametrize(
    ("number", "text"),
    [(3.76e24, "3.76 Y"), (999_600, "1 M"), (999_400, "999 k"), (12.0, "12")],
)
def test_a_number_is_shown_with_three_digits_and_a_prefix(number: float, text: str) -> None:
    assert format_number(number) == text
