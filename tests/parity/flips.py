"""The proof is proven: each field of a family's spec, changed to each other legal value, must be
noticed.

A change is noticed where validation refuses it, the weights no longer load, or an output differs by
more than `LIMIT`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import torch

import weft
from weft import spec as S
from weft.spec.count import parameter_shapes
from weft.support.registry import members

from .cases import Case, differences, fill, ours

LIMIT = 1e-4
# what an evaluated forward cannot show: a pattern in "family path old -> new", and why
EXEMPT = {
    r" init\b|\.init_gain |layer_scale\.initial ": "acts on the initial weights only",
    r"\.(dropout|drop_path|load_balance_weight|router_z_weight) ": "acts in training only",
    r" special_tokens\b": "names token ids for data and decoding, not for a forward",
    r" context_length ": "the length it was trained for, where nothing is shaped by it",
    r" head\.labels ": "names for people",
    r" layer_mix ": "a new head's input, which no published class has; "
    "tests/references/test_features.py compares it with hidden_states",
    r" source\.stem ": "convolutions, which none of these classes has; "
    "tests/references/test_compact.py holds them",
    r" head\.bias (trained -> buffer|buffer -> trained)": "the same sum; whether it trains shows "
    "in the parameter count",
    r" source\.positions LearnedPositions -> SinusoidalPositions2D": "on patches both are the "
    "file's table; whether it "
    "trains shows in the gradients",
    r"swin source\.image_size ": "the images it was trained on, where no table is shaped by them",
}


class Flip(NamedTuple):
    path: str  # `*` for every block (and stage) that holds the old value
    old: Any
    new: Any
    spec: S.Spec | None  # None: refused
    rename: tuple[str, str] = ("", "")  # of the weights that move along

    def __str__(self) -> str:
        return f"{self.path} {short(self.old)} -> {short(self.new)}"


def short(thing: Any) -> str:
    if isinstance(thing, tuple) and thing and not isinstance(thing[0], int | str):
        return f"{len(thing)} of them"
    return type(thing).__name__ if is_dataclass(thing) else str(thing)


def listed(rows: dict[str, str], c: Case, flip: object) -> str:
    """The row that a change falls under, or ""."""
    return next((row for row in rows if re.search(row, f"{c.family} {flip} ")), "")


# Every place in a spec: its path, what may stand there, what stands there


def places(
    thing: Any, hint: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if path:
        yield path, hint, thing
    if is_dataclass(thing):
        hints = get_type_hints(type(thing))
        for f in fields(thing):
            yield from places(getattr(thing, f.name), hints[f.name], (*path, f.name))
    elif (
        isinstance(thing, tuple)
        and thing
        and (is_dataclass(thing[0]) or isinstance(thing[0], tuple))
    ):
        for i, item in enumerate(thing):
            yield from places(item, get_args(hint)[0], (*path, str(i)))


def groups(spec: S.Spec) -> Iterator[tuple[str, list[tuple[str, ...]], Any, Any]]:
    """Places that differ in their block only and hold the same value."""
    found: dict[tuple[str, Any], tuple[list[tuple[str, ...]], Any]] = {}
    for path, hint, value in places(spec, S.Spec):
        general = ".".join("*" if name.isdigit() else name for name in path)
        found.setdefault((general, value), ([], hint))[0].append(path)
    for (general, value), (paths, hint) in found.items():
        yield general, paths, hint, value


# What else may stand there


# others: one more, or half as much again
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "heads": lambda n: n // 2 if n > 1 else 2,
    "head_dim": lambda n: n + 2,
    "count": lambda n: n + 2,
    "buckets": lambda n: n + 2,
    "experts": lambda n: n + 2,
    "kv_heads": lambda n: 1 if n != 1 else 2,
    "before": lambda n: n - 1 if n else 1,
    "eps": lambda e: 10 * e,
    "theta": lambda t: 2 * t,
    "fraction": lambda f: 0.5 if f != 0.5 else 1.0,
    "top_k": lambda n: n - 1 or 2,
    "low_freq_factor": lambda x: x / 2,
    "max_distance": lambda n: 2 * n,
    "image_size": lambda n: 2 * n,
    "patch_size": lambda n: n // 2,
}
ABSENT: dict[str, float] = {
    "kv_heads": 1,
    "head_dim": 6,
    "value_dim": 5,
    "embedding_dim": 16,
    "token_types": 2,
    "scale": 0.7,
    "embedding_scale": 0.7,
    "logit_scale": 0.7,
    "softcap": 0.5,
}


def kind_like(kind: type, old: Any) -> Any:
    """A value of another kind, as near to the old one as it can be; None where a field has no
    business with it.
    """
    near: dict[type, Callable[[], Any]] = {
        S.LayerNorm: lambda: S.LayerNorm(eps=getattr(old, "eps", 1e-5), bias=False),
        S.RMSNorm: lambda: S.RMSNorm(eps=getattr(old, "eps", 1e-6)),
        S.FullAttention: S.FullAttention,
        S.CausalAttention: S.CausalAttention,
        S.SlidingWindow: lambda: S.SlidingWindow(
            before=3, after=0 if isinstance(old, S.CausalAttention) else 3
        ),
        S.ShiftedWindows: S.ShiftedWindows,
        S.Linformer: lambda: S.Linformer(length=16, rank=4),
        S.RoPE: S.RoPE,
        S.ALiBi: S.ALiBi,
        S.RoPEScaling: lambda: S.RoPEScaling(factor=4.0, original_context_length=16),
        S.RelativeBias: lambda: S.RelativeBias(buckets=8, max_distance=9),
        S.SinusoidalPositions: S.SinusoidalPositions,
        S.LearnedPositions: lambda: S.LearnedPositions(count=16),
        S.LearnedPositions2D: S.LearnedPositions2D,
        S.SinusoidalPositions2D: S.SinusoidalPositions2D,
        S.MLP: lambda: S.MLP(hidden=old.hidden, activation=old.activation, bias=old.bias),
        S.GatedMLP: lambda: S.GatedMLP(hidden=old.hidden, activation=old.activation, bias=old.bias),
        S.MixtureOfExperts: lambda: S.MixtureOfExperts(experts=4, top_k=2, expert=old),
        S.HeadTransform: S.HeadTransform,
        S.DLCL: S.DLCL,
        S.Block: lambda: S.Block(attention=old.attention, feedforward=old.feedforward),
        S.ParallelBlock: lambda: S.ParallelBlock(
            attention=old.attention, feedforward=old.feedforward
        ),
        S.Branch: lambda: S.Branch(inner=S.Attention(heads=4)),
        S.ObjectQueries: S.ObjectQueries,
        S.AnchorQueries: lambda: S.AnchorQueries(count=old.count),
        S.GroupNorm: S.GroupNorm,
        S.Stack: lambda: S.Stack(
            blocks=(
                S.Block(
                    attention=S.Branch(inner=S.Attention(heads=4)),
                    feedforward=S.Branch(inner=S.MLP(hidden=8)),
                ),
            )
        ),
        S.QKNorm: S.QKNorm,
        S.LayerScale: S.LayerScale,
        S.SharedTokens: lambda: S.SharedTokens(embedding_scale=old.embedding_scale),
        S.Tokens: lambda: S.Tokens(vocab_size=67, embedding_scale=old.embedding_scale),
    }
    try:
        return near[kind]() if kind in near else None
    except (ValueError, AttributeError):
        return None


def others(name: str, hint: Any, old: Any) -> list[Any]:
    """The alternatives to a value, by what its field allows."""
    if get_origin(hint) is Literal:
        return [value for value in get_args(hint) if value != old]
    allowed = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    open_bases = [k for k in allowed if isinstance(k, type) and members(k) and not is_dataclass(k)]
    if open_bases or get_origin(hint) in (Union, UnionType):
        kinds = [
            k
            for k in (*allowed, *(m for base in open_bases for m in members(base)))
            if is_dataclass(k) and not isinstance(old, k)
        ]
        new = [value for k in kinds if (value := kind_like(k, old)) is not None]
        if type(None) in allowed and old is not None:
            new.append(None)
        if old is None and name in ABSENT:
            new.append(ABSENT[name])
        return new + (number(name, old) if isinstance(old, int | float) else [])
    return number(name, old)


def number(name: str, old: Any) -> list[Any]:
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, int | float):
        return [NUMBERS.get(name, lambda n: n + 1 if isinstance(n, int) else 1.5 * n or 0.5)(old)]
    if name == "extra_tokens":
        return [(*old, "distillation"), *([old[1:]] if old else [])]
    if isinstance(old, tuple) and old and isinstance(old[0], int):
        return [(old[0] + 1, *old[1:])]
    if isinstance(old, tuple) and len(old) > 1 and name in ("blocks", "stages"):
        return [old[:-1], *([old[::-1]] if old[::-1] != old else [])]
    return []


# The changes


def changed(spec: S.Spec, news: dict[tuple[str, ...], Any]) -> S.Spec | None:
    """The spec with new parts, checked once; None where it is refused."""
    plain = S.to_plain(spec)
    for path, new in news.items():
        *way, last = [int(name) if name.isdigit() else name for name in path]
        at = plain
        for name in way:
            at = at[name]
        at[last] = S.to_plain(new)
    try:
        found: S.Spec = S.from_plain(plain)
        return found
    except ValueError:
        return None


@cache
def flips(spec: S.Spec) -> tuple[Flip, ...]:
    """Every place, every alternative; then what only shows when several fields move together."""
    found: list[Flip] = []
    for general, paths, hint, old in groups(spec):
        found += (
            Flip(general, old, new, changed(spec, dict.fromkeys(paths, new)))
            for new in others(paths[0][-1], hint, old)
        )
        found += together(spec, general, paths, old)
    return tuple(found)


def together(spec: S.Spec, general: str, paths: list[tuple[str, ...]], old: Any) -> Iterator[Flip]:
    def flip(new: Any, rename: tuple[str, str] = ("", "")) -> Flip:
        return Flip(general, old, new, changed(spec, dict.fromkeys(paths, new)), rename)

    if isinstance(old, S.Branch):  # a norm moves and takes its weights along
        for here, there in (
            ("before", "after"),
            ("before", "out"),
            ("out", "after"),
            ("out", "before"),
            ("after", "before"),
            ("after", "out"),
        ):
            if getattr(old, here) is not None and getattr(old, there) is None:
                name = paths[0][-1]
                yield flip(
                    S.replace(old, **{here: None, there: getattr(old, here)}),
                    (f".{name}.{here}.", f".{name}.{there}."),
                )._replace(old=here, new=there)
    # other heads, the same shapes
    if isinstance(old, S.Attention) and old.head_dim is not None and (old.kv_heads or 2) % 2 == 0:
        yield flip(
            S.replace(
                old,
                heads=old.heads // 2,
                head_dim=old.head_dim * 2,
                kv_heads=old.kv_heads and old.kv_heads // 2,
            )
        )._replace(old="heads", new="fewer, wider")
    if isinstance(old, S.LearnedPositions):  # other rows of the same table
        offset = old.offset - 1 if old.offset else 1
        yield flip(
            S.LearnedPositions(count=old.count + old.offset - offset, offset=offset)
        )._replace(old=old.offset, new=f"offset {offset}")


# The verdict


def flipped(c: Case, flip: Flip) -> weft.Model:
    """The changed model with the same weights: by our names where they fit, else through the
    family's table.
    """
    state = {
        name.replace(*flip.rename) if flip.rename[0] else name: t
        for name, t in ours(c).state_dict().items()
    }
    if any(
        name not in state or state[name].shape != shape
        for name, shape in parameter_shapes(flip.spec)
    ):
        return fill(c, flip.spec)
    with torch.device("meta"):
        model = weft.Model(flip.spec)
    if set(model.state_dict()) != set(state):
        return fill(c, flip.spec)
    model.load_state_dict(state, assign=True)
    return model.eval()


def judge(c: Case, flip: Flip) -> str:
    """How a change was noticed; "" where it was not."""
    if flip.spec is None:
        return "refused"
    try:
        model = flipped(c, flip)
    except ValueError:
        return "does not load"
    try:
        found = differences(c, model)
    except (ValueError, RuntimeError, AssertionError, IndexError):
        return "does not run"
    if not set(differences(c)) <= set(found):
        return "other outputs"
    worst = max(found.values())
    return "" if worst <= LIMIT else f"differs by {worst:.0e}"


def verdicts(c: Case, part: str = "") -> list[tuple[Flip, str]]:
    """Every change (of one part) that can show, and how it was noticed."""
    return [
        (flip, judge(c, flip))
        for flip in flips(ours(c).spec)
        if flip.path.startswith(part) and not listed(EXEMPT, c, flip)
    ]
