"""Reading of untrusted JSON files, with limits on size and depth."""

import json
from pathlib import Path
from typing import Any

from ..support.folder_files import MAX_TEXT_BYTES, read_file


def read_json_object(folder: Path, name: str, limit: int = MAX_TEXT_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file of a directory."""
    json_object = parse_any(folder, name, limit)
    if not isinstance(json_object, dict):
        raise ValueError(f"{folder / name} is not a JSON object")
    return json_object


def parse_any(folder: Path, name: str, limit: int = MAX_TEXT_BYTES) -> Any:
    try:
        return json.loads(read_file(folder, name, limit))
    except json.JSONDecodeError as error:
        raise ValueError(f"{folder / name} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(
            f"{folder / name} cannot be parsed as JSON: it is nested too deeply"
        ) from None
