"""The plan of `prepare`: the splits of a data value, their pieces and fingerprints."""

from pathlib import Path
from typing import Any, NamedTuple

from ... import recipe as R
from ...recipe.data.formats import Piece
from ...support.addresses import Location, locate
from ...support.storage import digest_plain
from ...support.values import to_plain
from ..reading.files import file_identity, find
from ..reading.source import reading_settings, resolve_source, split_source

VERSION = 1  # of the layout on disk


class SplitWork(NamedTuple):
    """A source with its row schema and pieces."""

    source: R.Source
    rows: R.RowSchema
    pieces: list[Piece]


Splits = dict[str, SplitWork]  # by the name of the folder


def plan_splits(data: R.Data) -> Splits:
    resolved = [
        part._replace(source=resolve_source(part.source, part.rows)) for part in data.parts()
    ]
    return {name: SplitWork(source, rows, split_source(source)) for name, source, rows in resolved}


def training_splits(data: R.Data, splits: Splits) -> Splits:
    return {part.name: splits[part.name] for part in data.parts("train")}


def prepared_location(data: R.Data) -> Location:
    """Return the directory of prepared data: `prepared_folder`, or one named by the fingerprint."""
    return locate(data.prepared_folder or Path("prepared") / fingerprint(data))


# Fingerprints


def fingerprint(data: R.Data, splits: Splits | None = None) -> str:
    """Return the fingerprint of the data value and the content of its files."""
    content = {
        name: split_identity(data, split) for name, split in (splits or plan_splits(data)).items()
    }
    return digest_plain(VERSION, to_plain(data.rows), *tokenizer_identity(data), content)[:16]


def split_identity(data: R.Data, split: SplitWork) -> list[Any]:
    content = [reading_settings(split.source), [[p.identity, p.spans] for p in split.pieces]]
    return content if split.rows == data.rows else [to_plain(split.rows), *content]


def tokenizer_identity(data: R.Data) -> list[Any]:
    files = data.tokenizer.files() if data.tokenizer else ()
    return [to_plain(data.tokenizer), [file_identity(find(path)[0]) for path in files]]


def tokenizer_and_labels_key(data: R.Data, training: Splits) -> str:
    return digest_plain(
        VERSION,
        to_plain(data.rows),
        *tokenizer_identity(data),
        *(part for split in training.values() for part in split_identity(data, split)),
    )


def index_fingerprint(rows: Any, meta: list[Any], shards: list[dict[str, Any]]) -> str:
    """Return the fingerprint of a split: of its row schema, of tokenizer and labels, and of all
    shards."""
    return digest_plain(rows, meta, [shard["sha256"] for shard in shards])
