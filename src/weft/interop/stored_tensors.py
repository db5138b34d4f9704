"""Lazy reading of the tensors in a directory of safetensors files."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from .. import spec as S
from ..families.base import Family
from ..families.weights import WeightRow
from ..support.folder_files import MAX_TABLE_BYTES, find_file
from .bounds import check_header
from .huggingface.convert import ForeignTensors, as_tuple, part_kinds
from .huggingface.sentence_transformers import read_modules
from .json_files import read_json_object
from .tensor_files import INDEX, WEIGHTS


def read_tensors(folder: Path, open_files: ExitStack, under: str = "") -> ForeignTensors:
    """Open one file, or shards named by an index; only siblings of the index are opened. `under`
    selects a subdirectory, such as "2_Dense/".
    """
    index = read_index(folder, under)
    paths = {
        file: find_file(folder, under + file)
        for file in (sorted(set(index.values())) if index is not None else [WEIGHTS])
    }
    handles = {
        file: open_tensors(path or folder / under / file, open_files)
        for file, path in paths.items()
    }
    where: dict[str, str] = {}
    for file, handle in handles.items():
        where |= dict.fromkeys(handle.keys(), file)
    lost = sorted(set(index or ()) - set(where))
    if lost:
        raise ValueError(
            f"{folder / under / INDEX} names tensors that its files lack: {', '.join(lost[:12])}"
        )

    def get(name: str, slices: tuple[slice, ...] | None = None) -> Tensor:
        file = handles[where[name]]
        try:
            tensor: Tensor = file.get_slice(name)[slices] if slices else file.get_tensor(name)
        except Exception as error:  # such as a dtype that torch does not have
            raise ValueError(
                f"{folder / under / where[name]}: {name} cannot be read: {error}"
            ) from None
        return tensor

    def shape(name: str) -> list[int]:
        sizes: list[int] = handles[where[name]].get_slice(name).get_shape()
        return sizes

    size = sum(path.stat().st_size for path in paths.values() if path)
    return ForeignTensors(set(where), get, size, shape)


def open_tensors(path: Path, open_files: ExitStack) -> Any:
    try:
        check_header(path)
        return open_files.enter_context(safe_open(path, "pt"))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def read_index(folder: Path, under: str) -> dict[str, str] | None:
    """Return the file of each tensor; None if there is one file without an index."""
    if find_file(folder, under + INDEX):
        index = read_json_object(folder, under + INDEX, MAX_TABLE_BYTES).get("weight_map")
        files = list(index.values()) if isinstance(index, dict) else [index]
        for file in files:
            if (
                not isinstance(file, str)
                or Path(file).name != file
                or not file.endswith(".safetensors")
            ):
                raise ValueError(
                    f"{folder / under / INDEX} names {file!r}; only .safetensors files in the "
                    f"same directory are allowed"
                )
        assert isinstance(index, dict)
        return index
    if find_file(folder, under + WEIGHTS):
        return None
    old = [path.name for pattern in ("*.bin", "*.pt") for path in folder.glob(pattern)]
    hint = (
        f"; {old[0]} is a pickle, which Weft never opens; convert it to safetensors first"
        if old
        else ""
    )
    raise ValueError(f"{folder / under} contains no {WEIGHTS}{hint}")


def with_cross_encoder_map(
    foreign: ForeignTensors, family: Family, spec: S.Spec, folder: Path, open_files: ExitStack
) -> ForeignTensors:
    """Add a CrossEncoder's linear map, which is stored in a separate directory, under its name in
    the family's table.
    """
    modules = (
        read_modules(folder)
        if not any("classifier" in name or "score" in name for name in foreign.names)
        else None
    )
    if modules is None or modules.dense is None:
        return foreign
    dense_tensors = read_tensors(folder, open_files, f"{modules.dense}/")
    rows = {
        as_tuple(row.ours)[0]: as_tuple(row.theirs)[0]
        for row in family.table
        if isinstance(row, WeightRow)
        and (not row.only_for or part_kinds(spec) & set(row.only_for.split()))
    }
    dense_names = {
        rows.get(f"head.out.{kind}", kind): f"linear.{kind}"
        for kind in ("weight", "bias")
        if f"linear.{kind}" in dense_tensors.names
    }

    def owner(name: str) -> tuple[ForeignTensors, str]:
        return (dense_tensors, dense_names[name]) if name in dense_names else (foreign, name)

    def get(name: str, *slices: tuple[slice, ...] | None) -> Tensor:
        tensors, name = owner(name)
        return tensors.get(name, *slices)

    def shape(name: str) -> list[int]:
        tensors, name = owner(name)
        return tensors.shape(name)

    size = foreign.size + dense_tensors.size
    return ForeignTensors(foreign.names | set(dense_names), get, size, shape)
