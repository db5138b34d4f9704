"""Initialisation: determined by parameter name and seed, with the standard deviation of the
paper.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft import spec as S
from weft.families import family, family_names
from weft.nn.initialisation import initialise_weights
from weft.nn.model import Model

TEXT: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "hidden": 24, "vocab_size": 40}
IMAGE: dict[str, Any] = {
    "depth": 2,
    "width": 16,
    "heads": 2,
    "hidden": 24,
    "image_size": 8,
    "patch_size": 4,
}
PLAIN = {k: v for k, v in TEXT.items() if k != "hidden"}
SMALL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("transformer", "marian", "pegasus", "modernbert", "gpt_neox", "starcoder2"), TEXT
    ),
    "electra": TEXT | {"positions": 12, "embedding": 8},
    **dict.fromkeys(("bert", "roberta", "bart"), TEXT | {"positions": 12}),
    **dict.fromkeys(("gpt", "gpt2", "gpt3"), PLAIN | {"positions": 12}),
    "bloom": PLAIN,
    "palm": PLAIN | {"head_dim": 8},
    **dict.fromkeys(("t5", "t5_v1_1", "mt5", "byt5"), TEXT | {"head_dim": 8}),
    "llama": TEXT | {"kv_heads": 1},
    "mistral": TEXT | {"kv_heads": 1, "window": 3},
    "mixtral": TEXT | {"kv_heads": 1, "experts": 3},
    "gemma2": TEXT | {"kv_heads": 1, "head_dim": 8, "window": 3},
    "qwen3": TEXT | {"kv_heads": 1, "head_dim": 8},
    "olmo2": TEXT | {"kv_heads": 1},
    "vit": IMAGE,
    "deit": IMAGE,
    "dinov2": {name: number for name, number in IMAGE.items() if name != "hidden"}
    | {"scale": 1e-5},
    "mae": IMAGE
    | {"decoder_depth": 1, "decoder_width": 8, "decoder_heads": 2, "decoder_hidden": 12},
    "swin": {
        "width": 8,
        "depths": (1, 2),
        "heads": (1, 2),
        "window": 2,
        "image_size": 16,
        "patch_size": 2,
    },
    "cct": {"depth": 2, "width": 16, "heads": 2, "hidden": 24, "image_size": 16},
    "dab_detr": {
        "depth": 1,
        "width": 16,
        "heads": 2,
        "hidden": 24,
        "depths": (1, 1),
        "widths": (8, 16),
        "stem": 4,
        "queries": 3,
    },
    "detr": {
        "depth": 1,
        "width": 16,
        "heads": 2,
        "hidden": 24,
        "depths": (1, 1),
        "widths": (8, 16),
        "stem": 4,
        "queries": 3,
    },
}


def rare() -> Iterator[tuple[str, S.Spec]]:
    """Parts that no family has."""
    linear = S.replace_path(
        family("bert")(**SMALL["bert"]),
        "encoder.blocks.0.attention.inner.pattern",
        S.Linformer(length=12, rank=3),
    )
    yield "linformer", linear
    yield (
        "learned 2D",
        S.replace_path(
            family("vit")(**SMALL["vit"]), "source.positions", S.LearnedPositions2D(count=4)
        ),
    )
    yield (
        "distances in a block",
        S.replace_path(
            linear, "encoder.blocks.1.attention.inner.position_bias", S.RelativeBias(buckets=8)
        ),
    )
    for start in (
        S.XavierInit(),
        S.T5Init(),
        S.FanInInit(),
        S.NormalInit(truncate_at=2.0, scale_by_depth=True),
    ):
        for name in ("mixtral", "detr", "swin", "t5_v1_1"):
            yield f"{name} {type(start).__name__}", family(name)(**SMALL[name], init=start)


SPECS = {name: family(name)(**SMALL[name]) for name in family_names()} | dict(rare())


def tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def equal(a: nn.Module, b: nn.Module) -> bool:
    ours = tensors(a)
    theirs = tensors(b)
    return list(ours) == list(theirs) and all(torch.equal(ours[n], theirs[n]) for n in ours)


def filled(s: S.Spec, number: float, seed: int = 0) -> Model:
    """Built on meta, made real in memory that holds `number` everywhere, then started."""
    with torch.device("meta"):
        model = Model(s)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in tensors(model).values():
            tensor.fill_(number)
    initialise_weights(model, s, seed)
    return model


# Every number of every family


@pytest.mark.parametrize("name", SPECS)
def test_no_number_is_left_as_the_memory_held_it(name: str) -> None:
    model = filled(SPECS[name], float("nan"))
    assert [n for n, t in tensors(model).items() if not t.isfinite().all()] == []
    assert equal(model, filled(SPECS[name], 1e6))


@pytest.mark.parametrize("name", SPECS)
def test_building_directly_equals_building_on_meta_and_starting_later(name: str) -> None:
    direct = Model(SPECS[name])
    initialise_weights(direct, SPECS[name], 3)
    assert equal(direct, filled(SPECS[name], 0.0, 3))
    assert equal(direct, weft.build(SPECS[name], seed=3))


@pytest.mark.parametrize("name", SPECS)
def test_no_module_keeps_a_tensor_that_a_start_would_not_reach(name: str) -> None:
    meta = weft.build(SPECS[name], device="meta")
    assert {t.device.type for t in tensors(meta).values()} == {"meta"}
    kept = [
        f"{type(m).__name__}.{k}"
        for m in weft.build(SPECS[name]).modules()
        for k, v in vars(m).items()
        if isinstance(v, Tensor)
    ]
    assert kept == []
    assert set(meta.state_dict()) == set(tensors(meta))


# boxes start as their anchors, classes as rare
ANCHORED = {
    "head.box.2.weight": 0.0,
    "head.classes.bias": -math.log(99),
}


@pytest.mark.parametrize("name", SPECS)
def test_norms_start_at_one_biases_at_zero_and_nothing_else_is_flat(name: str) -> None:
    model = weft.build(SPECS[name])
    norms = {
        f"{n}.weight"
        for n, m in model.named_modules()
        if isinstance(m, nn.LayerNorm | nn.RMSNorm) or "Norm" in type(m).__name__
    }
    for found, tensor in tensors(model).items():
        if name == "dab_detr" and found in ANCHORED:
            torch.testing.assert_close(tensor, torch.full_like(tensor, ANCHORED[found]))
        elif found.endswith(".slope"):
            assert (tensor == 0.25).all(), found
        elif found in norms or found.endswith(".variance"):
            assert (tensor == 1).all(), found
        elif found.rsplit(".", 1)[-1] in ("bias", "mean"):
            assert (tensor == 0).all(), found
        elif found.endswith(".layer_scale.weight"):
            assert (tensor == 1e-5).all(), found
        else:
            assert tensor.std() > 0, found


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    for name in ("gpt2", "t5", "vit"):
        one, again, other = (weft.build(SPECS[name], seed=s) for s in (1, 1, 2))
        assert equal(one, again)
        drawn = [n for n, t in tensors(one).items() if t.unique().numel() > 2]
        assert drawn
        assert not [n for n in drawn if torch.equal(tensors(one)[n], tensors(other)[n])]


def test_the_start_leaves_the_global_generator_alone_and_does_not_read_it() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = weft.build(SPECS["gpt2"])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert equal(one, weft.build(SPECS["gpt2"]))


# By name alone


def deeper(name: str, depth: int, start: Any) -> dict[str, Tensor]:
    return tensors(weft.build(family(name)(**SMALL[name] | {"depth": depth}, init=start)))


@pytest.mark.parametrize(
    ("name", "start"), [("gpt2", S.NormalInit()), ("bert", S.XavierInit()), ("t5", S.T5Init())]
)
def test_a_deeper_model_starts_with_the_shallow_ones_numbers(name: str, start: Any) -> None:
    shallow = deeper(name, 2, start)
    deep = deeper(name, 3, start)
    assert len(deep) > len(shallow)
    assert [n for n in shallow if not torch.equal(shallow[n], deep[n])] == []


# Spread

WIDE: dict[str, Any] = {"depth": 2, "width": 256, "heads": 4, "vocab_size": 1000}


def near(tensor: Tensor, std: float) -> bool:
    return abs(tensor.std().item() / std - 1) < 0.05 and abs(tensor.mean().item()) < 0.05 * std


def test_normal_weights_have_the_requested_deviation_and_truncation() -> None:
    for name, tensor in tensors(
        weft.build(family("bert")(**WIDE, hidden=512, init=S.NormalInit(std=0.05)))
    ).items():
        assert tensor.numel() < 10_000 or near(tensor, 0.05), name
    for name, tensor in tensors(
        weft.build(family("bert")(**WIDE, hidden=512, init=S.NormalInit(std=0.05, truncate_at=2.0)))
    ).items():
        if tensor.numel() > 10_000:  # a normal cut at two deviations keeps 0.8796 of its spread
            assert tensor.abs().max() <= 0.1, name
            assert near(tensor, 0.05 * 0.8796), name


@pytest.mark.parametrize("depth", [2, 5])
def test_gpt2_starts_what_joins_the_residual_smaller_by_the_root_of_twice_the_depth(
    depth: int,
) -> None:
    assert family("gpt2").init == S.NormalInit(std=0.02, scale_by_depth=True)
    plain = deeper("gpt2", depth, S.NormalInit())
    scaled = deeper("gpt2", depth, S.NormalInit(scale_by_depth=True))
    for name, tensor in plain.items():
        joins = name.endswith((".inner.out.weight", ".inner.down.weight"))
        torch.testing.assert_close(
            scaled[name], tensor * (2 * depth) ** -0.5 if joins else tensor, rtol=1e-5, atol=0
        )
    assert sum(n.endswith((".inner.out.weight", ".inner.down.weight")) for n in plain) == 2 * depth
    wide = tensors(weft.build(family("gpt2")(**WIDE)))
    assert near(wide["decoder.blocks.0.attention.inner.out.weight"], 0.02 / 4**0.5)
    assert near(wide["decoder.blocks.0.attention.inner.query.weight"], 0.02)


def test_a_decoder_with_three_branches_a_block_counts_three() -> None:
    plain = deeper("bart", 2, S.NormalInit())
    scaled = deeper("bart", 2, S.NormalInit(scale_by_depth=True))
    for stack, branches in (("encoder", 4), ("decoder", 6)):
        name = f"{stack}.blocks.0.attention.inner.out.weight"
        torch.testing.assert_close(scaled[name], plain[name] * branches**-0.5, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "swin", "mae"])
def test_a_branchs_gain_multiplies_value_out_and_feedforward_but_not_query_and_key(
    name: str,
) -> None:
    s = SPECS[name]
    path = {"swin": "encoder.stages.1.0", "mae": "head.stack.blocks.0"}.get(
        name, "decoder.blocks.1"
    )
    gained = S.replace_path(
        S.replace_path(s, f"{path}.attention.init_gain", 0.25), f"{path}.feedforward.init_gain", 0.5
    )
    before = tensors(weft.build(s))
    after = tensors(weft.build(gained))
    for found, tensor in before.items():
        branch = found.removeprefix(path + ".").split(".")[0]
        role = found.split(".")[-2]
        gain = (
            {"attention": 0.25, "feedforward": 0.5}[branch]
            if found.startswith(path)
            and role in ("value", "out", "up", "gate", "down")
            and ".inner." in found
            else 1.0
        )
        assert torch.equal(after[found], tensor * gain), found
    assert sum(not torch.equal(after[n], t) for n, t in before.items()) == (
        5 if name in ("llama", "mixtral") else 4
    )


def test_xavier_is_uniform_by_both_fans_and_tables_by_the_width() -> None:
    found = tensors(weft.build(family("transformer")(**WIDE, hidden=1024)))
    for name, tensor in found.items():
        if tensor.dim() == 2 and ".inner." in name:
            bound = (6 / sum(tensor.shape)) ** 0.5
            assert bound * 0.99 < tensor.abs().max() <= bound, name
            assert near(tensor, bound / 3**0.5), name
    assert near(found["source.tokens.weight"], 256**-0.5)
    assert found["source.tokens.weight"].abs().max() > 3 * 256**-0.5  # normal, not uniform


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_t5_starts_each_map_by_its_fan_in_and_the_query_by_the_head_width_too(
    factor: float,
) -> None:
    s = family("t5_v1_1")(**WIDE, hidden=1024, head_dim=16, init=S.T5Init(factor=factor))
    found = tensors(weft.build(s))
    attention = "decoder.blocks.1.cross_attention.inner."
    feed = "encoder.blocks.0.feedforward.inner."
    for name, std in (
        (attention + "query", (256 * 16) ** -0.5),
        (attention + "key", 256**-0.5),
        (attention + "value", 256**-0.5),
        (attention + "out", 64**-0.5),
        (feed + "up", 256**-0.5),
        (feed + "gate", 256**-0.5),
        (feed + "down", 1024**-0.5),
        ("source.tokens", 1.0),
        ("head.out", 1.0),
    ):
        assert near(found[f"{name}.weight"], factor * std), name
    wide = S.replace_path(
        s, "encoder.position_bias", S.RelativeBias(buckets=10_000, max_distance=20_000)
    )
    assert near(tensors(weft.build(wide))["encoder.position_bias.weight"], factor * 256**-0.5)


def test_the_experts_start_like_the_maps_they_stand_for() -> None:
    found = tensors(
        weft.build(
            family("mixtral")(**WIDE, hidden=512, kv_heads=1, experts=4, init=S.XavierInit())
        )
    )
    for name in ("up", "gate", "down"):
        bank = found[f"decoder.blocks.0.feedforward.inner.{name}.weight"]
        assert near(bank, (2 / 768) ** 0.5), name
        assert not torch.equal(bank[0], bank[1])


def test_convolutions_start_by_their_fan_out_and_patches_like_any_map() -> None:
    found = tensors(weft.build(S.replace_path(SPECS["detr"], "source.widths", (128, 256))))
    wide = {n: t for n, t in found.items() if "convolution" in n and t.numel() > 10_000}
    assert {t.shape[-1] for t in wide.values()} == {1, 3}
    for name, tensor in wide.items():
        assert near(tensor, (2 / (tensor.shape[0] * tensor[0, 0].numel())) ** 0.5), name
    assert near(found["source.project.weight"], (2 / (256 + 16)) ** 0.5)
    patches = weft.build(
        family("vit")(**IMAGE | {"width": 256}, init=S.NormalInit(std=0.05))
    ).get_parameter("source.patch.weight")
    assert near(patches, 0.05)


def test_sine_tables_start_as_sines_and_stay() -> None:
    model = weft.build(SPECS["mae"])
    for name in ("source.positions.weight", "head.positions.weight"):
        table = model.get_parameter(name)
        assert not table.requires_grad
        assert (table[0] == 0).all()  # the class token's row
        # sin² + cos² a pair
        torch.testing.assert_close(table[1:].square().sum(1), torch.full((4,), table.shape[1] / 2))
        assert not torch.equal(table[1], table[2])


@pytest.mark.parametrize(
    "head", [S.TokenClassifierHead(num_labels=9), S.ClassifierHead(num_labels=9)]
)
def test_a_new_head_on_t5_starts_with_scores_of_about_one(
    head: S.TokenClassifierHead | S.ClassifierHead,
) -> None:
    """Only the words' own head starts at 1, as T5's tables do."""
    s = replace(family("t5")(**SMALL["t5"] | {"width": 256}), decoder=None, target=None, head=head)
    assert near(tensors(weft.build(s))["head.out.weight"], 256**-0.5)
