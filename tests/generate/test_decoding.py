"""Autoregressive decoding with a cache."""

from functools import partial

import pytest
import torch

import weft
from weft.generate.beam_search import beam_search
from weft.generate.decoding import generate, stream
from weft.generate.sampling import GREEDY, Sampling, apply_repetition_penalty
from weft.generate.speculative import speculative_generate

from .made import DECODERS, END, PAIRS, V, is_greedy, model_of, rows, scores

FREE = Sampling(temperature=1.5, top_k=20, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=7)


@pytest.mark.parametrize("name", [*DECODERS, *PAIRS])
def test_cached_is_uncached_token_for_token_with_prompts_of_unequal_length(name: str) -> None:
    """More tokens than any window reaches and than a window's store holds at once."""
    model = model_of(name)
    prompts = rows(9, 2, 5)
    for row, said in zip(prompts, generate(model, prompts, max_new_tokens=80), strict=True):
        assert len(said.tokens) == 80
        assert is_greedy(model, row, said.tokens)


@pytest.mark.parametrize("name", ["llama", "mistral", "marian"])
@pytest.mark.parametrize("how", [GREEDY, FREE], ids=["greedy", "sampled"])
def test_a_row_generates_the_same_alone_and_in_a_batch(name: str, how: Sampling) -> None:
    model = model_of(name)
    prompts = rows(9, 2, 5, 2)
    alone = [
        generate(model, [row], max_new_tokens=20, sampling=how, eos_ids=[END], seeds=[i])[0]
        for i, row in enumerate(prompts)
    ]
    together = generate(
        model, prompts, max_new_tokens=20, sampling=how, eos_ids=[END], seeds=range(4)
    )
    assert [said.tokens for said in together] == [said.tokens for said in alone]


def test_a_seed_determines_the_text_and_another_seed_changes_it() -> None:
    model = model_of("gpt2", std=0.1)
    prompts = rows(4) * 3
    first, second, third = generate(
        model, prompts, max_new_tokens=30, sampling=Sampling(), seeds=[5, 5, 6]
    )
    assert first == second
    assert first.tokens != third.tokens
    assert (
        generate(model, prompts[:1], max_new_tokens=30, sampling=Sampling(seed=6))[0].tokens
        == third.tokens
    )


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_log_probabilities_are_those_of_a_whole_forward_before_temperature(name: str) -> None:
    model = model_of(name)
    (row,) = rows(5)
    for how in (GREEDY, FREE):
        said = generate(model, [row], max_new_tokens=12, sampling=how)[0]
        truth = scores(model, row, said.tokens)[:-1].gather(1, torch.tensor(said.tokens)[:, None])[
            :, 0
        ]
        assert (torch.tensor(said.logprobs, dtype=torch.float64) - truth).abs().max() < 1e-9


def test_finished_rows_leave_the_batch() -> None:
    model = model_of("gpt2")
    sizes = []
    prompts = rows(3, 6, 4, 8)
    alone = [generate(model, [row], max_new_tokens=30)[0].tokens for row in prompts]
    ends = [alone[0][2], alone[1][5]]  # tokens that some rows say sooner than others
    model.decoder.blocks[0].register_forward_hook(lambda _, given, __: sizes.append(len(given[0])))
    found = generate(model, prompts, max_new_tokens=30, eos_ids=ends)
    assert sizes[0] == 4
    assert sizes == sorted(sizes, reverse=True)
    assert len({*sizes}) > 1, "no row left"
    for said, whole in zip(found, alone, strict=True):
        assert said.tokens == whole[: len(said.tokens)]
        assert said.finished == (said.tokens[-1] in ends)
        assert not set(said.tokens[:-1]) & set(ends)
        assert said.finished or len(said.tokens) == 30


def test_finished_rows_generate_no_more_tokens() -> None:
    model = model_of("bloom", std=0.1)
    prompts = rows(3, 6, 4, 8, 5, 7)
    seen: dict[int, list[int]] = {}
    for row, token, _, ended in stream(
        model,
        prompts,
        max_new_tokens=12,
        sampling=Sampling(),
        seeds=range(6),
        until=lambda row, token: row == token % 6,
    ):
        assert row not in seen or seen[row][-1] % 6 != row
        seen.setdefault(row, []).append(token)
        assert ended == (token % 6 == row)
    assert seen == {
        i: s.tokens
        for i, s in enumerate(
            generate(
                model,
                prompts,
                max_new_tokens=12,
                sampling=Sampling(),
                seeds=range(6),
                until=lambda row, token: row == token % 6,
            )
        )
    }


