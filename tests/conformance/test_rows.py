"""User-defined row schemas and tokenizers are registered, checked, prepared and written to JSON
like built-in ones.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from weft import recipe as R
from weft.commands.prepare import data_from_options
from weft.commands.train_options import PrepareOptions
from weft.data.preparing.prepare import prepare
from weft.data.shards.encode import encode_non_empty, token_list_type
from weft.data.shards.store import PreparedFolder, Store
from weft.data.tokenizing.tokenizer import Tokenizer
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.recipe.data.cells import number, require_cell
from weft.recipe.data.formats import SourceRow
from weft.support.registry import CHOICES, implements, register
from weft.support.values import from_json


class RatedText(R.RowSchema):
    """A text and how many stars it has."""

    name = "rated"
    column_fields = ("text", "stars")

    text: str = "text"
    stars: str = "stars"

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.text,)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text, self.stars

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        super().check(fields, labels)
        if not 1 <= number(self.stars, require_cell(fields, self.stars, object)) <= 5:
            raise ValueError(f"{fields[self.stars]} stars; there are 1 to 5")


class RatedTextEncoder:
    def __init__(self, row: Any, tokenizer: Tokenizer, labels: tuple[str, ...] | None) -> None:
        self.row = row
        self.tokenizer = tokenizer
        self.schema = pa.schema([("tokens", token_list_type(tokenizer)), ("stars", pa.int64())])

    def __call__(self, rows: list[SourceRow]) -> dict[str, Any]:
        return {
            "tokens": encode_non_empty(self.tokenizer, [r.fields[self.row.text] for r in rows]),
            "stars": (np.array([int(r.fields[self.row.stars]) for r in rows]),),
        }


class VowelTokenizer(R.TokenizerSpec):
    """Only vowels are known."""

    name = "vowels"

    special: bool = True


def test_a_row_schema_and_a_tokenizer_of_ones_own_are_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RatedText", "VowelTokenizer"):
        monkeypatch.setitem(CHOICES, name, None)  # forgotten after the test
        monkeypatch.delitem(CHOICES, name)
    rated = register(RatedText)
    vowels = register(VowelTokenizer)
    implements(rated)(RatedTextEncoder)
    implements(vowels)(
        lambda value, texts: fit_tokenizer(R.CharacterTokenizer(), lambda: ["aeiou "])
    )
    rows = [{"text": "a good loom", "stars": 4}] * 30 + [{"text": "two", "stars": 9}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = data_from_options(
        PrepareOptions(paths=[str(tmp_path / "a.jsonl")], rows="rated", tokenizer="vowels")
    )
    assert data == from_json(R.to_json(data))
    folder = prepare(data, tmp_path / "out", workers=1).folder
    store = Store(PreparedFolder(str(folder)), "train")
    assert len(store) == 30
    assert store.row(0)["stars"] == 4
    assert "9 stars; there are 1 to 5" in (folder / "train" / "quarantine.jsonl").read_text()
    with pytest.raises(ValueError, match=r"Data.rows = 'x': give one of Documents, .*RatedText"):
        R.Data(rows="x", train=data.train)  # type: ignore[arg-type]
