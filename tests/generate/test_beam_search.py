"""Beam search compared with exhaustive search."""

from itertools import product

import pytest
import torch

from weft.generate import beam_search as beam_search_module
from weft.generate.beam_search import beam_search
from weft.generate.decoding import GeneratedTokens, generate

from .made import END, PAIRS, model_of, rows, scores

ALPHAS = (0.0, 0.6, 2.0, -1.0)


def everything(
    model: torch.nn.Module, row: list[int], vocabulary: int, most: int
) -> list[tuple[float, list[int]]]:
    """Every answer that ends, or is `most` tokens long, with its log P."""
    each = [list(said) for said in product(range(vocabulary), repeat=most)]
    total = (
        scores(model, row, each)[:, :-1].gather(2, torch.tensor(each)[..., None])[..., 0].cumsum(1)
    )
    cut = [said.index(END) + 1 if END in said else most for said in each]
    return [
        *{
            tuple(said[:n]): (float(sums[n - 1]), said[:n])
            for said, sums, n in zip(each, total, cut, strict=True)
        }.values()
    ]


@pytest.mark.parametrize("name", ["gpt2", "bloom", "t5", "marian"])
def test_a_wide_beam_is_an_exhaustive_search(name: str) -> None:
    """The five best answers of all, for prompts of unequal length in one batch; the length counts
    the end and no prompt.
    """
    model = model_of(name, vocabulary=4, std=0.6)
    prompts = rows(5, 1, vocabulary=4)
    every = [everything(model, row, 4, 3) for row in prompts]
    for alpha in ALPHAS:
        for all_of_it, found in zip(
            every,
            beam_search(
                model,
                prompts,
                num_beams=64,
                length_penalty=alpha,
                max_new_tokens=3,
                num_return=5,
                eos_ids=[END],
            ),
            strict=True,
        ):
            truth = sorted(
                ((total / ((5 + len(said)) / 6) ** alpha, said) for total, said in all_of_it),
                reverse=True,
            )[:5]
            assert [said.tokens for said in found] == [said for _, said in truth]
            assert (
                max(abs(said.score - score) for said, (score, _) in zip(found, truth, strict=True))
                < 1e-9
            )
            assert [said.finished for said in found] == [said.tokens[-1] == END for said in found]


def test_the_length_penalty_does_not_count_the_prompt() -> None:
    """A model that reads only its newest token says the same to a long prompt and to a short one,
    with the same score.
    """
    model = model_of("mistral", window=1, vocabulary=6)
    long, short = (
        beam_search(
            model,
            [row],
            num_beams=6,
            length_penalty=1.5,
            max_new_tokens=6,
            num_return=3,
            eos_ids=[END],
        )[0]
        for row in ([2, 3, 4, 5] * 8 + [3], [3])
    )
    assert [said.tokens for said in long] == [said.tokens for said in short]
    assert [said.score for said in long] == pytest.approx([said.score for said in short], abs=1e-9)
    assert len({len(said.tokens) for said in short}) > 1, "answers of one length cannot tell"
    for said in short:
        assert said.score == pytest.approx(
            sum(said.logprobs) / ((5 + len(said.tokens)) / 6) ** 1.5, abs=1e-9
        )


@pytest.mark.parametrize("name", ["llama", "mistral", "t5", "marian"])
def test_a_sentence_has_the_same_answers_alone_and_among_others(name: str) -> None:
    """Sentences leave the batch as they are done, their beams share one memory."""
    model = model_of(name)
    prompts = rows(7, 2, 5)
    together = beam_search(
        model,
        prompts,
        num_beams=4,
        length_penalty=0.6,
        num_return=3,
        eos_ids=[END, 5],
        max_new_tokens=25,
    )
    for row, found in zip(prompts, together, strict=True):
        same_answers(
            found,
            beam_search(
                model,
                [row],
                num_beams=4,
                length_penalty=0.6,
                num_return=3,
                eos_ids=[END, 5],
                max_new_tokens=25,
            )[0],
        )


