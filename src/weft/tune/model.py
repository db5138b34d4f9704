"""The checkpoint's model with the head of the task: that of the family's own fine-tuning class, where it has one."""
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import recipe as R
from .. import spec as S
from ..data.tokenizer import Tokenizer
from ..interop.describe import describe
from ..interop.hub import fetch
from ..interop.rewrite import find_family
from . import text2text
from .guess import Guess

if TYPE_CHECKING:
    from .plan import Wish

CLASSES = {"choose": "ForMultipleChoice", "tag": "ForTokenClassification", "answer": "ForQuestionAnswering"}


def style_of(start: Path, spec: S.Model) -> Any:
    """BART's marks around a text, or T5's."""
    family = describe(start)[0] or family_of(spec)
    return "bart" if family is not None and family.name == "bart" else "t5"


def headed(spec: S.Model, start: Path, found: Guess, wish: "Wish") -> S.Model:
    """The model with the task's head. Text-to-text needs the whole encoder-decoder as it is; other tasks read its encoder."""
    dropout = wish.dropout
    if found.task == text2text.TASK:
        there, tokenizer = fetch(wish.checkpoint), Tokenizer.load(start)
        before = R.of_run(there).objective if (there / "recipe.json").is_file() else None
        spec = text2text.whole(spec, style_of(start, spec), tokenizer, before)
        return spec if dropout is None else S.with_dropout(spec, dropout)
    if spec.encoder is not None and spec.decoder is not None:
        spec = replace(spec, decoder=None, target=None, head=S.Features())
    family = describe(start)[0] or family_of(spec)
    plain = dropping(spec, 0.1 if dropout is None else dropout)
    if dropout is not None or (family is not None and family_of(plain) is not None):
        spec = plain
    labels, outputs = found.labels, len(found.labels or ()) or 1
    suffix = CLASSES.get(found.task, "ForSequenceClassification")
    name = next((name for name in family.heads if name.endswith(suffix)), None) if family else None
    if family and name:
        return replace(spec, head=family.head(name, spec, outputs, labels))
    rate = 0.1 if dropout is None else dropout
    pooled = {"pool": "last"} if spec.decoder is not None else {"transform": S.Transform(activation="tanh")}
    head: Any = {"tag": S.Tags(outputs=outputs, labels=labels, dropout=rate), "answer": S.Spans()}.get(
        found.task, S.Classes(outputs=outputs, labels=labels, dropout=rate, **pooled))
    return replace(spec, head=head)


def featured(spec: S.Model, wish: "Wish") -> S.Model:
    """The head on features of several layers; a pooler that was trained on the last layer's first token is left out."""
    if wish.features is None:
        return spec
    if isinstance(spec.head, S.Vocabulary):
        raise ValueError("--features are what a new head reads; text-to-text keeps the model's own")
    head: Any = spec.head
    return replace(spec, head=replace(head, transform=None), features=wish.features)


def dropping(spec: S.Model, rate: float) -> S.Model:
    """BERT's places: embeddings, the attentions' weights, what joins the residual; not the hidden layers."""
    def change(plain: Any) -> Any:
        if isinstance(plain, dict):
            hidden = plain.get("kind") in ("Dense", "Gated")
            return {name: rate if name == "dropout" and not hidden else change(part) for name, part in plain.items()}
        return [change(part) for part in plain] if isinstance(plain, list) else plain
    changed: S.Model = S.from_plain(change(S.to_plain(spec)))
    return changed


def family_of(spec: S.Model) -> Any:
    try:
        found = find_family(spec)
    except ValueError:
        return None
    return None if found.steps else found.family
