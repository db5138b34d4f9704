"""What every objective is: a corruption of samples (numpy, pure) and a score of answers (torch, sums).

A module of this folder holds one pair, `Corrupt(value, setting)` and `Score(value, setting)`; `Corrupt` is made first and refuses
what does not fit."""
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from ..check import blocks
from ..count import vocabulary
from ..data.batch import real_tokens
from ..data.plan import grain
from ..data.store import Meta, Store
from ..data.text import Samples
from ..data.tokenizer import Marks
from ..layers.experts import Experts, routing
from ..layers.keyed import Keys, drawing, keys_of
from ..layers.loss import IGNORE as IGNORE
from ..layers.loss import cross_entropy as cross_entropy
from ..layers.sequence import Sequence
from ..model.model import Model, build
from ..model.start import begin, number

ROUTER = ("balance", "router_z")           # terms of every objective whose model has experts
Row = dict[str, np.ndarray]
Batch = dict[str, Tensor]


class Setting(NamedTuple):
    """What an objective is built for."""
    spec: S.Model
    meta: Meta
    seed: int = 0
    dtype: torch.dtype = torch.float32
    teacher: Model | None = None
    model: Model | None = None             # one that is trained already; None: a new one


class Reader:
    """Samples and the length that their rows shall have."""

    def __init__(self, samples: Samples, length: int) -> None:
        self.samples, self.length = samples, length

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        short: np.ndarray = np.minimum(self.samples.lengths(indices), self.length)
        return short


class Corruption:
    """From a sample to a row of a batch. Pure: a row is decided by the sample's number and its private generator alone.

    A row may hold `tokens_keep`, whole numbers that part its documents; without it, all tokens of a row are one document."""
    fields: dict[str, tuple[str, int]]     # ragged field -> its stream and what pads it
    terms: tuple[str, ...] = ("token",)    # names of the losses; `counts` and `score` have these keys
    fixed: bool = False                    # the same draw in every epoch
    routed: dict[str, S.Experts] = {}      # stacks that have experts
    marks: Marks | None = None             # around the text that a model reads; None: what its tokenizer.json puts there
    start: int | None = None               # what a decoder beside an encoder reads first

    def __init__(self, setting: Setting) -> None:
        self.room, self.routed = room(setting.spec), experts(setting.spec)
        self.pad = setting.meta.special.get("pad", 0)

    def both(self) -> dict[str, tuple[str, int]]:
        """The fields of an encoder and a decoder: what each reads, and what the decoder shall say."""
        return {"tokens": ("tokens", self.pad), "target": ("target", self.pad), "labels": ("target", IGNORE)}

    def samples(self, store: Store, length: int, tail: bool = False) -> Reader:
        """Samples that become rows of `length`; with `tail`, the last short one too."""
        if self.room is not None and length > self.room:
            raise ValueError(f"length = {length}: the model has {self.room} learned positions; shorten the rows or give it more")
        return Reader(self.read(store, length, tail), length)

    def read(self, store: Store, length: int, tail: bool) -> Samples:
        raise NotImplementedError

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        raise NotImplementedError

    def units(self, batch: Any) -> dict[str, int]:
        """Units of each of the objective's own terms in a batch."""
        return {self.terms[0]: len(batch["labels_at"])}

    def counts(self, batch: Any) -> dict[str, int]:
        """Units of each term in a batch. Those of the routers are tokens of the stacks that have experts, or images."""
        if not self.routed:
            return self.units(batch)
        streams = {stream for stream, _ in self.fields.values()}
        if "target" in streams:
            streams = {stream for stream, stack in (("tokens", "encoder"), ("target", "decoder")) if stack in self.routed}
        read = {name: field for name, field in self.fields.items() if field[0] in streams}
        passes = 2 if "swapped" in read else 1 if read else len(self.routed)
        return self.units(batch) | dict.fromkeys(ROUTER, passes * real_tokens(batch, read))


class Objective(nn.Module):
    """The root of what is trained: loss = sum over terms of weight * (sum of scores / sum of counts), over all micro-batches and ranks."""
    model: Model                           # what is kept

    def __init__(self, setting: Setting, weights: dict[str, float] | None = None) -> None:
        super().__init__()
        self.model = setting.model or build(setting.spec, dtype=setting.dtype, seed=setting.seed)
        self.weights = weights or {"token": 1.0}
        for layer in list(experts(setting.spec).values())[:1]:                     # all have the same weights
            self.weights = self.weights | dict(zip(ROUTER, (layer.balance, layer.z_loss), strict=True))
        self.load: list[Tensor] = []                           # (E,) per layer: tokens sent to each expert since it was last empty

    def begin(self, setting: Setting) -> None:
        """Start what the objective owns beside its models as the model's spec says; call it once these parts are made."""
        self.to(setting.dtype)
        with torch.no_grad():
            for name, tensor in self.named_parameters():
                if name.split(".")[0] not in ("model", "generator", "teacher"):
                    begin(name, tensor, setting.spec, torch.Generator().manual_seed(number(setting.seed, name)))

    def answer(self, batch: Batch) -> Any:
        raise NotImplementedError

    def score(self, answer: Any, batch: Batch) -> dict[str, Tensor]:
        """Cross entropy of the logits at the labels; objectives with more terms say more."""
        return {"token": cross_entropy(answer, labels_at(batch))}

    def router_terms(self) -> dict[str, Tensor]:
        """The routers' losses in the newest forward pass, the mean over the layers of each stack."""
        found, image = [], not isinstance(self.model.spec.source, S.Tokens)
        for stack in (self.model.encoder, self.model.decoder, getattr(self.model.head, "stack", None)):
            layers = [m for m in stack.modules() if isinstance(m, Experts)] if isinstance(stack, nn.Module) else []
            if layers:
                found.append([routing(m, getattr(stack, "keep_BL", None), image) for m in layers])
        load = [layer.load_E for stack in found for layer in stack]
        self.load = [torch.add(*both) for both in zip(self.load, load, strict=True)] if self.load else load
        balance, z = (sum(torch.stack([layer[i] for layer in stack]).mean() for stack in found) for i in (0, 1))
        return dict(zip(ROUTER, (balance, z), strict=True))    # type: ignore[arg-type]

    def sums(self, answer: Any, batch: Batch) -> dict[str, Tensor]:
        """Every term of an answer to a batch: the objective's own and, where the model has experts, its routers'."""
        return self.score(answer, batch) | (self.router_terms() if ROUTER[0] in self.weights else {})

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.sums(self.answer(batch), batch)


