"""Sampling of the next token: pure functions of the logits of a batch, (B, V)."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from dataclasses import fields
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..spec import PositiveFloat, PositiveFraction, PositiveInt
from ..support.registry import TypeInWords, choice
from ..support.synonyms import suggest

F = TypeVar("F", bound=Callable[..., Any])
# Below it, logits overflow; the most likely token has all the probability long before.
MIN_TEMPERATURE = 1e-30
Natural = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Part = Annotated[float, Field(ge=0, le=1)]


@choice
class Sampling:
    """How a token is sampled; temperature 0 is greedy decoding. A row with the same seed gives the
    same answer, in any batch.
    """

    temperature: Natural = 1.0
    top_k: PositiveInt | None = None  # sample from the k most likely tokens
    top_p: PositiveFraction | None = None  # sample from the smallest set with this probability
    # Sample from tokens at least this fraction as likely as the most likely one.
    min_p: Part | None = None
    repetition_penalty: PositiveFloat = 1.0  # above 1: tokens that occurred before are less likely
    seed: int = 0


GREEDY = Sampling(temperature=0.0)
FIELDS = tuple(f.name for f in fields(Sampling))
SAMPLE = {"top_k", "top_p", "min_p", "seed"}  # any of these turns sampling on


def sampling_from(options: Mapping[str, Any], sampling: Sampling | None = None) -> Sampling:
    """Return how tokens are sampled: the options of `weft generate`, or the keywords of a call.

    Args:
        options: fields of `Sampling` by name, such as temperature=0.8; None counts as not given.
            Without any, decoding is greedy; without a temperature, it is 1 if another option turns
            sampling on.
        sampling: all of them as one value, instead of `options`.

    Raises:
        ValueError: for an unknown option, a value out of its range, or both kinds at once.
    """
    fields_given = {name: option for name, option in options.items() if option is not None}
    for name in fields_given.keys() - set(FIELDS):
        raise ValueError(f"generation has no option {name!r}; {suggest(name, FIELDS)}")
    if sampling is None:
        temperature = 1.0 if SAMPLE & fields_given.keys() else 0.0
        return Sampling(**{"temperature": temperature} | fields_given)
    if fields_given:
        names = " and ".join(fields_given)
        raise ValueError(f"give {names} inside of sampling=weft.Sampling(…), or alone")
    return sampling


def shows_sampling(method: F) -> F:
    """Show the fields of `Sampling` in the signature of a function that takes them as keywords, for
    help() and completion.
    """
    described = signature(method)
    other = [p for p in described.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
    keywords = [
        p.replace(
            default=None,
            annotation=TypeInWords(f"{p.annotation}".removesuffix(" | None") + " | None"),
        )
        for p in signature(Sampling).parameters.values()
    ]
    method.__signature__ = described.replace(parameters=[*other, *keywords])  # type: ignore[attr-defined]
    return method


def apply_repetition_penalty(logits_BV: Tensor, seen_BV: Tensor, penalty: float) -> Tensor:
    """Make tokens that were seen before less likely (Keskar et al. 2019, arXiv:1909.05858, section
    4.1); a negative logit is multiplied, since dividing would raise it.
    """
    return torch.where(
        seen_BV, torch.where(logits_BV < 0, logits_BV * penalty, logits_BV / penalty), logits_BV
    )


def top_k(logits_BV: Tensor, count: int) -> Tensor:
    """Keep the `count` most likely tokens, and those equal to the last of them (Fan et al. 2018,
    arXiv:1805.04833, section 5.1).
    """
    least_B1 = logits_BV.topk(min(count, logits_BV.shape[-1])).values[:, -1:]
    return logits_BV.masked_fill(logits_BV < least_B1, float("-inf"))


def top_p(logits_BV: Tensor, share: float) -> Tensor:
    """Keep the smallest set of tokens whose probabilities sum to `share` (Holtzman et al. 2020,
    arXiv:1904.09751, section 3.1).
    """
    sorted_BV, index_BV = logits_BV.sort(descending=True, stable=True)
    part_BV = sorted_BV.softmax(-1)
    # Those before hold enough already: never true of the first.
    beyond_BV = part_BV.cumsum(-1) - part_BV >= share
    removed_BV = torch.zeros_like(beyond_BV).scatter(1, index_BV, beyond_BV)
    return logits_BV.masked_fill(removed_BV, float("-inf"))


def min_p(logits_BV: Tensor, share: float) -> Tensor:
    """Keep tokens at least `share` times as likely as the most likely one (Nguyen et al. 2024,
    arXiv:2407.01082).
    """
    part_BV = logits_BV.softmax(-1)
    return logits_BV.masked_fill(part_BV < share * part_BV.amax(-1, keepdim=True), float("-inf"))


def filter_logits(logits_BV: Tensor, sampling: Sampling, seen_BV: Tensor | None = None) -> Tensor:
    """Return the logits that a token is sampled from; `seen_BV` marks the tokens of the prompt and
    those generated since.
    """
    if seen_BV is not None:
        logits_BV = apply_repetition_penalty(logits_BV, seen_BV, sampling.repetition_penalty)
    if sampling.temperature not in (0, 1):
        logits_BV = logits_BV / max(sampling.temperature, MIN_TEMPERATURE)
    if sampling.top_k is not None:
        logits_BV = top_k(logits_BV, sampling.top_k)
    if sampling.top_p is not None and sampling.top_p < 1:
        logits_BV = top_p(logits_BV, sampling.top_p)
    if sampling.min_p:
        logits_BV = min_p(logits_BV, sampling.min_p)
    return logits_BV


def argmax(logits_BV: Tensor) -> Tensor:
    """Return the argmax; on the CPU with numpy, which is several times faster."""
    if logits_BV.device.type == "cpu":
        return torch.from_numpy(logits_BV.numpy().argmax(-1))
    return logits_BV.argmax(-1)


def chunked_topk(logits_BV: Tensor, count: int, chunk: int = 64) -> tuple[Tensor, Tensor]:
    """Return the top k of a long row: its `count` largest numbers lie in the `count` chunks with
    the largest maxima.
    """
    B, V = logits_BV.shape
    if 4 * chunk * count >= V:
        top = logits_BV.topk(count)
        return top.values, top.indices
    if V % chunk:
        logits_BV = torch.nn.functional.pad(logits_BV, (0, -V % chunk), value=float("-inf"))
    parts_BVV = logits_BV.view(B, -1, chunk)
    part_BV = parts_BVV.amax(-1).topk(count).indices
    value_BV, at_BV = (
        parts_BVV.gather(1, part_BV[..., None].expand(-1, -1, chunk)).flatten(1).topk(count)
    )
    return value_BV, part_BV.gather(1, at_BV // chunk) * chunk + at_BV % chunk


def splitmix64(
    z: "np.ndarray[tuple[int], np.dtype[np.uint64]]",
) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Hash integers: every input bit affects every output bit (Steele et al. 2014, SplitMix,
    doi:10.1145/2660193.2660195).
    """
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(
    seeds: Many[int], step: "int | np.ndarray[tuple[int], np.dtype[np.int64]]", stream: int = 0
) -> Tensor:
    """Return one random number in [0, 1) per row, a function of its seed, step and stream alone."""
    seed_B = np.array([seed & (1 << 64) - 1 for seed in seeds], np.uint64)
    with np.errstate(over="ignore"):
        mixed_B = splitmix64(
            splitmix64(splitmix64(seed_B) ^ np.asarray(step, np.uint64)) ^ np.uint64(stream)
        )
    return torch.from_numpy((mixed_B >> np.uint64(11)) * 2.0**-53)


def sample_from(logits_BV: Tensor, u_B: Tensor) -> Tensor:
    """Sample by inverse transform: the token at which the cumulative probability of a row reaches
    its random number.
    """
    sum_BV = logits_BV.softmax(-1).double().cumsum(-1)
    at_B1 = torch.searchsorted(sum_BV, u_B.to(sum_BV.device)[:, None] * sum_BV[:, -1:], right=True)
    return at_B1[:, 0].clamp(max=logits_BV.shape[-1] - 1)
