"""Which scores tell how good a model is, by what it was trained for; and a receipt that lets anybody ask for them again."""
import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from .. import recipe as R
from ..data.files import Missing, bare, expand
from ..data.plan import share
from ..data.store import Store
from ..generate.text import Writer
from ..model.model import Model
from .accuracy import classes
from .answers import squad_rows
from .ask import Known, answer, row_length
from .bleu import translation
from .choice import choice
from .correlation import numbers
from .data import On, words
from .entities import outside, tags
from .perplexity import perplexity
from .predict import How, gather, predict
from .squad import squad
from .text2text import exact_share, label_scores, text_scores

Scores = Iterator[tuple[str, float | str]]


class Wish(NamedTuple):
    """What a person may want otherwise."""
    how: How = How()
    length: int | None = None              # of rows; the recipe's unless given
    stride: int | None = None              # of windows of running text; half the length unless given
    beams: int = 4
    alpha: float = 0.6
    language: str | None = None            # of the target, for tokenised BLEU; from the file's name unless given
    threshold: float = 0.0                 # of no answer


def scores(ready: Known, objective: R.Objective, on: On, wish: Wish) -> Scores:
    """Name and value, one after another, the same on every rank."""
    store, length = on.store, wish.length or row_length(ready)
    match objective:
        case R.Classification():
            labels = store.meta.labels or ()
            said = [labels[own.index(max(own))] for own in predict(ready, objective, store, length=length, how=wish.how)]
            yield from classes(said, [labels[label] for label in column(store, "label")], labels)
        case R.Regression():
            yield from numbers(predict(ready, objective, store, length=length, how=wish.how), column(store, "label"))
        case R.MultipleChoice():
            yield from choice(predict(ready, objective, store, length=length, how=wish.how), column(store, "label"))
        case R.Tagging():
            yield from tagged(ready, objective, store, length, wish)
        case R.Answering():
            yield from answered(ready, on, wish)
        case R.Translation():
            yield from translated(ready, on, wish)
        case R.TextToText():
            yield from texts(ready, objective, on, length, wish)
        case R.NextToken():
            found = predict(ready, objective, store, length=length, stride=wish.stride or max(1, length // 2), how=wish.how)
            yield from perplexity([surprise for row in found for surprise, _ in row], text_bytes(on))
        case _:
            found = [pair for row in predict(ready, objective, store, length=length, how=wish.how) for pair in row]
            yield "accuracy of hidden tokens", sum(hit for _, hit in found) / len(found)
            yield from perplexity([surprise for surprise, _ in found])


def column(store: Store, name: str) -> list[Any]:
    return [store.row(i)[name] for i in range(len(store))]


def tagged(ready: Known, objective: R.Objective, store: Store, length: int, wish: Wish) -> Scores:
    labels = store.meta.labels or ()
    right = [[labels[tag] for tag in own if tag >= 0] for own in column(store, "tags")]
    said = [[labels[int(tag)] for tag, _ in own] for own in predict(ready, objective, store, length=length, how=wish.how)]
    yield from tags([(own + [outside(labels)] * len(true))[:len(true)] for own, true in zip(said, right, strict=True)], right)


def answered(ready: Known, on: On, wish: Wish) -> Scores:
    """Against all answers of the file, of which training keeps the first."""
    if on.source is None:
        raise ValueError("answers are scored against the file; give it with --on")
    asked = [row for path in expand(on.source.paths) for row in squad_rows(path, on.source.part)]
    found = answer(ready, [(row.question, row.context) for row in asked], wish.how)
    yield from squad({row.id: own.said for row, own in zip(asked, found, strict=True)}, {row.id: row.answers for row in asked},
                     wish.threshold)


def translated(ready: Known, on: On, wish: Wish) -> Scores:
    row, ranks = on.store.meta.row, wish.how.ranks
    assert isinstance(row, R.Pairs)
    pairs = [(fields[row.source], fields[row.target]) for fields in words(on)]
    own = share(range(len(pairs)), ranks.rank, ranks.size)
    made = Writer(ready).translate([pairs[i][0] for i in own], beams=wish.beams, alpha=wish.alpha, batch=wish.how.rows)
    said = dict(gather(list(zip(own, made, strict=True)), ranks))
    yield from translation([said[i] for i in range(len(pairs))], [target for _, target in pairs], wish.language or language(on.source))


def texts(ready: Known, objective: R.Objective, on: On, length: int, wish: Wish) -> Scores:
    """Of classes the likeliest, and how often greedy decoding writes the right one; of other texts, what beam search writes."""
    row = on.store.meta.row
    if isinstance(row, R.Templated) and row.labels is not None:
        yield from label_scores(ready, row, words(on), wish.how)
        yield "exact match", exact_share(predict(ready, objective, on.store, length=length, how=wish.how))
    else:
        yield from text_scores(ready, row, words(on), wish, wish.language or language(on.source))


def language(source: R.Source | None) -> str:
    """By the ending of the second file's name."""
    ending = os.path.splitext(bare(source.paths[-1]))[1].lstrip(".") if source is not None else ""
    return ending if len(ending) == 2 else "en"


def text_bytes(on: On) -> int | None:
    """The size of the text in UTF-8, where it can be read."""
    row = on.store.meta.row
    try:
        return sum(len(fields[row.text].encode()) for fields in words(on)) if isinstance(row, R.Documents) else None
    except (Missing, ValueError):
        return None


# A receipt

class Hashed(Protocol):
    """What was asked: prepared data, or questions."""
    fingerprint: str

    def __len__(self) -> int: ...


def receipt(ready: Known, data: Hashed, found: dict[str, float | str], seconds: float, seed: int) -> dict[str, Any]:
    """Command, versions, machine, hashes: all that is needed to ask again."""
    return {"command": shlex.join(["weft", *sys.argv[1:]]), "version": version("weft"), "commit": commit(), "seed": seed,
            "when": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": round(seconds, 1),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores", "torch": version("torch"), "model": digest(ready.model),
            "data": data.fingerprint, "samples": len(data),
            "scores": {name: value if isinstance(value, str) or isfinite(value) else None for name, value in found.items()}}


def commit() -> str | None:
    """Of the source, where it is one's own."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        said = [subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False).stdout.strip()
                for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "src"])]
    except OSError:
        return None
    return (said[0] + (" and changes" if said[1] else "")) or None


def digest(model: Model) -> str:
    """SHA-256 of every parameter and buffer."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
