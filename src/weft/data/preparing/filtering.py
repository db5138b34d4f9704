"""Filtering of a split: scan every piece, compare rows, write one drop table per piece.

Each stage is a pure function of earlier stages and is written piece by piece: any number of
processes gives the same tables, and interrupted runs resume.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ... import recipe as R
from ...recipe.data.formats import Piece
from ...support.addresses import Location, ObjectPath, matching
from ...support.storage import digest_plain, read_range, seal_json, unseal_json, write_if_changed
from ...support.values import to_plain
from ..reading.source import reading_settings
from .drop_table import (
    FOLDER,
    DropTable,
    Reason,
    load_drop_table,
    read_drop_table,
    table_path,
    write_drop_table,
)
from .jobs import PieceTask, RunTasks
from .match import DIGEST, DUPLICATE, MatchJob, count_keys, ranges
from .scan import ScanJob

VERSION = 1  # of what the filters write
REPORT = "filters.json"
SETTINGS = "settings.json"
PIECES_TOGETHER = 1 << 10  # whose tables are completed at once


def check_filters(source: R.Source, row: R.RowSchema) -> None:
    """Raise ValueError for a filter that cannot read such rows."""
    for value in source.filters:
        if not row.text_columns and not (value.reads_bytes and row.image_columns):
            raise ValueError(
                f"Source.filters: {type(value).__name__} needs text, but {type(row).__name__} has "
                "none; remove the filter"
            )


def is_filter_folder(split: Location) -> bool:
    """Return whether `filter_rows` has written here."""
    try:
        return "filters" in unseal_json((split / FOLDER / SETTINGS).read_text())
    except (OSError, ValueError):
        return False


def filter_rows(
    split: Location,
    source: R.Source,
    row: R.RowSchema,
    pieces: list[Piece],
    run: RunTasks,
    part: tuple[int, int] = (0, 1),
) -> list[str] | None:
    """Write the tables of all pieces and return a digest of each; None if scans of other parts are
    missing.
    """
    common = [VERSION, to_plain(row), reading_settings(source)]
    tasks = [
        PieceTask(n, piece, digest_plain(common, piece.identity, piece.spans))
        for n, piece in enumerate(pieces)
    ]
    compares = any(isinstance(value, R.Deduplication) for value in source.filters)
    prints = [task.fingerprint for task in tasks]
    if compares:  # a table depends on all pieces
        prints = [digest_plain(n, prints) for n in range(len(tasks))]
    if not tables_fit(split, prints):
        (split / FOLDER).mkdir(parents=True, exist_ok=True)
        settings = seal_json({"filters": to_plain(source.filters)})
        write_if_changed(split / FOLDER / SETTINGS, settings)
        todo = [
            task
            for task in tasks
            if task.number % part[1] == part[0] and not is_scanned(split, task, compares)
        ]
        run(
            ScanJob(str(split), to_plain(source), to_plain(row)),
            todo,
            f"{split.name} (rows to keep)",
        )
        if not all(is_scanned(split, task, compares) for task in tasks):
            return None
        try:
            settle(split, tasks, prints, match(split, tasks, run) if compares else [])
        except (OSError, ValueError):  # another process may be done, and have tidied up
            if not tables_fit(split, prints):
                raise
    return write_report(split, source, len(tasks))


def tables_fit(split: Location, prints: list[str]) -> bool:
    """Return whether every piece has its table."""
    return all(table_fits(split, n, fingerprint) for n, fingerprint in enumerate(prints))


def table_fits(split: Location, number: int, fingerprint: str) -> bool:
    table = load_drop_table(table_path(split, number))
    return table is not None and table.fingerprint == fingerprint


def is_scanned(split: Location, task: PieceTask, compares: bool) -> bool:
    scan = load_drop_table(table_path(split, task.number, ".scan"))
    return (
        scan is not None
        and scan.fingerprint == task.fingerprint
        and (not compares or table_path(split, task.number, ".keys").exists())
    )


def match(split: Location, tasks: list[PieceTask], run: RunTasks) -> list[Location]:
    """Return the files of duplicates, one per range of hashes."""
    keys = sum(count_keys(table_path(split, task.number, ".keys")) for task in tasks)
    all_pieces = digest_plain([task.fingerprint for task in tasks])
    jobs = [
        (n, first, last, digest_plain(all_pieces, first, last))
        for n, (first, last) in enumerate(ranges(keys))
    ]
    paths = [table_path(split, n, ".match") for n, _, _, _ in jobs]
    todo = [job for job, path in zip(jobs, paths, strict=True) if not is_matched(path, job[-1])]
    run(MatchJob(str(split), len(tasks)), todo, f"{split.name} (duplicates)")
    return paths


def is_matched(path: Location, fingerprint: str) -> bool:
    try:
        return read_range(path, 0, DIGEST) == bytes.fromhex(fingerprint)
    except FileNotFoundError:
        return False


def settle(
    split: Location, tasks: list[PieceTask], prints: list[str], matches: list[Location]
) -> None:
    """Write the drop table of every piece from its scan and the duplicates."""
    with ExitStack() as stack:
        files = [open_duplicates(path, stack) for path in matches]
        for first in range(0, len(tasks), PIECES_TOGETHER):
            block = duplicates_of(files, first, first + PIECES_TOGETHER)
            for task in tasks[first : first + PIECES_TOGETHER]:
                scan = read_drop_table(split, task.number, ".scan")
                rows = block[block["piece"] == task.number]
                table = add_duplicates(scan, rows, prints[task.number])
                write_drop_table(table_path(split, task.number), table)


def open_duplicates(path: Location, stack: ExitStack) -> np.ndarray:
    """Memory-map a file of duplicates; one in object storage is downloaded first."""
    if isinstance(path, ObjectPath):
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path.download(Path(folder, path.name))
        path = Path(folder, path.name)
    if path.stat().st_size == DIGEST:  # nothing to map
        return np.empty(0, DUPLICATE)
    return np.memmap(path, DUPLICATE, "r", offset=DIGEST)


def duplicates_of(files: list[np.ndarray], first: int, last: int) -> np.ndarray:
    """Return the duplicates in pieces [first, last)."""
    parts = [np.empty(0, DUPLICATE)]
    for file in files:
        begin, end = np.searchsorted(file["piece"], (first, last))
        parts.append(np.array(file[begin:end]))
    return np.concatenate(parts)


def add_duplicates(scan: DropTable, rows: np.ndarray, fingerprint: str) -> DropTable:
    """Return the table with the duplicates of a piece. The first filter that drops a row is its
    reason."""
    rows = rows[np.lexsort((rows["step"], rows["row"]))]
    rows = rows[np.diff(rows["row"].astype(np.int64), prepend=-1) != 0]
    reasons: list[Reason] = sorted(
        {*scan.reasons, *((step, "duplicate") for step in rows["step"].tolist())}
    )
    place = {reason: i for i, reason in enumerate(reasons, 1)}
    dropped = np.array([0, *(place[reason] for reason in scan.reasons)], np.uint8)[scan.dropped]
    # a row that a filter drops has no keys of later ones, so that its duplicates are of an earlier
    # one
    dropped[rows["row"]] = [place[step, "duplicate"] for step in rows["step"].tolist()]
    return DropTable(fingerprint, reasons, dropped)


def write_report(split: Location, source: R.Source, pieces: int) -> list[str]:
    """Write how many rows each filter dropped and why; return a digest per table."""
    counts: Counter[Reason] = Counter()
    rows = 0
    digests = []
    for number in range(pieces):
        table = read_drop_table(split, number)
        counts.update(table.row_counts())
        rows += len(table.dropped)
        digests.append(digest_plain(table.reasons, table.dropped.tobytes().hex()))
    reasons: list[dict[str, Any]] = [
        {"filter": type(source.filters[step]).__name__, "reason": reason, "rows": number}
        for (step, reason), number in sorted(counts.items())
        if number
    ]
    report = {"rows": rows, "kept": rows - sum(r["rows"] for r in reasons), "dropped": reasons}
    settings = {"filters": to_plain(source.filters)}
    write_if_changed(split / REPORT, seal_json(settings | report))
    return digests


def remove_scratch(split: Location, pieces: int) -> None:
    """Remove the files of the comparison, and tables of earlier, longer data."""
    for path in matching(split / FOLDER, "[0-9]*.*"):
        is_table = path.suffix == ".json"
        if path.stem.isdecimal() and (
            (is_table and int(path.stem) >= pieces) or path.suffix in (".scan", ".keys", ".match")
        ):
            path.unlink(missing_ok=True)


def remove_filters(split: Location) -> None:
    """Remove the tables of a split whose source has no filters any more."""
    if is_filter_folder(split):
        remove_scratch(split, 0)
        for path in (split / FOLDER / SETTINGS, split / REPORT):
            path.unlink(missing_ok=True)
        if isinstance(split, Path):
            with suppress(OSError):
                (split / FOLDER).rmdir()


def read_report(split: Location) -> dict[str, Any] | None:
    try:
        return unseal_json((split / REPORT).read_text())
    except (OSError, ValueError):
        return None


def report_lines(folder: Location) -> Iterator[str]:
    """Yield one line per split of prepared data whose rows were filtered."""
    for path in matching(folder, f"*/{REPORT}"):
        report = read_report(path.parent)
        if report is not None:
            reasons = ", ".join(
                f"{r['filter']} ({r['reason']}) {r['rows']:,}" for r in report["dropped"]
            )
            yield (
                f"{report['rows'] - report['kept']:,} of {report['rows']:,} {path.parent.name} "
                "rows dropped by filters" + (f": {reasons}" if reasons else "")
            )
