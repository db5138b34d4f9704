"""What a folder may claim: checked against the sizes of its files before anything is built from it."""
from pathlib import Path

from .. import spec as S
from ..data.members import TABLE

TENSORS = 200_000                          # in one file; the largest published models have half as many in all their files
LENGTH = 8                                 # bytes that say how long the header is


def check_header(path: Path) -> None:
    """ValueError for a safetensors header that is longer than the file, or lists too many tensors, before it is parsed."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        claimed = int.from_bytes(file.read(LENGTH), "little")
        if claimed > min(size - LENGTH, TABLE):
            raise ValueError(f"{path} cannot be read: its header claims {claimed:,} bytes of a file of {size:,}; "
                             f"headers have at most {TABLE:,}")
        count = file.read(claimed).count(b'"data_offsets"')
    if count > TENSORS:
        raise ValueError(f"{path} cannot be read: its header lists {count:,} tensors, more than {TENSORS:,}")


def check_parameters(folder: Path, s: S.Model, stored: int, fresh: set[str]) -> None:
    """ValueError for a description of more parameters than the weight files have bytes: none is stored in less than one."""
    apart = {"head"} <= fresh
    try:
        claimed = S.replace(s, head=S.Features()).parameters() if apart else s.parameters()
    except ValueError:                     # a spec that needs its head
        claimed = s.parameters()
    if claimed > stored and fresh <= {"head"}:
        raise ValueError(f"{folder}: the model is described with {claimed:,} parameters, but its weight files hold only {stored:,} bytes")
