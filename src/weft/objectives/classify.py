"""The class of, or a number for, a text, a pair of texts or an image (BERT, arXiv:1810.04805, section 4.1; GPT, Radford et al. 2018,
section 3.3; ViT, arXiv:2010.11929, section 3.2)."""
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..data.image import Pictures
from ..data.tokenizer import Marks
from ..layers.loss import wide
from ..layers.sequence import Sequence
from ..model.head import Classes, pool
from ..model.model import Model
from . import auxiliary
from .base import Batch, Corruption, Objective, Reader, Row, Setting, asks, cross_entropy, joined, special

if TYPE_CHECKING:
    from ..data.store import Store

Value = R.Classification | R.Regression
SWAPPED = {"tokens": "swapped", "segments": "swapped_segments"}    # the other order of a symmetric pair
LABEL = {"class": "labels", "number": "number"}    # a term's field in a batch


class Join:
    """One row of one or two texts, begin A end [B end]; between RoBERTa's are two ends. BERT's has segments where a model does; GPT's
    start, delimiter and extract tokens are the same marks, without segments. A decoder's end may be its only mark, and begins too; T5
    has none that begins."""

    def __init__(self, value: Any, setting: Setting, style: str = "bert") -> None:
        decodes = setting.spec.decoder is not None
        asks(value, setting, encoder=not decodes, decoder=decodes, head=None)
        placed = not decodes and isinstance(value, R.Tagging | R.Answering)    # their labels count on a first mark
        (end, *_), known = special(value, setting, "end", *["begin"] * placed), setting.meta.special
        self.begin, self.end = [known["begin"]] if "begin" in known else [end] * decodes, [end]
        self.between = [end, *([known["between"]] if "between" in known and not decodes else [])]
        self.marks = Marks(self.begin, self.end, self.between)
        self.segments = style == "bert" and any(segmented(m.spec) for m in (setting, setting.teacher) if m is not None)

    def __call__(self, first: np.ndarray, second: np.ndarray | None, length: int) -> Row:
        """The longer text is cut first."""
        if second is None:
            parts: list[Any] = [self.begin, first[:length - len(self.begin) - 1], self.end]
        else:
            first, second = self.cut(first, second, length)
            parts = [self.begin, first, self.between, second, self.end]
        tokens, later = joined(*parts), self.second(first)
        return {"tokens": tokens} | ({"segments": (np.arange(len(tokens)) >= later).astype(np.int64)} if self.segments else {})

    def cut(self, first: np.ndarray, second: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        return cut(first, second, length - len(self.begin) - len(self.between) - 1)

    def second(self, first: np.ndarray) -> int:
        """Where the second text starts."""
        return len(self.begin) + len(first) + len(self.between)

    def fields(self, pad: int, stream: str = "tokens", **names: str) -> dict[str, tuple[str, int]]:
        fields = {"tokens": (stream, pad)} | ({"segments": (stream, 0)} if self.segments else {})
        return {names.get(name, name): field for name, field in fields.items()}

    def table(self, store: "Store", length: int, *columns: str) -> Any:
        from ..data.table import Table
        if length < 5:
            raise ValueError(f"length = {length} leaves no room for texts beside three marks; give more")
        return Table(store, columns, extra=len(self.begin) + 1 + len(self.between) * (len(columns) > 1))


def cut(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The longer loses its last token until both fit; of two equal ones, the second."""
    n, m = len(first), len(second)
    return first[:max(room - m, room - room // 2)], second[:max(room - n, room // 2)]


def segmented(s: S.Model) -> bool:
    return isinstance(s.source, S.Tokens) and (s.source.segments or 1) > 1


def refuse_head(value: Any, setting: Setting, head: type, outputs: int | None = None) -> None:
    """The head must be of this kind and have as many outputs as the data have labels."""
    s, name = setting.spec, type(value).__name__
    if not isinstance(s.head, head):
        raise ValueError(f"{name} needs a {head.__name__} head, not {type(s.head).__name__}; use replace(model, head={head.__name__}(…))")
    labels = setting.meta.labels
    if outputs is None and not labels:
        raise ValueError(f"{name} needs labels, and the data have none; give their column and prepare them again")
    wanted = len(labels or ()) if outputs is None else outputs
    found = getattr(s.head, "outputs", wanted)
    if found != wanted:
        why = f"the data have {wanted} labels" if outputs is None else f"{name} reads {wanted} output{'s' * (wanted != 1)}"
        raise ValueError(f"{why}, the head {found} outputs; use replace(head, outputs={wanted})")
    names = getattr(s.head, "labels", None)
    if outputs is None and names is not None and tuple(names) != tuple(labels or ()):
        raise ValueError(f"the head's labels {names} are not the data's {tuple(labels or ())}"[:200] + "; put them in the same order")


def check(value: Value, setting: Setting) -> None:
    row, number = setting.meta.row, isinstance(value, R.Regression)
    refuse_head(value, setting, S.Classes, 1 if number else None)
    if not isinstance(row, R.Examples | R.Images):
        raise ValueError(f"{type(value).__name__} reads rows of Examples or Images, not of {type(row).__name__}")
    if isinstance(row, R.Images) != isinstance(setting.spec.source, S.Patches):
        raise ValueError(f"the data are {type(row).__name__}, but the model reads {type(setting.spec.source).__name__}")
    if number != getattr(row, "number", False):
        raise ValueError("Regression needs numbers as labels; prepare the data with Examples(number=True)" if number else
                         "the data's labels are numbers; use Regression, or prepare them with Examples(number=False)")
    auxiliary.refuse(value, setting)
    if value.symmetric and getattr(row, "second", None) is None:
        raise ValueError("symmetric reads a pair in both orders; the data have no second text")


def Corrupt(value: Value, setting: Setting) -> Corruption:
    check(value, setting)
    return (ImageCorrupt if isinstance(setting.spec.source, S.Patches) else TextCorrupt)(value, setting)


class TextCorrupt(Corruption):
    """Nothing is corrupted: a text or a pair becomes one row, a symmetric pair two of the same length."""

    def __init__(self, value: Value, setting: Setting) -> None:
        super().__init__(setting)
        self.join, self.terms, self.symmetric = Join(value, setting, value.input), auxiliary.terms(value, *term(value)), value.symmetric
        assert isinstance(setting.meta.row, R.Examples)
        self.pair = setting.meta.row.second is not None
        self.fields, self.marks = self.join.fields(self.pad), self.join.marks
        if self.symmetric:
            self.fields |= self.join.fields(self.pad, **SWAPPED)

    def read(self, store: "Store", length: int, tail: bool) -> Any:
        return self.join.table(store, length, "first", *(["second"] if self.pair else []))

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        first, second = sample["first"], sample["second"] if self.pair else None
        row = self.join(first, second, samples.length)
        if self.symmetric:
            assert second is not None
            other = self.join(*self.join.cut(first, second, samples.length)[::-1], samples.length)
            row |= {SWAPPED[name]: part for name, part in other.items()}
        return row | {LABEL[self.terms[0]]: np.asarray(sample["label"])}

    def units(self, batch: Any) -> dict[str, int]:
        counts = {"number": len(batch["number"])} if "number" in batch else super().units(batch)
        if auxiliary.TERM in self.terms:
            counts[auxiliary.TERM] = (1 + self.symmetric) * auxiliary.count(batch["tokens"], batch.get("tokens_keep"))
        return counts


class ImageCorrupt(Corruption):
    """A random part of the image, mirrored half of the time; in validation its middle."""

    def __init__(self, value: Value, setting: Setting) -> None:
        super().__init__(setting)
        self.source, self.terms, self.fields = setting.spec.source, term(value), {}

    def read(self, store: "Store", length: int, tail: bool) -> Any:
        assert isinstance(self.source, S.Patches)
        return Pictures(store, self.source, still=tail)

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        return {"image": see(samples, sample["image"], draw), "labels": np.asarray(sample["label"])}


def see(samples: Reader, data: bytes, draw: np.random.Generator) -> np.ndarray:
    pictures = samples.samples
    assert isinstance(pictures, Pictures)
    return pictures.see(data, draw)


def term(value: Any) -> tuple[str]:
    return ("number",) if isinstance(value, R.Regression) else ("class",)


def run(model: Model, batch: Batch) -> Sequence:
    """All but the head, on texts or images."""
    if "image" in batch:
        sequence = model.embed(batch["image"].to(next(model.parameters()).dtype))
    else:
        segments = batch.get("segments") if segmented(model.spec) else None
        sequence = model.embed(batch["tokens"], keep=batch.get("tokens_keep"), segments=segments)
    return model.encode(sequence) if model.encoder is not None else model.decode(sequence)


class Score(Objective):
    def __init__(self, value: Value, setting: Setting) -> None:
        super().__init__(setting, auxiliary.weights(value, *term(value)))
        self.value, self.smoothing = value, value.smoothing if isinstance(value, R.Classification) else None

    def answer(self, batch: Batch) -> Tensor | auxiliary.Joint:
        given = both_orders(batch) if self.value.symmetric else batch
        sequence = run(self.model, given)
        logits_BV = self.summed(sequence) if self.value.symmetric else self.model.read(sequence)
        assert isinstance(logits_BV, Tensor)
        return auxiliary.with_next(logits_BV, self.model, sequence, given.get("tokens", logits_BV), self.value)

    def summed(self, sequence: Sequence) -> Tensor:
        """The vectors of both orders are added before the linear map (GPT, section 3.3: similarity)."""
        head = self.model.head
        assert isinstance(head, Classes)
        assert isinstance(head.out, nn.Linear)
        x_BD = head.transform(pool(sequence, head.pool))
        logits_BV: Tensor = head.out(head.drop(x_BD.unflatten(0, (-1, 2)).sum(1)))
        return logits_BV

    def score(self, answer: Tensor | auxiliary.Joint, batch: Batch) -> dict[str, Tensor]:
        logits_BV, more = auxiliary.scores_of(answer), auxiliary.also(answer)
        if self.smoothing is not None:
            return {"class": cross_entropy(logits_BV, batch["labels"], self.smoothing)} | more
        return {"number": (logits_BV[:, 0].to(wide(logits_BV)) - batch["number"]).square().sum()} | more


def both_orders(batch: Batch) -> Batch:
    """A batch of twice the rows: A B, then B A of every sample."""
    return {name: torch.stack((batch[name], batch[SWAPPED.get(name, name)]), 1).flatten(0, 1)
            for name in ("tokens", "tokens_keep", "segments") if name in batch}