class Decoded(Objective):
    """The encoder reads `tokens`, the decoder `target` and says `labels`."""

    def answer(self, batch: Batch) -> Tensor:
        memory = self.model.encode(self.model.embed(batch["tokens"], keep=batch.get("tokens_keep")))
        sequence = self.model.decode(self.model.embed_target(batch["target"], memory, keep=batch.get("target_keep")), memory)
        return read_at(self.model, sequence, batch["labels_at"])


def labels_at(batch: Batch, field: str = "labels") -> Tensor:
    """The labels that are asked, in the order of the logits of `read_at`."""
    return batch[field].flatten()[batch[f"{field}_at"]]


def read_at(model: Model, sequence: Sequence, at_T: Tensor) -> Tensor:
    """The head's answer at some places of (B * L) alone: most of its cost is the vocabulary's. In training a few more rows follow, which
    nothing asks for."""
    x_TD, keys = sequence.x_BLD.flatten(0, 1), keys_of(sequence).key_BL.flatten() if model.training else None
    if len(at_T) != len(x_TD):
        at_T = F.pad(at_T, (0, -len(at_T) % grain(len(at_T)))) if model.training else at_T
        x_TD, keys = x_TD[at_T], None if keys is None else keys[at_T]
    with drawing(None if keys is None else Keys(keys[None])):
        logits_1TV = model.read(Sequence(x_TD[None]))
    assert isinstance(logits_1TV, Tensor)
    return logits_1TV.squeeze(0)           # a view both ways; an index would copy the gradient


def joined(*pieces: Any) -> np.ndarray:
    return np.concatenate([np.asarray(piece, np.int64) for piece in pieces])


def start(setting: Setting, otherwise: int) -> int:
    """What the decoder reads first: what the model says or, where it says nothing, this."""
    return otherwise if setting.spec.special.start is None else setting.spec.special.start


def experts(s: S.Model) -> dict[str, S.Experts]:
    """The stacks that have experts, each with the first of them."""
    found: dict[str, S.Experts] = {}
    for name, stack in (("encoder", s.encoder), ("decoder", s.decoder), ("head", getattr(s.head, "stack", None))):
        blocks = sum(stack.stages, ()) if isinstance(stack, S.Pyramid) else stack.blocks if stack is not None else ()
        layers = [b.feedforward.inner for b in blocks if isinstance(b.feedforward.inner, S.Experts)]
        if layers:
            found[name] = layers[0]
    return found


# What does not fit is refused in one line

def room(s: S.Model) -> int | None:
    """The longest row that learned positions and Linformer's projections allow."""
    tables = [t.positions for t in (s.source, s.target) if isinstance(t, S.Tokens | S.Shared)]
    patterns = [b.attention.inner.pattern for _, _, b in blocks(s) if isinstance(b.attention.inner, S.Attention)]
    return min([*(p.count for p in tables if isinstance(p, S.Learned)), *(p.length for p in patterns if isinstance(p, S.Linformer))],
               default=None)


def beside(length: int, marks: int) -> int:
    """Tokens of text in a row that also holds marks."""
    if length <= marks:
        raise ValueError(f"length = {length} leaves no room for text beside {marks} marks; give more")
    return length - marks


def asks(value: Any, setting: Setting, *, encoder: bool = False, decoder: bool = False, head: type | None = S.Vocabulary) -> None:
    """Refuse a model without the named parts, or whose table is smaller than the tokenizer's."""
    s, name = setting.spec, type(value).__name__
    if not isinstance(s.source, S.Tokens):
        raise ValueError(f"{name} reads tokens; the model reads {type(s.source).__name__}")
    if (s.encoder is not None, s.decoder is not None) != (encoder, decoder):
        kind = {(True, True): "an encoder and a decoder", (True, False): "an encoder alone", (False, True): "a decoder alone"}
        raise ValueError(f"{name} needs a model with {kind[encoder, decoder]}; this one has "
                         f"{kind[s.encoder is not None, s.decoder is not None]}")
    if head is not None and not isinstance(s.head, head):
        raise ValueError(f"{name} needs a {head.__name__} head, not {type(s.head).__name__}; use replace(model, head={head.__name__}(…))")
    sizes = [vocabulary(s)] if isinstance(s.target, S.Tokens) else []
    if (setting.meta.vocabulary or 0) > min([s.source.vocabulary, *sizes]):
        raise ValueError(f"the tokenizer has {setting.meta.vocabulary} tokens, the model {min([s.source.vocabulary, *sizes])}; "
                         "give the model's source the tokenizer's vocabulary")


def special(value: Any, setting: Setting, *names: str) -> tuple[int, ...]:
    """Ids of special tokens, or the word how to get them."""
    missing = [name for name in names if name not in setting.meta.special]
    if missing:
        raise ValueError(f"{type(value).__name__} needs the {' and '.join(missing)} token, which the tokenizer lacks; "
                         "prepare the data with a tokenizer that has special=True")
    return tuple(setting.meta.special[name] for name in names)
