"""Beam search (Wu et al. 2016, arXiv:1609.08144, section 7; Vaswani et al. 2017, arXiv:1706.03762,
section 6.1).
"""

from collections.abc import Iterable
from collections.abc import Sequence as Many
from typing import NamedTuple

import torch
from torch import Tensor

from ..nn.model import Model
from .decoding import GeneratedTokens
from .sampling import chunked_topk
from .session import NAN_LOGITS, TokenRows, batch_by_length, max_positions, per_row_limits, prefill

# Tokens that an answer may be longer than its input.
EXTRA_TOKENS = 50


def length_penalty(length: Tensor, length_penalty: float) -> Tensor:
    """Return ((5 + length) / 6)^alpha, where the length counts the generated tokens without the
    prompt.
    """
    return ((5 + length.double()) / 6) ** length_penalty


class FinishedBeams(NamedTuple):
    """The best finished hypotheses, best first: N for each of B sentences. An empty slot has the
    score -inf.
    """

    score_BN: Tensor
    token_BNL: Tensor
    logprob_BNL: Tensor
    length_BN: Tensor
    ended_BN: Tensor

    def add(
        self, score_BN: Tensor, token_BNL: Tensor, logprob_BNL: Tensor, ended_BN: Tensor
    ) -> "FinishedBeams":
        """Merge new hypotheses of `token_BNL.shape[2]` tokens and keep the best."""
        L = self.token_BNL.shape[2]
        longest = token_BNL.shape[2]
        wide = [
            torch.nn.functional.pad(t, (0, longest - L)) for t in (self.token_BNL, self.logprob_BNL)
        ]
        score, at_BN = torch.cat((self.score_BN, score_BN), 1).topk(self.score_BN.shape[1])
        at_BNL = at_BN[..., None].expand(-1, -1, longest)
        length_BN = torch.full_like(ended_BN, longest, dtype=torch.long)
        return FinishedBeams(
            score,
            torch.cat((wide[0], token_BNL), 1).gather(1, at_BNL),
            torch.cat((wide[1], logprob_BNL), 1).gather(1, at_BNL),
            torch.cat((self.length_BN, length_BN), 1).gather(1, at_BN),
            torch.cat((self.ended_BN, ended_BN), 1).gather(1, at_BN),
        )

    def sentence(self, i: int, num_return: int) -> list[GeneratedTokens]:
        rows = zip(*(part[i, :num_return].tolist() for part in self), strict=True)
        return [
            GeneratedTokens(tokens[:n], logprobs[:n], ended, score)
            for score, tokens, logprobs, n, ended in rows
            if score > float("-inf")
        ]


class ActiveBeams(NamedTuple):
    """Unfinished hypotheses, N for each of B sentences, best first."""

    sum_BN: Tensor  # log P
    token_BNL: Tensor
    logprob_BNL: Tensor


def empty_beams(batch: int, num_beams: int, like: Tensor) -> tuple[ActiveBeams, FinishedBeams]:
    """Return one empty hypothesis per sentence, and no finished one."""
    none = like.new_zeros(batch, num_beams, 0)
    count = torch.zeros(batch, num_beams, dtype=torch.long, device=like.device)
    return (
        ActiveBeams(like.new_zeros(batch, 1), none[:, :1].long(), none[:, :1]),
        FinishedBeams(
            like.new_full((batch, num_beams), float("-inf")), none.long(), none, count, count.bool()
        ),
    )


@torch.inference_mode()
def beam_search(
    model: Model,
    inputs: TokenRows,
    *,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    max_new_tokens: int | Many[int] | None = None,
    num_return: int = 1,
    eos_ids: Iterable[int] = (),
    decoder_inputs: TokenRows | None = None,
) -> list[list[GeneratedTokens]]:
    """Generate with beam search: the `num_return` best answers to each input, best first, by log P
    / penalty.

    Each has at most `max_new_tokens` tokens (one number, or one per row), by default 50 more than
    its input where the positions allow it. An answer without an end token by then is returned
    truncated. `inputs` and `decoder_inputs` are as in `decoding.generate`.
    """
    if not 1 <= num_return <= num_beams:
        raise ValueError(
            f"best = {num_return} of beams = {num_beams}: give a number from 1 to the number of "
            f"beams"
        )
    starts = inputs if model.encoder is None else decoder_inputs or [[0]] * len(inputs)
    lengths = [len(row) for row in starts]
    count = max_positions(model)
    device = model.token_embedding_VD.device
    end = torch.tensor(sorted(set(eos_ids)), dtype=torch.long, device=device)
    if max_new_tokens is not None:
        limits = per_row_limits(max_new_tokens, len(inputs))
    else:
        limits = [len(row) + EXTRA_TOKENS for row in inputs]
        if count is not None:
            limits = [max(min(n, count - m), 1) for n, m in zip(limits, lengths, strict=True)]
    answers: list[list[GeneratedTokens]] = [[] for _ in inputs]
    for group in batch_by_length(lengths, limits, len(inputs), count):
        generated_group = search_batch(
            model,
            [inputs[i] for i in group],
            decoder_inputs and [decoder_inputs[i] for i in group],
            [limits[i] for i in group],
            num_beams,
            length_penalty,
            num_return,
            end,
        )
        for i, generated in zip(group, generated_group, strict=True):
            answers[i] = generated
    return answers


