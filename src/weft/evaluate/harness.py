"""Our models under lm-eval, the harness of published benchmarks (Gao et al. 2021): `lm_eval.simple_evaluate(model=Harness(ready), …)`."""
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from .. import recipe as R
from ..generate.choose import Sampling
from ..generate.text import Writer
from ..objectives import Reader
from .ask import Known
from .memory import Given, known
from .perplexity import windows
from .predict import How, Sliding, answers, device_of, made, reach, surprises


def base() -> type:
    """lm-eval's own class, which its functions ask for; without the extra the methods work all the same."""
    try:
        found: type = import_module("lm_eval.api.model").LM
        return found
    except ImportError:
        return object


class Asked(NamedTuple):
    """Tokens, and from which place on they are asked."""
    tokens: list[int]
    asked: int


class Harness(base()):                     # type: ignore[misc]
    """Requests hold their arguments in `args`, as lm-eval's instances do."""

    def __init__(self, ready: Known, length: int | None = None, most: int = 256, how: How = How()) -> None:
        super().__init__()
        self.ready, self.length, self.most, self.how = ready, length or reach(ready.model), most, how
        self.corruption, self.answer, _ = made(ready, R.NextToken(), known(R.Documents(), ready.text, None), how)
        own, named = ready.model.spec.special.begin, ready.text.special
        self.prefix = [mark for mark in (own, named.get("begin"), named.get("end")) if mark is not None][:1]   # before a text of its own

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Of each (context, continuation): the continuation's log-probability, and whether greedy choice would say it."""
        found = self.score([self.continued(*request.args) for request in requests])
        return [(-sum(surprise for surprise, _ in own), all(hit for _, hit in own)) for own in found]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Of each whole text, every token once, in windows that meet in one token; the last reaches back as far as it can."""
        parts, owner = list[Asked](), list[int]()
        for i, request in enumerate(requests):
            tokens = [*self.prefix, *self.ready.text.encode(request.args[0]).tolist()]
            for _, stop, asked in windows(len(tokens), self.length, self.length):
                start = max(0, stop - self.length - 1)
                parts.append(Asked(tokens[start:stop], asked - start))
            owner += [i] * (len(parts) - len(owner))
        totals = [0.0] * len(requests)
        for i, own in zip(owner, self.score(parts), strict=True):
            totals[i] -= sum(surprise for surprise, _ in own)
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Of each (context, options), the text up to the first stop string."""
        writer, found = Writer(self.ready), []
        for request in requests:
            text, options = request.args
            until = options.get("until") or ()
            how = Sampling(temperature=float(options.get("temperature") or 0.0) if options.get("do_sample") else 0.0, seed=self.how.seed)
            ids = writer.ids(text)
            free = max(self.length // 2, self.length - len(ids))           # of a long prompt at least half a context is kept
            most = min(int(options.get("max_gen_toks") or self.most), free)
            prompt = ids[-max(1, self.length - most):]
            found.append(writer.answer([prompt], most=most, how=how, stops=(until,) if isinstance(until, str) else tuple(until))[0][0].text)
        return found

    def continued(self, context: str, continuation: str) -> Asked:
        """Both are cut together, so that words fall as they would in a text; a gap between them is the continuation's."""
        bare = context.rstrip()
        context, continuation = bare, context[len(bare):] + continuation
        before = self.ready.text.encode(context).tolist() if context else []
        whole = self.ready.text.encode(context + continuation).tolist()
        prefix = [] if before else self.prefix
        tokens, asked = [*prefix, *whole], len(prefix) + len(before)
        if not asked:
            raise ValueError("an empty context needs a token to begin with, which this tokenizer lacks")
        cut = max(0, len(tokens) - self.length - 1)            # what is too long loses its beginning
        return Asked(tokens[cut:], max(asked - cut, 1))

    def score(self, rows: list[Asked]) -> list[Any]:
        """A list a row: minus the log-probability of each token that is asked, and whether it would be said."""
        full = [i for i, row in enumerate(rows) if len(row.tokens) > 1]
        samples = [{"tokens": np.array(rows[i].tokens), "documents": np.zeros(0, np.int64), "asked": rows[i].asked} for i in full]
        found = answers(Sliding(self.corruption), Reader(Given(samples), self.length), self.answer, surprises, device_of(self.ready.model),
                        self.how) if full else []
        held = dict(zip(full, found, strict=True))
        return [held.get(i, []) for i in range(len(rows))]
