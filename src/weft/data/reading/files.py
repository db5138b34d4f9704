"""File access: find, open, identify by content, and write atomically."""

import codecs
import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from glob import glob, has_magic
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from ...support.addresses import filesystem, is_remote, named_network_errors
from ...support.storage import DamagedFile, digest_plain, write_atomically

BLOCK = 1 << 20
MAX_LINE_BYTES = 1 << 22  # the longest line in bytes
# Bytes of an archive at a time: those before damage are found, but for the last step's
STEP = 1 << 14
UNPACKED = 200  # times the compressed size, at most: text packs to a tenth at best
SMALL = 1 << 26  # bytes of an unpacked file that may be as repetitive as it likes
MAX_FILE_BYTES = 1 << 28  # bytes of one image's file
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


PATHS_OF_DATA = re.compile(
    r"(train|valid)(\.sources\.\d+\.source)?\.paths\.\d+|tokenizer\.path|prepared_folder"
)


class MissingFile(ValueError):
    """A file or directory does not exist."""


def find(path: str) -> list[str]:
    """Return the files or folders that a path or glob matches: here, then under $WEFT_DATA."""
    if is_remote(path):
        return find_remote(path)
    home = os.environ.get("WEFT_DATA")
    # Joined to an absolute path, a base is nothing
    for base in ("", home) if home else ("",):
        full = os.path.join(base, os.path.expanduser(path))
        if paths := [full] if os.path.exists(full) else sorted(glob(full, recursive=True)):
            return paths
    raise MissingFile(
        f"{path} does not exist in {os.getcwd()} or under $WEFT_DATA ({home or 'not set'}); check "
        "the path"
    )


def same_files(before: object, now: object) -> bool:
    """Return whether two paths or globs are spellings of the same files."""
    if not (isinstance(before, str) and isinstance(now, str)):
        return before == now
    return before == now or resolved_paths(before) == resolved_paths(now)


def resolved_paths(path: str) -> list[str]:
    try:
        return [path if "://" in path else os.path.realpath(path) for path in find(path)]
    except (MissingFile, OSError):
        return [os.path.realpath(os.path.expanduser(path))]


def find_remote(path: str) -> list[str]:
    """Return the addresses that an address or its glob matches."""
    system, inner = filesystem(path)
    with named_network_errors(path):
        if has_magic(inner):
            paths = sorted(system.glob(inner))
        else:
            paths = [inner] if system.exists(inner) else []
    if not paths:
        raise MissingFile(f"{path} does not exist; check the address")
    return [system.unstrip_protocol(name) for name in paths]


def expand(paths: Sequence[str]) -> list[str]:
    return [name for path in paths for name in find(path)]


def refuse_special(path: str) -> None:
    """Raise ValueError for a path that is not a regular file: a pipe can be read once and may
    block, a device never ends."""
    if is_remote(path) or not os.path.lexists(path) or os.path.isfile(path):
        return
    kind = "not a regular file" if os.path.exists(path) else "a dangling link"
    raise ValueError(f"{path} is {'a folder' if os.path.isdir(path) else kind}; give a file")


def is_compressed(path: str) -> bool:
    """Return whether the bytes that are read differ from those on disk: compressed, or UTF-16 that
    is read as UTF-8."""
    return compressed(path) or is_utf16(path)


def compressed(path: str) -> bool:
    return path.endswith((".gz", ".zst"))


