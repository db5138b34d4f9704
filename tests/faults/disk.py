"""A disk under `weft.support.storage` that records, fails or is slow; and the folders that a power
cut at any point may leave behind.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import Any, ClassVar

Tree = dict[str, Any]  # name -> bytes or Tree
DATA = ("kept", "half", "empty", "zeros")  # what became of bytes that were written and not synced
NAMES = ("kept", "lost", "odd", "even")  # and of names: all changes kept, none, or every second one


@dataclass(eq=False)
class File:
    now: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    number: int = field(default_factory=count().__next__)


@dataclass(eq=False)
class Folder:
    now: dict[str, Any] = field(default_factory=dict)
    safe: dict[str, Any] = field(default_factory=dict)
    number: int = field(default_factory=count().__next__)


def load(path: Path) -> Folder:
    """What lies on the real disk, all of it safe."""
    inside = {
        p.name: load(p) if p.is_dir() else File(bytearray(p.read_bytes()), p.read_bytes())
        for p in path.iterdir()
    }
    return Folder(inside, dict(inside))


def left(thing: File | Folder, data: str, names: str) -> bytes | Tree:
    """What a power cut leaves."""
    if isinstance(thing, File):
        lost = len(thing.now) - len(thing.safe)
        return {
            "kept": bytes(thing.now),
            "half": bytes(thing.now[: len(thing.safe) + lost // 2]),
            "empty": thing.safe,
            "zeros": thing.safe + bytes(lost),
        }[data]
    places = {"kept": {*thing.now.values()}, "lost": set()}.get(names)
    if places is None:  # each change is whole: a renamed thing has its old name or its new one
        changed = [
            t
            for t in {*thing.now.values(), *thing.safe.values()}
            if name_of(t, thing.now) != name_of(t, thing.safe)
        ]
        places = set(sorted(changed, key=lambda t: t.number)[names == "odd" :: 2])
    held = {
        n: t
        for n, t in thing.safe.items()
        if names != "kept" and (t not in places or thing.now.get(n) is t)
    }
    held |= {n: t for n, t in thing.now.items() if t in places}
    return {name: left(held[name], data, names) for name in sorted(held)}


def name_of(thing: Any, names: dict[str, Any]) -> str | None:
    return next((name for name, held in names.items() if held is thing), None)


def build(tree: Tree, path: Path) -> Path:
    """The folder as it would be found after the power cut."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for name, inner in tree.items():
        if isinstance(inner, bytes):
            (path / name).write_bytes(inner)
        else:
            build(inner, path / name)
    return path


class Disk:
    """Stands where `weft.support.storage` has `os`: the calls go through, and `before` sees each
    (name, path) first and may raise or wait.
    """

    CALLS: ClassVar = ("open", "write", "fsync", "close", "mkdir", "rename", "unlink", "rmdir")

    def __init__(self, before: Callable[[str, str], None] = lambda call, path: None) -> None:
        self.before = before
        self.opened = dict[int, Path]()
        for call in self.CALLS:
            setattr(self, call, lambda *given, call=call: self.call(call, *given))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def call(self, name: str, *given: Any) -> Any:
        where = self.opened[given[0]] if isinstance(given[0], int) else Path(given[0])
        if name != "close":  # which changes nothing and cannot be asked twice
            self.before(name, str(where))
        # the power cuts are simulated: nobody needs to wait
        done = None if name == "fsync" else getattr(os, name)(*given)
        if name == "open":
            self.opened[done] = where
        self.after(name, where, *given)
        if name == "close":
            del self.opened[given[0]]
        return done

    def after(self, name: str, where: Path, *given: Any) -> None:
        pass


class Recorder(Disk):
    """Keeps, beside the real folder, which bytes and names are safe; `seen` is told after each
    call.
    """

    def __init__(self, root: Path, seen: Callable[[Folder], None]) -> None:
        super().__init__()
        self.root = root
        self.seen = seen
        self.top = load(root)

    def find(self, path: Path) -> Any:
        found: Any = self.top
        for part in path.relative_to(self.root).parts:
            found = found.now[part]
        return found

    def after(self, name: str, where: Path, *given: Any) -> None:
        if name == "open" and given[1] & os.O_CREAT:
            self.find(where.parent).now[where.name] = File()
        elif name == "write":
            self.find(where).now.extend(given[1])
        elif name == "fsync":
            thing = self.find(where)
            thing.safe = bytes(thing.now) if isinstance(thing, File) else dict(thing.now)
        elif name == "mkdir":
            self.find(where.parent).now[where.name] = Folder()
        elif name == "rename":
            to = Path(given[1])
            self.find(to.parent).now[to.name] = self.find(where.parent).now.pop(where.name)
        elif name in ("unlink", "rmdir"):
            del self.find(where.parent).now[where.name]
        self.seen(self.top)


def after_power_cut(top: Folder) -> Iterator[Tree]:
    for data, names in product(DATA, NAMES):
        tree = left(top, data, names)
        assert isinstance(tree, dict)
        yield tree


def full(at: int, calls: tuple[str, ...] = ("open", "write", "fsync", "mkdir", "rename")) -> Disk:
    """A disk whose space ends at the `at`-th of these calls and stays ended."""
    number = count()

    def before(call: str, path: str) -> None:
        if call in calls and next(number) >= at:
            raise OSError(
                errno.ENOSPC,
                os.strerror(errno.ENOSPC),
                *(() if call in ("write", "fsync") else (path,)),
            )

    return Disk(before)