def same_answers(found: list[GeneratedTokens], truth: list[GeneratedTokens]) -> None:
    assert [said.tokens for said in found] == [said.tokens for said in truth]
    assert [said.score for said in found] == pytest.approx([said.score for said in truth], abs=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "bart"])
def test_one_beam_is_greedy(name: str) -> None:
    model = model_of(name)
    prompts = rows(7, 2, 5)
    found = beam_search(
        model, prompts, num_beams=1, length_penalty=0.0, max_new_tokens=12, eos_ids=[END]
    )
    truth = generate(model, prompts, max_new_tokens=12, eos_ids=[END])
    assert [said[0].tokens for said in found] == [said.tokens for said in truth]


@pytest.mark.parametrize("name", ["gpt2", "marian"])
def test_log_probabilities_are_those_of_a_whole_forward(name: str) -> None:
    model = model_of(name)
    (row,) = rows(5)
    for said in beam_search(
        model, [row], num_beams=4, num_return=4, max_new_tokens=9, eos_ids=[END]
    )[0]:
        truth = scores(model, row, said.tokens)[:-1].gather(1, torch.tensor(said.tokens)[:, None])[
            :, 0
        ]
        assert (torch.tensor(said.logprobs, dtype=torch.float64) - truth).abs().max() < 1e-9


@pytest.mark.parametrize(("alpha", "ends"), [(0.0, 3), (0.6, 3), (-1.0, 3), (1.5, 1)])
def test_ending_early_changes_no_answer(
    alpha: float, ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a long answer overtakes a short one that was over before."""
    model = model_of("gpt2", vocabulary=8, std=0.3)
    prompts = rows(3, 5, 4, 2, 6, 1, 7, 8, vocabulary=8)
    steps = []
    model.decoder.register_forward_hook(lambda _, given, __: steps.append(len(given[0].x_BLD)))
    how = dict(
        num_beams=3,
        length_penalty=alpha,
        max_new_tokens=16,
        num_return=2,
        eos_ids=range(1, 1 + ends),
    )
    early = beam_search(model, prompts, **how)
    few = sum(steps)
    monkeypatch.setattr(
        beam_search_module,
        "is_finished",
        lambda sum_B, worst_B, limit_B, step, alpha: limit_B <= step,
    )
    for found, truth in zip(early, beam_search(model, prompts, **how), strict=True):
        same_answers(found, truth)
    assert few < sum(steps) - few or alpha > 1, "it never ended early"


@pytest.mark.parametrize("name", PAIRS)
def test_an_answer_has_at_most_fifty_tokens_more_than_its_input(name: str) -> None:
    model = model_of(name)
    prompts = rows(3, 7)
    assert [len(said[0].tokens) for said in beam_search(model, prompts, num_beams=2)] == [53, 57]


def test_an_answer_ends_where_the_positions_do() -> None:
    assert [
        len(said[0].tokens)
        for said in beam_search(model_of("bart", positions=20), rows(3, 7), num_beams=2)
    ] == [19, 19]
    assert [
        len(said[0].tokens)
        for said in beam_search(model_of("gpt2", positions=20), rows(3, 7), num_beams=2)
    ] == [17, 13]


def test_a_neighbour_near_the_last_position_shortens_no_answer() -> None:
    model = model_of("gpt2", positions=20)
    prompts = rows(3, 18, 5, 7)
    for row, found in zip(
        prompts, beam_search(model, prompts, num_beams=2, eos_ids=[END]), strict=True
    ):
        same_answers(found, beam_search(model, [row], num_beams=2, eos_ids=[END])[0])


def test_beams_of_a_sentence_share_its_memory_without_a_copy() -> None:
    model = model_of("marian")
    kept = []
    model.decoder.blocks[0].cross_attention.inner.register_forward_hook(
        lambda _, given, __: kept.append(given[3].memory[0])
    )
    beam_search(model, rows(5, 5), num_beams=4, max_new_tokens=6)
    assert {len(k) for k in kept} == {2}
    assert len({k.data_ptr() for k in kept}) == 1


def test_more_answers_than_beams_are_refused() -> None:
    with pytest.raises(ValueError, match="best = 5 of beams = 4"):
        beam_search(model_of("gpt2"), [[2]], num_return=5)
