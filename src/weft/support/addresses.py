"""Addresses such as s3://…, read and written through fsspec, with one-line errors."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from .extras import install_extra


def is_remote(path: str) -> bool:
    return "://" in path


def filesystem(path: str) -> tuple[Any, str]:
    """Return the fsspec file system of an address and the path in it; not for local paths."""
    try:
        import fsspec
    except ImportError:
        raise ValueError(
            f"{path}: addresses need fsspec; pip install fsspec, or give a local path"
        ) from None
    try:
        system, inner = fsspec.core.url_to_fs(path)
    except ImportError as error:
        hint = install_extra("s3") if path.startswith("s3://") else "install that package"
        raise ValueError(
            f"{path}: this type of address needs another package: {error}; {hint}, or give a "
            "local path"
        ) from None
    return system, inner


@contextmanager
def named_network_errors(path: str, verb: str = "read") -> Iterator[None]:
    """Convert errors of the address libraries to ValueError; reading a missing file still raises
    FileNotFoundError."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        if isinstance(error, FileNotFoundError) and verb != "written":
            raise
        raise ValueError(
            f"{path} cannot be {verb}: "
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}; check the "
            "address and the network"
        ) from None


class ObjectStatus(NamedTuple):
    """The status of an object, like that of `Path.stat`."""

    st_size: int


class ObjectPath:
    """An object, or a folder of objects, by its address: the part of the `pathlib.Path` interface
    that prepared data needs.

    One request writes an object, so that it is complete or absent; folders are only name prefixes.
    Each request looks up the file system, since after a fork the old one belongs to the parent."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def __str__(self) -> str:
        return self.address

    def __repr__(self) -> str:
        return f"ObjectPath({self.address!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __lt__(self, other: "ObjectPath") -> bool:
        return self.address < other.address

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        return self.address.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "ObjectPath":
        return ObjectPath(self.address.rpartition("/")[0])

    def with_name(self, name: str) -> "ObjectPath":
        return self.parent / name

    def with_suffix(self, suffix: str) -> "ObjectPath":
        return self.with_name(self.stem + suffix)

    def relative_to(self, root: "ObjectPath") -> str:
        return self.address.removeprefix(f"{root.address}/")

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: folders exist only as name prefixes."""

    # Requests. Listings are not cached, since another process may write.

    def system(self) -> tuple[Any, str]:
        system, inner = filesystem(self.address)
        system.invalidate_cache()
        return system, inner

    def exists(self) -> bool:
        system, inner = self.system()
        with named_network_errors(self.address):
            return bool(system.isfile(inner))

    def is_dir(self) -> bool:
        return False

    def stat(self) -> ObjectStatus:
        system, inner = self.system()
        with named_network_errors(self.address):
            return ObjectStatus(int(system.info(inner)["size"]))

    def read_bytes(self) -> bytes:
        system, inner = self.system()
        with named_network_errors(self.address):
            return bytes(system.cat_file(inner))

    def read_range(self, start: int, stop: int) -> bytes:
        system, inner = self.system()
        with named_network_errors(self.address):
            return bytes(system.cat_file(inner, start=start, end=stop))

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        system, inner = self.system()
        with named_network_errors(self.address, "written"):
            system.pipe_file(inner, content)

    def upload(self, local: Path) -> None:
        """Upload a local file; the parts of a large file become visible together."""
        system, inner = self.system()
        with named_network_errors(self.address, "written"):
            system.put_file(str(local), inner)

    def download(self, local: Path) -> None:
        system, inner = self.system()
        with named_network_errors(self.address):
            system.get_file(inner, str(local))

    def unlink(self, missing_ok: bool = False) -> None:
        system, inner = self.system()
        try:
            with named_network_errors(self.address, "removed"):
                system.rm_file(inner)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rglob(self, pattern: str) -> Iterator["ObjectPath"]:
        """Yield the objects below this prefix, sorted by name."""
        system, inner = self.system()
        names: list[str] = []
        with suppress(FileNotFoundError), named_network_errors(self.address):
            names = sorted(system.find(inner))
        for name in names:
            path = self / name.removeprefix(inner).lstrip("/")
            if fnmatchcase(path.name, pattern):
                yield path

    def glob(self, pattern: str) -> Iterator["ObjectPath"]:
        """Yield the objects below this prefix that match a pattern, folder by folder."""
        parts = pattern.split("/")
        for path in self.rglob(parts[-1]):
            names = path.relative_to(self).split("/")
            if len(names) == len(parts) and all(map(fnmatchcase, names, parts)):
                yield path


Location = Path | ObjectPath


def locate(path: "str | Location") -> Location:
    """Return the location of a path or an address."""
    if isinstance(path, Path | ObjectPath):
        return path
    path = path.removeprefix("file://")
    return ObjectPath(path) if is_remote(path) else Path(path)


def matching(folder: Location, pattern: str) -> list[Location]:
    """Return the matches of a pattern in a folder, sorted by name."""
    paths: list[Location] = [*folder.glob(pattern)]
    return sorted(paths, key=str)
