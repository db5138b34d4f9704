"""Loading of model directories in a published layout or Weft's own. Safetensors and JSON only;
nothing is unpickled, and no file outside the directory is read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import spec as S
from ..families.base import Family
from ..families.weights import WeightRow
from ..nn.initialisation import initialise_weights
from ..nn.model import Model, build_on_meta
from .bounds import check_parameters
from .huggingface.convert import (
    ForeignTensors,
    ImportPlan,
    as_tuple,
    describe_unmatched,
    import_weights,
    is_new,
)
from .huggingface.describe import read_folder
from .huggingface.equivalent_specs import find_family
from .huggingface.hub import local_folder
from .stored_tensors import read_tensors, with_cross_encoder_map


def load(
    where: str | Path,
    *,
    head: Any = None,
    new_parts: Iterable[str] = (),
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = torch.float32,
    seed: int = 0,
) -> Model:
    """The model of a folder or hub name, in Hugging Face's layout or ours. `head` puts on another
    head, given or named as a published class ("BertForSequenceClassification", two classes);
    `new_parts` names the parts that may be initialised instead of loaded, such as {"head"}; dtype
    None keeps that of the file.
    """
    initialised_parts = {new_parts} if isinstance(new_parts, str) else set(new_parts)
    with open_folder(where, head, initialised_parts) as (folder, family, spec, foreign):
        model = fill_model(
            family,
            spec,
            foreign,
            initialised_parts,
            device,
            dtype or dtype_of(foreign, family),
            seed,
            folder,
        )
    model.family = family.name if family else None
    model.origin = folder.resolve()
    return model.eval()


class OpenFolder(NamedTuple):
    """A model directory with open files, before reading tensors."""

    folder: Path
    family: Family | None
    spec: S.Spec
    foreign: ForeignTensors


@contextmanager
def open_folder(where: str | Path, head: Any, new_parts: set[str]) -> Iterator[OpenFolder]:
    folder = local_folder(where)
    family, spec = read_folder(folder)
    if isinstance(head, str):
        head = (family or find_family(spec).family).head_of_class(head, spec)
    if head is not None:
        spec = S.replace(spec, head=head)
    with ExitStack() as open_files:
        foreign = read_tensors(folder, open_files)
        if family is not None and isinstance(spec.head, S.ClassifierHead):
            foreign = with_cross_encoder_map(foreign, family, spec, folder, open_files)
        check_parameters(folder, spec, foreign.size, new_parts)
        if family is not None and "head" not in new_parts:
            spec = untie_if_separate(family, spec, foreign)
        yield OpenFolder(folder, family, spec, foreign)


class FolderWeights(NamedTuple):
    """The weights of a model directory under our names, readable by slices."""

    model: Model  # on the meta device
    shapes: dict[str, torch.Size]
    read: Callable[[str, tuple[slice, ...]], Tensor]

    def read_whole(self, name: str) -> Tensor:
        return self.read(name, tuple(slice(0, size) for size in self.shapes[name]))


@contextmanager
def open_weights(
    where: str | Path, dtype: torch.dtype | None = torch.float32
) -> Iterator[FolderWeights]:
    """Open the model of a directory or hub name on the meta device, and its weights for reading by
    slices: the whole model is never in memory. dtype None keeps that of the file.
    """
    with open_folder(where, None, set()) as (folder, family, spec, foreign):
        dtype = dtype or dtype_of(foreign, family)
        model = build_on_meta(spec).to(dtype)
        shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
        if family is None:
            check_names(folder, foreign, set(shapes))
            get = foreign.get
            for name, shape in shapes.items():
                check_tensor(folder, name, foreign.shape(name), shape)
        else:
            plan = ImportPlan(family, spec, shapes, foreign, set())
            plan.check_shapes()
            plan.check_complete()
            get = plan.read
        model.family = family.name if family else None
        model.origin = folder.resolve()

        def read(name: str, slices: tuple[slice, ...]) -> Tensor:
            tensor = get(name, slices)
            if not tensor.is_floating_point():
                raise ValueError(
                    f"{folder}: {name} has dtype {tensor.dtype}, not a floating-point dtype"
                )
            return tensor.to(dtype)

        yield FolderWeights(model.eval(), shapes, read)


def check_names(folder: Path, foreign: ForeignTensors, expected: set[str]) -> None:
    """Raise ValueError for missing or unknown tensor names."""
    left = foreign.names - expected
    missing = expected - foreign.names
    if left or missing:
        raise ValueError(f"{folder}: {describe_unmatched(sorted(left), sorted(missing))}")


def check_tensor(folder: Path, name: str, stored: Sequence[int], shape: torch.Size) -> None:
    if tuple(stored) != tuple(shape):
        raise ValueError(f"{folder}: {name} is {tuple(stored)}, not {tuple(shape)}")


def dtype_of(foreign: ForeignTensors, family: Family | None) -> torch.dtype:
    """Return the dtype of the file; float32 if a table row computes with the numbers, so that the
    conversion can be inverted exactly.
    """
    if family is not None and any(
        isinstance(row, WeightRow) and row.transform == "less_one" for row in family.table
    ):
        return torch.float32
    return foreign.get(min(foreign.names)).dtype


def fill_model(
    family: Family | None,
    spec: S.Spec,
    foreign: ForeignTensors,
    new_parts: set[str],
    device: str | torch.device,
    dtype: torch.dtype,
    seed: int,
    folder: Path,
) -> Model:
    model = build_on_meta(spec).to(dtype)
    try:
        model.to_empty(device=device)
    except (RuntimeError, MemoryError):
        raise ValueError(
            f"{folder}: {spec.parameter_count():,} parameters of {dtype} do not fit into memory; "
            f"give a smaller dtype or use a machine with more memory"
        ) from None
    state = model.state_dict()
    unknown = [f for f in new_parts if not any(is_new(n, {f}) for n in state)]
    if unknown:
        raise ValueError(
            f"new_parts={set(unknown)}: the model has no such part; available: "
            f"{', '.join(sorted({n.split('.')[0] for n in state}))}"
        )
    with torch.no_grad():
        if family is None:
            expected = {n for n in state if not is_new(n, new_parts)}
            names = {n for n in foreign.names if not is_new(n, new_parts)}
            check_names(folder, foreign._replace(names=names), expected)
            pairs: Iterable[tuple[str, Tensor]] = ((n, foreign.get(n)) for n in expected)
        else:
            pairs = import_weights(
                family, spec, {n: t.shape for n, t in state.items()}, foreign, new_parts
            )
        for name, tensor in pairs:
            if tensor.shape != state[name].shape or not tensor.is_floating_point():
                raise ValueError(
                    f"{folder}: {name} is {tuple(tensor.shape)} of {tensor.dtype}, not "
                    f"{tuple(state[name].shape)} of floats"
                )
            state[name].copy_(tensor)
        initialise_weights(model, spec, seed, {name for name in state if is_new(name, new_parts)})
    return model


def untie_if_separate(family: Family, spec: S.Spec, foreign: ForeignTensors) -> S.Spec:
    """Untie the head if the file has a separate table, even if the config ties it (T5 v1.1)."""
    if not isinstance(spec.head, S.LMHead) or not spec.head.tied:
        return spec
    rows = {
        as_tuple(row.ours): as_tuple(row.theirs)[0]
        for row in family.table
        if isinstance(row, WeightRow) and (not row.only_for or "LMHead" in row.only_for.split())
    }
    head = rows.get(("head.out.weight",))
    table = rows.get(("source.tokens.weight",))
    if (
        head not in foreign.names
        or table not in foreign.names
        or torch.equal(foreign.get(head), foreign.get(table))
    ):
        return spec
    return S.replace(spec, head=S.replace(spec.head, tied=False))