def test_a_penalty_on_repetition_counts_the_prompt_and_what_was_said() -> None:
    model = model_of("gpt2", std=0.1)
    prompts = rows(6, 3)
    for row, found in zip(
        prompts,
        generate(
            model,
            prompts,
            max_new_tokens=20,
            sampling=Sampling(temperature=0.0, repetition_penalty=3.0),
        ),
        strict=True,
    ):
        said: list[int] = []
        for _ in range(20):
            seen = torch.zeros(1, V, dtype=torch.bool)
            seen[0, row + said] = True
            said.append(
                int(
                    apply_repetition_penalty(
                        model(torch.tensor([row + said]))[:, -1], seen, 3.0
                    ).argmax()
                )
            )
        assert found.tokens == said
    assert found.tokens != generate(model, prompts, max_new_tokens=20)[1].tokens


def test_encoder_decoders_begin_with_what_they_are_given() -> None:
    model = model_of("marian")
    prompts = rows(5, 3)
    long = generate(model, prompts, max_new_tokens=6)
    rest = generate(
        model,
        prompts,
        max_new_tokens=4,
        decoder_inputs=[[0, *said.tokens[:n]] for said, n in zip(long, (2, 1), strict=True)],
    )
    assert [said.tokens for said in rest] == [long[0].tokens[2:6], long[1].tokens[1:5]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            dict(max_new_tokens=0),
            "max_new_tokens = 0; give at least 1|max_new_tokens = 0: give a number of at least 1",
        ),
        (dict(inputs=[[]]), "prompt 0 is empty"),
        (dict(inputs=[[2], [V]]), "prompt 1 contains a token outside"),
        (
            dict(max_new_tokens=93),
            "93 new tokens exceed the model's 96 positions; 92 new tokens fit; "
            "shorten the prompt or --max-new-tokens",
        ),
        (dict(decoder_inputs=[[1]]), "decoder_inputs are for encoder-decoder models"),
        (dict(seeds=[1, 2]), "1 prompts, but 2 seeds"),
    ],
)
def test_invalid_prompts_are_one_line_errors(change: dict[str, object], words: str) -> None:
    given = dict(inputs=[[2, 3, 4, 5]], max_new_tokens=4) | change
    with pytest.raises(ValueError, match=words):
        generate(model_of("gpt2"), given.pop("inputs"), **given)


def test_models_without_a_decoder_raise_an_error() -> None:
    with pytest.raises(ValueError, match=r"an encoder.*weft fill"):
        generate(
            weft.build(
                weft.bert(depth=1, width=16, heads=2, hidden=16, vocab_size=32, positions=8)
            ).eval(),
            [[2]],
            max_new_tokens=2,
        )
    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        generate(model_of("gpt2").train(), [[2]], max_new_tokens=2)
    with pytest.raises(ValueError, match=r"special_tokens\.decoder_start"):
        generate(
            weft.build(weft.marian(depth=1, width=16, heads=2, hidden=16, vocab_size=32)).eval(),
            [[2]],
            max_new_tokens=2,
        )
    assert generate(model_of("gpt2"), [], max_new_tokens=2) == []


def test_each_row_may_have_a_limit_of_its_own() -> None:
    model = model_of("llama")
    prompts = rows(4, 6, 3)
    for said, limit, row in zip(
        generate(model, prompts, max_new_tokens=[3, 9, 1]), (3, 9, 1), prompts, strict=True
    ):
        assert said.tokens == generate(model, [row], max_new_tokens=limit)[0].tokens
        assert not said.finished


def test_nan_logits_raise_an_error() -> None:
    model = model_of("gpt2")
    with torch.no_grad():
        model.token_embedding_VD.fill_(float("nan"))
    for say in (generate, beam_search, partial(speculative_generate, draft_model=model)):
        with pytest.raises(ValueError, match="training diverged"):
            say(model, rows(3), max_new_tokens=4)


def test_a_limit_for_each_prompt_is_one_for_each() -> None:
    model = model_of("llama")
    prompts = rows(2, 1)
    assert [len(said.tokens) for said in generate(model, prompts, max_new_tokens=[1, 5])] == [1, 5]
    for wrong in ([0, 5], [3], [3, 3, 3], 0):
        with pytest.raises(ValueError, match="one for each of the 2 prompts"):
            generate(model, prompts, max_new_tokens=wrong)
