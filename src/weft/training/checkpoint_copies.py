"""Copies of checkpoints in object storage: a run outlives its disk and its machine.

A copy has the names of the checkpoint. Its manifest is uploaded last and removed first: a copy without one does not count.
"""

import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

from .. import storage
from ..addresses import ObjectPath
from .checkpoint import (
    FOLDER,
    checkpoint_folders,
    discard,
    read,
    unseal_manifest,
)
from .checkpoint_parts import MANIFEST, PART, TENSORS

PATIENCE = 600.0  # seconds that a copy waits for the parts of other ranks
POLL = 0.2
DOWNLOADS = 8  # at once
Report = Callable[[str], None]


class Writers(NamedTuple):
    """Who writes parts of a checkpoint: this rank, of how many; `token` is the same on all of them and different at every start."""

    rank: int = 0
    world: int = 1
    token: str = ""


class CheckpointCopies:
    """Copies checkpoints to an address such as s3://bucket/run, one after another in a thread of its own: training neither waits for a copy
    nor stops because of one. One that fails is reported.

    Args:
        address: of the copies of this run alone.
        keep: so many of the newest are kept.
        pinned: steps that are kept too.
        report: takes a line about a copy that failed.
    """

    def __init__(
        self, address: str, keep: int, pinned: Collection[int] = (), report: Report = print
    ) -> None:
        self.root, self.keep, self.pinned = ObjectPath(address), keep, set(pinned)
        self.report, self.writers = report, Writers()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="copy")

    def __enter__(self) -> "CheckpointCopies":
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.shutdown()  # after the copies that are waiting

    # Upload

    def submit(self, checkpoint: Path) -> None:
        """Copy a checkpoint once it is sealed: every rank its part, the first one the rest."""
        self.thread.submit(self.copy, checkpoint)

    def copy(self, checkpoint: Path) -> None:
        try:
            self.upload(checkpoint)
        except (ValueError, OSError) as error:
            self.report(f"{checkpoint.name} is saved here, but not copied: {error}")

    def upload(self, checkpoint: Path) -> None:
        rank, world, token = self.writers
        there = self.root / checkpoint.name
        wait_until((checkpoint / MANIFEST).exists, f"{checkpoint} is not sealed")
        if rank == 0:
            (there / MANIFEST).unlink(missing_ok=True)  # of an earlier copy of the same step
        for file in sorted(checkpoint.iterdir()):
            part = PART.fullmatch(file.with_suffix(".json").name)
            mine = file.name == f"part_{rank:05d}{TENSORS}" if part else rank == 0
            if (mine or (rank == 0 and file.suffix == ".json")) and file.name != MANIFEST:
                (there / file.name).upload(file)
        if world > 1:
            (there / f"copied_{token}_{rank:05d}").write_bytes(b"")
        if rank == 0:
            self.seal(checkpoint)

    def seal(self, checkpoint: Path) -> None:
        """Upload the manifest once all parts are there; then the copy counts, and others go."""
        there, pattern = self.root / checkpoint.name, f"copied_{self.writers.token}_*"

        def parts() -> list[ObjectPath]:
            return [*there.glob(pattern)] if self.writers.world > 1 else []

        if self.writers.world > 1:
            wait_until(
                lambda: len(parts()) == self.writers.world, f"{there} lacks parts of other ranks"
            )
        (there / MANIFEST).upload(checkpoint / MANIFEST)
        for note in there.glob("copied_*"):
            note.unlink(missing_ok=True)
        self.retain(int(checkpoint.name.removeprefix("step-")))

    def retain(self, step: int) -> None:
        """Remove copies that are older than the newest `keep`, whole ones that are newer than `step` and so of another past, and what is
        left of copies that never became whole."""
        whole = self.steps()
        kept = {*[s for s in whole if s <= step][: self.keep], *self.pinned, step}
        names = {path.parent.name for path in self.root.glob("step-*/*")}
        for name in sorted(names):
            known = FOLDER.fullmatch(name)
            is_next = known is not None and int(known[1]) > step and int(known[1]) not in whole
            if known is None or int(known[1]) in kept or is_next:
                continue
            folder = self.root / name
            (folder / MANIFEST).unlink(missing_ok=True)
            for file in [*folder.rglob("*")]:
                file.unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Return the steps of all whole copies, the newest first."""
        names = [path.parent.name for path in self.root.glob(f"*/{MANIFEST}")]
        return sorted((int(m[1]) for name in names if (m := FOLDER.fullmatch(name))), reverse=True)

    # Download

    def fetch_newest(self, root: Path) -> int | None:
        """Download the newest undamaged copy, if it is newer than every undamaged checkpoint in the folder, and the steps that are averaged
        later; return its step, None if there is none."""
        here = newest_readable(root)
        try:
            steps = self.steps()
        except ValueError as error:
            if not here:
                raise
            self.report(f"continuing from step {here:,} without a look at the copies: {error}")
            return None
        fetched = next((step for step in steps if step > here and self.fetch(step, root)), None)
        if fetched is not None:
            for step in steps:
                if step < fetched and step in self.pinned:
                    self.fetch(step, root)
        return fetched

    def fetch(self, step: int, root: Path) -> bool:
        """Download a copy to the folder of checkpoints; report and return False if it is damaged."""
        name = f"step-{step:09d}"
        fresh, there = root / f".new-{name}-copy", self.root / name
        storage.make_folder(root)
        if fresh.exists():
            storage.remove(fresh)
        storage.make_folder(fresh)
        try:
            (there / MANIFEST).download(fresh / MANIFEST)
            saved, files = unseal_manifest(fresh / MANIFEST)
            if saved != step:
                raise ValueError(f"its manifest is of step {saved}")
            with ThreadPoolExecutor(DOWNLOADS) as pool:
                jobs = [
                    pool.submit(download, there / file, fresh / file, sha256)
                    for file, (_, sha256) in files.items()
                ]
                for job in jobs:
                    job.result()
        except (ValueError, FileNotFoundError) as error:
            self.report(f"{there} cannot be used: {error}")
            storage.remove(fresh)
            return False
        storage.sync_path(fresh / MANIFEST)
        storage.sync_path(fresh)
        discard(root / name)  # a damaged one of the same step
        storage.rename(fresh, root / name)
        return True


def newest_readable(root: Path) -> int:
    """Return the step of the newest undamaged checkpoint; 0 if there is none."""
    for path in checkpoint_folders(root):
        try:
            return read(path).step
        except ValueError:
            continue
    return 0


def download(there: ObjectPath, here: Path, sha256: str) -> None:
    """Download a file to disk; ValueError if it is not the one that the manifest names."""
    there.download(here)
    storage.sync_path(here)
    with here.open("rb") as file:
        if file_digest(file, "sha256").hexdigest() != sha256:
            raise ValueError(f"{there} is damaged")


def wait_until(done: Callable[[], bool], text: str) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise ValueError(f"{text} after {PATIENCE:g} s")
        time.sleep(POLL)
