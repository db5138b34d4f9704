"""Detection of the format of a file or a folder, from its first bytes and its name."""

import os

from ....recipe.data.formats import Format
from ....support.registry import named, names
from ..files import MissingFile, find
from .lines import binary_fix, full_lines, is_binary, read_head


class UnknownFormat(ValueError):
    """No format recognises a file."""


def all_formats() -> list[Format]:
    return [named(Format, name) for name in names(Format)]


def formats_by_suffix(path: str) -> list[Format]:
    """Return the formats that the suffix of a file allows; none if it is unknown."""
    return [format for format in all_formats() if format.has_suffix(path)]


def detect_format(path: str) -> str:
    """Return the name of the format that is surest of a file: a table in a .csv may have tabs, a
    .json may hold one object per line.

    Raises:
        UnknownFormat: if none recognises it."""
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
            raise ValueError(f"{path} is empty; give a file with rows")
        return likely[0].name
    return surest_format(head, path).name


def surest_format(head: bytes, path: str) -> Format:
    score, surest = max(
        ((format.sniff(head, path), format) for format in all_formats()), key=lambda pair: pair[0]
    )
    if (score <= 0 or surest.name in ("csv", "tsv")) and is_array_without_objects(head, path):
        raise UnknownFormat(
            f"{path} is a JSON array of values that are not objects; write one object per row, "
            'such as [{"text": "…"}, {"text": "…"}]'
        )
    if score <= 0 and is_binary(head):
        raise UnknownFormat(
            f"{path} is a binary file, which no format recognises; {binary_fix(head)}"
        )
    if score <= 0:
        raise UnknownFormat(
            f"{path} is in no known format: neither a table (comma, semicolon, tab or |) nor JSON, "
            "Parquet, CoNLL or SQuAD's JSON; convert it to one of these, or name its format (weft "
            "prepare --format, in a recipe Source.format)"
        )
    return surest


def is_array_without_objects(head: bytes, path: str) -> bool:
    """Return whether a file named as JSON begins as an array that no format of JSON recognises."""
    named_json = any(format.name == "json" for format in formats_by_suffix(path))
    return named_json and "".join(full_lines(head)).lstrip().startswith("[")
