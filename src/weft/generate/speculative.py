"""Speculative decoding: a draft model proposes tokens, the target model scores all of them in one
forward pass and accepts a prefix. The accepted tokens are distributed as the target model's own
(Leviathan et al. 2023, arXiv:2211.17192, algorithm 1).
"""

import math
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Many

import numpy as np
import torch
from torch import Tensor

from ..nn.model import Model
from .decoding import GeneratedTokens, StopCondition, seen_tokens
from .sampling import GREEDY, Sampling, filter_logits, sample_from, uniform
from .session import NAN_LOGITS, DecodingSession, TokenRows, open_session, per_row_limits

# streams of random numbers of a row
DRAFT = 0
ACCEPT = 1
RESAMPLE = 2


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
    """Generate as `decoding.generate` does, one row at a time, with `draft_length` proposed tokens
    per forward pass; greedy decoding gives the same tokens.
    """
    if model.spec.vocab_size != draft_model.spec.vocab_size:
        raise ValueError(
            f"the draft model has {draft_model.spec.vocab_size} tokens, the model "
            f"{model.spec.vocab_size}; "
            "give a draft with the same tokenizer"
        )
    if (model.encoder is None) != (draft_model.encoder is None):
        raise ValueError(
            "the draft and the model must both have an encoder, or both have none; give a draft "
            "with the same structure"
        )
    generated = []
    stops = frozenset(eos_ids)
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
    """Yield the tokens of one row and their log-probabilities. Neither cache holds the last token
    yet.
    """
    target, (prompt,) = open_session(model, inputs, decoder_inputs, max_new_tokens)
    draft, _ = open_session(draft_model, inputs, decoder_inputs, max_new_tokens)
    device = model.token_embedding_VD.device
    if len(prompt) > 1:
        for session in (target, draft):
            session(torch.tensor([prompt[:-1]], device=device))
    pending = [prompt[-1]]
    last_token = prompt[-1]
    step = 0
    seen_1V = (
        seen_tokens(torch.empty(1, model.spec.vocab_size, device=device), [prompt])
        if sampling.repetition_penalty != 1
        else None
    )
    while step < max_new_tokens:
        count = min(draft_length, max_new_tokens - step - 1)
        proposed, q_LV = draft_tokens(draft, pending, sampling, seen_1V, seed, step, count)
        logits_LV = target(torch.tensor([[last_token, *proposed]], device=device), last=count + 1)[
            0
        ]
        accepted_count, token = accept_draft(
            filter_logits(
                logits_LV,
                sampling,
                None if seen_1V is None else seen_along_draft(seen_1V, proposed),
            ),
            q_LV,
            proposed,
            sampling,
            seed,
            step,
        )
        target.rollback(count - accepted_count)
        pending = [token] if accepted_count < count else [*proposed[-1:], token]
        draft.rollback(max(count - 1 - accepted_count, 0))
        accepted = [*proposed[:accepted_count], token]
        logprobs = (
            logits_LV[: accepted_count + 1]
            .log_softmax(-1)
            .gather(1, torch.tensor(accepted, device=device)[:, None])[:, 0]
            .tolist()
        )
        if any(map(math.isnan, logprobs)):
            raise ValueError(NAN_LOGITS)
        if seen_1V is not None:
            seen_1V[0, accepted] = True
        last_token = token
        step = step + accepted_count + 1
        yield from zip(accepted, logprobs, strict=True)


def draft_tokens(
    draft: DecodingSession,
    pending: list[int],
    sampling: Sampling,
    seen_1V: Tensor | None,
    seed: int,
    step: int,
    count: int,
) -> tuple[list[int], list[Tensor]]:
    """Return the tokens proposed by the draft model and the distribution of each."""
    proposed: list[int] = []
    q_LV: list[Tensor] = []
    for i in range(count):
        logits_1V = draft(
            torch.tensor([pending if not i else proposed[-1:]], device=draft.cache.next_B.device)
        )[:, -1]
        logits_1V = filter_logits(
            logits_1V,
            sampling,
            None if seen_1V is None else seen_along_draft(seen_1V, proposed)[-1:],
        )
        proposed.append(
            int(
                logits_1V.argmax()
                if sampling.temperature == 0
                else sample_from(logits_1V, uniform([seed], step + i, DRAFT))
            )
        )
        q_LV.append(logits_1V[0].softmax(-1))
    return proposed, q_LV


def seen_along_draft(seen_1V: Tensor, proposed: list[int]) -> Tensor:
    """Return the tokens seen before each proposed token, and after the last."""
    seen_LV = seen_1V.repeat(len(proposed) + 1, 1)
    for i, token in enumerate(proposed):
        seen_LV[i + 1 :, token] = True
    return seen_LV


def accept_draft(
    logits_LV: Tensor,
    q: list[Tensor],
    proposed: list[int],
    sampling: Sampling,
    seed: int,
    step: int,
) -> tuple[int, int]:
    """Return how many proposed tokens are accepted, and the token after them. A token x is accepted
    with probability min(1, p(x) / q(x)); the first rejected one is sampled again from max(0, p -
    q), normalised.
    """
    if sampling.temperature == 0:
        best = logits_LV.argmax(-1).tolist()
        accepted_count = next(
            (i for i, token in enumerate(proposed) if token != best[i]), len(proposed)
        )
        return accepted_count, best[accepted_count]
    p_LV = logits_LV.softmax(-1)
    q_LV = torch.stack([*q, torch.zeros_like(logits_LV[0])])
    proposed_L1 = torch.tensor(proposed, dtype=torch.long, device=p_LV.device)[:, None]
    u_L = uniform([seed] * len(proposed), step + np.arange(len(proposed)), ACCEPT).to(p_LV.device)
    accepted_L = (
        u_L * q_LV[:-1].gather(1, proposed_L1)[:, 0] < p_LV[:-1].gather(1, proposed_L1)[:, 0]
    )
    accepted_count = int(accepted_L.long().cumprod(0).sum())
    residual_1V = (p_LV[accepted_count] - q_LV[accepted_count]).clamp(min=0).log()[None]
    return accepted_count, int(
        sample_from(residual_1V, uniform([seed], step + accepted_count, RESAMPLE))
    )
