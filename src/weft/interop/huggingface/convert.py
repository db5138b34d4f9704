"""Weight conversion with a family's weight table: names and shapes in both directions, with every
key accounted for.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ... import spec as S
from ...families.base import Family
from ...families.weights import SkippedWeight, WeightAlias, WeightRow, WeightTable
from ...spec.count import iterate_blocks
from ..tensor_files import LazyTensors


class ForeignTensors(NamedTuple):
    """The tensors of a published model: their names, and lazy access to each tensor or a slice of
    it.
    """

    names: set[str]
    get: Callable[..., Tensor]  # (name), or (name, slices)
    size: int = 0  # bytes of all files
    shape: Callable[[str], list[int]] = lambda name: []  # without reading the tensor


class BoundRow(NamedTuple):
    """One row with its indices filled in."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    how: str


# Named invertible functions. Each pair: theirs -> ours (given our shapes), ours -> theirs (given
# how many).


def split_rows(t: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
    return list(t.split([s[0] for s in shapes])) if len(shapes) > 1 else [t]


def from_theirs(
    b: BoundRow, theirs: list[Tensor], shapes: list[torch.Size], heads: int
) -> list[Tensor]:
    if b.how == "stacked":
        return [torch.stack(theirs)]
    if b.how == "transposed" and theirs[0].dim() == 2:
        theirs = [t.T for t in theirs]
    if b.how == "by_head":  # stored per head: q, k and v of the first, then of the next
        return [p.flatten(0, 1) for p in theirs[0].unflatten(0, (heads, 3, -1)).unbind(1)]
    if b.how == "less_one":  # stored as the distance from 1 (Gemma)
        return [t.double() + 1 for t in theirs]
    leading = b.how in ("one_leading", "two_leading")
    if leading:
        theirs = [t.reshape(-1, t.shape[-1]) for t in theirs]
    whole = torch.cat(theirs) if len(theirs) > 1 else theirs[0]
    return split_rows(whole.squeeze(0) if leading and len(shapes[0]) == 1 else whole, shapes)


def to_theirs(b: BoundRow, ours: list[Tensor], heads: int) -> list[Tensor]:
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
def name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{\}", r"(\d+)").replace(r"\{e\}", r"\d+") + "$")


def fill_indices(name: str, index: tuple[str, ...]) -> str:
    numbers = iter(index)
    return re.sub(r"\{\}", lambda _: next(numbers), name)


def without_prefix(table: WeightTable, prefix: str) -> WeightTable:
    """Return the table for the file of a bare model, whose names lack the prefix."""

    def bare(name: str) -> str:
        return name.removeprefix(prefix)

    def one(
        row: WeightRow | SkippedWeight | WeightAlias,
    ) -> WeightRow | SkippedWeight | WeightAlias:
        if isinstance(row, SkippedWeight):
            return SkippedWeight(bare(row.theirs), row.reason)
        if isinstance(row, WeightAlias):
            return WeightAlias(bare(row.theirs), bare(row.of), row.part)
        return WeightRow(
            row.ours, tuple(map(bare, as_tuple(row.theirs))), row.transform, row.only_for
        )

    return tuple(one(row) for row in table)


def as_tuple(some: str | tuple[str, ...]) -> tuple[str, ...]:
    return (some,) if isinstance(some, str) else some


def bind_rows(
    table: WeightTable, shapes: Mapping[str, torch.Size], kinds: set[str]
) -> Iterator[BoundRow]:
    """Yield every row that matches our tensors, once per index."""
    for row in table:
        if not isinstance(row, WeightRow) or (
            row.only_for and not kinds & set(row.only_for.split())
        ):
            continue
        first = name_pattern(as_tuple(row.ours)[0])
        bound_indices = set()
        for name in shapes:
            match = first.match(name)
            if match is None or match.groups() in bound_indices:
                continue
            bound_indices.add(match.groups())
            ours = tuple(fill_indices(o, match.groups()) for o in as_tuple(row.ours))
            theirs = tuple(fill_indices(t, match.groups()) for t in as_tuple(row.theirs))
            if row.transform == "stacked":
                theirs = tuple(theirs[0].replace("{e}", str(e)) for e in range(shapes[name][0]))
            yield BoundRow(ours, theirs, row.transform)


def part_kinds(spec: S.Spec) -> set[str]:
    """Return the conditions that a row may name: the head's kind ("Plain…" without a transform) and
    those of the feed-forward layers.
    """
    head = type(spec.head).__name__
    plain = set() if getattr(spec.head, "transform", None) else {f"Plain{head}"}
    return (
        {head}
        | plain
        | {type(placed.block.feedforward.inner).__name__ for placed in iterate_blocks(spec)}
    )


def head_count(spec: S.Spec) -> int:
    stack = spec.decoder or spec.encoder
    blocks = stack.blocks if isinstance(stack, S.Stack) else ()
    inner = blocks[0].attention.inner if blocks else None
    return inner.heads if isinstance(inner, S.Attention) else 0


class ImportPlan:
    """The assignment of table rows to our tensors, computed from the names of both sides."""

    def __init__(
        self,
        family: Family,
        spec: S.Spec,
        shapes: Mapping[str, torch.Size],
        foreign: ForeignTensors,
        new_parts: set[str],
    ) -> None:
        bare = bool(family.prefix) and not any(n.startswith(family.prefix) for n in foreign.names)
        self.table = without_prefix(family.table, family.prefix) if bare else family.table
        self.shapes = shapes
        self.foreign = foreign
        self.new_parts = new_parts
        self.heads = head_count(spec)
        self.rows: dict[str, BoundRow] = {}  # per tensor of ours
        for row in bind_rows(self.table, shapes, part_kinds(spec)):
            has_tensors = all(t in foreign.names for t in row.theirs)
            if (
                has_tensors
                and self.rows.keys().isdisjoint(row.ours)
                and not is_new(row.ours[0], new_parts)
            ):
                self.rows |= dict.fromkeys(row.ours, row)

    def check_complete(self) -> None:
        """Check that every foreign key is claimed or skipped with a reason, and every tensor of
        ours is filled or new.
        """
        left = self.foreign.names - {t for row in self.rows.values() for t in row.theirs}
        left -= {n for n in left if skip_reason(n, self.table, self.new_parts, self.foreign)}
        missing = [n for n in self.shapes if n not in self.rows and not is_new(n, self.new_parts)]
        if left or missing:
            raise ValueError(describe_unmatched(sorted(left), missing))

    def check_shapes(self) -> None:
        """Compare the shapes of both sides, without reading a tensor."""
        for b in dict.fromkeys(self.rows.values()):
            self.read_row(b, lambda name: torch.empty(self.foreign.shape(name), device="meta"))

    def read_row(self, b: BoundRow, get: Callable[[str], Tensor] | None = None) -> list[Tensor]:
        """Return the tensors of ours that a row fills."""
        get = get or self.foreign.get
        our_shapes = [self.shapes[o] for o in b.ours]
        try:
            parts = from_theirs(b, [get(t) for t in b.theirs], our_shapes, self.heads)
            assert all(p.shape == w for p, w in zip(parts, our_shapes, strict=True))
        except (AssertionError, RuntimeError):
            raise ValueError(
                f"{', '.join(b.theirs[:3])}: shape {tuple(get(b.theirs[0]).shape)} does not "
                f"match {', '.join(b.ours)} of shape {', '.join(str(tuple(w)) for w in our_shapes)}"
            ) from None
        return parts

    def read(self, name: str, slices: tuple[slice, ...]) -> Tensor:
        """Return a slice of a tensor of ours. Rows that rename, stack, join rows or transpose read
        only the bytes of the slice.
        """
        b = self.rows[name]
        if b.how == "stacked":
            return torch.stack([self.foreign.get(t, slices[1:]) for t in b.theirs[slices[0]]])
        if b.how not in ("same", "transposed") or len(b.theirs) > 1:
            return self.read_row(b)[b.ours.index(name)][slices]
        if not slices:  # a single number
            return self.foreign.get(b.theirs[0])
        before = sum(self.shapes[o][0] for o in b.ours[: b.ours.index(name)])
        rows = slice(slices[0].start + before, slices[0].stop + before)
        theirs = (rows, *slices[1:])
        if b.how == "transposed" and len(slices) == 2:
            return self.foreign.get(b.theirs[0], theirs[::-1]).T
        return self.foreign.get(b.theirs[0], theirs)


def import_weights(
    family: Family,
    spec: S.Spec,
    shapes: Mapping[str, torch.Size],
    foreign: ForeignTensors,
    new_parts: set[str],
) -> Iterator[tuple[str, Tensor]]:
    """Return our tensors, converted from theirs."""
    plan = ImportPlan(family, spec, shapes, foreign, new_parts)
    for b in dict.fromkeys(plan.rows.values()):
        yield from zip(b.ours, plan.read_row(b), strict=True)
    plan.check_complete()


def is_new(name: str, new_parts: set[str]) -> bool:
    return any(name == f or name.startswith(f + ".") for f in new_parts)


def skip_reason(
    name: str, table: WeightTable, new_parts: set[str], foreign: ForeignTensors
) -> str | None:
    """Return why a foreign tensor may be skipped, or None."""
    for row in table:
        matches = (
            [m for t in as_tuple(row.theirs) if (m := name_pattern(t).match(name))]
            if isinstance(row, WeightRow)
            else []
        )
        if isinstance(row, WeightRow) and matches:
            if is_new(fill_indices(as_tuple(row.ours)[0], matches[0].groups()), new_parts):
                return "made fresh here"
            if as_tuple(row.ours)[0].startswith("head."):
                return "belongs to another head"
        elif isinstance(row, SkippedWeight) and name_pattern(row.theirs).match(name):
            return row.reason
        elif isinstance(row, WeightAlias) and name_pattern(row.theirs).match(name):
            if is_new(row.part, new_parts):
                return "made fresh here"
            match = name_pattern(row.theirs).match(name)
            other = fill_indices(row.of, match.groups() if match else ())
            if other in foreign.names and not torch.equal(foreign.get(name), foreign.get(other)):
                raise ValueError(f"{name} must equal {other}, to which it is tied, but differs")
            return f"the same as {other}"
    return None


def describe_unmatched(left: list[str], missing: list[str]) -> str:
    def few(some: list[str]) -> str:
        return ", ".join(some[:12]) + (f" and {len(some) - 12} more" if len(some) > 12 else "")

    problems = []
    if left:
        problems.append(
            f"the file has {len(left)} tensors that the family's table does not know: {few(left)}"
        )
    if missing:
        parts = sorted({n.split(".")[0] for n in missing})
        problems.append(
            f"the file lacks {len(missing)} tensors: {few(missing)}; give new_parts={set(parts)} "
            "to initialise these"
        )
    return "; ".join(problems)


def export_weights(family: Family, spec: S.Spec, ours: LazyTensors, bare: bool) -> LazyTensors:
    """Return their tensors, converted from ours; every tensor of ours is written exactly once.
    Tensors of one row are computed together.
    """
    table = without_prefix(family.table, family.prefix) if bare else family.table
    shapes = {n: t.shape for n, t in ours.like.items()}
    written: set[str] = set()
    rows: dict[str, BoundRow] = {}
    like: dict[str, Tensor] = {}
    for b in bind_rows(table, shapes, part_kinds(spec)):
        if set(b.ours) & written or not all(o in shapes for o in b.ours):
            continue
        written |= set(b.ours)
        rows |= dict.fromkeys(b.theirs, b)
        shaped = [ours.like[o].to("meta") for o in b.ours]
        like |= zip(b.theirs, to_theirs(b, shaped, head_count(spec)), strict=True)
    if set(shapes) - written:
        raise ValueError(
            f"{family.name}'s table has no row for {', '.join(sorted(set(shapes) - written))}"
        )
    current: dict[
        str, Tensor
    ] = {}  # computed but not yet written, such as other experts of a layer

    def read(name: str) -> Tensor:
        if name not in current:
            b = rows[name]
            tensors = to_theirs(b, [ours.read(o) for o in b.ours], head_count(spec))
            current.update(zip(b.theirs, tensors, strict=True))
        return current.pop(name).detach().contiguous()

    return LazyTensors(like, read)
