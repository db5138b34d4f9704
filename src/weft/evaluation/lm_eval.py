"""Weft models in lm-eval, the evaluation harness (Gao et al. 2021):
`lm_eval.simple_evaluate(model=LMEvalModel(model), …)`."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from .. import recipe as R
from ..data.shards.in_memory import ListSamples, data_info
from ..generate.sampling import Sampling
from ..generate.text_generator import TextGenerator
from ..metrics.perplexity import evaluation_windows
from ..nn.loaded_model import LoadedModel
from ..tasks.base import LengthLimitedSamples
from ..tasks.predict import (
    PredictOptions,
    StridedWindowPreprocess,
    device_of,
    max_context,
    predict_all,
    token_losses,
)
from ..tasks.task import task_for_model


def lm_eval_base() -> type:
    """Return the base class that lm-eval requires; without lm-eval, the methods still work."""
    try:
        base_class: type = import_module("lm_eval.api.model").LM
        return base_class
    except ImportError:
        return object


class ScoredTokens(NamedTuple):
    """Tokens, and the index of the first scored one."""

    tokens: list[int]
    first_scored: int


class LMEvalModel(lm_eval_base()):  # type: ignore[misc]
    """An lm-eval model. Requests hold their arguments in `args`, like lm-eval's instances."""

    def __init__(
        self,
        model: LoadedModel,
        length: int | None = None,
        max_new_tokens: int = 256,
        options: PredictOptions = PredictOptions(),
    ) -> None:
        super().__init__()
        self.model = model
        self.length = length or max_context(model.model)
        self.max_new_tokens = max_new_tokens
        self.options = options
        info = data_info(R.Documents(), model.require_tokenizer, None)
        task = task_for_model(model, R.CausalLM(), info, options.seed)
        self.preprocess = task.preprocess
        self.answer = task.loss.eval().forward_outputs
        bos = model.model.spec.special_tokens.bos
        named = model.require_tokenizer.special
        self.prefix = [
            mark for mark in (bos, named.get("bos"), named.get("eos")) if mark is not None
        ][:1]  # before an independent text

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return, per (context, continuation), the log-probability of the continuation and whether
        greedy decoding yields it."""
        token_scores = self.score([self.encode_continuation(*request.args) for request in requests])
        return [
            (-sum(surprise for surprise, _ in scores), all(hit for _, hit in scores))
            for scores in token_scores
        ]

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log-probability of each complete text: every token once, in windows that
        overlap by one token; the last window has the full length."""
        parts = list[ScoredTokens]()
        owner = list[int]()
        for i, request in enumerate(requests):
            tokens = [*self.prefix, *self.model.require_tokenizer.encode(request.args[0]).tolist()]
            for _, stop, first_scored in evaluation_windows(len(tokens), self.length, self.length):
                start = max(0, stop - self.length - 1)
                parts.append(ScoredTokens(tokens[start:stop], first_scored - start))
                owner.append(i)
        totals = [0.0] * len(requests)
        for i, scores in zip(owner, self.score(parts), strict=True):
            totals[i] -= sum(surprise for surprise, _ in scores)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return, per (context, options), the text up to the first stop string."""
        writer = TextGenerator(self.model)
        texts = []
        for request in requests:
            text, options = request.args
            until = options.get("until") or ()
            temperature = options.get("temperature") if options.get("do_sample") else None
            sampling = Sampling(temperature=float(temperature or 0.0), seed=self.options.seed)
            ids = writer.encode_prompt(text)
            # Reserve at least half the context for a long prompt
            free = max(self.length // 2, self.length - len(ids))
            max_new_tokens = min(int(options.get("max_gen_toks") or self.max_new_tokens), free)
            prompt = ids[-max(1, self.length - max_new_tokens) :]
            stops = (until,) if isinstance(until, str) else tuple(until)
            answers = writer.generate(
                [prompt], max_new_tokens=max_new_tokens, sampling=sampling, stop_strings=stops
            )
            texts.append(answers[0][0].text)
        return texts

    def encode_continuation(self, context: str, continuation: str) -> ScoredTokens:
        """Tokenise context and continuation as one text; a space between them belongs to the
        continuation."""
        bare = context.rstrip()
        continuation = context[len(bare) :] + continuation
        context = bare
        before = self.model.require_tokenizer.encode(context).tolist() if context else []
        whole = self.model.require_tokenizer.encode(context + continuation).tolist()
        prefix = [] if before else self.prefix
        tokens = [*prefix, *whole]
        first_scored = len(prefix) + len(before)
        if not first_scored:
            raise ValueError(
                "the context is empty and the tokenizer has no start token; give a context"
            )
        cut = max(0, len(tokens) - self.length - 1)  # truncate the start of a long text
        return ScoredTokens(tokens[cut:], max(first_scored - cut, 1))

    def score(self, rows: list[ScoredTokens]) -> list[Any]:
        """Return per row the loss of each scored token, and whether it is the most likely one."""
        full = [i for i, row in enumerate(rows) if len(row.tokens) > 1]
        samples = [
            {
                "tokens": np.array(rows[i].tokens),
                "documents": np.zeros(0, np.int64),
                "first_scored": rows[i].first_scored,
            }
            for i in full
        ]
        scores = (
            predict_all(
                StridedWindowPreprocess(self.preprocess),
                LengthLimitedSamples(ListSamples(samples), self.length),
                self.answer,
                token_losses,
                device_of(self.model.model),
                self.options,
            )
            if full
            else []
        )
        scores_by_row = dict(zip(full, scores, strict=True))
        return [scores_by_row.get(i, []) for i in range(len(rows))]
