"""Size and rollback of the key-value cache."""

import re
from collections.abc import Callable

import pytest
import torch

import weft
from weft.generate.session import open_session
from weft.nn.cache import ROLLBACK_TOKENS

from ..generate.made import model_of


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
@pytest.mark.parametrize("side", ["none", "left", "right"])
@torch.no_grad()
def test_a_window_is_bounded_and_exact_wherever_the_padding_is(name: str, side: str) -> None:
    """A prompt longer than the store, then many steps: each as a whole forward says."""
    model = model_of(name)
    ids = torch.randint(2, 32, (2, 130))
    mask = torch.ones(2, 80, dtype=torch.bool)
    if side != "none":
        mask[1, :50] = False
        mask = mask if side == "left" else mask.flip(1)
    cache = model.new_cache(2, 130)
    model.decode(
        model.embed(ids[:, :80], attention_mask=None if side == "none" else mask, cache=cache),
        cache=cache,
    )
    held = set()
    for i in range(80, 130):
        logits = model.read(model.decode(model.embed(ids[:, i : i + 1], cache=cache), cache=cache))[
            :, -1
        ]
        held.add(
            max(
                block.keys_BGMK.shape[2] for block in cache.blocks if block.slots.before is not None
            )
        )
        for row in range(2):
            whole = torch.cat((ids[row, :80][mask[row]], ids[row, 80 : i + 1]))[None]
            if i % 7 == 0:
                assert (logits[row] - model(whole)[0, -1]).abs().max() < 1e-9
    assert min(held) <= 2 * (2 + ROLLBACK_TOKENS) < 80


@pytest.mark.parametrize("name", ["gpt2", "bloom", "llama", "mistral", "gemma2"])
@torch.no_grad()
def test_dropped_keys_are_never_read(name: str) -> None:
    model = model_of(name)
    ids = torch.randint(2, 32, (1, 92))
    wrong = torch.randint(2, 32, (1, 5))
    cache = model.new_cache(1, 96)
    at = 0
    for n, lost in ((60, 5), (1, 2), (1, 5), (20, 3), (8, 0)):
        read(model, ids[:, at : at + n], cache)
        for i in range(lost):
            read(model, wrong[:, i : i + 1], cache)
        cache.rollback(lost)
        at += n
    assert (
        read(model, ids[:, at - 1 : at], cache_of(model, ids[:, : at - 1]))
        - read_again(model, ids[:, :at], cache)
    ).abs().max() < 1e-9


def read(model: weft.Model, ids: torch.Tensor, cache: object) -> torch.Tensor:
    return model.read(model.decode(model.embed(ids, cache=cache), cache=cache))[:, -1]


def read_again(model: weft.Model, ids: torch.Tensor, cache: weft.nn.cache.KVCache) -> torch.Tensor:
    """The newest token once more."""
    cache.rollback(1)
    return read(model, ids[:, -1:], cache)


def cache_of(model: weft.Model, ids: torch.Tensor) -> object:
    cache = model.new_cache(1, 96)
    read(model, ids, cache)
    return cache


@torch.no_grad()
def test_rows_that_stay_in_place_are_not_copied() -> None:
    model = model_of("gpt2")
    cache = model.new_cache(3, 9)
    read(model, torch.randint(2, 32, (3, 5)), cache)
    before = [block.keys_BGMK for block in cache.blocks]
    cache.reorder(torch.tensor([0, 1]))
    assert all(
        block.keys_BGMK.data_ptr() == old.data_ptr() and len(block.keys_BGMK) == 2
        for block, old in zip(cache.blocks, before, strict=True)
    )


@torch.no_grad()
def test_beams_that_forgot_what_they_shared_are_copied_in_full() -> None:
    """Only the tokens in which two rows differ are copied, so what they share must be known
    exactly.
    """
    model = model_of("gpt2")
    ids = torch.randint(2, 32, (1, 6))
    cache = model.new_cache(1, 20)
    read(model, ids, cache)
    cache.multiply(3)
    cache.rollback(2)
    apart = torch.randint(2, 32, (3, 4))
    row = torch.tensor([2, 1, 1])
    read(model, apart, cache)
    cache.reorder(row)
    whole = torch.cat((ids[:, :4].expand(3, -1), apart[row], torch.full((3, 1), 7)), 1)
    assert (read(model, whole[:, -1:], cache) - model(whole)[:, -1]).abs().max() < 1e-9


OTHER = (RuntimeError("an invalid device function"), TypeError("new_cache() takes 1 argument"))


@pytest.mark.parametrize("error", OTHER, ids=lambda error: type(error).__name__)
def test_an_error_that_is_not_of_memory_is_raised_as_it_is(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("gpt2").eval()
    monkeypatch.setattr(model, "new_cache", failing(error))
    with pytest.raises(type(error), match=re.escape(str(error))):
        open_session(model, [[3, 4]], None, 5)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_cache_that_does_not_fit_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of("gpt2").eval()
    monkeypatch.setattr(model, "new_cache", failing(error))
    with pytest.raises(ValueError, match=r"max_new_tokens = 5: .* give fewer tokens"):
        open_session(model, [[3, 4]], None, 5)


def failing(error: Exception) -> Callable[[int, int], None]:
    def new_cache(batch: int, capacity: int) -> None:
        raise error

    return new_cache
