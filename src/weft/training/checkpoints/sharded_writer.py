"""Checkpoints of several ranks: each writes its part in the background, and the first rank seals
the directory.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...support import storage
from .checkpoint import (
    SCAFFOLD,
    STATE,
    CheckpointWriter,
    Groups,
    OnSaved,
    Writers,
    commit,
    explain_os_error,
    serialize_state,
    serialize_tensors,
)
from .parts import rank_part

POLL = 0.02  # seconds between two checks for the parts of other ranks


class ShardedCheckpointWriter(CheckpointWriter):
    """Save this rank's part of each checkpoint. Ranks synchronise through the file system only, so
    that training continues.

    Args:
        root, keep, pinned, on_saved: as for `CheckpointWriter`.
        writers: this rank and the number of ranks.
        timeout: seconds that the first rank waits for the part of another rank.
    """

    def __init__(
        self,
        root: str | Path,
        keep: int,
        pinned: Collection[int] = (),
        on_saved: OnSaved | None = None,
        *,
        writers: Writers,
        timeout: float,
    ) -> None:
        super().__init__(root, keep, pinned, on_saved)
        self.rank, self.world, self.token = writers
        self.timeout = timeout

    def submit(self, step: int, groups: Groups, facts: Mapping[str, Any]) -> None:
        self.wait()
        tensors, layout = rank_part(groups, self.rank)
        content = serialize_tensors(tensors)
        state = serialize_state(facts)
        self.saving = self.thread.submit(self._save_part, step, content, layout, state)

    def _save_part(self, step: int, content: bytes, layout: dict[str, Any], state: bytes) -> Path:
        fresh = self.root / f".new-step-{step:09d}-{self.token}"
        with explain_os_error(
            self.root,
            f"cannot write {fresh}, which needs {len(content):,} bytes of rank {self.rank}",
        ):
            storage.make_folder(fresh)
            name = f"part_{self.rank:05d}"
            digest = storage.write_file(fresh / f"{name}.safetensors", content)
            described = {"tensors": layout, "bytes": len(content), "sha256": digest}
            storage.write_file(fresh / f".{name}", json.dumps(described).encode())
            storage.rename(fresh / f".{name}", fresh / f"{name}.json")
            if self.rank == 0:
                self._seal(step, fresh, state)
        # on other ranks, it exists once the first rank has sealed it
        final = self.root / f"step-{step:09d}"
        if self.on_saved is not None:
            self.on_saved(final)
        return final

    def _seal(self, step: int, fresh: Path, state: bytes) -> Path:
        """Wait for the parts of all ranks, then write the manifest and rename the folder into
        place.
        """
        for stray in self.root.iterdir():
            if SCAFFOLD.fullmatch(stray.name) and not stray.name.endswith(f"-{self.token}"):
                storage.remove(stray)
        written = {STATE: (len(state), storage.write_file(fresh / STATE, state))}
        for rank in range(self.world):
            name = f"part_{rank:05d}"
            content = self._wait_for(fresh / f"{name}.json", rank)
            part = json.loads(content)
            written[f"{name}.json"] = (len(content), storage.digest(content))
            written[f"{name}.safetensors"] = (part["bytes"], part["sha256"])
        final = commit(self.root, step, fresh, written)
        self.whole.add(final)
        self._retain(final)
        return final

    def _wait_for(self, path: Path, rank: int) -> bytes:
        if not storage.wait_until(path.exists, self.timeout, POLL):
            raise OSError(
                0,
                f"rank {rank} has not written its part for {self.timeout:g} s; run folders must be "
                "on storage that all ranks share",
                str(path),
            )
        return path.read_bytes()
