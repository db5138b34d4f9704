"""Training and validation data: separate files, or a held-out part."""

from dataclasses import replace
from math import ceil, floor
from typing import NamedTuple

from .. import recipe as R
from ..data.reading.column_names import check_columns_exist
from ..data.reading.files import expand
from ..data.reading.formats.coco import COCO
from ..data.reading.formats.image_folder import FOLDER
from ..data.reading.formats.squad import SQUAD, count_articles
from ..data.reading.quarantine import allowed_bad_rows
from ..data.reading.source import row_position
from ..data.reading.table import Table, Tables, UsableRows
from .suggestion import join_names

HELD_OUT = 0.1  # of the rows
LEAST = 5  # minimum validation rows of a consecutive split


class Split(NamedTuple):
    train: R.Source
    valid: R.Source
    description: str  # of the validation data
    train_rows: int  # approximate
    max_bad_rows: float  # largest fraction of skipped rows per side

    def data(self, row: R.RowSchema, tokenizer: R.TokenizerSpec | None = None) -> R.Data:
        """Return the data of a recipe."""
        return R.Data(
            rows=row,
            tokenizer=tokenizer,
            train=self.train,
            valid=self.valid,
            max_bad_row_fraction=self.max_bad_rows,
        )

    def facts(self, *warnings: str) -> dict[str, str]:
        """Return the facts on validation, with any warnings."""
        facts = {"validation": self.description}
        text = "; ".join(filter(None, warnings))
        return facts | {"warning": text} if text else facts


def split_tables(
    tables: Tables, row: R.RowSchema, usable: UsableRows, count: int | None = None
) -> Split:
    """Return the split into training and validation data.

    Args:
        tables: the data.
        row: the row schema of both tables.
        usable: the usable training rows, and the skipped ones.
        count: the number of training rows (default: that of `usable`).
    """
    table, valid, seed = tables
    count = len(usable.rows) if count is None else count
    if valid is not None:
        return validate_on(table, valid, row, count)
    if isinstance(row, R.Documents):
        several = len(expand(table.source.paths)) > 1
        return hold_out_last(table, count, "of each file" if several else "of the file")
    if table.format == FOLDER.name:
        return hold_out_last(table, count, "of each class, by name")
    if table.format == COCO.name:
        return hold_out_last(table, count, "of the file; shuffle a sorted file first")
    if table.format == SQUAD.name:
        articles = sum(map(count_articles, expand(table.source.paths)))
        if articles < 2:
            raise ValueError(f"{table.path}: one article cannot be split; give --valid")
        return hold_out_articles(table, articles, count)
    return hold_out_random(table, usable, seed)


def validate_on(table: Table, valid: Table, row: R.RowSchema, rows: int) -> Split:
    """Validate on other files; raise ValueError if they lack a required column."""
    try:
        check_columns_exist(dict.fromkeys(valid.columns), row.columns)
    except ValueError as error:
        raise ValueError(f"--valid {valid.path}: {error}") from None
    names = join_names(valid.source.paths)
    return Split(table.source, valid.source, names, rows, table.max_bad_rows)


def hold_out_last(table: Table, rows: int, description: str) -> Split:
    """Hold out the last tenth, or more for few rows, so that enough rows validate."""
    share = round(1 - max(HELD_OUT, min(0.5, LEAST / max(rows, 1))), 2)
    train = table.part(0.0, share).source
    valid = table.part(share, 1.0).source
    return Split(
        train,
        valid,
        f"the last {1 - share:.0%} {description}",
        round(share * rows),
        table.max_bad_rows,
    )


def hold_out_articles(table: Table, articles: int, questions: int) -> Split:
    """Hold out the last tenth of the articles, so that no context is in both parts."""
    count = max(1, round(HELD_OUT * articles))
    share = shortest_between(1 - count / articles, 1 - (count - 0.99) / articles)
    train = table.part(0.0, share).source
    valid = table.part(share, 1.0).source
    rows = round((1 - count / articles) * questions)
    return Split(
        train,
        valid,
        f"{count:,} of {articles:,} articles held out, the last ones",
        rows,
        table.max_bad_rows,
    )


def hold_out_random(table: Table, usable: UsableRows, seed: int) -> Split:
    """Hold out a tenth of the rows, always the same for the same files, without writing any."""
    total = len(usable.rows)
    if total < 2:
        raise ValueError(f"{table.path}: one row cannot be split; give --valid")
    places = ((item.path or table.path, item.offset) for item in usable.rows)
    positions = sorted(row_position(seed, *place) for place in places)
    count = max(1, round(HELD_OUT * total))
    share = shortest_between(positions[-count - 1], positions[-count])
    train = replace(table.source, fraction=(0.0, share), split_seed=seed)
    valid = replace(train, fraction=(share, 1.0))
    bad = [row_position(seed, entry["file"], entry["offset"]) for entry in usable.bad]
    bad_valid = sum(share <= position for position in bad)
    sides = ((total - count, len(bad) - bad_valid), (count, bad_valid))
    limit = max(needed_limit(good, wrong, table.max_bad_rows) for good, wrong in sides)
    description = f"{count:,} of {total:,} rows held out, chosen at random"
    return Split(train, valid, description, total - count, limit)


def needed_limit(good: int, bad: int, limit: float) -> float:
    """Return the fraction of rows that may be skipped in one part of a split: more if that part has
    more than its share of bad rows.
    """
    if bad <= allowed_bad_rows(good + bad, limit):
        return limit
    return ceil(1000 * bad / (good + bad)) / 1000


def shortest_between(low: float, high: float) -> float:
    """Return the number with the fewest digits above `low` and at most `high`."""
    for digits in range(1, 17):
        scale = float(10**digits)
        number = round(floor(high * scale) / scale, digits)
        if low < number <= high:
            return number
    return high
