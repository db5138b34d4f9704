"""Small models with every kind of position, and a slow reference decoder."""

from dataclasses import replace
from typing import Any

import torch

import weft

V = 32
END = 1
START = 0
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": dict(depth=2, width=16, heads=2, positions=96),
    "bloom": dict(depth=2, width=16, heads=2),
    "llama": dict(depth=2, width=16, heads=4, kv_heads=2, hidden=24),
    "mistral": dict(depth=2, width=16, heads=2, kv_heads=1, hidden=24, window=3),
    "gemma2": dict(
        depth=2,
        width=16,
        heads=2,
        kv_heads=1,
        head_dim=8,
        hidden=24,
        window=3,
        softcap=1.0,
        logit_softcap=4.0,
    ),
    "qwen3": dict(depth=2, width=16, heads=2, kv_heads=1, head_dim=6, hidden=24),
    "olmo2": dict(depth=2, width=16, heads=2, kv_heads=1, hidden=24),
    "t5": dict(depth=2, width=16, heads=2, head_dim=8, hidden=24),
    "bart": dict(depth=2, width=16, heads=2, hidden=24, positions=96),
    "marian": dict(depth=2, width=16, heads=2, hidden=24),
    "transformer": dict(depth=2, width=16, heads=2, hidden=24),
}
DECODERS = ("gpt2", "bloom", "llama", "mistral", "gemma2", "qwen3", "olmo2")
PAIRS = ("t5", "bart", "marian", "transformer")


def model_of(
    name: str, seed: int = 0, vocabulary: int = V, std: float = 0.4, **more: Any
) -> weft.Model:
    """In float64, so that ties do not decide."""
    spec = weft.family(name)(
        **SMALL[name] | dict(vocab_size=vocabulary) | more, init=weft.NormalInit(std=std)
    )
    special = weft.SpecialTokens(decoder_start=START) if name in PAIRS else weft.SpecialTokens()
    return weft.build(replace(spec, special_tokens=special), dtype=torch.float64, seed=seed).eval()


def rows(*lengths: int, seed: int = 0, vocabulary: int = V) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(2, vocabulary, (n,), generator=random).tolist() for n in lengths]


@torch.no_grad()
def scores(model: weft.Model, row: list[int], said: list[int] | list[list[int]]) -> torch.Tensor:
    """Log-probabilities after the prompt and after each token said, by one whole forward without a
    cache: (said + 1, V), or a batch.
    """
    target = torch.tensor(said).view(-1, len(said) if isinstance(said[0], int) else len(said[0]))
    prompt = torch.tensor([row] * len(target))
    first = torch.full((len(target), 1), START)
    logits = (
        model(prompt, torch.cat((first, target), 1))
        if model.encoder is not None
        else model(torch.cat((prompt, target), 1))
    )
    found = logits[:, -target.shape[1] - 1 :].log_softmax(-1)
    return found[0] if isinstance(said[0], int) else found


def is_greedy(model: weft.Model, row: list[int], said: list[int]) -> bool:
    """Is every token the likeliest, when the whole row is read anew?"""
    return scores(model, row, said)[:-1].argmax(-1).tolist() == said
