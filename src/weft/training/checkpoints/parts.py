"""Sharded checkpoints: each rank writes its local tensors, and any rank reads the slices that it
needs.

`part_00003.safetensors` holds the local tensors of rank 3 under `group/name`; `part_00003.json`
gives the slice of the whole tensor for each of them, and the size and SHA-256 of the other file.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..parallel.sharding import full_tensor, local_slices, local_tensor

MANIFEST = "manifest.json"
TENSORS = ".safetensors"
FILE = re.compile(r"[a-z][a-z0-9_]*\.(safetensors|json)")
PART = re.compile(r"part_\d{5}\.json")


def is_written_here(tensor: Tensor, rank: int) -> bool:
    """Return whether this rank writes its part of a tensor; rank 0 writes replicated parts."""
    if not isinstance(tensor, DTensor):
        return rank == 0
    coordinate = tensor.device_mesh.get_coordinate()
    assert coordinate is not None
    repeated = (
        where > 0 and not hasattr(placement, "dim")
        for where, placement in zip(coordinate, tensor.placements, strict=True)
    )
    return not any(repeated) and local_tensor(tensor).numel() > 0


def rank_part(
    groups: Mapping[str, Mapping[str, Tensor]], rank: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors that this rank writes, and the slice of each."""
    tensors = {}
    layout = {}
    for group, named in groups.items():
        for name, tensor in named.items():
            if is_written_here(tensor, rank):
                tensors[f"{group}/{name}"] = local_tensor(tensor)
                layout[f"{group}/{name}"] = {
                    "shape": list(tensor.shape),
                    "begin": [s.start for s in local_slices(tensor)],
                    "size": list(local_tensor(tensor).shape),
                }
    return tensors, layout


class Piece(NamedTuple):
    """A slice of a tensor in a file."""

    file: Path
    key: str
    begin: tuple[int, ...]
    size: tuple[int, ...]


class OpenFiles(dict[Path, Any]):
    """Files that are opened once, at the first read, since opening parses all tensor names."""

    def __missing__(self, path: Path) -> Any:
        self[path] = file = safe_open(path, framework="pt")
        return file


@dataclass(frozen=True)
class SavedTensor:
    """A tensor in one file or in several, of which any slice can be read."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    files: OpenFiles = field(default_factory=OpenFiles, compare=False)  # shared by a checkpoint

    def read(self, slices: tuple[slice, ...] | None = None) -> Tensor:
        """Return a slice, or the whole tensor; only the bytes of the slice are read."""
        slices = slices or tuple(slice(0, size) for size in self.shape)
        shape = [s.stop - s.start for s in slices]
        part = None
        filled = 0
        for piece in self.pieces:
            overlap = [
                (max(b, s.start), min(b + size, s.stop))
                for b, size, s in zip(piece.begin, piece.size, slices, strict=True)
            ]
            if any(low >= high for low, high in overlap):
                continue  # skip without opening the file: a rank needs few of a thousand parts
            inside = tuple(
                slice(low - b, high - b)
                for (low, high), b in zip(overlap, piece.begin, strict=True)
            )
            file = self.files[piece.file]
            values: Tensor = (
                file.get_slice(piece.key)[inside] if inside else file.get_tensor(piece.key)
            )
            if list(values.shape) == shape:
                return values
            part = values.new_empty(shape) if part is None else part
            at = tuple(
                slice(low - s.start, high - s.start)
                for (low, high), s in zip(overlap, slices, strict=True)
            )
            part[at] = values
            filled += values.numel()
        if part is None and prod(shape) == 0:
            return torch.empty(shape)
        if part is None or filled != prod(shape):
            raise ValueError(
                f"{self.pieces[0].file.parent} is damaged: its parts do not cover "
                f"{self.pieces[0].key}"
            )
        return part


def saved_tensors(folder: Path, files: Mapping[str, Any]) -> dict[str, dict[str, SavedTensor]]:
    """Return every tensor of a checkpoint, by group and name, without reading any."""
    groups: dict[str, dict[str, tuple[tuple[int, ...], list[Piece]]]] = {}
    opened = OpenFiles()
    for group, name, shape, piece in all_pieces(folder, files):
        groups.setdefault(group, {}).setdefault(name, (shape, []))[1].append(piece)
    return {
        group: {
            name: SavedTensor(shape, tuple(pieces), opened)
            for name, (shape, pieces) in named.items()
        }
        for group, named in groups.items()
    }


def all_pieces(
    folder: Path, files: Mapping[str, Any]
) -> Iterator[tuple[str, str, tuple[int, ...], Piece]]:
    for file in sorted(files):
        if PART.fullmatch(file):
            layout = json.loads((folder / file).read_bytes())["tensors"]
            path = (folder / file).with_suffix(".safetensors")
            for key, place in layout.items():
                group, _, name = key.partition("/")
                piece = Piece(path, key, tuple(place["begin"]), tuple(place["size"]))
                yield group, name, tuple(place["shape"]), piece
        elif file.endswith(".safetensors") and not file.startswith("part_"):
            with safe_open(folder / file, framework="pt") as opened:
                for key in opened.keys():  # noqa: SIM118 not a dictionary
                    shape = tuple(opened.get_slice(key).get_shape())
                    piece = Piece(folder / file, key, (0,) * len(shape), shape)
                    yield file.removesuffix(".safetensors"), key, shape, piece


SavedGroups = Mapping[str, Mapping[str, "SavedTensor | Tensor"]]


@torch.no_grad()
def load_weights(
    module: nn.Module, saved: Mapping[str, "SavedTensor | Tensor"], strict: bool = True
) -> None:
    """Fill a module's parameters and buffers, each rank its local parts. With `strict`, the names
    must match exactly.
    """
    state = module.state_dict()
    differing = sorted(state.keys() ^ saved.keys() if strict else saved.keys() - state.keys())
    if differing:
        raise ValueError(f"the checkpoint and the model differ in {', '.join(differing[:3])}")
    for name, tensor in saved.items():
        read_into(state[name], tensor)


def read_into(target: Tensor, saved: "SavedTensor | Tensor") -> None:
    """Fill this rank's part of a tensor."""
    if tuple(target.shape) != tuple(saved.shape):
        raise ValueError(
            f"a tensor of shape {tuple(saved.shape)} does not fit {tuple(target.shape)}"
        )
    if isinstance(saved, SavedTensor):
        values = saved.read(local_slices(target))
    else:
        values = local_tensor(saved) if isinstance(saved, DTensor) else saved[local_slices(target)]
    local_tensor(target).copy_(values)


def read_like(parameter: Tensor, saved: "SavedTensor | Tensor") -> Tensor:
    """Return a saved tensor, sharded like its parameter if both have the same shape."""
    if isinstance(parameter, DTensor) and tuple(parameter.shape) == tuple(saved.shape):
        whole = torch.empty_like(parameter, requires_grad=False)
        read_into(whole, saved)
        return whole
    return saved.read() if isinstance(saved, SavedTensor) else saved


def state_digest(groups: dict[str, dict[str, Tensor]], facts: dict[str, Any] | None = None) -> str:
    sha256 = hashlib.sha256(repr(sorted((facts or {}).items())).encode())
    for group in sorted(groups):
        for name, tensor in sorted(groups[group].items()):
            sha256.update(f"{group}/{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            sha256.update(
                full_tensor(tensor)
                .detach()
                .contiguous()
                .cpu()
                .reshape(-1)
                .view(torch.uint8)
                .numpy()
                .data
            )
    return sha256.hexdigest()
