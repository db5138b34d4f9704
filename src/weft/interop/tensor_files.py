"""Streaming writer of safetensors files: one tensor at a time, so that memory holds only the
largest tensor.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ALIGNMENT = 8  # alignment of the first tensor in bytes
# in the order in which the safetensors library writes them: wide types first, so that every tensor
# is aligned
DTYPES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
TYPE_ORDER = {dtype: place for place, dtype in enumerate(DTYPES)}


class LazyTensors(NamedTuple):
    """Tensors that are read one at a time: names, shapes and dtypes, and a function that returns
    one tensor.
    """

    like: Mapping[str, Tensor]
    read: Callable[[str], Tensor]


def in_memory(tensors: Mapping[str, Tensor]) -> LazyTensors:
    return LazyTensors(tensors, tensors.__getitem__)


def plan_files(like: Mapping[str, Tensor], shard: int) -> list[list[str]]:
    """Return the tensor names of each file; files have at most `shard` bytes unless a single tensor
    is larger.
    """
    files: list[list[str]] = [[]]
    room = shard
    for name, tensor in like.items():
        if tensor.nbytes > room and files[-1]:
            files.append([])
            room = shard
        files[-1].append(name)
        room -= tensor.nbytes
    return [
        sorted(names, key=lambda name: (TYPE_ORDER.get(like[name].dtype, 0), name))
        for names in files
    ]


def write_tensors(tensors: LazyTensors, folder: Path, shard: int) -> None:
    """Write one file, or several with an index. Each tensor is read when it is written."""
    files = plan_files(tensors.like, shard)
    if len(files) == 1:
        write_tensor_file(folder / WEIGHTS, files[0], tensors)
        return
    where: dict[str, str] = {}
    for i, names in enumerate(files):
        file = f"model-{i + 1:05d}-of-{len(files):05d}.safetensors"
        write_tensor_file(folder / file, names, tensors)
        where.update(dict.fromkeys(names, file))
    total = sum(t.nbytes for t in tensors.like.values())
    (folder / INDEX).write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=2) + "\n",
        encoding="utf-8",
    )


def write_tensor_file(path: Path, names: list[str], tensors: LazyTensors) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        like = tensors.like[name]
        if like.dtype not in DTYPES:
            raise ValueError(
                f"{name} has dtype {like.dtype}, which cannot be written; convert the model to "
                f"float32 or bfloat16"
            )
        begin = end
        end = end + like.nbytes
        header[name] = {
            "dtype": DTYPES[like.dtype],
            "shape": list(like.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensor = tensors.read(name).detach()
            like = tensors.like[name]
            assert (tensor.shape, tensor.dtype) == (like.shape, like.dtype), name
            file.write(tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
            del tensor  # before the next one is read
