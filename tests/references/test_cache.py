"""Decoding with stored keys and values."""

from dataclasses import replace

import pytest
import torch

import weft

FAMILIES = {
    "gpt2": dict(depth=2, width=16, heads=2, vocab_size=32, positions=24),
    "bloom": dict(depth=2, width=16, heads=2, vocab_size=32),
    "mistral": dict(depth=2, width=16, heads=2, kv_heads=1, hidden=24, vocab_size=32, window=3),
    "t5": dict(depth=2, width=16, heads=2, head_dim=8, hidden=24, vocab_size=32),
    "marian": dict(depth=2, width=16, heads=2, hidden=24, vocab_size=32),
}


def model_of(name: str) -> weft.Model:
    return weft.build(
        weft.family(name)(**FAMILIES[name], init=weft.NormalInit(std=0.3)), dtype=torch.float64
    ).eval()


def step(model: weft.Model, ids: torch.Tensor, memory: object, cache: object) -> torch.Tensor:
    sequence = (
        model.embed(ids, cache=cache)
        if memory is None
        else model.embed_target(ids, memory, cache=cache)
    )
    return model.read(model.decode(sequence, memory, cache=cache))


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_a_reordered_cache_continues_from_the_other_rows(name: str) -> None:
    """Beam search: after reordering, each row continues what its parent has read."""
    model = model_of(name)
    ids, more, source = (torch.randint(0, 32, (3, n)) for n in (5, 2, 6))
    memory = model.encode(model.embed(source)) if model.encoder is not None else None
    parents = torch.tensor([2, 0, 0])
    cache = model.new_cache(3, 7)
    step(model, ids, memory, cache)
    cache.reorder(parents)
    again = None if memory is None else replace(memory, x_BLD=memory.x_BLD[parents])
    for i in range(2):
        found = step(model, more[:, i : i + 1], again, cache)
        whole = torch.cat((ids[parents], more[:, : i + 1]), 1)
        truth = model(whole) if memory is None else model(source[parents], whole)
        assert (found[:, -1] - truth[:, -1]).abs().max() < 1e-9


@torch.no_grad()
def test_the_encoders_keys_are_worked_out_once() -> None:
    model = model_of("t5")
    memory = model.encode(model.embed(torch.randint(0, 32, (1, 6))))
    calls = []
    model.decoder.blocks[0].cross_attention.inner.key.register_forward_hook(
        lambda *_: calls.append(1)
    )
    cache = model.new_cache(1, 4)
    for _ in range(4):
        step(model, torch.tensor([[3]]), memory, cache)
    assert len(calls) == 1


@torch.no_grad()
def test_a_full_cache_and_a_model_that_cannot_decode_say_so() -> None:
    model = model_of("gpt2")
    with pytest.raises(ValueError, match="3 tokens, not 4"):
        step(model, torch.zeros(1, 4, dtype=torch.long), None, model.new_cache(1, 3))
    bert = weft.build(weft.bert(depth=1, width=16, heads=2, hidden=16, vocab_size=32, positions=8))
    with pytest.raises(ValueError, match="no decoder and so no cache"):
        bert.new_cache(1, 3)


def test_packed_documents_are_not_decoded_by_mistake() -> None:
    model = model_of("gpt2")
    with pytest.raises(ValueError, match="one document per row"):
        model.embed(
            torch.zeros(1, 2, dtype=torch.long),
            document_ids=torch.tensor([[1, 2]]),
            cache=model.new_cache(1, 4),
        )
