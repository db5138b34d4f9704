"""Generation compared with transformers' generate on the same directory."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as T

import weft
from weft.generate import beam_search as beam_search_module
from weft.generate.beam_search import beam_search
from weft.generate.decoding import generate
from weft.generate.sampling import Sampling

from ..generate.made import model_of, rows

END = 1
PAD = 0
SMALL = dict(vocab_size=40, pad_token_id=PAD, eos_token_id=END, bos_token_id=2)
MODELS = {
    "gpt2": lambda: T.GPT2LMHeadModel(
        T.GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=64, initializer_range=0.4, **SMALL)
    ),
    "llama": lambda: T.LlamaForCausalLM(
        T.LlamaConfig(
            num_hidden_layers=2,
            hidden_size=16,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=24,
            max_position_embeddings=64,
            initializer_range=0.4,
            **SMALL,
        )
    ),
    "t5": lambda: T.T5ForConditionalGeneration(
        T.T5Config(
            num_layers=2,
            d_model=16,
            num_heads=2,
            d_kv=8,
            d_ff=24,
            initializer_factor=2.0,
            decoder_start_token_id=PAD,
            **SMALL,
        )
    ),
    "bart": lambda: T.BartForConditionalGeneration(
        T.BartConfig(
            encoder_layers=2,
            decoder_layers=2,
            d_model=16,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_position_embeddings=64,
            init_std=0.4,
            decoder_start_token_id=END,
            forced_eos_token_id=None,
            **SMALL,
        )
    ),
    "marian": lambda: T.MarianMTModel(
        T.MarianConfig(
            encoder_layers=2,
            decoder_layers=2,
            d_model=16,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_position_embeddings=64,
            init_std=0.4,
            decoder_start_token_id=PAD,
            forced_eos_token_id=None,
            **SMALL,
        )
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[weft.Model, Any]:
    torch.manual_seed(1)
    folder: Path = tmp_path_factory.mktemp(request.param)
    theirs = MODELS[request.param]().eval()
    theirs.save_pretrained(folder)
    return weft.load(folder), theirs


def asked(theirs: Any, row: list[int], **how: Any) -> list[int]:
    """What transformers says, without the prompt and what pads it."""
    found = theirs.generate(
        torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), **how
    )[0].tolist()
    said = found[1:] if theirs.config.is_encoder_decoder else found[len(row) :]
    return said[: said.index(END) + 1] if END in said else said


@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_greedy_tokens_are_transformers(both: tuple[weft.Model, Any], penalty: float) -> None:
    ours, theirs = both
    prompts = rows(3, 9, 6, vocabulary=40)
    found = generate(
        ours,
        prompts,
        max_new_tokens=25,
        eos_ids=[END],
        sampling=Sampling(temperature=0.0, repetition_penalty=penalty),
    )
    for row, said in zip(prompts, found, strict=True):
        assert said.tokens == asked(
            theirs, row, max_new_tokens=25, do_sample=False, repetition_penalty=penalty
        )


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.5])
def test_the_best_of_four_beams_is_transformers_when_lengths_are_penalised_alike(
    both: tuple[weft.Model, Any], alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theirs divides by length ** alpha."""
    monkeypatch.setattr(
        beam_search_module, "length_penalty", lambda length, alpha: length.double() ** alpha
    )
    ours, theirs = both
    prompts = rows(3, 9, 6, vocabulary=40)
    for row, said in zip(
        prompts,
        beam_search(
            ours, prompts, num_beams=4, length_penalty=alpha, max_new_tokens=15, eos_ids=[END]
        ),
        strict=True,
    ):
        assert said[0].tokens == asked(
            theirs,
            row,
            max_new_tokens=15,
            num_beams=4,
            length_penalty=alpha,
            early_stopping="never",
            do_sample=False,
        )


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "marian"])
@torch.no_grad()
def test_bf16_is_near_float32_and_generates_and_searches(name: str) -> None:
    """The mean error of a logit, as a share of the logits' deviation."""
    model = model_of(name, width=64, std=0.1).float()
    half = copy.deepcopy(model).bfloat16()
    inputs = [torch.randint(2, 32, (3, 9))]
    if model.encoder is not None:
        inputs.append(torch.randint(2, 32, (3, 6)))
    expected = model(*inputs)
    error = (half(*inputs).float() - expected).abs().mean() / expected.std()
    assert 1e-5 < error < 0.02
    prompts = rows(7, 2, 4)
    assert [len(row.tokens) for row in generate(half, prompts, max_new_tokens=9)] == [9, 9, 9]
    beams = beam_search(half, prompts, num_beams=3, max_new_tokens=9)
    assert [len(best.tokens) for best, *_ in beams] == [9, 9, 9]
