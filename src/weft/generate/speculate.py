"""Speculative decoding: a small model guesses ahead, the large one reads all guesses at once and keeps those that it could have said
itself; what comes out is distributed as the large one's own (Leviathan et al. 2023, arXiv:2211.17192, algorithm 1)."""
import math
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many

import numpy as np
import torch
from torch import Tensor

from ..count import vocabulary
from ..model.model import Model
from .choose import Sampling, draw, greedy, narrow, uniform
from .reading import DIVERGED, Ids, Reading, each, open_rows
from .sample import Said, Until, mark

GUESS, ACCEPT, MEND = 0, 1, 2              # streams of a row's random numbers


def speculate(model: Model, inputs: Ids, *, draft: Model, most: int | Many[int], how: Sampling = greedy, ends: Iterable[int] = (),
              starts: Ids | None = None, seeds: Many[int] | None = None, until: Until | None = None, ahead: int = 4) -> list[Said]:
    """As `sample.generate`, row after row, with `ahead` guesses at a time; greedy, it says the same tokens."""
    if vocabulary(model.spec) != vocabulary(draft.spec):
        raise ValueError(f"the draft has a vocabulary of {vocabulary(draft.spec)}, the model of {vocabulary(model.spec)}; "
                         "both must read the same tokens")
    if (model.encoder is None) != (draft.encoder is None):
        raise ValueError("the draft must be of the model's kind: both with an encoder, or both without")
    found, stops = [], frozenset(ends)
    for i, (row, limit) in enumerate(zip(inputs, each(most, len(inputs)), strict=True)):
        said = Said([], [], False)
        first = None if starts is None else [starts[i]]
        for token, logprob in speak(model, draft, [row], first, limit, how, how.seed if seeds is None else seeds[i], ahead):
            said.tokens.append(token)
            said.logprobs.append(logprob)
            if token in stops or (until is not None and until(i, token)):
                said = said._replace(ended=True)
                break
        found.append(said)
    return found


@torch.inference_mode()
def speak(model: Model, draft: Model, inputs: Ids, starts: Ids | None, most: int, how: Sampling, seed: int,
          ahead: int) -> Iterator[tuple[int, float]]:
    """One row's tokens and their log-probabilities. Both models always have the newest token still to read."""
    large, (prompt,) = open_rows(model, inputs, starts, most)
    small, _ = open_rows(draft, inputs, starts, most)
    device = model.table_VD.device
    if len(prompt) > 1:
        for reading in (large, small):
            reading(torch.tensor([prompt[:-1]], device=device))
    unread, newest, step = [prompt[-1]], prompt[-1], 0
    seen_1V = mark(torch.empty(1, vocabulary(model.spec), device=device), [prompt]) if how.repetition != 1 else None
    while step < most:
        count = min(ahead, most - step - 1)
        guess, q_LV = guesses(small, unread, how, seen_1V, seed, step, count)
        logits_LV = large(torch.tensor([[newest, *guess]], device=device), last=count + 1)[0]
        good, token = judge(narrow(logits_LV, how, None if seen_1V is None else along(seen_1V, guess)), q_LV, guess, how, seed, step)
        large.forget(count - good)
        unread = [token] if good < count else [*guess[-1:], token]
        small.forget(max(count - 1 - good, 0))
        said = [*guess[:good], token]
        logprobs = logits_LV[:good + 1].log_softmax(-1).gather(1, torch.tensor(said, device=device)[:, None])[:, 0].tolist()
        if any(map(math.isnan, logprobs)):
            raise ValueError(DIVERGED)
        if seen_1V is not None:
            seen_1V[0, said] = True
        newest, step = token, step + good + 1
        yield from zip(said, logprobs, strict=True)


def guesses(small: Reading, unread: list[int], how: Sampling, seen_1V: Tensor | None, seed: int, step: int,
            count: int) -> tuple[list[int], list[Tensor]]:
    """What the draft would say, and the distribution that each was drawn from."""
    guess: list[int] = []
    q_LV: list[Tensor] = []
    for i in range(count):
        logits_1V = small(torch.tensor([unread if not i else guess[-1:]], device=small.cache.next_B.device))[:, -1]
        logits_1V = narrow(logits_1V, how, None if seen_1V is None else along(seen_1V, guess)[-1:])
        guess.append(int(logits_1V.argmax() if how.temperature == 0 else draw(logits_1V, uniform([seed], step + i, GUESS))))
        q_LV.append(logits_1V[0].softmax(-1))
    return guess, q_LV


def along(seen_1V: Tensor, guess: list[int]) -> Tensor:
    """What has been seen before each guess, and after the last."""
    seen_LV = seen_1V.repeat(len(guess) + 1, 1)
    for i, token in enumerate(guess):
        seen_LV[i + 1:, token] = True
    return seen_LV


def judge(logits_LV: Tensor, q: list[Tensor], guess: list[int], how: Sampling, seed: int, step: int) -> tuple[int, int]:
    """How many guesses are kept, and the token after them: a guess x stays with probability p(x) / q(x); the first that does not is drawn
    again from what p has more than q."""
    if how.temperature == 0:
        best = logits_LV.argmax(-1).tolist()
        good = next((i for i, token in enumerate(guess) if token != best[i]), len(guess))
        return good, best[good]
    p_LV, q_LV = logits_LV.softmax(-1), torch.stack([*q, torch.zeros_like(logits_LV[0])])
    at_L1 = torch.tensor(guess, dtype=torch.long, device=p_LV.device)[:, None]
    u_L = uniform([seed] * len(guess), step + np.arange(len(guess)), ACCEPT).to(p_LV.device)
    kept_L = u_L * q_LV[:-1].gather(1, at_L1)[:, 0] < p_LV[:-1].gather(1, at_L1)[:, 0]
    good = int(kept_L.long().cumprod(0).sum())
    rest_1V = (p_LV[good] - q_LV[good]).clamp(min=0).log()[None]
    return good, int(draw(rest_1V, uniform([seed], step + good, MEND)))
