"""The lm-eval adapter: its three methods compared with forward passes of the model."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import weft
from weft.evaluation.lm_eval import LMEvalModel
from weft.generate.text_generator import TextGenerator
from weft.nn.model import build
from weft.tasks.predict import max_context

from ..inference.small import TEXTS, ready

LENGTH = 12


class Request(NamedTuple):
    args: tuple[Any, ...]


def logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.model(torch.tensor([ids]))[0].log_softmax(-1)
    return found


@pytest.fixture(scope="module")
def harness() -> LMEvalModel:
    return LMEvalModel(ready(None, "gpt2", kind="ByteBPE"), length=LENGTH)


def test_a_continuation_is_scored_after_its_context_as_one_text(harness: LMEvalModel) -> None:
    encode = harness.model.require_tokenizer.encode
    pairs = [
        ("the man went", " to the store"),
        ("a dog ", "runs"),
        ("", "he said"),
        (" ".join(TEXTS), " yes"),
    ]
    found = harness.loglikelihood([Request(pair) for pair in pairs])
    for (context, continuation), (score, greedy) in zip(pairs, found, strict=True):
        before = encode(context.rstrip()).tolist()
        whole = encode(context + continuation).tolist()
        tokens = whole if context else [2, *whole]
        asked = len(before) if context else 1
        asked -= max(0, len(tokens) - LENGTH - 1)
        tokens = tokens[-LENGTH - 1 :]
        table = logprobs(harness.model, tokens[:-1])[asked - 1 :]
        right = torch.tensor(tokens[asked:])
        assert score == pytest.approx(float(table.gather(1, right[:, None]).sum()), abs=1e-4)
        assert greedy == bool((table.argmax(-1) == right).all())


def test_a_greedy_continuation_is_marked_greedy(harness: LMEvalModel) -> None:
    encode = harness.model.require_tokenizer.encode
    decode = harness.model.require_tokenizer.decode
    requests = []
    for context in (" ".join(text.split()[:n]) for text in TEXTS for n in (1, 2, 3)):
        ids = encode(context).tolist()
        said = int(logprobs(harness.model, ids)[-1].argmax())
        if encode(context + decode([said])).tolist() == [*ids, said]:
            requests.append(Request((context, decode([said]))))
    assert requests
    assert all(greedy for _, greedy in harness.loglikelihood(requests))
    words = [" to", " store", " the", " dog", " a"]
    assert (
        sum(
            greedy
            for _, greedy in harness.loglikelihood([Request(("the man", word)) for word in words])
        )
        <= 1
    )


def test_a_whole_text_is_scored_once_a_token_however_long(harness: LMEvalModel) -> None:
    texts = [TEXTS[0], " ".join(TEXTS), ""]
    for text, score in zip(
        texts, harness.loglikelihood_rolling([Request((text,)) for text in texts]), strict=True
    ):
        tokens = [2, *harness.model.require_tokenizer.encode(text).tolist()]
        total = 0.0
        for asked in range(1, len(tokens), LENGTH):
            stop = min(asked + LENGTH, len(tokens))
            window = tokens[max(0, stop - LENGTH - 1) : stop]  # the last one reaches back
            own = logprobs(harness.model, window[:-1]).gather(1, torch.tensor(window[1:])[:, None])
            total += float(own[-(stop - asked) :].sum())
        assert score == pytest.approx(total, abs=1e-3)


def test_generation_ends_at_a_stop_string(harness: LMEvalModel) -> None:
    free = harness.generate_until([Request(("the man", {"until": [], "max_gen_toks": 8}))])[0]
    assert len(free) > 3
    stop = free[2:4]
    assert (
        harness.generate_until([Request(("the man", {"until": [stop], "max_gen_toks": 8}))])[0]
        == free[: free.index(stop)]
    )


def test_all_positions_are_read_and_half_of_them_are_kept_for_a_prompt(
    harness: LMEvalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spec, length in (
        (weft.gpt2("small", positions=1024), 1024),
        (replace(weft.llama("7b"), context_length=4096), 4096),
    ):
        assert max_context(SimpleNamespace(spec=spec)) == length  # type: ignore[arg-type]
    assert LMEvalModel(ready(None, "gpt2", kind="ByteBPE")).length == 64
    seen = []

    def answer(self: TextGenerator, prompts: list[list[int]], max_new_tokens: int, **_: Any) -> Any:
        seen.append((len(prompts[0]), max_new_tokens))
        return [[SimpleNamespace(text="")]]

    monkeypatch.setattr(TextGenerator, "generate", answer)
    for text in (" ".join(TEXTS), "the man"):
        harness.generate_until([Request((text, {"max_gen_toks": 256}))])
    assert seen[0] == (LENGTH // 2, LENGTH // 2)
    assert sum(seen[1]) == LENGTH


def test_a_text_of_its_own_follows_the_models_own_begin(harness: LMEvalModel) -> None:
    made = ready(None, "gpt2", kind="ByteBPE")
    spec = replace(made.model.spec, special_tokens=replace(made.model.spec.special_tokens, bos=7))
    model = build(spec).eval()
    model.load_state_dict(made.model.state_dict())
    own = LMEvalModel(replace(made, model=model))
    assert (harness.prefix, own.prefix) == ([made.require_tokenizer.special["bos"]], [7])
    ids = [7, *made.require_tokenizer.encode("the man").tolist()]
    expected = logprobs(own.model, ids)[range(len(ids) - 1), ids[1:]].sum()
    assert own.loglikelihood_rolling([Request(("the man",))])[0] == pytest.approx(
        float(expected), abs=1e-4
    )


def test_lm_eval_scores_it_as_it_scores_the_same_folder_in_transformers(tmp_path: Path) -> None:
    huggingface = pytest.importorskip(
        "lm_eval.models.huggingface", reason="the extra lmeval: pip install '.[lmeval]'"
    )
    instance = import_module("lm_eval.api.instance").Instance
    made = ready(None, "gpt2", kind="ByteBPE")
    weft.save(made.model, tmp_path)
    (tmp_path / "tokenizer.json").write_text(made.require_tokenizer.text)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "pad_token": "<pad>",
            }
        )
    )
    theirs = huggingface.HFLM(pretrained=str(tmp_path), dtype="float32", batch_size=1, device="cpu")
    ours = LMEvalModel(made)
    assert isinstance(ours, import_module("lm_eval.api.model").LM)

    def asked(kind: str, *arguments: Any) -> list[Any]:
        return [
            instance(request_type=kind, doc={}, arguments=own, idx=i)
            for i, own in enumerate(arguments)
        ]

    scored = asked(
        "loglikelihood", ("the man went", " to the store"), ("a dog", " runs"), ("why", " not ?")
    )
    whole = asked("loglikelihood_rolling", *((text,) for text in TEXTS))
    free = asked(
        "generate_until",
        *((text, {"until": ["."], "max_gen_toks": 8, "do_sample": False}) for text in TEXTS),
    )
    for (a, hit_a), (b, hit_b) in zip(
        ours.loglikelihood(scored), theirs.loglikelihood(scored), strict=True
    ):
        assert (a, hit_a) == (pytest.approx(b, abs=1e-4), hit_b)
    assert ours.loglikelihood_rolling(whole) == pytest.approx(
        theirs.loglikelihood_rolling(whole), abs=1e-4
    )
    assert ours.generate_until(free) == theirs.generate_until(free)
