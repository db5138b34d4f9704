"""Speculative decoding: a small model guesses ahead, the large one reads all guesses at once and keeps those that it could have said
itself; what comes out is distributed as the large one's own (Leviathan et al. 2023, arXiv:2211.17192, algorithm 1)."""

import math
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many

import numpy as np
import torch
from torch import Tensor

from ..model.model import Model
from .decoding import GeneratedTokens, StopCondition, seen_tokens
from .sampling import GREEDY, Sampling, filter_logits, sample_from, uniform
from .session import NAN_LOGITS, DecodingSession, TokenRows, open_session, per_row_limits

GUESS, ACCEPT, MEND = 0, 1, 2  # streams of a row's random numbers


def speculative_generate(
    model: Model,
    inputs: TokenRows,
    *,
    draft_model: Model,
    max_new_tokens: int | Many[int],
    sampling: Sampling = GREEDY,
    eos_ids: Iterable[int] = (),
    decoder_inputs: TokenRows | None = None,
    seeds: Many[int] | None = None,
    until: StopCondition | None = None,
    draft_length: int = 4,
) -> list[GeneratedTokens]:
    """As `sample.generate`, row after row, with `draft_length` guesses at a time; greedy, it says the same tokens."""
    if model.spec.vocab_size != draft_model.spec.vocab_size:
        raise ValueError(
            f"the draft has a vocabulary of {draft_model.spec.vocab_size}, the model of {model.spec.vocab_size}; "
            "both must read the same tokens"
        )
    if (model.encoder is None) != (draft_model.encoder is None):
        raise ValueError(
            "the draft must be of the model's kind: both with an encoder, or both without"
        )
    generated, stops = [], frozenset(eos_ids)
    for i, (row, limit) in enumerate(
        zip(inputs, per_row_limits(max_new_tokens, len(inputs)), strict=True)
    ):
        tokens = GeneratedTokens([], [], False)
        first = None if decoder_inputs is None else [decoder_inputs[i]]
        for token, logprob in speculative_steps(
            model,
            draft_model,
            [row],
            first,
            limit,
            sampling,
            sampling.seed if seeds is None else seeds[i],
            draft_length,
        ):
            tokens.tokens.append(token)
            tokens.logprobs.append(logprob)
            if token in stops or (until is not None and until(i, token)):
                tokens = tokens._replace(finished=True)
                break
        generated.append(tokens)
    return generated


@torch.inference_mode()
def speculative_steps(
    model: Model,
    draft_model: Model,
    inputs: TokenRows,
    decoder_inputs: TokenRows | None,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int,
    draft_length: int,
) -> Iterator[tuple[int, float]]:
    """One row's tokens and their log-probabilities. Both models always have the newest token still to read."""
    large, (prompt,) = open_session(model, inputs, decoder_inputs, max_new_tokens)
    small, _ = open_session(draft_model, inputs, decoder_inputs, max_new_tokens)
    device = model.token_embedding_VD.device
    if len(prompt) > 1:
        for reading in (large, small):
            reading(torch.tensor([prompt[:-1]], device=device))
    unread, newest, step = [prompt[-1]], prompt[-1], 0
    seen_1V = (
        seen_tokens(torch.empty(1, model.spec.vocab_size, device=device), [prompt])
        if sampling.repetition_penalty != 1
        else None
    )
    while step < max_new_tokens:
        count = min(draft_length, max_new_tokens - step - 1)
        guess, q_LV = draft_tokens(small, unread, sampling, seen_1V, seed, step, count)
        logits_LV = large(torch.tensor([[newest, *guess]], device=device), last=count + 1)[0]
        good, token = accept_draft(
            filter_logits(
                logits_LV, sampling, None if seen_1V is None else seen_along_draft(seen_1V, guess)
            ),
            q_LV,
            guess,
            sampling,
            seed,
            step,
        )
        large.rollback(count - good)
        unread = [token] if good < count else [*guess[-1:], token]
        small.rollback(max(count - 1 - good, 0))
        accepted = [*guess[:good], token]
        logprobs = (
            logits_LV[: good + 1]
            .log_softmax(-1)
            .gather(1, torch.tensor(accepted, device=device)[:, None])[:, 0]
            .tolist()
        )
        if any(map(math.isnan, logprobs)):
            raise ValueError(NAN_LOGITS)
        if seen_1V is not None:
            seen_1V[0, accepted] = True
        newest, step = token, step + good + 1
        yield from zip(accepted, logprobs, strict=True)


def draft_tokens(
    small: DecodingSession,
    unread: list[int],
    sampling: Sampling,
    seen_1V: Tensor | None,
    seed: int,
    step: int,
    count: int,
) -> tuple[list[int], list[Tensor]]:
    """What the draft would say, and the distribution that each was drawn from."""
    guess: list[int] = []
    q_LV: list[Tensor] = []
    for i in range(count):
        logits_1V = small(
            torch.tensor([unread if not i else guess[-1:]], device=small.cache.next_B.device)
        )[:, -1]
        logits_1V = filter_logits(
            logits_1V, sampling, None if seen_1V is None else seen_along_draft(seen_1V, guess)[-1:]
        )
        guess.append(
            int(
                logits_1V.argmax()
                if sampling.temperature == 0
                else sample_from(logits_1V, uniform([seed], step + i, GUESS))
            )
        )
        q_LV.append(logits_1V[0].softmax(-1))
    return guess, q_LV


def seen_along_draft(seen_1V: Tensor, guess: list[int]) -> Tensor:
    """What has been seen before each guess, and after the last."""
    seen_LV = seen_1V.repeat(len(guess) + 1, 1)
    for i, token in enumerate(guess):
        seen_LV[i + 1 :, token] = True
    return seen_LV


def accept_draft(
    logits_LV: Tensor, q: list[Tensor], guess: list[int], sampling: Sampling, seed: int, step: int
) -> tuple[int, int]:
    """How many guesses are kept, and the token after them: a guess x stays with probability p(x) / q(x); the first that does not is drawn
    again from what p has more than q."""
    if sampling.temperature == 0:
        best = logits_LV.argmax(-1).tolist()
        good = next((i for i, token in enumerate(guess) if token != best[i]), len(guess))
        return good, best[good]
    p_LV, q_LV = logits_LV.softmax(-1), torch.stack([*q, torch.zeros_like(logits_LV[0])])
    at_L1 = torch.tensor(guess, dtype=torch.long, device=p_LV.device)[:, None]
    u_L = uniform([seed] * len(guess), step + np.arange(len(guess)), ACCEPT).to(p_LV.device)
    kept_L = u_L * q_LV[:-1].gather(1, at_L1)[:, 0] < p_LV[:-1].gather(1, at_L1)[:, 0]
    good = int(kept_L.long().cumprod(0).sum())
    rest_1V = (p_LV[good] - q_LV[good]).clamp(min=0).log()[None]
    return good, int(sample_from(rest_1V, uniform([seed], step + good, MEND)))
