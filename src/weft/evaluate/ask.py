"""Questions to a model, as a person asks them: texts in, plain answers out, in the same order."""
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.tokenizer import NAMES, Tokenizer
from ..generate.text import Writer
from ..interop.modules import Modules, modules_of
from ..layers.sequence import Sequence as Vectors
from ..model.head import pool as pooled
from ..objectives import Batch, Corruption, Reader
from ..objectives.base import IGNORE, joined, read_at
from ..objectives.base import room as positions
from ..objectives.classify import run
from .entities import outside
from .memory import Given, Held
from .predict import LONGEST, Asked, How, answers, device_of, longest, predict
from .squad import Said
from .text2text import class_shares, labelled

MASK = re.compile(r"\s*(?:" + "|".join(map(re.escape, NAMES["mask"])) + ")")


class Known(Asked, Protocol):
    """A model with its folder, which may be that of a run."""
    @property
    def recipe(self) -> R.Recipe | None: ...
    @property
    def folder(self) -> Path: ...


def needs(ready: Known, head: type, task: str) -> None:
    """One line, and the way out, for a model that cannot answer."""
    s = ready.model.spec
    if not isinstance(s.source, S.Tokens):
        raise ValueError(f"{ready.name} reads {type(s.source).__name__.lower()}, not text; weft evaluate scores it on prepared data")
    if not isinstance(s.head, head):
        raise ValueError(f"{ready.name} has a head of {type(s.head).__name__}, not of {head.__name__}; "
                         f"weft tune {ready.name} --task {task} --data FILE gives it one")


def trained_by(ready: Known, kinds: Any, otherwise: R.Objective) -> R.Objective:
    """The objective of the run, where it is of this kind."""
    return ready.recipe.objective if ready.recipe is not None and isinstance(ready.recipe.objective, kinds) else otherwise


def style(ready: Known) -> Any:
    """How a pair is joined, where no recipe says it."""
    return "gpt" if ready.model.spec.decoder is not None else "bert"


def row_length(ready: Known) -> int:
    """What was trained from nothing knows no place behind its rows' end; what was tuned knew more before."""
    known = ready.recipe
    return known.batch.length if known is not None and known.start is None else longest(ready.model)


def class_names(ready: Asked) -> tuple[str, ...]:
    """The head's names, or numbers where it has none; of a text-to-text run, its classes."""
    if (worded := labelled(getattr(ready, "recipe", None))) is not None:
        return worded.labels or ()
    return ready.labels or tuple(map(str, range(getattr(ready.model.spec.head, "outputs", 0))))


# A class or a number

def classify(ready: Known, texts: Sequence[tuple[str, str | None]], how: How = How()) -> list[Any]:
    """Of each text or pair, the probability of every class, in the order of `class_names`; or a number, of a model of numbers."""
    if (worded := labelled(ready.recipe)) is not None:
        return class_shares(ready, Writer(ready), worded, [as_source(worded, pair) for pair in texts], how)
    needs(ready, S.Classes, "classify")
    names = class_names(ready)
    if isinstance(ready.recipe and ready.recipe.objective, R.MultipleChoice):
        raise ValueError(f"{ready.name} chooses between endings; weft evaluate {ready.name} --on FILE scores it")
    number = len(names) == 1
    objective = trained_by(ready, R.Regression if number else R.Classification, (R.Regression if number else R.Classification)(
        input=style(ready)))
    pair = any(second is not None for _, second in texts)
    row = R.Examples(first="first", second="second" if pair else None, number=number)
    fields = [{"first": first, "second": second or "", "label": 0.0 if number else names[0]} for first, second in texts]
    return predict(ready, objective, Held(fields, row, ready.text, None if number else names), length=row_length(ready), how=how)


def as_source(row: R.Templated, texts: tuple[str, str | None]) -> str:
    """One or two texts in the run's template."""
    given = [text for text in texts if text is not None]
    if len(given) != len(row.columns):
        raise ValueError(f"this run reads {' and '.join(map(repr, row.columns))}; give {len(row.columns)} text"
                         + ("s, with --pair" if len(row.columns) > 1 else ""))
    return row.source_text(dict(zip(row.columns, given, strict=True)))


