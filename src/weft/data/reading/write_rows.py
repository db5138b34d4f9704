"""Writing of rows to a file, in the format of its suffix."""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...recipe.data.formats import Fields


def write_rows(path: str, rows: Sequence[Fields]) -> None:
    """Write rows by suffix: .csv, .tsv, .json, .parquet; else JSON lines. In .csv and .tsv, objects
    become one column per name, and lists JSON.
    """
    suffix = Path(path).suffix.lower()
    rows = [flatten_row(row) for row in rows] if suffix in (".csv", ".tsv") else rows
    names = list(dict.fromkeys(name for row in rows for name in row))
    if suffix == ".parquet":
        write_parquet(path, {name: [row.get(name) for row in rows] for name in names})
        return
    cells = (
        [[format_cell(row.get(name)) for name in names] for row in rows]
        if suffix in (".csv", ".tsv")
        else []
    )
    if suffix == ".tsv":
        check_tsv_cells(path, [names, *cells])
    with open(path, "w", encoding="utf-8", newline="") as file:
        if suffix == ".json":
            json.dump(list(rows), file, ensure_ascii=False, indent=1)
        elif suffix == ".csv":
            csv.writer(file, lineterminator="\n").writerows([names, *cells])
        elif suffix == ".tsv":
            file.writelines("\t".join(map(str, row)) + "\n" for row in [names, *cells])
        else:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_parquet(path: str, columns: dict[str, list[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.write_table(pa.table(columns), path)
    except pa.ArrowException as error:
        raise ValueError(
            f"{path}: a Parquet column has values of one type ({str(error).splitlines()[0]}); "
            "write .jsonl"
        ) from None


def check_tsv_cells(path: str, rows: Sequence[Sequence[Any]]) -> None:
    """Raise ValueError for tabs and line ends, which .tsv cannot quote."""
    wrong = next((cell for row in rows for cell in row if re.search(r"[\t\r\n]", str(cell))), None)
    if wrong is not None:
        raise ValueError(
            f"{path}: {str(wrong)[:60]!r} contains a tab or a line end, which .tsv cannot "
            "represent; write .csv or .jsonl"
        )


def flatten_row(row: Fields) -> Fields:
    inner = {name: cell if isinstance(cell, dict) else {"": cell} for name, cell in row.items()}
    return {
        f"{name}.{key}" if key else name: cell
        for name, cells in inner.items()
        for key, cell in cells.items()
    }


def format_cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value
