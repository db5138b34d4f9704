"""Whose a folder is: what `prepare` may write into, and what it may remove there."""
from pathlib import Path
from typing import Any

from .files import unseal
from .work import Task, facts_of

SPLITS = ("train", "valid")
OTHER = ("holds prepared data of other files or settings, which a run may be reading; give another folder, or overwrite it with "
         "weft prepare --overwrite")


def held_basis(root: Path) -> dict[str, Any] | None:
    """What data.json holds, if it is there and whole."""
    try:
        held = unseal((root / "data.json").read_text())
    except (OSError, ValueError):
        return None
    return held if {"row", "key", "tokenizer"} <= held.keys() else None


def shard_facts(split: Path) -> list[Path]:
    """The facts of every shard that was finished here: these, and the shards they name, are the only files that may be removed."""
    return [path for path in split.glob("[0-9]*.json") if facts_of(path)]


def refuse_foreign(root: Path) -> None:
    """ValueError for a folder with files that are not ours: nothing may be written between them."""
    if held_basis(root) or any(shard_facts(root / name) for name in SPLITS):
        return
    foreign = next((path for path in root.rglob("*") if not path.is_dir() and path.suffix != ".tmp"), None)
    if foreign is not None:
        raise ValueError(f"{root} holds files that weft prepare did not write ({foreign.relative_to(root)}); give a new or empty folder")


def refuse_strange(folder: Path, *marks: str) -> None:
    """ValueError for a folder that holds something, but none of the files (patterns) by which we know it as ours; a lock alone is a run
    that never began."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a folder")
    held = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    strange = next((name for name in held if not name.startswith(".") and name != "lock"), None)
    if strange is not None and not any(path.is_file() for mark in marks for path in folder.glob(mark)):
        raise ValueError(f"{folder} holds files that Weft did not write ({strange}); give a new or an empty folder")


def refuse_other(root: Path, key: str) -> None:
    """ValueError for a finished folder whose tokenizer, rows or training files are others."""
    held = held_basis(root)
    if held and held["key"] != key and any((root / name / "index.json").exists() for name in SPLITS):
        raise ValueError(f"{root} {OTHER}")


def refuse_changed(split: Path, tasks: list[Task]) -> None:
    """A finished split must be of these pieces; a shard that is missing or damaged may be made again."""
    facts = [facts_of(split / f"{task.number:05d}.json") for task in tasks]
    changed = any(held and held["fingerprint"] != task.fingerprint for held, task in zip(facts, tasks, strict=True))
    if changed or len(shard_facts(split)) > len(tasks):
        raise ValueError(f"{split} {OTHER}")