# A tag for every word

def tag(ready: Known, sentences: Sequence[Sequence[str]], how: How = How()) -> list[list[tuple[str, float]]]:
    """Of each word its tag and the probability; words behind the longest row are outside of everything."""
    needs(ready, S.Tags, "tag")
    names = class_names(ready)
    beyond = names.index(outside(names))
    fields = [{"words": words, "tags": [names[0]] * len(words)} for words in sentences]
    full = [i for i, words in enumerate(sentences) if words]
    if not full:
        return [[] for _ in sentences]
    held = Held([fields[i] for i in full], R.Tagged(), ready.text, names)
    found = dict(zip(full, predict(ready, R.Tagging(), held, length=row_length(ready), how=how), strict=True))
    return [[(names[int(t)], share) for t, share in [*found.get(i, []), *[(beyond, 0.0)] * len(words)][:len(words)]]
            for i, words in enumerate(sentences)]


# An answer in a text

class Answer(NamedTuple):
    text: str
    begin: int                             # characters of the context
    end: int
    score: float
    none: float                            # how much better no answer scores

    @property
    def said(self) -> Said:
        return Said(self.text, self.none)


def answer(ready: Known, asked: Sequence[tuple[str, str]], how: How = How()) -> list[Answer]:
    """Of each (question, context), the best span over all windows. No answer counts as much as where it counts least: every window but
    one is right not to find it (BERT, arXiv:1810.04805, section 4.3)."""
    needs(ready, S.Spans, "answer")
    row = ready.recipe.data.row if ready.recipe is not None and isinstance(ready.recipe.data.row, R.Questions) else R.Questions()
    length = min(row.length, positions(ready.model.spec) or row.length)
    row = R.Questions(length=length, stride=min(row.stride, max(1, length // 2)), question=min(row.question, max(1, length // 4)))
    fields = [{"id": str(i), "question": question, "context": context, "begin": -1, "end": -1}
              for i, (question, context) in enumerate(asked)]
    held = Held(fields, row, ready.text, None)
    windows: list[list[tuple[float, int, int, float]]] = [[] for _ in asked]
    for i, (first, last, score, none) in enumerate(predict(ready, R.Answering(), held, length=max(length, row_length(ready)), how=how)):
        window = held.row(i)
        places = window["offsets"].reshape(-1, 2)
        if len(places):                    # a context of which no token is left holds no answer
            windows[int(window["id"])].append((score, int(places[int(first), 0]), int(places[int(last), 1]), none))
    windows = [own or [(float("-inf"), 0, 0, 0.0)] for own in windows]
    best = [max(own) for own in windows]
    return [Answer(context[begin:end], begin, end, score, min(none for *_, none in own) - score)
            for (score, begin, end, _), own, (_, context) in zip(best, windows, asked, strict=True)]


# Vectors, and hidden words

class Whole(Corruption):
    """A text between the marks that its tokenizer.json puts there; where none, an encoder's begin and end. What is hidden is asked."""

    def __init__(self, ready: Asked, mask: int | None = None) -> None:
        tokenizer, decodes = ready.text, ready.model.spec.encoder is None
        self.before, self.after = tokenizer.frame()
        if not (self.before or self.after or decodes):
            self.before, self.after = ([tokenizer.special[m]] if m in tokenizer.special else [] for m in ("begin", "end"))
        self.fields, self.mask = {"tokens": ("tokens", tokenizer.special.get("pad", 0)), "labels": ("tokens", IGNORE)}, mask

    def beside(self, length: int) -> int:
        """Tokens of text in a row of so many."""
        return length - len(self.before) - len(self.after)

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
        tokens = joined(self.before, samples[index]["tokens"][:self.beside(samples.length)], self.after)
        return {"tokens": tokens, "labels": np.where(tokens == self.mask, tokens, IGNORE)}


def embed(ready: Known, texts: Sequence[str], pool: str | None = None, normalised: bool | None = None,
          how: How = How()) -> list[list[float]]:
    """A vector a text: the mean over its tokens and marks, their maximum, the first or the last (Reimers and Gurevych 2019,
    arXiv:1908.10084, section 3). Of an encoder and a decoder, the encoder's. Where nothing is said, as the folder's modules.json
    says; without one the mean, not normalised."""
    if not isinstance(ready.model.spec.source, S.Tokens):
        raise ValueError(f"{ready.name} reads {type(ready.model.spec.source).__name__.lower()}, not text")
    modules = modules_of(ready.model.origin or ready.folder) or Modules("mean")
    chosen, scaled = pool or modules.pooling, modules.normalise if normalised is None else normalised

    def vectors(batch: Batch) -> Tensor:
        found: Vectors = run(ready.model, {name: batch[name] for name in ("tokens", "tokens_keep") if name in batch})
        return pooled(found, chosen).float()

    def plain(x_BD: Tensor, batch: Batch) -> list[Any]:
        out: list[Any] = (F.normalize(x_BD, dim=-1) if scaled else x_BD).tolist()
        return out

    whole, tokens = Whole(ready), [ready.text.encode(text) for text in texts]
    if not (whole.before or whole.after):  # then a text of nothing is no row at all
        tokens = [own if len(own) else np.array([ready.text.special.get("unknown", 0)]) for own in tokens]
    samples = Reader(Given([{"tokens": own} for own in tokens]), min(longest(ready.model), modules.length or LONGEST))
    return answers(whole, samples, vectors, plain, device_of(ready.model), how)


def fill(ready: Known, texts: Sequence[str], top: int = 5, how: How = How()) -> list[list[list[tuple[str, float]]]]:
    """Of each hidden word of each text, the likeliest and their probabilities."""
    s = ready.model.spec
    if s.encoder is None or s.decoder is not None or not isinstance(s.head, S.Vocabulary):
        raise ValueError(f"{ready.name} does not guess hidden words, as an encoder with a Vocabulary head does; "
                         "train one with the objective MaskedTokens, or let weft generate go on with a text")
    mask = ready.text.special.get("mask")
    if mask is None:
        raise ValueError(f"the tokenizer of {ready.name} has no mask; it was not trained to guess hidden words")

    def logits(batch: Batch) -> Tensor:
        return read_at(ready.model, run(ready.model, batch), batch["labels_at"])

    def plain(logits_TV: Tensor, batch: Batch) -> list[Any]:
        share_TK, word_TK = logits_TV.double().softmax(-1).topk(min(top, logits_TV.shape[-1]))
        row_T = (batch["labels_at"] // batch["labels"].shape[1]).tolist()
        found: list[Any] = [[] for _ in batch["labels"]]
        for row, words, own in zip(row_T, word_TK.tolist(), share_TK.tolist(), strict=True):
            found[row].append(list(zip(words, own, strict=True)))
        return found

    held = [masked(ready.text, text, mask) for text in texts]
    corruption, samples = Whole(ready, mask), Reader(Given([{"tokens": tokens} for tokens in held]), longest(ready.model))
    for text, tokens in zip(texts, held, strict=True):
        if mask not in tokens:
            raise ValueError(f"{text[:60]!r} hides no word; write {' or '.join(reversed(NAMES['mask']))} where one shall be guessed")
        if mask in tokens[corruption.beside(samples.length):]:
            raise ValueError(f"{text[:60]!r} hides a word beyond the {samples.length} tokens that are read at once; give a shorter part")
    found = answers(corruption, samples, logits, plain, device_of(ready.model), how)
    return [[[(word(ready.text, int(i)), share) for i, share in own] for own in places] for places in found]


def masked(tokenizer: Tokenizer, text: str, mask: int) -> np.ndarray:
    """A text's tokens, with the mask where one of its names stands; the gap before it is the hidden word's own, but for tokenizers of
    letters, where a letter is hidden."""
    parts = MASK.split(text) if tokenizer.table is None else re.split("|".join(map(re.escape, NAMES["mask"])), text)
    found: list[Any] = []
    for i, part in enumerate(parts):
        found += [[mask]] * (i > 0) + ([tokenizer.encode(part)] if part else [])
    return joined(*found) if found else np.zeros(0, np.int64)


def word(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token]).strip() or str(tokenizer.inner.id_to_token(token) or token)
