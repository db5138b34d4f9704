"""Exact rewriting of specs, to export models through families that express the same function
differently.

A rewriting maps a spec and its tensors to an equivalent spec and its tensors. New tensors are zero
biases.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import spec as S
from ...families import families
from ...families.base import Family
from ...nn.layers.roles import Role, parameter_facts
from ...nn.model import build_on_meta
from ..tensor_files import LazyTensors
from .sentence_transformers import POOLINGS

Change = Callable[[str, Tensor], Tensor]  # (name, tensor) -> tensor


def keep_tensors(spec: S.Spec) -> Change:
    return lambda name, t: t


class Rewrite(NamedTuple):
    spec: Callable[[S.Spec], S.Spec | None]  # returns None if not applicable
    tensors: Callable[[S.Spec], Change] = keep_tensors


def map_values(thing: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Apply a function to every value in a spec."""

    def walk(plain: Any) -> Any:
        if isinstance(plain, dict):
            return change({name: walk(part) for name, part in plain.items()})
        return [walk(part) for part in plain] if isinstance(plain, list) else plain

    return S.from_plain(walk(S.to_plain(thing)))


# Biases of zeros


def norm_biases(spec: S.Spec) -> S.Spec:
    changed: S.Spec = map_values(
        spec, lambda plain: plain | {"bias": True} if plain["kind"] == "LayerNorm" else plain
    )
    return changed


def logit_bias(spec: S.Spec) -> S.Spec | None:
    head = spec.head
    return (
        S.replace(spec, head=S.replace(head, bias="buffer"))
        if isinstance(head, S.LMHead) and head.bias == "none"
        else None
    )


# Sines before cosines. A model is equivalent after a permutation of its channels in every layer #
# that reads or writes them.


def sines_first(spec: S.Spec) -> S.Spec | None:
    changed: S.Spec = map_values(
        spec,
        lambda plain: (
            plain | {"layout": "halves"} if plain["kind"] == "SinusoidalPositions" else plain
        ),
    )
    plain_head = isinstance(spec.head, S.LMHead | S.NoHead) and spec.head.transform is None
    return (
        changed
        if plain_head and isinstance(spec.source, S.Tokens) and spec.source.embedding_dim is None
        else None
    )


def permute_channels(spec: S.Spec) -> Change:
    order = torch.arange(spec.width).view(-1, 2).T.flatten()
    facts = parameter_facts(build_on_meta(spec))

    def one(name: str, t: Tensor) -> Tensor:
        dim = facts[name].stream_dim
        if dim is not None:
            return t.index_select(dim, order.to(t.device))
        assert facts[name].role in (Role.BIAS, Role.POSITION_BIAS), (
            f"{name}: unknown whether it reads or writes the channels"
        )
        return t

    return one


# Rows of a position table that belong to no position


def with_position_offset(spec: S.Spec) -> S.Spec | None:
    """Add the rows before the first position that RoBERTa's padding id requires."""
    learned = getattr(spec.source, "positions", None)
    if (
        spec.special_tokens.pad is None
        or not isinstance(learned, S.LearnedPositions)
        or not learned.offset
        or spec.decoder is not None
    ):
        return None
    changed: S.Spec = S.replace_path(spec, "source.positions.offset", spec.special_tokens.pad + 1)
    return changed


def move_position_rows(spec: S.Spec) -> Change:
    learned = S.get_path(spec, "source.positions")

    def one(name: str, t: Tensor) -> Tensor:
        if name != "source.positions.weight":
            return t
        rows = t[-learned.count :]
        return torch.cat((rows.new_zeros(learned.offset, rows.shape[1]), rows))

    return one


# Fixed positions of patches, which the published file stores as a table


