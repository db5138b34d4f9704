"""Weight tables at work: names and shapes of ours to theirs and back, every key accounted for."""
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from .. import spec as S
from ..check import blocks
from ..weights import Alias, Family, Row, Skip, Table


class Foreign(NamedTuple):
    """The other side's tensors: their names, and one at a time when asked."""
    names: set[str]
    get: Callable[[str], Tensor]
    size: int = 0                          # bytes of its files


class Bound(NamedTuple):
    """One row with its indices filled in."""
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    how: str


# Named invertible functions. Each pair: theirs -> ours (given our shapes), ours -> theirs (given how many).

def cut(t: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    return list(t.split([s[0] for s in shapes])) if len(shapes) > 1 else [t]


def from_theirs(b: Bound, theirs: list[Tensor], shapes: list[torch.Size], heads: int) -> list[Tensor]:
    if b.how == "stacked":
        return [torch.stack(theirs)]
    if b.how == "transposed" and theirs[0].dim() == 2:
        theirs = [t.T for t in theirs]
    if b.how == "by_head":                 # stored head by head: its q, k and v, then the next
        return [p.flatten(0, 1) for p in theirs[0].unflatten(0, (heads, 3, -1)).unbind(1)]
    if b.how == "less_one":                # stored as the distance from 1 (Gemma)
        return [t.double() + 1 for t in theirs]
    leading = b.how in ("one_leading", "two_leading")
    if leading:
        theirs = [t.reshape(-1, t.shape[-1]) for t in theirs]
    whole = torch.cat(theirs) if len(theirs) > 1 else theirs[0]
    return cut(whole.squeeze(0) if leading and len(shapes[0]) == 1 else whole, shapes)


def to_theirs(b: Bound, ours: list[Tensor], heads: int) -> list[Tensor]:
    if b.how == "stacked":
        return list(ours[0].unbind())
    if b.how == "by_head":
        return [torch.stack([t.unflatten(0, (heads, -1)) for t in ours], 1).flatten(0, 2)]
    if b.how == "less_one":
        return [(t.double() - 1).to(t.dtype) for t in ours]
    joined = torch.cat(ours) if len(ours) > 1 else ours[0]
    if b.how == "transposed" and joined.dim() == 2:
        return [joined.T]
    pieces = list(joined.chunk(len(b.theirs))) if len(b.theirs) > 1 else [joined]
    if b.how == "one_leading":
        return [t[None] for t in pieces]
    return [t.reshape(1, 1, -1) for t in pieces] if b.how == "two_leading" else pieces


@cache
def pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)").replace(r"\{e\}", r"\d+") + "$")


def fill(name: str, index: tuple[str, ...]) -> str:
    numbers = iter(index)
    return re.sub(r"\{\}", lambda _: next(numbers), name)


def strip(table: Table, prefix: str) -> Table:
    """The table of a bare model's file, whose names lack the prefix."""
    def bare(name: str) -> str:
        return name.removeprefix(prefix)

    def one(row: Row | Skip | Alias) -> Row | Skip | Alias:
        if isinstance(row, Skip):
            return Skip(bare(row.theirs), row.why)
        if isinstance(row, Alias):
            return Alias(bare(row.theirs), bare(row.of), row.part)
        return Row(row.ours, tuple(map(bare, names(row.theirs))), row.how, row.when)
    return tuple(one(row) for row in table)


def names(some: str | tuple[str, ...]) -> tuple[str, ...]:
    return (some,) if isinstance(some, str) else some


def bind(table: Table, shapes: Mapping[str, torch.Size], kinds: set[str]) -> Iterator[Bound]:
    """Every row that says something about these tensors of ours, once for each index."""
    for row in table:
        if not isinstance(row, Row) or (row.when and not kinds & set(row.when.split())):
            continue
        first, found = pattern(names(row.ours)[0]), set()
        for name in shapes:
            match = first.match(name)
            if match is None or match.groups() in found:
                continue
            found.add(match.groups())
            ours = tuple(fill(o, match.groups()) for o in names(row.ours))
            theirs = tuple(fill(t, match.groups()) for t in names(row.theirs))
            if row.how == "stacked":
                theirs = tuple(theirs[0].replace("{e}", str(e)) for e in range(shapes[name][0]))
            yield Bound(ours, theirs, row.how)


def kinds_of(s: S.Model) -> set[str]:
    """What a row's `when` may ask for: the head's kind ("Plain…" without a transform) and those of the feed-forward layers."""
    head = type(s.head).__name__
    plain = set() if getattr(s.head, "transform", None) else {f"Plain{head}"}
    return {head} | plain | {type(b.feedforward.inner).__name__ for _, _, b in blocks(s)}


