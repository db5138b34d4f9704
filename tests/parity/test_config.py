"""config.json is read and written under the names, and with the defaults, that transformers has."""
import json
from typing import Any

import pytest
import transformers as hf

from weft.families import family
from weft.weights import Field, dig

from .cases import MAIN, ORIGINAL, Case, folder, ours, saved

PUBLISHED = {name: c for name, c in MAIN.items() if c is not ORIGINAL}
FIELDS = [(c, f) for c in PUBLISHED.values() for f in family(c.family).fields]
fields = pytest.mark.parametrize(("c", "f"), FIELDS, ids=[f"{c.family}-{f.argument}" for c, f in FIELDS])


def config(c: Case) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(c) / "config.json").read_text())
    return found


def other(found: Any) -> Any:
    """Another value that a config may hold."""
    if isinstance(found, bool):
        return not found
    if isinstance(found, int | float):
        return 2 * found or 0.5
    if isinstance(found, list):
        return [*found, found[-1]]
    return {"relu": "gelu", "sine": "learned"}.get(found, "relu") if isinstance(found, str) else None


@fields
def test_a_key_that_is_read_stands_in_the_file_that_transformers_writes(c: Case, f: Field) -> None:
    print(c.family, f.argument, [k for k in f.keys if dig(config(c), k) is not None], f.keys)
    assert any(dig(config(c), key) is not None for key in f.keys)


@fields
def test_default(c: Case, f: Field) -> None:
    d=getattr(hf, c.config)().to_dict()
    found=next((dig(d,k) for k in f.keys if dig(d,k) is not None),None)
    assert (None if found is None else f.way.read(found)) == f.default