def search_batch(
    model: Model,
    inputs: TokenRows,
    decoder_inputs: TokenRows | None,
    limits: list[int],
    num_beams: int,
    length_penalty: float,
    num_return: int,
    end: Tensor,
) -> list[list[GeneratedTokens]]:
    reading, logits_BV, _ = prefill(model, inputs, decoder_inputs, max(limits))
    device = logits_BV.device
    limit_B = torch.tensor(limits, device=device)
    sentence_B = torch.arange(len(inputs), device=device)
    answers: list[list[GeneratedTokens]] = [[] for _ in inputs]
    living, finished = empty_beams(len(inputs), num_beams, logits_BV)
    for step in range(1, max(limits) + 1):
        living, finished, parent_BN = expand(
            living, finished, logits_BV, end, limit_B, num_beams, length_penalty
        )
        if living.sum_BN.isnan().any():
            raise ValueError(NAN_LOGITS)
        done_B = is_finished(
            living.sum_BN[:, 0], finished.score_BN[:, num_return - 1], limit_B, step, length_penalty
        )
        for i in done_B.nonzero()[:, 0].tolist():
            answers[int(sentence_B[i])] = finished.sentence(i, num_return)
        if done_B.all():
            break
        stay_B = (~done_B).nonzero()[:, 0]
        if len(stay_B) < len(done_B):
            living = ActiveBeams(*(t[stay_B] for t in living))
            finished = FinishedBeams(*(t[stay_B] for t in finished))
            limit_B = limit_B[stay_B]
            sentence_B = sentence_B[stay_B]
        if step == 1:
            if len(stay_B) < len(done_B):
                reading.reorder(stay_B)
            reading.repeat_rows(num_beams)
        else:
            reading.reorder((stay_B[:, None] * num_beams + parent_BN[stay_B]).flatten())
        logits_BV = reading(living.token_BNL[..., -1].reshape(-1, 1))[:, -1]
    return answers


def expand(
    living: ActiveBeams,
    finished: FinishedBeams,
    logits_BV: Tensor,
    end: Tensor,
    limit_B: Tensor,
    num_beams: int,
    alpha: float,
) -> tuple[ActiveBeams, FinishedBeams, Tensor]:
    """Extend every hypothesis by every token. Among the best `num_beams`, those with an end token
    are finished (all of them at the length limit); the best of the others continue. Enough
    candidates remain, since each hypothesis ends with at most as many tokens as there are end
    tokens.
    """
    B, N = living.sum_BN.shape
    count = num_beams * (1 + max(len(end), 1))
    step = living.token_BNL.shape[2] + 1
    # Of each hypothesis, the tokens that could be among the best.
    logit_BV, token_BV = chunked_topk(logits_BV, min(count, logits_BV.shape[1]))
    each_BV = logit_BV - logits_BV.logsumexp(-1, keepdim=True)
    tokens_per_beam = each_BV.shape[1]
    sums_BV = (living.sum_BN.view(-1, 1) + each_BV).view(B, -1)
    sum_BV, at_BV = sums_BV.topk(min(count, N * tokens_per_beam))
    parent_BV = at_BV // tokens_per_beam
    token_BV = token_BV.view(B, -1).gather(1, at_BV)
    each_BV = each_BV.view(B, -1).gather(1, at_BV)
    before = parent_BV[..., None].expand(-1, -1, step - 1)
    token_BNL = torch.cat((living.token_BNL.gather(1, before), token_BV[..., None]), 2)
    logprob_BNL = torch.cat((living.logprob_BNL.gather(1, before), each_BV[..., None]), 2)
    ended_BV = torch.isin(token_BV, end)
    first_BV = torch.arange(at_BV.shape[1], device=at_BV.device)[None] < num_beams
    stops_BV = (ended_BV | (limit_B[:, None] <= step)) & first_BV & (sum_BV > float("-inf"))
    if stops_BV.any():
        score_BV = (sum_BV / length_penalty(torch.tensor(step), alpha)).masked_fill(
            ~stops_BV, float("-inf")
        )
        finished = finished.add(score_BV, token_BNL, logprob_BNL, ended_BV)
    # Those without an end, still best first.
    go_BN = ended_BV.long().argsort(dim=1, stable=True)[:, :num_beams]
    # At first, where the vocabulary is smaller than the beam.
    short = num_beams - go_BN.shape[1]
    sum_BN = sum_BV.masked_fill(ended_BV, float("-inf")).gather(1, go_BN)
    go_BNL = go_BN[..., None].expand(-1, -1, step)
    living = ActiveBeams(sum_BN, token_BNL.gather(1, go_BNL), logprob_BNL.gather(1, go_BNL))
    parent_BN = parent_BV.gather(1, go_BN)
    if short > 0:
        living = ActiveBeams(
            torch.nn.functional.pad(sum_BN, (0, short), value=float("-inf")),
            *(torch.nn.functional.pad(t, (0, 0, 0, short)) for t in living[1:]),
        )
        parent_BN = torch.nn.functional.pad(parent_BN, (0, short))
    return living, finished, parent_BN


def is_finished(sum_B: Tensor, worst_B: Tensor, limit_B: Tensor, step: int, alpha: float) -> Tensor:
    """Return whether no active hypothesis can still beat the worst one to be returned: log P only
    falls, and no longer answer has a penalty beyond that of the limit (with a negative alpha: of
    the next step).
    """
    longest_B = limit_B if alpha > 0 else torch.full_like(limit_B, step + 1)
    return (sum_B / length_penalty(longest_B, alpha) <= worst_B) | (limit_B <= step)
