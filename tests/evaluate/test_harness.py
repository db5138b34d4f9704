"""The adapter for lm-eval: its three methods against plain passes of the model."""
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import weft
from weft.evaluate.harness import Harness
from weft.evaluate.predict import reach
from weft.generate.text import Writer

from .small import TEXTS, ready

LENGTH = 12


class Request(NamedTuple):
    args: tuple[Any, ...]


def logprobs(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.model(torch.tensor([ids]))[0].log_softmax(-1)
    return found


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness(ready(None, "gpt2", kind="ByteBPE"), length=LENGTH)


def test_a_continuation_is_scored_behind_its_context_as_one_text(harness: Harness) -> None:
    encode = harness.ready.text.encode
    pairs = [("the man went", " to the store"), ("a dog ", "runs"), ("", "he said"), (" ".join(TEXTS), " yes")]
    found = harness.loglikelihood([Request(pair) for pair in pairs])
    for (context, continuation), (score, greedy) in zip(pairs, found, strict=True):
        before, whole = encode(context.rstrip()).tolist(), encode(context + continuation).tolist()
        tokens, asked = (whole, len(before)) if context else ([2, *whole], 1)
        tokens, asked = tokens[-LENGTH - 1:], asked - max(0, len(tokens) - LENGTH - 1)
        table = logprobs(harness.ready, tokens[:-1])[asked - 1:]
        right = torch.tensor(tokens[asked:])
        assert score == pytest.approx(float(table.gather(1, right[:, None]).sum()), abs=1e-4)
        assert greedy == bool((table.argmax(-1) == right).all())


def test_what_greedy_choice_says_is_called_greedy(harness: Harness) -> None:
    encode, decode = harness.ready.text.encode, harness.ready.text.decode
    ids = encode("the man").tolist()
    said = int(logprobs(harness.ready, ids)[-1].argmax())
    if encode("the man" + decode([said])).tolist() == [*ids, said]:
        assert harness.loglikelihood([Request(("the man", decode([said])))])[0][1]
    words = [" to", " store", " the", " dog", " a"]
    assert sum(greedy for _, greedy in harness.loglikelihood([Request(("the man", word)) for word in words])) <= 1


def test_a_whole_text_is_scored_once_a_token_however_long(harness: Harness) -> None:
    texts = [TEXTS[0], " ".join(TEXTS), ""]
    for text, score in zip(texts, harness.loglikelihood_rolling([Request((text,)) for text in texts]), strict=True):
        tokens, total = [2, *harness.ready.text.encode(text).tolist()], 0.0
        for asked in range(1, len(tokens), LENGTH):
            stop = min(asked + LENGTH, len(tokens))
            window = tokens[max(0, stop - LENGTH - 1):stop]        # the last one reaches back
            own = logprobs(harness.ready, window[:-1]).gather(1, torch.tensor(window[1:])[:, None])
            total += float(own[-(stop - asked):].sum())
        assert score == pytest.approx(total, abs=1e-3)


def test_text_goes_on_until_a_stop_string_and_no_further(harness: Harness) -> None:
    free = harness.generate_until([Request(("the man", {"until": [], "max_gen_toks": 8}))])[0]
    assert len(free) > 3
    stop = free[2:4]
    assert harness.generate_until([Request(("the man", {"until": [stop], "max_gen_toks": 8}))])[0] == free[:free.index(stop)]


def test_all_positions_are_read_and_half_of_them_are_kept_for_a_prompt(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec, length in ((weft.gpt2("small", positions=1024), 1024), (replace(weft.llama("7b"), context=4096), 4096)):
        assert reach(SimpleNamespace(spec=spec)) == length                   # type: ignore[arg-type]
    assert Harness(ready(None, "gpt2", kind="ByteBPE")).length == 64
    seen = []

    def answer(self: Writer, prompts: list[list[int]], most: int, **_: Any) -> Any:
        seen.append((len(prompts[0]), most))
        return [[SimpleNamespace(text="")]]

    monkeypatch.setattr(Writer, "answer", answer)
    for text in (" ".join(TEXTS), "the man"):
        harness.generate_until([Request((text, {"max_gen_toks": 256}))])
    assert seen[0] == (LENGTH // 2, LENGTH // 2)
    assert sum(seen[1]) == LENGTH


def test_lm_eval_takes_it_for_a_model_of_its_own() -> None:
    model = pytest.importorskip("lm_eval.api.model", reason="the extra lmeval: pip install 'weft[lmeval]'")
    assert issubclass(Harness, model.LM)
