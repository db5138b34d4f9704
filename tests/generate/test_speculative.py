"""Speculative decoding gives the distribution of the target model."""

from collections import Counter
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from weft.generate import speculative
from weft.generate.decoding import generate
from weft.generate.sampling import Sampling, filter_logits
from weft.generate.speculative import speculative_generate

from .made import DECODERS, END, PAIRS, model_of, rows


@pytest.mark.parametrize("name", [*DECODERS, *PAIRS])
def test_greedy_speculation_gives_the_target_models_tokens(name: str) -> None:
    """Also past what a window holds, which has to be taken back; a draft that is often right and
    one that never is.
    """
    model = model_of(name)
    (row,) = rows(6)
    truth = generate(model, [row], max_new_tokens=60, eos_ids=[END])[0]
    for draft, how in (
        (model, {}),
        (model_of(name, seed=1, depth=1), {}),
        (model_of(name, seed=2, depth=1), {"draft_length": 7}),
    ):
        found = speculative_generate(
            model, [row], draft_model=draft, max_new_tokens=60, eos_ids=[END], **how
        )[0]
        assert found.tokens == truth.tokens
        assert found.finished == truth.finished
        assert found.logprobs == pytest.approx(truth.logprobs, abs=1e-9)


def test_a_good_draft_saves_readings() -> None:
    model = model_of("gpt2")
    (row,) = rows(6)
    reads = []
    draft = model_of("gpt2")
    model.decoder.register_forward_hook(lambda *_: reads.append(1))
    speculative_generate(model, [row], draft_model=draft, max_new_tokens=60, draft_length=4)
    assert len(reads) == 1 + 60 / 5


class Chain:
    """In the place of a reading: the next token depends on the last two that were read and not
    forgotten.
    """

    def __init__(self, logits_VVV: torch.Tensor, read: list[int]) -> None:
        self.logits_VVV = logits_VVV
        self.read = read
        self.cache = SimpleNamespace(next_B=logits_VVV)

    def __call__(self, ids_BL: torch.Tensor, last: int = 1) -> torch.Tensor:
        self.read = self.read + ids_BL[0].tolist()
        ends = range(len(self.read) - last, len(self.read))
        return torch.stack([self.logits_VVV[self.read[i - 1], self.read[i]] for i in ends])[None]

    def rollback(self, count: int) -> None:
        self.read = self.read[: len(self.read) - count]


@pytest.mark.parametrize(
    "how",
    [Sampling(temperature=1.3), Sampling(top_k=2), Sampling(repetition_penalty=2.0)],
    ids=["free", "narrow", "repeat"],
)
def test_samples_follow_the_target_model_for_any_draft(
    how: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of three tokens from a vocabulary of three, 1,500 of them with fixed seeds, beside
    their exact probabilities.
    """
    model = model_of("gpt2", vocabulary=3)
    draft = model_of("gpt2", vocabulary=3)
    p_VVV, q_VVV = torch.randn(2, 3, 3, 3, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(
        speculative,
        "open_session",
        lambda which, inputs, starts, most: (Chain(p_VVV if which is model else q_VVV, [0]), [[1]]),
    )
    answers = speculative_generate(
        model,
        [[1]] * 1500,
        draft_model=draft,
        max_new_tokens=3,
        sampling=how,
        seeds=range(1500),
        draft_length=2,
    )
    counts = Counter(tuple(said.tokens) for said in answers)
    total = 0.0
    for tokens in product(range(3), repeat=3):
        share = 1.0
        path = [0, 1, *tokens]
        for i in range(2, 5):
            seen = torch.zeros(1, 3, dtype=torch.bool)
            seen[0, path[1:i]] = True
            share *= float(
                filter_logits(p_VVV[path[i - 2], path[i - 1]][None], how, seen).softmax(-1)[
                    0, path[i]
                ]
            )
        assert share > 0 or counts[tokens] == 0
        total += (counts[tokens] - 1500 * share) ** 2 / (1500 * share) if share else 0.0
    assert total < 45, "chi-square with 26 degrees of freedom: one in a hundred is above 45.6"


def test_a_draft_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="4 tokens, the model 32; give a draft"):
        speculative_generate(
            model_of("gpt2"), [[2]], draft_model=model_of("gpt2", vocabulary=4), max_new_tokens=3
        )
