"""Copies of checkpoints in object storage, so that a run can continue on another machine.

A copy has the names of the checkpoint. Its manifest is uploaded last and removed first: a copy
without a manifest is ignored.
"""

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path

from ...support import storage
from ...support.addresses import ObjectPath
from ...support.console import Report
from ..interpreter_exit import BackgroundThread
from .checkpoint import FOLDER, Writers, checkpoint_folders, discard, read, unseal_manifest
from .parts import MANIFEST, PART, TENSORS

PATIENCE = 600.0  # seconds to wait for the parts of other ranks
LOG = "log.jsonl"
DOWNLOADS = 8  # at once


class CheckpointCopies:
    """Copy checkpoints to an address such as s3://bucket/run, one at a time in a separate thread.
    Training neither waits for a copy nor stops if one fails; failures are reported.

    Args:
        address: destination, used by this run only.
        keep: number of newest copies to keep.
        pinned: additional steps to keep.
        report: called with a message when a copy fails.
        log: returns the run's log up to a step, which is copied with the checkpoint.
    """

    def __init__(
        self,
        address: str,
        keep: int,
        pinned: Collection[int] = (),
        report: Report = print,
        log: Callable[[int], bytes] | None = None,
    ) -> None:
        self.root = ObjectPath(address)
        self.keep = keep
        self.pinned = set(pinned)
        self.report = report
        self.log = log
        self.writers = Writers()
        self.damaged: set[int] = set()  # steps of unusable copies
        self.waiting: list[Path] = []
        self.newest = Path()  # newest submitted checkpoint
        self.copied = 0  # newest step with a complete copy
        self.thread = BackgroundThread("copy")

    def __enter__(self) -> "CheckpointCopies":
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.shutdown()  # waits for queued copies

    # Upload

    def submit(self, checkpoint: Path) -> None:
        """Queue a checkpoint for copying once it is sealed: each rank copies its part, the first
        rank the rest.
        """
        self.waiting.append(checkpoint)
        self.newest = checkpoint
        self.thread.submit(self.copy_next)

    def copy_next(self) -> None:
        """Copy the newest queued checkpoint, which is removed last. Several ranks copy the oldest
        one first, so that all copy the same.
        """
        checkpoint = self.waiting.pop(-1 if self.writers.world == 1 else 0)
        try:
            self.upload(checkpoint)
        except (ValueError, OSError) as error:
            problem = f"is saved locally, but was not copied: {error}"
            if self.is_removed(checkpoint):
                problem = (
                    "was removed locally before it was copied; save less often, or keep more "
                    "(checkpoints.every_steps, checkpoints.keep)"
                )
            self.report(f"{checkpoint.name} {problem}")

    def is_removed(self, checkpoint: Path) -> bool:
        """Return whether a checkpoint was removed rather than not yet sealed: a newer one is
        sealed.
        """
        return not (checkpoint / MANIFEST).exists() and (
            checkpoint != self.newest and (self.newest / MANIFEST).exists()
        )

    def upload(self, checkpoint: Path) -> None:
        rank, world, token = self.writers
        there = self.root / checkpoint.name

        def is_sealed() -> bool:
            return (checkpoint / MANIFEST).exists() or self.is_removed(checkpoint)

        if not storage.wait_until(is_sealed, PATIENCE):
            raise ValueError(f"{checkpoint} is not sealed after {PATIENCE:g} s")
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
            if self.log is not None:
                with suppress(FileNotFoundError):  # a missing log does not prevent the copy
                    (there / LOG).write_bytes(self.log(step_of(checkpoint)))
            self.seal(checkpoint)

    def seal(self, checkpoint: Path) -> None:
        """Upload the manifest once all parts are uploaded, which completes the copy; then remove
        older copies.
        """
        there = self.root / checkpoint.name
        (_, world, token) = self.writers

        def has_all_parts() -> bool:
            whole = world == 1 or len([*there.glob(f"copied_{token}_*")]) == world
            return whole or self.is_removed(checkpoint)

        if not storage.wait_until(has_all_parts, PATIENCE):
            raise ValueError(f"{there} lacks parts of other ranks after {PATIENCE:g} s")
        (there / MANIFEST).upload(checkpoint / MANIFEST)
        for note in there.glob("copied_*"):
            note.unlink(missing_ok=True)
        self.damaged.discard(step_of(checkpoint))
        self.copied = max(self.copied, step_of(checkpoint))
        self.retain(self.copied)

    def retain(self, step: int) -> None:
        """Remove copies older than the newest `keep`, damaged copies and incomplete ones. Complete
        copies newer than `step` stay: this start continued before them only because storage did not
        respond, and the next start can use them.
        """
        older = [s for s in self.steps() if s <= step and s not in self.damaged]
        kept = {*older[: self.keep], *self.pinned, step}
        names = {path.parent.name for path in self.root.glob("step-*/*")}
        for name in sorted(names):
            match = FOLDER.fullmatch(name)
            if (
                match is None
                or (s := int(match[1])) in kept
                or (s > step and s not in self.damaged)
            ):
                continue
            folder = self.root / name
            (folder / MANIFEST).unlink(missing_ok=True)
            for file in [*folder.rglob("*")]:
                file.unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Return the steps of all complete copies, the newest first."""
        names = [path.parent.name for path in self.root.glob(f"*/{MANIFEST}")]
        return sorted((int(m[1]) for name in names if (m := FOLDER.fullmatch(name))), reverse=True)

    # Download

    def fetch_newest(self, root: Path) -> int | None:
        """Download the newest undamaged copy, if it is newer than every undamaged checkpoint in the
        folder, and the steps that are averaged later; return its step, None if there is none.
        Raises ValueError if storage fails, or if copies exist but none is usable: a new run would
        overwrite them.
        """
        here = newest_readable(root)
        try:
            steps = self.steps()
        except ValueError as error:
            if not here:
                raise
            self.report(
                f"cannot read the copies of checkpoints, using local step {here:,}: {error}"
            )
            return None
        fetched = next((step for step in steps if step > here and self.fetch(step, root)), None)
        if steps and not (here or fetched):
            names = ", ".join(map(folder_name, steps))
            raise ValueError(
                f"{self.root}: no copy can be used ({names}); restore one, or give another "
                "checkpoints.copy_to to start again"
            )
        for step in steps:
            missing = not (root / folder_name(step)).exists()
            if step < (fetched or here) and step in self.pinned and missing:
                self.fetch(step, root)
        return fetched

    def fetch(self, step: int, root: Path) -> bool:
        """Download a copy to the checkpoint directory; report and return False if it is damaged.
        Network errors are raised.
        """
        name = folder_name(step)
        fresh = root / f".new-{name}-copy"
        there = self.root / name
        storage.make_folder(root)
        if fresh.exists():
            storage.remove(fresh)
        storage.make_folder(fresh)
        try:
            (there / MANIFEST).download(fresh / MANIFEST)
            saved, files = unseal_manifest(fresh / MANIFEST)
            if saved != step:
                raise storage.DamagedFile(f"its manifest belongs to step {saved}")
            with ThreadPoolExecutor(DOWNLOADS) as pool:
                jobs = [
                    pool.submit(download, there / file, fresh / file, sha256)
                    for file, (_, sha256) in files.items()
                ]
                for job in jobs:
                    job.result()
        except (storage.DamagedFile, FileNotFoundError) as error:
            self.report(f"{there} cannot be used: {error}")
            self.damaged.add(step)
            storage.remove(fresh)
            return False
        storage.sync_path(fresh / MANIFEST)
        storage.sync_path(fresh)
        discard(root / name)  # a damaged one of the same step
        storage.rename(fresh, root / name)
        return True

    def fetch_log(self, step: int) -> bytes:
        """Return the run's log up to the step of a copy; empty if the copy has none."""
        with suppress(FileNotFoundError):
            return (self.root / folder_name(step) / LOG).read_bytes()
        return b""


def folder_name(step: int) -> str:
    return f"step-{step:09d}"


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def newest_readable(root: Path) -> int:
    """Return the step of the newest undamaged checkpoint; 0 if there is none."""
    for path in checkpoint_folders(root):
        try:
            return read(path).step
        except ValueError:
            continue
    return 0


def download(there: ObjectPath, here: Path, sha256: str) -> None:
    """Download a file to disk; raise DamagedFile if its SHA-256 differs from the manifest."""
    there.download(here)
    storage.sync_path(here)
    with here.open("rb") as file:
        if file_digest(file, "sha256").hexdigest() != sha256:
            raise storage.DamagedFile(f"{there} is damaged")