def is_utf16(path: str) -> bool:
    """Return whether a local file starts with the byte order mark of UTF-16; a request costs
    time."""
    if is_remote(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as stream:
        return stream.read(2) in UTF16


def strip_compression_suffix(path: str) -> str:
    """Return the name without the suffix of its compression."""
    return path.removesuffix(".gz").removesuffix(".zst")


def open_raw(path: str) -> BufferedReader:
    """Open a file for reading bytes as they are stored."""
    if not is_remote(path):
        return open(path, "rb")
    system, inner = filesystem(path)
    with named_network_errors(path):
        return cast(BufferedReader, system.open(inner, "rb"))


def open_file(path: str) -> BinaryIO:
    """Open a file for reading bytes, decompressing them."""
    raw: Any = open_raw(path) if is_remote(path) else path
    if path.endswith(".gz"):
        return cast(BinaryIO, gzip.open(raw))
    if path.endswith(".zst"):
        import pyarrow as pa

        return cast(BinaryIO, pa.input_stream(raw, compression="zstd"))
    if is_utf16(path):
        return cast(BinaryIO, codecs.EncodedFile(open(path, "rb"), "utf-8", "utf-16"))
    return cast(BinaryIO, raw if is_remote(path) else open_raw(path))


def read_blocks(path: str, skip: int = 0) -> Iterator[bytes]:
    """Yield the decompressed bytes from `skip` on, about a megabyte at a time; an error names the
    file."""
    limit = unpacked_limit(path) if compressed(path) else None
    size = BLOCK if limit is None else min(BLOCK, STEP)
    with open_file(path) as stream:
        try:
            passed = 0 if is_compressed(path) else stream.seek(skip)
            while block := stream.read(size):
                if not passed and block.startswith(UTF16):
                    raise ValueError(f"{path} is UTF-16; convert it: iconv -f utf-16 -t utf-8")
                if passed + len(block) > skip:
                    yield block[max(0, skip - passed) :]
                passed += len(block)
                if limit is not None and passed > limit:
                    raise DamagedFile(
                        f"{path} cannot be unpacked: it has more than {UNPACKED} times its "
                        "compressed size; give the decompressed file"
                    )
        except UnicodeDecodeError as error:
            raise DamagedFile(
                f"{path} starts like UTF-16, but is not: {error.reason} at byte {error.start}; "
                "save it as UTF-8"
            ) from None
        except (EOFError, OSError, zlib.error) as error:
            raise DamagedFile(
                f"{path} cannot be unpacked: {str(error).splitlines()[0]}; download it again"
            ) from None


def unpacked_limit(path: str) -> int:
    """Return the largest plausible size of a decompressed file; more is a decompression bomb."""
    return max(SMALL, UNPACKED * file_size(path))


def unpacking_error(path: str) -> str | None:
    """Return why a file cannot be decompressed to its end; None if it can."""
    try:
        for _ in read_blocks(path):
            pass
    except DamagedFile as error:
        return str(error)
    return None


def file_size(path: str) -> int:
    if not is_remote(path):
        return os.path.getsize(path)
    with named_network_errors(path):
        return int(filesystem(path)[0].size(path))


def unpacked_size(path: str) -> int:
    return sum(map(len, read_blocks(path))) if is_compressed(path) else file_size(path)


def file_identity(path: str) -> str:
    """Return an identifier of the content: the SHA-256 of the bytes or, for an address, the
    checksum that its server gives."""
    if is_remote(path):
        system, inner = filesystem(path)
        with named_network_errors(path):
            return f"{system.checksum(inner)}"
    refuse_special(path)
    return file_sha256(path)


def file_sha256(path: str) -> str:
    """Return the SHA-256 of the bytes, read once per change of the file; those of an address are
    downloaded for it."""
    cache_file, now = digest_cache(path)
    try:
        before, sha256 = json.loads(cache_file.read_text())
        if before == now:
            return str(sha256)
    except (OSError, ValueError):
        pass
    with open_raw(path) as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if now[0] > BLOCK:  # small ones are read as quickly
        write_cache(cache_file, [now, sha256])
    return sha256


def digest_cache(path: str) -> tuple[Path, list[int]]:
    """Return where the SHA-256 of a file is cached, and the state of the file for which it is
    valid."""
    if is_remote(path):
        name = path
        system, inner = filesystem(path)
        with named_network_errors(path):
            # Another process may have written since
            system.invalidate_cache()
            state = [int(system.size(inner)), int(system.checksum(inner))]
    else:
        name = os.path.abspath(path)
        now = os.stat(path)
        # Nobody changes bytes and keeps all four
        state = [now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino]
    return cache_path("digests", hashlib.sha256(name.encode()).hexdigest()), state


def cache_digest(path: str, sha256: str) -> None:
    """Cache a SHA-256 that was computed while the file was written, so that verifying it does not
    read it again."""
    cache_file, state = digest_cache(path)
    if state[0] > BLOCK:
        write_cache(cache_file, [state, sha256])


def cache_path(kind: str, key: str) -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "weft" / kind / key[:32]


def write_cache(known: Path, plain: Any) -> None:
    try:
        known.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(known, json.dumps(plain).encode())
    except OSError:
        pass  # a home that cannot be written costs time only


def cached_value(words: list[Any], find_out: Callable[[], Any]) -> Any:
    """Return a plain value that depends on `words` alone, such as identities of large files:
    computed once, then cached."""
    cache_file = cache_path("counts", digest_plain(words))
    try:
        return json.loads(cache_file.read_text())
    except (OSError, ValueError):
        write_cache(cache_file, value := find_out())
        return value


def size_and_mtime(path: str) -> str:
    """Return a cheaper identifier for one of many files: size and time; empty if it cannot
    exist."""
    try:
        now = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{now.st_size}:{now.st_mtime_ns}"


def local_file_size(path: str) -> int:
    """Return the size of a regular file in bytes, 0 for anything else: such a row is skipped when
    it is read."""
    return os.path.getsize(path) if os.path.isfile(path) else 0


def read_bounded(path: str | Path) -> bytes:
    """Return the bytes of a regular file; ValueError for anything else, which could block or never
    end."""
    if os.path.islink(path) and not os.path.exists(path):
        raise ValueError("a dangling link")
    if not os.path.isfile(path):
        raise ValueError("not a regular file" if os.path.lexists(path) else "missing")
    if os.path.getsize(path) > MAX_FILE_BYTES:
        raise ValueError(f"a file of {os.path.getsize(path):,} bytes")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
