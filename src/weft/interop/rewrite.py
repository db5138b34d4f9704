"""The same function said otherwise, exactly: so that a model leaves as a family whose files can say no other way.

A rewriting takes a spec and its tensors to an equivalent spec and its tensors. What is new is a bias of zeros."""
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import spec as S
from ..families import families
from ..model.model import shapes_of
from ..weights import Family
from .modules import POOLINGS

State = Mapping[str, Tensor]


class Rewriting(NamedTuple):
    spec: Callable[[S.Model], S.Model | None]         # None: there is nothing to rewrite, or no way to
    state: Callable[[S.Model, State], State] = lambda spec, state: state


def everywhere(thing: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A spec with every value in it changed."""
    def walk(plain: Any) -> Any:
        if isinstance(plain, dict):
            return change({name: walk(part) for name, part in plain.items()})
        return [walk(part) for part in plain] if isinstance(plain, list) else plain
    return S.from_plain(walk(S.to_plain(thing)))


# Biases of zeros

def norm_biases(s: S.Model) -> S.Model:
    found: S.Model = everywhere(s, lambda plain: plain | {"bias": True} if plain["kind"] == "LayerNorm" else plain)
    return found


def logit_bias(s: S.Model) -> S.Model | None:
    head = s.head
    return S.replace(s, head=S.replace(head, bias="stored")) if isinstance(head, S.Vocabulary) and head.bias == "none" else None


# Sines before cosines. A model is the same when the numbers of its vectors change places, in everything that reads or writes them.

READS = re.compile(r"\.inner\.(query|key|value|up|gate)\.weight$|^(source|target)\.(tokens|segments)\.weight$|^head\.out\.weight$")
WRITES = re.compile(r"\.inner\.(out|down)\.(weight|bias)$|\.(before|after|out|norm)\.(weight|bias)$")
ELSEWHERE = re.compile(r"\.inner\.(query|key|value|up|gate)\.bias$|^head\.bias$|\.score\.weight$")


def sines_first(s: S.Model) -> S.Model | None:
    found: S.Model = everywhere(s, lambda plain: plain | {"layout": "halves"} if plain["kind"] == "Sinusoid" else plain)
    plain_head = isinstance(s.head, S.Vocabulary | S.Features) and s.head.transform is None
    return found if plain_head and isinstance(s.source, S.Tokens) and s.source.width is None else None


def permuted(s: S.Model, state: State) -> State:
    order = torch.arange(s.width).view(-1, 2).T.flatten()

    def one(name: str, t: Tensor) -> Tensor:
        if READS.search(name):
            return t[..., order]
        if WRITES.search(name):
            return t[order]
        assert ELSEWHERE.search(name), f"{name}: whether it reads or writes the vectors is not known"
        return t
    return {name: one(name, t) for name, t in state.items()}


# Rows of a position table that belong to no position

def rows_before(s: S.Model) -> S.Model | None:
    """As many rows before the first position as RoBERTa's padding id asks for."""
    learned = getattr(s.source, "positions", None)
    if s.special.pad is None or not isinstance(learned, S.Learned) or not learned.offset or s.decoder is not None:
        return None
    found: S.Model = S.put(s, "source.positions.offset", s.special.pad + 1)
    return found


def moved(s: S.Model, state: State) -> State:
    name, learned = "source.positions.weight", S.at(s, "source.positions")
    rows = state[name][-learned.count:]
    return {**state, name: torch.cat((rows.new_zeros(learned.offset, rows.shape[1]), rows))}


# A head that transformers has no class for, apart from the rest (`interop.modules`)

def headless(pooler: S.Transform | None) -> Callable[[S.Model], S.Model | None]:
    """The vectors alone; a pooler that a file must have is of zeros."""
    def change(s: S.Model) -> S.Model | None:
        apart = isinstance(s.head, S.Classes) and s.head.transform is None and s.head.pool in POOLINGS.values()
        return S.replace(s, head=S.Features(transform=pooler)) if apart and isinstance(s.source, S.Tokens) else None
    return change


REWRITINGS = (Rewriting(logit_bias), Rewriting(sines_first, permuted), Rewriting(rows_before, moved), Rewriting(norm_biases),
              Rewriting(headless(S.Transform(activation="tanh"))), Rewriting(headless(None)))


# A family that can say it

class Leaving(NamedTuple):
    """The family as whose model one leaves, the spec that it is told, and how its tensors become those."""
    family: Family
    spec: S.Model
    steps: tuple[tuple[Rewriting, S.Model], ...] = ()

    def state(self, state: State) -> dict[str, Tensor]:
        for step, spec in self.steps:
            state = step.state(spec, state)
        like, shapes = next(iter(state.values())), {name: t.shape for name, t in shapes_of(self.spec).state_dict().items()}
        assert all(name in shapes or (name.startswith("head.out.") and isinstance(self.spec.head, S.Features)) for name in state)
        return {name: state[name] if name in state else torch.zeros(shape, dtype=like.dtype) for name, shape in shapes.items()}


def ways(s: S.Model) -> Iterator[tuple[S.Model, tuple[tuple[Rewriting, S.Model], ...]]]:
    """The spec itself, then what it can be rewritten to, the fewest steps first."""
    useful = [step for step in REWRITINGS if step.spec(s) not in (None, s)]
    for count in range(len(useful) + 1):
        for chosen in combinations(useful, count):
            steps, now = [], s
            for step in chosen:
                now = step.spec(now) or now
                steps.append((step, now))
            yield now, tuple(steps)


def find_family(s: S.Model, hint: str | None = None) -> Leaving:
    """The family that can say this spec, or one that does the same, in its own config.json."""
    known = sorted((f for f in families() if f.model_type), key=lambda f: f.name != hint)
    for spec, steps in ways(s):
        for family in known:
            try:
                family.write(spec)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            return Leaving(family, spec, steps)
    raise ValueError(f"no Hugging Face family says this spec exactly{nearest(s, known)}; Weft's own layout can: to=\"weft\", or --to weft")


def nearest(s: S.Model, known: list[Family]) -> str:
    """The family with the fewest fields that differ, and these with both values."""
    found = [(len(gap), order, family.name, gap) for order, family in enumerate(known) for spec, _ in ways(s) if (gap := family.gap(spec))]
    if not found:
        return ""
    _, _, name, gap = min(found)
    return f"; the nearest is {name}: {', '.join(gap[:4])}" + (f", and {len(gap) - 4} fields more" if len(gap) > 4 else "")
