"""Limits on model directories: headers and parameter counts are checked against file sizes before
anything is built.
"""

from pathlib import Path

from .. import spec as S
from ..support.folder_files import MAX_TABLE_BYTES

MAX_TENSORS = 200_000  # per file; the largest published models have half as many in total
HEADER_LENGTH_BYTES = 8  # bytes that say how long the header is


def check_header(path: Path) -> None:
    """Raise ValueError for a safetensors header that is longer than the file or lists too many
    tensors, before parsing it.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        claimed = int.from_bytes(file.read(HEADER_LENGTH_BYTES), "little")
        if claimed > min(size - HEADER_LENGTH_BYTES, MAX_TABLE_BYTES):
            raise ValueError(
                f"{path} cannot be read: its header claims {claimed:,} bytes in a file of "
                f"{size:,} bytes; headers have at most {MAX_TABLE_BYTES:,}"
            )
        count = file.read(claimed).count(b'"data_offsets"')
    if count > MAX_TENSORS:
        raise ValueError(
            f"{path} cannot be read: its header lists {count:,} tensors, more than {MAX_TENSORS:,}"
        )


def check_parameters(folder: Path, spec: S.Spec, stored: int, new_parts: set[str]) -> None:
    """Raise ValueError for a spec with more parameters than the weight files have bytes: each needs
    at least one byte.
    """
    apart = {"head"} <= new_parts
    try:
        claimed = (
            S.replace(spec, head=S.NoHead()).parameter_count() if apart else spec.parameter_count()
        )
    except ValueError:  # a spec that needs its head
        claimed = spec.parameter_count()
    if claimed > stored and new_parts <= {"head"}:
        raise ValueError(
            f"{folder}: the configuration describes {claimed:,} parameters, but the weight files "
            f"have only {stored:,} bytes"
        )
