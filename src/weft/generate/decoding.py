"""Autoregressive decoding, greedy or by sampling."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Many
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..nn.model import Model
from .sampling import (
    GREEDY,
    Sampling,
    apply_repetition_penalty,
    argmax,
    filter_logits,
    sample_from,
    uniform,
)
from .session import NAN_LOGITS, TokenRows, per_row_limits, prefill

StopCondition = Callable[[int, int], bool]  # (row, its last token) -> whether the row is finished


class GeneratedTokens(NamedTuple):
    tokens: list[int]  # without the prompt; with the token that ended it
    logprobs: list[float]  # of each, by the model itself: before temperature and the like
    finished: bool  # by an end token or `until`, not by `max_new_tokens`
    score: float = 0.0  # beam search: what hypotheses are compared by


class DecodingStep(NamedTuple):
    """The last token of every row that is still in the batch."""

    rows: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    logprobs: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    finished: "np.ndarray[tuple[int], np.dtype[np.bool_]]"


@torch.inference_mode()
def decode_steps(
    model: Model,
    inputs: TokenRows,
    max_new_tokens: int | Many[int],
    sampling: Sampling,
    eos_ids: Iterable[int],
    decoder_inputs: TokenRows | None,
    seeds: Many[int] | None,
    until: StopCondition | None,
) -> Iterator[DecodingStep]:
    """Decode step by step. Tokens are copied from the device once per step, for all rows together.
    Finished rows are dropped once they are a quarter of the batch, since reordering the cache costs
    as much as a few decoding steps.
    """
    limit = np.array(per_row_limits(max_new_tokens, len(inputs)))
    reading, logits_BV, prompts = prefill(model, inputs, decoder_inputs, int(limit.max()))
    seed = np.array([sampling.seed] * len(prompts) if seeds is None else seeds, object)
    if len(seed) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts, but {len(seed)} seeds; give one seed per prompt")
    row = np.arange(len(prompts))
    done = np.zeros(len(prompts), bool)
    end = np.array(sorted(set(eos_ids)), np.int64)
    seen_BV = seen_tokens(logits_BV, prompts) if sampling.repetition_penalty != 1 else None
    for step in range(limit.max()):
        token_B = next_token(logits_BV, sampling, seen_BV, list(seed[row]), step)
        chosen_B = logits_BV.log_softmax(-1).gather(1, token_B[:, None])[:, 0]
        tokens, logprobs = torch.stack((token_B.double(), chosen_B.double())).cpu().numpy()
        if np.isnan(logprobs).any():
            raise ValueError(NAN_LOGITS)
        tokens = tokens.astype(np.int64)
        now = (tokens[:, None] == end).any(1)
        if until is not None:
            now = np.array(
                [
                    not over and (is_end or until(int(r), int(t)))
                    for over, is_end, r, t in zip(done, now, row, tokens, strict=True)
                ],
                bool,
            )
        here = ~done
        yield DecodingStep(row[here], tokens[here], logprobs[here], now[here])
        done = done | now | (limit[row] == step + 1)
        if done.all():
            return
        if seen_BV is not None:
            seen_BV.scatter_(1, token_B[:, None], True)
        if 4 * done.sum() >= len(done):
            stay = np.flatnonzero(~done)
            stay_B = torch.from_numpy(stay).to(token_B.device)
            reading.reorder(stay_B)
            token_B = token_B[stay_B]
            row = row[stay]
            done = done[stay]
            seen_BV = None if seen_BV is None else seen_BV[stay_B]
        logits_BV = reading(token_B[:, None])[:, -1]


def seen_tokens(logits_BV: Tensor, prompts: TokenRows) -> Tensor:
    """Return which tokens each row has seen."""
    at = [(i, token) for i, prompt in enumerate(prompts) for token in prompt]
    seen_BV = torch.zeros_like(logits_BV, dtype=torch.bool)
    seen_BV[tuple(torch.tensor(at, device=logits_BV.device).T)] = True
    return seen_BV


def next_token(
    logits_BV: Tensor, sampling: Sampling, seen_BV: Tensor | None, seeds: Many[int], step: int
) -> Tensor:
    if sampling.temperature == 0:
        return argmax(
            logits_BV
            if seen_BV is None
            else apply_repetition_penalty(logits_BV, seen_BV, sampling.repetition_penalty)
        )
    return sample_from(filter_logits(logits_BV, sampling, seen_BV), uniform(seeds, step))


def stream(
    model: Model,
    inputs: TokenRows,
    *,
    max_new_tokens: int | Many[int],
    sampling: Sampling = GREEDY,
    eos_ids: Iterable[int] = (),
    decoder_inputs: TokenRows | None = None,
    seeds: Many[int] | None = None,
    until: StopCondition | None = None,
) -> Iterator[tuple[int, int, float, bool]]:
    """Yield (row, token, log-probability, whether the row is finished) as they are generated."""
    for step in decode_steps(
        model, inputs, max_new_tokens, sampling, eos_ids, decoder_inputs, seeds, until
    ):
        yield from zip(*(part.tolist() for part in step), strict=True)


def generate(
    model: Model,
    inputs: TokenRows,
    *,
    max_new_tokens: int | Many[int],
    sampling: Sampling = GREEDY,
    eos_ids: Iterable[int] = (),
    decoder_inputs: TokenRows | None = None,
    seeds: Many[int] | None = None,
    until: StopCondition | None = None,
) -> list[GeneratedTokens]:
    """Generate tokens from each prompt.

    A decoder continues `inputs`; an encoder-decoder encodes them and starts to decode with
    `decoder_inputs` (default: the start token of its spec). Rows may have any lengths.
    `max_new_tokens` is one number, or one per row; `seeds` are one per row (default: that of
    `sampling`).
    """
    if not len(inputs):
        return []
    tokens: list[list[int]] = [[] for _ in inputs]
    logprobs: list[list[float]] = [[] for _ in inputs]
    ended = [False] * len(inputs)
    for step in decode_steps(
        model, inputs, max_new_tokens, sampling, eos_ids, decoder_inputs, seeds, until
    ):
        for row, token, logprob, finished in zip(*(part.tolist() for part in step), strict=True):
            tokens[row].append(token)
            logprobs[row].append(logprob)
            ended[row] = finished
    return [GeneratedTokens(*row) for row in zip(tokens, logprobs, ended, strict=True)]
