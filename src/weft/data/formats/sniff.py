"""Which format a file or a folder has: each is asked with the file's first bytes and its name."""

import os

from ...recipe.formats import Format
from ...registry import named, names
from ..files import MissingFile, find
from .lines import full_lines, read_head


def all_formats() -> list[Format]:
    return [named(Format, name) for name in names(Format)]


def formats_by_suffix(path: str) -> list[Format]:
    """The formats that a file's name allows; none where its suffix says nothing."""
    return [format for format in all_formats() if format.has_suffix(path)]


def detect_format(path: str) -> str:
    """Return the name of the format that is surest of a file: a table in a .csv may have tabs, a .json may hold one object per line.

    Raises:
        ValueError: if none recognises it.
    """
    likely = formats_by_suffix(path)
    by_name = next((format for format in likely if format.sniff(b"", path) == 1), None)
    if by_name is not None:
        return by_name.name
    try:
        where = find(path)[0]
    except MissingFile:
        if len(likely) != 1:
            raise
        return likely[0].name  # of a run whose data are gone
    if os.path.isdir(where):
        return surest_format(b"", where).name
    head = read_head(where)
    if not full_lines(head):
        if not likely:
            raise ValueError(f"{path} is empty")
        return likely[0].name
    return surest_format(head, path).name


def surest_format(head: bytes, path: str) -> Format:
    score, surest = max(
        ((format.sniff(head, path), format) for format in all_formats()), key=lambda pair: pair[0]
    )
    if score <= 0:
        raise ValueError(
            f"{path}: neither a table (comma, semicolon, tab or |), nor JSON, Parquet, CoNLL or SQuAD's JSON; save it as one "
            "of these, or say what it is (prepare --format, Source(format=…))"
        )
    return surest
