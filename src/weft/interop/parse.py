"""JSON of strangers."""
import json
from pathlib import Path
from typing import Any

from ..data.members import TEXT, read_member


def parse(folder: Path, name: str, limit: int = TEXT) -> dict[str, Any]:
    """The object in a JSON file of a folder."""
    found = parse_any(folder, name, limit)
    if not isinstance(found, dict):
        raise ValueError(f"{folder / name} is not a JSON object")
    return found


def parse_any(folder: Path, name: str, limit: int = TEXT) -> Any:
    try:
        return json.loads(read_member(folder, name, limit))
    except json.JSONDecodeError as error:
        raise ValueError(f"{folder / name} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{folder / name} is not JSON that can be read: it is nested too deeply") from None
