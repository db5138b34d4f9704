"""A packed model beside its slow twin, the model itself."""

from typing import Any

import pytest
import torch

import weft
from weft.generate.beam_search import beam_search
from weft.generate.decoding import generate
from weft.generate.packed_model import PackedStack, pack_model
from weft.generate.sampling import Sampling
from weft.kernels.packed_linear import PackedLinear, pack_linear

from .made import END, PAIRS, SMALL, model_of, rows

NAMES = [*SMALL, "gpt_neox", "mixtral"]


def single(name: str, **more: Any) -> weft.Model:
    """In float32, as it would be used."""
    more = dict(SMALL).get(name, {}) | more
    if name == "gpt_neox":
        return weft.build(
            weft.gpt_neox(
                depth=2, width=16, heads=2, hidden=24, vocab_size=32, init=weft.NormalInit(std=0.4)
            )
        ).eval()
    if name == "mixtral":
        return weft.build(
            weft.mixtral(
                depth=2,
                width=16,
                heads=2,
                kv_heads=1,
                hidden=24,
                experts=4,
                vocab_size=32,
                init=weft.NormalInit(std=0.4),
            )
        ).eval()
    return model_of(name, **more).float()


def whole(model: weft.Model, ids: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return model(source, ids) if model.encoder is not None else model(ids)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_packed_is_the_model_in_float32(name: str) -> None:
    """A whole forward with padding, and token for token: greedy, sampled, by beam; more than a window's store holds."""
    model, prompts = single(name), rows(7, 2, 4)
    packed = pack_model(model)
    assert isinstance(packed.decoder, PackedStack) == (name != "mixtral"), (
        "experts stay as they are"
    )
    ids, source = torch.randint(2, 32, (3, 9)), torch.randint(2, 32, (3, 6))
    assert (whole(packed, ids, source) - whole(model, ids, source)).abs().max() < 1e-5
    for ours, truth in (
        (generate(m, prompts, max_new_tokens=70, eos_ids=[END]) for m in (packed, model)),
        (
            generate(m, prompts, max_new_tokens=20, sampling=Sampling(top_k=9), seeds=range(3))
            for m in (packed, model)
        ),
        (
            beam_search(m, prompts, num_beams=3, num_return=2, max_new_tokens=12, eos_ids=[END])
            for m in (packed, model)
        ),
    ):
        for a, b in zip(ours, truth, strict=True):
            for said, other in zip(
                a if isinstance(a, list) else [a], b if isinstance(b, list) else [b], strict=True
            ):
                assert said.tokens == other.tokens
                assert said.logprobs == pytest.approx(other.logprobs, abs=1e-4)


@torch.no_grad()
def test_a_torch_without_onednn_packs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = single("gpt2"), rows(7, 2, 4)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    packed = pack_model(model)
    assert not any(isinstance(part, PackedLinear) for part in packed.modules())
    assert [a.tokens for a in generate(packed, prompts, max_new_tokens=20)] == [
        a.tokens for a in generate(model, prompts, max_new_tokens=20)
    ]


@pytest.mark.parametrize(("precision", "limit"), [("bf16", 0.02), ("int8", 0.03)])
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "marian"])
@torch.no_grad()
def test_a_lower_precision_is_near_and_says_so_by_its_size(
    name: str, precision: Any, limit: float
) -> None:
    """The mean error of a logit, as a share of the logits' deviation."""
    model = single(name, width=64, std=0.1)
    ids, source = torch.randint(2, 32, (3, 9)), torch.randint(2, 32, (3, 6))
    truth = whole(model, ids, source)
    error = (
        whole(pack_model(model, precision), ids, source).float() - truth
    ).abs().mean() / truth.std()
    assert 1e-5 < error < limit


@torch.no_grad()
def test_the_largest_products_of_int8_do_not_overflow_on_any_cpu() -> None:
    packed = pack_linear("int8", torch.ones(8, 64), None)
    assert torch.allclose(packed(torch.ones(3, 64)), torch.full((3, 8), 64.0), rtol=0.01)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("name", ["gpt2", *PAIRS])
def test_lower_precisions_generate_and_search(name: str, precision: Any) -> None:
    packed, prompts = pack_model(single(name), precision), rows(7, 2, 4)
    assert [len(said.tokens) for said in generate(packed, prompts, max_new_tokens=9)] == [9, 9, 9]
    assert all(
        len(said[0].tokens) == 9
        for said in beam_search(packed, prompts, num_beams=3, max_new_tokens=9)
    )


def test_packing_leaves_the_model_as_it_was() -> None:
    model = single("marian")
    before = {name: t.clone() for name, t in model.state_dict().items()}
    pack_model(model, "int8")
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert len(model.decoder.blocks) == 2