def as_learned_positions(spec: S.Spec) -> S.Spec | None:
    """Store the table of sinusoids as a learned table, as MAE encoders are published
    (arXiv:2111.06377).
    """
    patches = spec.source
    if not isinstance(patches, S.Patches) or not isinstance(
        patches.positions, S.SinusoidalPositions2D
    ):
        return None
    cells = (patches.image_size // patches.patch_size) ** 2
    table = S.LearnedPositions(count=cells + len(patches.extra_tokens))
    return S.replace(spec, source=S.replace(patches, positions=table))


# A head without a transformers class, in separate files (`sentence_transformers`)


def without_head(pooler: S.HeadTransform | None) -> Callable[[S.Spec], S.Spec | None]:
    """Remove the head; a pooler that the file requires is filled with zeros."""

    def change(spec: S.Spec) -> S.Spec | None:
        can_be_separate = (
            isinstance(spec.head, S.ClassifierHead)
            and spec.head.transform is None
            and spec.head.pooling in POOLINGS.values()
        )
        return (
            S.replace(spec, head=S.NoHead(transform=pooler))
            if can_be_separate and isinstance(spec.source, S.Tokens)
            else None
        )

    return change


# Options that affect training only


def without_drop_path(spec: S.Spec) -> S.Spec:
    return S.with_drop_path(spec, 0.0)


REWRITINGS = (
    Rewrite(without_drop_path),
    Rewrite(logit_bias),
    Rewrite(sines_first, permute_channels),
    Rewrite(with_position_offset, move_position_rows),
    Rewrite(as_learned_positions),
    Rewrite(norm_biases),
    Rewrite(without_head(S.HeadTransform(activation="tanh"))),
    Rewrite(without_head(None)),
)


# Search for a family


class ExportPlan(NamedTuple):
    """The family of an export, the rewritten spec, and the conversion of the tensors."""

    family: Family
    spec: S.Spec
    rewrites: tuple[tuple[Rewrite, S.Spec], ...] = ()

    def export_tensors(self, ours: LazyTensors) -> LazyTensors:
        dtype = next(iter(ours.like.values())).dtype
        like = build_on_meta(self.spec).to(dtype).state_dict()
        assert all(
            name in like or (name.startswith("head.out.") and isinstance(self.spec.head, S.NoHead))
            for name in ours.like
        )
        changes = [step.tensors(spec) for step, spec in self.rewrites]

        def read(name: str) -> Tensor:
            if name not in ours.like:
                return torch.zeros(like[name].shape, dtype=dtype)
            tensor = ours.read(name)
            for change in changes:
                tensor = change(name, tensor)
            return tensor

        return LazyTensors(like, read)


def equivalent_specs(spec: S.Spec) -> Iterator[tuple[S.Spec, tuple[tuple[Rewrite, S.Spec], ...]]]:
    """Yield the spec, then its rewritings in order of the number of steps."""
    useful = [step for step in REWRITINGS if step.spec(spec) not in (None, spec)]
    for count in range(len(useful) + 1):
        for chosen in combinations(useful, count):
            steps = []
            now = spec
            for step in chosen:
                now = step.spec(now) or now
                steps.append((step, now))
            yield now, tuple(steps)


def find_family(s: S.Spec, hint: str | None = None) -> ExportPlan:
    """Return a family that can express this spec or an equivalent one in config.json."""
    families_by_hint = sorted((f for f in families() if f.model_type), key=lambda f: f.name != hint)
    for spec, steps in equivalent_specs(s):
        for family in families_by_hint:
            try:
                family.to_config(spec)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            return ExportPlan(family, spec, steps)
    raise ValueError(
        "no Hugging Face family can express this spec "
        f"exactly{nearest_family(s, families_by_hint)}; use Weft's own layout: "
        'to="weft", or --to weft'
    )


def nearest_family(s: S.Spec, known: list[Family]) -> str:
    """Return the family with the fewest different fields, and both values of each."""
    candidates = [
        (len(gap), order, family.name, gap)
        for order, family in enumerate(known)
        for spec, _ in equivalent_specs(s)
        if (gap := family.explain_differences(spec))
    ]
    if not candidates:
        return ""
    _, _, name, gap = min(candidates)
    return f"; the nearest is {name}: {', '.join(gap[:4])}" + (
        f", and {len(gap) - 4} fields more" if len(gap) > 4 else ""
    )
