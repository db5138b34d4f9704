"""Addresses such as s3://…, read through fsspec; errors are one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def is_remote(path: str) -> bool:
    return "://" in path


def filesystem(path: str) -> tuple[Any, str]:
    """Return the fsspec file system of an address and the path in it; a local path never needs it."""
    try:
        import fsspec
    except ImportError:
        raise ValueError(
            f"{path}: addresses are read through fsspec; pip install fsspec, or give a local path"
        ) from None
    try:
        system, inner = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise ValueError(
            f"{path}: this kind of address needs another package: {error}; install it, or give a local path"
        ) from None
    return system, inner


@contextmanager
def named_network_errors(path: str) -> Iterator[None]:
    """Turn errors of the libraries for an address into a ValueError."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}; check the address and the network"
        ) from None
