"""Ownership of directories: which files `prepare` may write and remove."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...recipe import Source
from ...support.addresses import Location
from ...support.storage import unseal_json
from ...support.values import to_plain
from ..shards.shard_builder import read_shard_facts
from .filtering import is_filter_folder, read_report
from .jobs import PieceTask

SPLITS = ("train", "valid")
OTHER = (
    "contains prepared data of other files or settings, which a run may be reading; give another "
    "directory, or overwrite it with weft prepare --overwrite"
)


def read_data_json(root: Location) -> dict[str, Any] | None:
    """Return the content of data.json; None if it is missing or damaged."""
    try:
        content = unseal_json((root / "data.json").read_text())
    except (OSError, ValueError):
        return None
    return content if {"rows", "key", "tokenizer"} <= content.keys() else None


def finished_shards(split: Location) -> list[Location]:
    """Return the facts of every shard finished in this folder; only these files and the shards that
    they name may be removed."""
    return [path for path in split.glob("[0-9]*.json") if read_shard_facts(path)]


def is_ours(root: Location, splits: Iterable[str]) -> bool:
    """Return whether `prepare` has written into this folder before."""
    return read_data_json(root) is not None or any(
        is_filter_folder(root / name) or bool(finished_shards(root / name))
        for name in {*SPLITS, *splits}
    )


def check_no_foreign_files(root: Location, splits: Iterable[str]) -> None:
    """Raise ValueError for a directory with foreign files, among which nothing may be written."""
    if is_ours(root, splits):
        return
    foreign = next(
        (path for path in root.rglob("*") if not path.is_dir() and path.suffix != ".tmp"), None
    )
    # checked again after the listing: another process may have begun to prepare the same directory
    if foreign is not None and not is_ours(root, splits):
        raise ValueError(
            f"{root} contains files that weft prepare did not write "
            f"({str(foreign).removeprefix(str(root)).lstrip('/')}); give a new or empty directory"
        )


def refuse_strange(folder: Path, *marks: str) -> None:
    """Raise ValueError for a directory with files, none of which match `ours`; a lock alone is a
    run that never started.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a directory")
    file_names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    strange = next(
        (name for name in file_names if not name.startswith(".") and name != "lock"), None
    )
    if strange is not None and not any(
        path.is_file() for mark in marks for path in folder.glob(mark)
    ):
        raise ValueError(
            f"{folder} contains files that Weft did not write ({strange}); give a new or empty "
            "directory"
        )


def check_same_settings(root: Location, key: str) -> None:
    """Raise ValueError for a finished folder with another tokenizer, other rows or other training
    files."""
    data_json = read_data_json(root)
    if (
        data_json
        and data_json["key"] != key
        and any(
            (root / name / "index.json").exists()
            for name in (*SPLITS, *data_json.get("sources", ()))
        )
    ):
        raise ValueError(f"{root} {OTHER}")


def check_same_pieces(split: Location, tasks: list[PieceTask]) -> None:
    """Raise ValueError unless a finished split consists of these pieces; a missing or damaged shard
    may be written again."""
    facts = [read_shard_facts(split / f"{task.number:05d}.json") for task in tasks]
    changed = any(
        shard and shard["fingerprint"] != task.fingerprint
        for shard, task in zip(facts, tasks, strict=True)
    )
    if changed or len(finished_shards(split)) > len(tasks):
        raise ValueError(f"{split} {OTHER}")


def check_same_filters(split: Location, source: Source) -> None:
    """Raise ValueError for a finished split that was filtered otherwise."""
    report = read_report(split)
    if (
        report is not None
        and report["filters"] != to_plain(source.filters)
        and (split / "index.json").exists()
    ):
        raise ValueError(f"{split} {OTHER}")
