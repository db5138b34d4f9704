"""Copies of checkpoints in object storage: a run outlives its disk and its machine.

A copy has the names of the checkpoint. The manifest goes up last and is removed first, so that a copy without one does not count.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable
from hashlib import file_digest
from pathlib import Path
from typing import Protocol

from .. import storage
from ..addresses import ObjectPath
from .checkpoint_parts import FILE, MANIFEST, PART, TENSORS

FOLDER = re.compile(r"step-(\d{9,})")
Report = Callable[[str], None]


class WorldRanks(Protocol):
    """The processes of a run: see `training.parallel.DistributedRanks`."""

    world: int
    world_rank: int

    @property
    def is_first(self) -> bool: ...
    def sum(self, numbers: list[float]) -> list[float]: ...
    def barrier(self) -> None: ...


class CheckpointCopies:
    """Copies the checkpoints of a run to an address such as s3://bucket/run. A copy that fails is reported, and training goes on.

    Args:
        address: of the copies of this run alone.
        keep: so many of the newest are kept.
        pinned: steps that are kept too.
        report: takes a line about a copy that failed.
    """

    def __init__(
        self, address: str, keep: int, pinned: Collection[int] = (), report: Report = print
    ) -> None:
        self.root, self.keep, self.pinned, self.report = (
            ObjectPath(address),
            keep,
            set(pinned),
            report,
        )

    def upload(self, name: str, files: Iterable[Path]) -> bool:
        """Copy files of the checkpoint `name`; return whether all are there."""
        try:
            for file in files:
                (self.root / name / file.name).upload(file)
        except ValueError as error:
            self.report(f"{name} is saved here, but not copied: {error}")
            return False
        return True

    def seal(self, checkpoint: Path) -> None:
        """Copy what no rank has copied as its part: then the copy counts, and older ones go."""
        files = sorted(checkpoint.iterdir())
        parts = {file.stem for file in files if PART.fullmatch(file.name)}
        if not all(is_copied(checkpoint / f"{part}.json") for part in parts):
            return  # the rank that could not copy its part has said so
        others = [f for f in files if f.name != MANIFEST and f.name not in with_tensors(parts)]
        if self.upload(checkpoint.name, [*others, checkpoint / MANIFEST]):
            self.retain()

    def retain(self) -> None:
        """Remove copies that are older than the newest `keep`."""
        try:
            for step in self.steps()[self.keep :]:
                if step not in self.pinned:
                    folder = self.root / f"step-{step:09d}"
                    (folder / MANIFEST).unlink(missing_ok=True)
                    for file in [*folder.rglob("*")]:
                        file.unlink(missing_ok=True)
        except ValueError as error:
            self.report(f"older copies cannot be removed: {error}")

    def steps(self) -> list[int]:
        """Return the steps of all whole copies, the newest first."""
        names = [path.parent.name for path in self.root.glob(f"*/{MANIFEST}")]
        return sorted((int(m[1]) for name in names if (m := FOLDER.fullmatch(name))), reverse=True)

    def fetch_newest(self, root: Path, ranks: WorldRanks) -> int | None:
        """Download the newest undamaged copy that is newer than every checkpoint in the folder; return its step, None if there is none.
        Every rank downloads some of the files."""
        names = [path.name for path in root.iterdir()] if root.exists() else []
        here = max((int(m[1]) for name in names if (m := FOLDER.fullmatch(name))), default=0)
        ranks.barrier()  # all have looked before one writes
        for step in (step for step in self.steps() if step > here):
            if self.fetch(step, root, ranks):
                return step
        return None

    def fetch(self, step: int, root: Path, ranks: WorldRanks) -> bool:
        """Download a copy; return False if it is damaged."""
        name = f"step-{step:09d}"
        fresh, there = root / f".new-{name}-copy", self.root / name
        if ranks.is_first:
            storage.make_folder(root)
            if fresh.exists():
                storage.remove(fresh)
            storage.make_folder(fresh)
        ranks.barrier()
        manifest = there / MANIFEST
        files = sorted(json.loads(manifest.read_bytes())["files"].items())
        wrong = [
            file
            for file, known in files[ranks.world_rank :: ranks.world]
            if not download(there / file, fresh / file, known["sha256"])
        ]
        for file in wrong:
            self.report(f"{there / file} is damaged; trying the copy before it")
        (damaged,) = ranks.sum([float(len(wrong))])
        if ranks.is_first and not damaged:
            manifest.download(fresh / MANIFEST)
            storage.sync_path(fresh / MANIFEST)
            storage.rename(fresh, root / name)
        ranks.barrier()
        return not damaged


def with_tensors(parts: Collection[str]) -> set[str]:
    return {f"{part}{TENSORS}" for part in parts}


def is_copied(part: Path) -> bool:
    return bool(json.loads(part.read_bytes()).get("copied"))


def download(there: ObjectPath, here: Path, sha256: str) -> bool:
    """Download a file of a copy to disk; return False if it is missing or has another SHA-256."""
    if not FILE.fullmatch(here.name):
        raise ValueError(f"{there} is no file of a checkpoint")
    try:
        there.download(here)
    except FileNotFoundError:
        return False
    storage.sync_path(here)
    with here.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == sha256
