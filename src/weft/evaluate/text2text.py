"""Text-to-text models: classes by the likelihood of their words, texts by what is generated (T5, arXiv:1910.10683, section 2.4)."""
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import recipe as R
from ..data.plan import share
from ..generate.text import Writer
from ..layers.loss import IGNORE
from ..objectives import Batch, Corruption, Reader
from ..objectives.base import joined
from .accuracy import classes
from .bleu import translation
from .memory import Given
from .predict import Asked, How, answers, device_of, gather, longest

Fields = dict[str, Any]
Scores = Iterator[tuple[str, float | str]]


def labelled(recipe: R.Recipe | None) -> R.Templated | None:
    """The row of a run that decodes one of several classes as text."""
    if recipe is None or not isinstance(recipe.objective, R.TextToText):
        return None
    row = recipe.data.row
    return row if isinstance(row, R.Templated) and row.labels is not None else None


class Sources(Corruption):
    """A source text for the encoder alone."""

    def __init__(self, pad: int) -> None:
        self.fields = {"tokens": ("tokens", pad)}

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> dict[str, np.ndarray]:
        return {"tokens": np.asarray(samples[index]["tokens"], np.int64)}

    def counts(self, batch: Any) -> dict[str, int]:
        return {"token": len(batch["tokens"])}


def class_shares(ready: Asked, writer: Writer, row: R.Templated, texts: Sequence[str], how: How = How()) -> list[list[float]]:
    """For each source text, the probability of each class: the likelihood of its words after the text, divided by the sum over the
    classes. A prediction is therefore always a class, which generated text need not be."""
    target_VL, label_VL = (torch.from_numpy(side).to(device_of(ready.model)) for side in decoded_words(writer, row.targets))

    def likelihoods(batch: Batch) -> Tensor:
        model, many = ready.model, len(target_VL)
        memory = model.encode(model.embed(batch["tokens"], keep=batch.get("tokens_keep")))
        rows = len(memory.x_BLD)
        memory = memory._replace(x_BLD=memory.x_BLD.repeat_interleave(many, 0),
                                 keep_BL=None if memory.keep_BL is None else memory.keep_BL.repeat_interleave(many, 0))
        logits = model.read(model.decode(model.embed_target(target_VL.repeat(rows, 1), memory), memory))
        assert isinstance(logits, Tensor)
        label_TL = label_VL.repeat(rows, 1)
        said_TL = logits.float().log_softmax(-1).gather(-1, label_TL.clamp(min=0)[..., None])[..., 0]
        return said_TL.masked_fill(label_TL == IGNORE, 0.0).sum(-1).view(rows, many)

    def plain(scores_BV: Tensor, batch: Batch) -> list[Any]:
        found: list[Any] = scores_BV.double().softmax(-1).tolist()
        return found

    most = longest(ready.model)
    samples = Reader(Given([{"tokens": shortened(writer, text, most)} for text in texts]), most)
    return answers(Sources(writer.tokenizer.special.get("pad", 0)), samples, likelihoods, plain, device_of(ready.model), how)


def shortened(writer: Writer, text: str, most: int) -> list[int]:
    """A long text is cut before the marks that end it."""
    ids, end = writer.framed(text), len(writer.after)
    return ids if len(ids) <= most else [*ids[:most - end], *ids[len(ids) - end:]]


def decoded_words(writer: Writer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """What the decoder reads and says for each text, one row each; a causal decoder does not see the padding behind."""
    labels = [np.asarray(writer.framed(text), np.int64) for text in texts]
    wide = max(map(len, labels))
    said = np.stack([np.pad(own, (0, wide - len(own)), constant_values=IGNORE) for own in labels])
    read = np.stack([np.pad(joined([writer.start()], own[:-1]), (0, wide - len(own))) for own in labels])
    return read, said


# Scores

def exact_share(found: Sequence[Sequence[Sequence[float]]]) -> float:
    """Rows of which every token is the likeliest after those before it: greedy decoding would write the target, token for token."""
    return float(np.mean([all(hit for _, hit in own) for own in found]))


def text_scores(ready: Any, row: R.Row, fields: list[Fields], wish: Any, language: str) -> Scores:
    """Exact match, BLEU and chrF of the text of beam search."""
    writer, how, ranks = Writer(ready), wish.how, wish.how.ranks
    rows = [sides(row, own) for own in fields]
    own = share(range(len(rows)), ranks.rank, ranks.size)
    made = writer.translate([rows[i][0] for i in own], beams=wish.beams, alpha=wish.alpha, batch=how.rows)
    said = dict(gather(list(zip(own, made, strict=True)), ranks))
    yield "exact match", float(np.mean([said[i].strip() == target.strip() for i, (_, target) in enumerate(rows)]))
    yield from translation([said[i] for i in range(len(rows))], [target for _, target in rows], language)


def sides(row: R.Row, fields: Fields) -> tuple[str, str]:
    """What is asked, as a person types it, and the target: the writer adds the template of a single column by itself."""
    if isinstance(row, R.Templated):
        return fields[row.columns[0]] if len(row.columns) == 1 else row.source_text(fields), row.target_text(fields)
    assert isinstance(row, R.Pairs)
    return fields[row.source], fields[row.target]


def label_scores(ready: Any, row: R.Templated, rows: list[Fields], how: How) -> Scores:
    """The likeliest class."""
    labels = row.labels or ()
    found = class_shares(ready, Writer(ready), row, [row.source_text(fields) for fields in rows], how)
    yield from classes([labels[own.index(max(own))] for own in found], [str(fields[row.target]) for fields in rows], labels)