def head_count(s: S.Model) -> int:
    stack = s.decoder or s.encoder
    inner = stack.blocks[0].attention.inner if isinstance(stack, S.Stack) else None
    return inner.heads if isinstance(inner, S.Attention) else 0


def import_weights(family: Family, s: S.Model, shapes: Mapping[str, torch.Size], foreign: Foreign,
                   fresh: set[str]) -> Iterator[tuple[str, Tensor]]:
    """Our tensors from theirs; every foreign key is claimed or skipped with a reason, every tensor of ours filled or fresh."""
    bare = bool(family.prefix) and not any(n.startswith(family.prefix) for n in foreign.names)
    table = strip(family.table, family.prefix) if bare else family.table
    left, filled = set(foreign.names), set[str]()
    for b in bind(table, shapes, kinds_of(s)):
        if not all(t in foreign.names for t in b.theirs) or set(b.ours) & filled or is_fresh(b.ours[0], fresh):
            continue
        left -= set(b.theirs)
        filled |= set(b.ours)
        wanted = [shapes[o] for o in b.ours]
        try:
            parts = from_theirs(b, [foreign.get(t) for t in b.theirs], wanted, head_count(s))
            assert all(p.shape == w for p, w in zip(parts, wanted, strict=True))
        except (AssertionError, RuntimeError):
            raise ValueError(f"{', '.join(b.theirs[:3])}: of shape {tuple(foreign.get(b.theirs[0]).shape)}, does not fit "
                             f"{', '.join(b.ours)} of shape {', '.join(str(tuple(w)) for w in wanted)}") from None
        yield from zip(b.ours, parts, strict=True)
    left -= {n for n in left if reason(n, table, fresh, foreign)}
    missing = [n for n in shapes if n not in filled and not is_fresh(n, fresh)]
    if left or missing:
        raise ValueError(accuse(sorted(left), missing))


def is_fresh(name: str, fresh: set[str]) -> bool:
    return any(name == f or name.startswith(f + ".") for f in fresh)


def reason(name: str, table: Table, fresh: set[str], foreign: Foreign) -> str | None:
    """Why a foreign tensor may be left out."""
    for row in table:
        found = [m for t in names(row.theirs) if (m := pattern(t).match(name))] if isinstance(row, Row) else []
        if isinstance(row, Row) and found:
            if is_fresh(fill(names(row.ours)[0], found[0].groups()), fresh):
                return "made fresh here"
            if names(row.ours)[0].startswith("head."):
                return "belongs to another head"
        elif isinstance(row, Skip) and pattern(row.theirs).match(name):
            return row.why
        elif isinstance(row, Alias) and pattern(row.theirs).match(name):
            if is_fresh(row.part, fresh):
                return "made fresh here"
            match = pattern(row.theirs).match(name)
            other = fill(row.of, match.groups() if match else ())
            if other in foreign.names and not torch.equal(foreign.get(name), foreign.get(other)):
                raise ValueError(f"{name} should be the same tensor as {other}, but differs")
            return f"the same as {other}"
    return None


def accuse(left: list[str], missing: list[str]) -> str:
    def few(some: list[str]) -> str:
        return ", ".join(some[:12]) + (f" and {len(some) - 12} more" if len(some) > 12 else "")
    said = []
    if left:
        said.append(f"the file holds {len(left)} tensors that no row claims: {few(left)}")
    if missing:
        parts = sorted({n.split(".")[0] for n in missing})
        said.append(f"the file lacks {len(missing)} tensors: {few(missing)}; give fresh={set(parts)} to start these anew")
    return "; ".join(said)


def export_weights(family: Family, s: S.Model, state: Mapping[str, Tensor], bare: bool) -> dict[str, Tensor]:
    """Their tensors from ours; every tensor of ours is written exactly once."""
    table = strip(family.table, family.prefix) if bare else family.table
    shapes = {n: t.shape for n, t in state.items()}
    written: set[str] = set()
    theirs: dict[str, Tensor] = {}
    for b in bind(table, shapes, kinds_of(s)):
        if set(b.ours) & written or not all(o in state for o in b.ours):
            continue
        written |= set(b.ours)
        theirs.update(zip(b.theirs, to_theirs(b, [state[o] for o in b.ours], head_count(s)), strict=True))
    if set(state) - written:
        raise ValueError(f"{family.name}'s table has no row for {', '.join(sorted(set(state) - written))}")
    return {name: t.detach().contiguous() for name, t in theirs.items()}
