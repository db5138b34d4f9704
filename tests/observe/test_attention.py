"""Observation: exact maps, rollout, entropy and the logit lens; the model computes what it computed
before.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from tests.golden.adapter import family_model
from tests.golden.configs import config_of
from weft import observe
from weft import spec as S
from weft.families import family_names
from weft.interop.huggingface.verify import example, run_ours
from weft.nn.kernels.attention import attention_weights, eager_attention, sdpa_attention
from weft.nn.layers.attention import AttentionLayer
from weft.testing.model_part import random_model


def tiny_model(name: str) -> weft.Model:
    model = family_model(name, config_of(name))
    assert isinstance(model, weft.Model)
    return random_model(model.spec).eval()


def eager_maps(model: weft.Model, batch: Any) -> dict[str, Tensor]:
    """The oracle: the whole model on the eager backend, which sees whole rows and works with the
    weights that it shows.
    """
    maps: dict[str, Tensor] = {}
    layers = {name: m for name, m in model.named_modules() if isinstance(m, AttentionLayer)}

    def shown(name: str) -> Any:
        def kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **more: Any) -> Tensor:
            weights = {key: value for key, value in more.items() if key != "dropout"}
            maps[name] = attention_weights(q, k, mask, **weights)
            return eager_attention(q, k, v, mask, **more)

        return kernel

    for name, layer in layers.items():
        layer.backend = shown(name)
    run_ours(model, batch)
    for layer in layers.values():
        layer.backend = sdpa_attention
    return maps


@torch.no_grad()
@pytest.mark.parametrize("name", family_names())
def test_maps_of_every_family_are_those_of_the_eager_backend_and_no_output_bit_changes(
    name: str,
) -> None:
    model = tiny_model(name).double()
    batch = example(model.spec, dtype=torch.float64)
    plain = run_ours(model, batch)
    with observe.attention_maps(model) as maps:
        seen = run_ours(model, batch)
    again = run_ours(model, batch)
    for output, tensor in plain.items():
        assert torch.equal(tensor, seen[output])
        assert torch.equal(tensor, again[output])
    oracle = eager_maps(model, batch)
    places = observe.attention_places(model)
    assert [place.name for place in places] == list(dict.fromkeys(place.name for place in places))
    assert {place.name for place in places} == maps.keys() == oracle.keys()
    for place in places:
        assert model.get_submodule(place.name) is place.module
        map_BHLM = oracle[place.name].reshape_as(maps[place.name])  # windows, where they are heads
        torch.testing.assert_close(maps[place.name], map_BHLM, atol=1e-9, rtol=0)


def test_maps_of_rows_that_are_computed_in_parts_are_whole_and_change_no_bit() -> None:
    spec = weft.gpt2(depth=2, width=16, heads=2, vocab_size=19, positions=700)
    window = S.SlidingWindow(before=31, after=0)
    for pattern in (S.CausalAttention(), window):
        blocks = tuple(
            S.replace(
                b,
                attention=S.replace(
                    b.attention, inner=S.replace(b.attention.inner, pattern=pattern)
                ),
            )
            for b in spec.decoder.blocks
        )
        model = random_model(S.replace(spec, decoder=S.replace(spec.decoder, blocks=blocks))).eval()
        ids = torch.randint(0, 19, (1, 600))
        documents = torch.arange(600)[None] // 150 + 1
        for more in ({}, {"document_ids": documents}):
            with torch.no_grad():
                plain = model(ids, **more)
                with observe.attention_maps(model) as maps:
                    assert torch.equal(model(ids, **more), plain)
                sdpa = dict(maps)
                for layer in model.modules():
                    if isinstance(layer, AttentionLayer):
                        layer.backend = eager_attention  # whole rows
                with observe.attention_maps(model) as maps:
                    model(ids, **more)
                for layer in model.modules():
                    if isinstance(layer, AttentionLayer):
                        layer.backend = sdpa_attention
            for name, weight in maps.items():
                assert weight.shape == (1, 2, 600, 600)
                torch.testing.assert_close(sdpa[name], weight, atol=1e-6, rtol=0)


def test_training_gradients_under_observation_are_the_same_bits() -> None:
    model = tiny_model("bert").train()
    ids = torch.randint(5, 60, (2, 9))

    def gradients() -> list[Tensor]:
        torch.manual_seed(0)
        output = model(ids)
        assert isinstance(output, Tensor)
        return list(
            torch.autograd.grad(output.square().sum(), list(model.parameters()), allow_unused=True)
        )

    plain = gradients()
    with observe.attention_maps(model) as maps:
        seen = gradients()
    for weight in maps.values():
        assert not weight.requires_grad
        torch.testing.assert_close(weight.sum(-1), torch.ones_like(weight[..., 0]))
    assert all(
        torch.equal(a, b) if a is not None and b is not None else a is b
        for a, b in zip(plain, seen, strict=True)
    )


def test_everything_is_put_back_after_an_error() -> None:
    model = tiny_model("t5")
    with pytest.raises(RuntimeError, match="stop"), observe.attention_maps(model):
        raise RuntimeError("stop")
    for layer in model.modules():
        if isinstance(layer, AttentionLayer):
            assert "attend" not in vars(layer)
            assert layer.backend is sdpa_attention


def test_weights_equal_a_softmax_that_is_written_out() -> None:
    q = torch.randn(2, 2, 3, 4)
    k = torch.randn(2, 1, 5, 4)
    fast = attention_weights(q, k, None, False, None)
    for b in range(2):
        for h in range(2):
            for i in range(3):
                scores = [
                    sum(float(q[b, h, i, d] * k[b, 0, j, d]) for d in range(4)) / 2
                    for j in range(5)
                ]
                total = sum(math.exp(s) for s in scores)
                for j, score in enumerate(scores):
                    assert abs(float(fast[b, h, i, j]) - math.exp(score) / total) < 1e-6


def random_map(*shape: int) -> Tensor:
    return torch.randn(*shape).softmax(-1)


def test_rollout_equals_the_sum_over_paths() -> None:
    maps = [random_map(1, 2, 4, 4) for _ in range(3)]
    flows = observe.attention_rollout(maps)

    def step(layer: int, i: int, j: int) -> float:
        mean = sum(float(maps[layer][0, h, i, j]) for h in range(2)) / 2
        return 0.5 * mean + (0.5 if i == j else 0)

    for i in range(4):
        for j in range(4):
            paths = sum(
                step(2, i, a) * step(1, a, b) * step(0, b, j) for a in range(4) for b in range(4)
            )
            assert abs(float(flows[2][0, i, j]) - paths) < 1e-6
    torch.testing.assert_close(flows[1].sum(-1), torch.ones(1, 4))


def test_rollout_refuses_maps_between_two_sequences() -> None:
    with pytest.raises(ValueError, match="self-attention over whole rows"):
        observe.attention_rollout([random_map(1, 2, 4, 5)])


def test_entropy_equals_the_sum_that_is_written_out() -> None:
    weight = random_map(2, 3, 4, 5)
    weight[0, 0, 0] = torch.tensor([1.0, 0, 0, 0, 0])
    entropy = observe.attention_entropy(weight)
    assert entropy.shape == (2, 3, 4)
    assert entropy[0, 0, 0] == 0
    for index in ((1, 2, 3), (0, 1, 2)):
        slow = -sum(float(p) * math.log(float(p)) for p in weight[index])
        assert abs(float(entropy[index]) - slow) < 1e-6


def test_one_words_view_is_its_row_in_every_layer_and_head() -> None:
    maps = [random_map(2, 3, 4, 5) for _ in range(2)]
    view = observe.token_view(maps, position=2, row=1)
    assert view.shape == (2, 3, 5)
    assert all(
        view[y, h, m] == maps[y][1, h, 2, m] for y in range(2) for h in range(3) for m in range(5)
    )
    with pytest.raises(ValueError, match=r"position = 4 .* 4 tokens; give 0 to 3"):
        observe.token_view(maps, position=4)


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["bert", "gpt2", "llama", "gemma2", "t5", "bart", "transformer", "vit"]
)
def test_the_lens_reads_every_layer_as_a_model_that_ends_there(name: str) -> None:
    """The slow twin of layer i: the same model whose stack has only its first i blocks."""
    model = tiny_model(name)
    batch = example(model.spec)
    plain = run_ours(model, batch)
    with observe.layer_states(model) as states:
        seen = run_ours(model, batch)
    assert all(torch.equal(plain[output], seen[output]) for output in plain)
    logits = list(observe.logit_lens(model, states))
    stack = model.decoder if model.decoder is not None else model.encoder
    blocks = stack.blocks
    assert len(logits) == len(blocks) + 1
    for i in range(len(blocks) + 1):
        stack.blocks = blocks[:i]
        short = run_ours(model, batch)
        stack.blocks = blocks
        assert any(torch.equal(logits[i], tensor) for tensor in short.values()), i


def test_the_lens_raises_an_error_for_other_heads_and_pyramids() -> None:
    with pytest.raises(ValueError, match="logits, not DetectionHead"):
        list(observe.logit_lens(tiny_model("detr"), []))
    with pytest.raises(ValueError, match="pyramid"):
        list(observe.logit_lens(tiny_model("swin"), []))
