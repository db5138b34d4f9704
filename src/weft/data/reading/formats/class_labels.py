"""Class names of the `datasets` library for columns of numbers (its `ClassLabel`)."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ....recipe.data.cells import ClassName

UNLABELLED = -1  # of `datasets`: the class of a row is not known
SEQUENCES = ("Sequence", "List", "LargeList")  # of `datasets`: a struct may call a field `feature`
ClassNames = dict[str, list[ClassName]]  # of each column that has any


def read_class_names(metadata: Mapping[bytes, bytes] | None) -> ClassNames:
    """Return the names that the metadata of a Parquet file hold; damaged ones name nothing, and
    numbers stay numbers."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return names_of_columns(json.loads((metadata or {})[b"huggingface"])["info"]["features"])
    return {}


def names_of_columns(features: Mapping[str, Any]) -> ClassNames:
    """Return the names of the columns of `datasets.Features.to_dict()`."""
    by_column = {column: names_of(feature) for column, feature in features.items()}
    return {column: numbered(names) for column, names in by_column.items() if names}


def names_of(feature: Any) -> list[str] | None:
    """Return the names of a column of numbers, or of lists of numbers."""
    if isinstance(feature, list) and len(feature) == 1:  # as older versions write lists
        return names_of(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") in SEQUENCES:
        return names_of(feature.get("feature"))
    names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return None
    return names if len(set(names)) == len(names) else None


def numbered(names: list[str]) -> list[ClassName]:
    """Return the names of a column, each with its number."""
    classes = list(map(ClassName, names))
    for number, name in enumerate(classes):
        name.number = number
        name.names = tuple(names)
    return classes


def name_classes(fields: dict[str, Any], names: ClassNames) -> dict[str, Any]:
    """Return a row with names in place of numbers, None where the class is not known.

    Raises:
        ValueError: if a number has no name.
    """
    named = {
        column: name_of_number(fields[column], of_column)
        for column, of_column in names.items()
        if column in fields
    }
    return fields | named


def name_of_number(cell: Any, names: list[ClassName]) -> Any:
    """Return the name of a number; what is no whole number was written over the column since, and
    stays."""
    if isinstance(cell, list):
        return [name_of_number(number, names) for number in cell]
    if not isinstance(cell, int) or isinstance(cell, bool):
        return cell
    if cell == UNLABELLED:
        return None
    if not 0 <= cell < len(names):
        raise ValueError(f"label {cell} has no name; the file has classes 0 to {len(names) - 1}")
    return names[cell]
