"""The command `weft prepare`: a data value from the options, and the printed summary."""

import json
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from rich.table import Table

from .. import recipe as R
from ..data.preparing.filtering import read_report
from ..data.reading.quarantine import split_indexes
from ..runs.logs.progress import PrepareProgressLine, prepare_speed
from ..support.addresses import Location
from ..support.console import count_of
from ..support.registry import members
from ..support.synonyms import suggest
from ..support.values import from_plain
from .train_options import PrepareOptions


def data_from_options(options: PrepareOptions) -> R.Data:
    """Return the data value for files. The tokenizer may be a file; `--columns` follows the order
    of the row schema, with the label last."""
    cut = None
    row = row_schema_from_options(options)
    if row.text_columns:
        cut = tokenizer_from_options(options)
    return R.Data(
        rows=row,
        train=replace(
            source_of_files(options, options.paths), filters=filters_from_names(options.filters)
        ),
        valid=source_of_files(options, options.valid) if options.valid else None,
        tokenizer=cut,
    )


def source_of_files(options: PrepareOptions, files: Sequence[str]) -> R.Source:
    source: R.Source = from_plain(
        {
            "kind": "Source",
            "paths": list(files),
            "format": options.format,
            "document_boundary": options.document_boundary,
            "column_names": list(options.column_names),
            "has_header": not options.column_names,
        }
    )
    return source


def filters_from_names(names: Sequence[str]) -> tuple[R.Filter, ...]:
    filters: dict[str, Any] = {value.name: value for value in members(R.Filter)}
    for name in names:
        if name not in filters:
            raise ValueError(f"unknown filter {name!r}; {suggest(name, list(filters))}")
    return tuple(filters[name]() for name in names)


def row_schema_from_options(options: PrepareOptions) -> R.RowSchema:
    """Return the row schema; pairs and examples take their columns from `--column-names` if
    `--columns` gives none."""
    kind = options.rows
    columns = options.columns
    if kind in ("pairs", "examples"):
        columns = columns or options.column_names
    schemas: dict[str, Any] = {schema.name: schema for schema in members(R.RowSchema)}
    if kind not in schemas:
        raise ValueError(f"unknown kind of rows {kind!r}; {suggest(kind, list(schemas))}")
    schema = schemas[kind]
    optional = {f.name for f in fields(schema) if f.default is None}
    field_names = {f.name for f in fields(schema)}
    flags = ("sentence_boundaries", "numeric_label")
    values: dict[str, Any] = {name: getattr(options, name) for name in flags if name in field_names}
    if columns:
        names = schema.column_fields
        if len(columns) < len(names):
            names = tuple(name for name in names if name not in optional)
        if not names or len(columns) < len(names):
            raise ValueError(
                f"{kind} does not have the columns {', '.join(columns)}"
                + (f"; give {', '.join(names)}" if names else "")
            )
        values |= dict(zip(names, columns, strict=False))
    row: R.RowSchema = schema(**values)
    return row


def tokenizer_from_options(options: PrepareOptions) -> R.TokenizerSpec:
    name = options.tokenizer
    if name.endswith(".json") or os.path.exists(name):
        return R.TokenizerFile(path=name)
    kinds: dict[str, Any] = {
        kind.name: kind for kind in members(R.TokenizerSpec) if kind is not R.TokenizerFile
    }
    if name not in kinds:
        raise ValueError(f"unknown tokenizer or file {name!r}; {suggest(name, list(kinds))}")
    values: dict[str, Any] = {"vocab_size": options.vocab_size}
    if options.lowercase is not None:
        values["lowercase"] = options.lowercase
    fields_of_kind = {
        kind: {f.name for f in fields(spec_class)} for kind, spec_class in kinds.items()
    }
    if options.lowercase and "lowercase" not in fields_of_kind[name]:
        able = " or ".join(kind for kind in kinds if "lowercase" in fields_of_kind[kind])
        raise ValueError(f"{name} does not support --lowercase; remove it, or use {able}")
    tokenizer: R.TokenizerSpec = kinds[name](
        **{k: v for k, v in values.items() if k in fields_of_kind[name]}
    )
    return tokenizer


def parse_part(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal()):
        raise ValueError(f"--shard {text}: give I/N, such as 0/8")
    return int(index), int(count)


def prepared_summary(folder: Location, preparing: PrepareProgressLine) -> dict[str, Any]:
    """Return the contents of a prepared folder, from its JSON files."""
    # These are missing until all parts are prepared
    is_begun = (folder / "data.json").exists()
    data = json.loads((folder / "data.json").read_text()) if is_begun else {}
    splits: dict[str, Any] = {}
    quarantined = 0
    for split, index in split_indexes(folder):
        splits[split.name] = {
            "rows": index["rows"],
            "shards": len(index["shards"]),
            "fingerprint": index["fingerprint"],
            "tokens": sum(s["tokens"] for s in index["shards"]),
        }
        if report := read_report(split):
            splits[split.name]["dropped"] = report["dropped"]
        bad_rows = split / "quarantine.jsonl"
        quarantined += len(bad_rows.read_text().splitlines()) if bad_rows.exists() else 0
    speed: dict[str, float] = {}
    last = preparing.last
    if last is not None and last.tokenizer_seconds:
        speed = {"speed": last.speed, "tokenizer_speed": last.tokenizer_speed}
    return {
        "folder": str(folder),
        "vocab_size": data.get("vocab_size"),
        "labels": data.get("labels"),
        "splits": splits,
        "quarantined": quarantined,
        **speed,
    }


def prepared_page(f: dict[str, Any]) -> Table:
    page = Table.grid(padding=(0, 2))
    page.add_row("folder", f["folder"])
    if f["vocab_size"]:
        page.add_row("vocabulary", f"{f['vocab_size']:,} tokens")
    for name, s in f["splits"].items():
        page.add_row(
            name,
            f"{count_of(s['rows'], 'row')}, {count_of(s['tokens'], 'token')} in "
            f"{count_of(s['shards'], 'shard')}; "
            f"fingerprint {s['fingerprint'][:12]}",
        )
        for reason in s.get("dropped", ()):
            page.add_row(
                "",
                f"{count_of(reason['rows'], 'row')} dropped: {reason['filter']}, "
                f"{reason['reason']}",
            )
    if not f["splits"]:
        page.add_row("index", "incomplete; run the other parts, then repeat this one")
    if f["quarantined"]:
        page.add_row("quarantined", f"{count_of(f['quarantined'], 'row')}; see quarantine.jsonl")
    if "speed" in f:
        page.add_row("speed", prepare_speed(f["speed"], f["tokenizer_speed"]))
    return page
