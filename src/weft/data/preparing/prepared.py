"""Prepared data as a value: the directory of the shards and the data value that they were made
from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import eq

from ... import recipe as R
from ...support.addresses import Location
from ...support.ranks import Ranks
from ...support.storage import digest_plain
from ...support.values import flatten_plain, to_plain
from ..batches.mixture import MixtureStore
from ..reading.files import PATHS_OF_DATA, MissingFile, same_files
from ..reading.quarantine import quarantine_notes
from ..shards.store import PreparedFolder, Store
from .filtering import report_lines
from .ownership import check_same_settings, read_data_json
from .plan import (
    index_fingerprint,
    plan_splits,
    prepared_location,
    tokenizer_and_labels_key,
    training_splits,
)


@dataclass(frozen=True)
class PreparedData:
    """The shards of a data value. `prepare` writes them; `open_prepared` opens them.

    Attributes:
        data: the data value of the shards.
        folder: the directory of the shards, local or in object storage.
        is_checked: whether the directory has been compared with `data`.
    """

    data: R.Data
    folder: Location
    is_checked: bool = field(default=False, compare=False)

    def check(self, ranks: Ranks = Ranks()) -> None:
        """Raise ValueError on all ranks if the shards are missing, unfinished, or of other settings
        or files. The first rank compares them; others may lack the sources.
        """
        if self.is_checked:
            return
        if problem := ranks.from_first(partial(find_difference, self.data, self.folder)):
            raise ValueError(problem)

    def check_data(self, data: R.Data) -> None:
        """Raise ValueError if the shards were made from another data value."""
        # The limit of bad rows changes no shard
        limit = data.max_bad_row_fraction
        theirs = flatten_plain(to_plain(data))
        ours = flatten_plain(to_plain(replace(self.data, max_bad_row_fraction=limit)))
        for name in theirs | ours:
            same = same_files if PATHS_OF_DATA.fullmatch(name) else eq
            if not same(ours.get(name), theirs.get(name)):
                raise ValueError(
                    f"{self.folder} was prepared with data.{name} = {ours.get(name)!r}, but the "
                    f"recipe has {theirs.get(name)!r}; call weft.prepare(recipe.data)"
                )

    def open(self, split: str = "train") -> Store | MixtureStore | None:
        """Open a split: one store, or one per source of a mixture; None if the data has no such
        split.
        """
        mixture = getattr(self.data, split)
        stores = {part.name: self.open_part(part) for part in self.data.parts(split)}
        if not isinstance(mixture, R.Mixture):
            return stores.get(split)
        names = [part.name for part in mixture.sources]
        first = next(iter(stores.values()))
        meta = replace(first.meta, rows=self.data.rows)
        return MixtureStore(dict(zip(names, stores.values(), strict=True)), mixture, meta)

    def open_part(self, part: R.DataPart) -> Store:
        store = Store(PreparedFolder(str(self.folder)), part.name)
        store.meta = replace(store.meta, rows=part.rows)
        return store

    @cached_property
    def train(self) -> Store | MixtureStore:
        """The training split."""
        store = self.open("train")
        assert store is not None
        return store

    @cached_property
    def valid(self) -> Store | MixtureStore | None:
        """The validation split, if the data has one."""
        return self.open("valid")

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the training split, which a run records."""
        return self.train.fingerprint

    def tokenizer(self) -> str | None:
        """Return the text of the tokenizer's file; None for rows without text."""
        return PreparedFolder(str(self.folder)).tokenizer() if self.train.meta.tokenizer else None

    def notes(self) -> Iterator[str]:
        """Yield a line per split with skipped or filtered rows."""
        yield from quarantine_notes(self.folder)
        yield from report_lines(self.folder)


def locate_prepared(data: R.Data) -> PreparedData:
    """Return the prepared data of a data value without reading them; training checks them on the
    first rank.
    """
    return PreparedData(data, prepared_location(data))


def open_prepared(data: R.Data, ranks: Ranks = Ranks()) -> PreparedData:
    """Open the finished shards of a data value.

    Args:
        data: the data value of the shards.
        ranks: the processes that open them together.

    Raises:
        ValueError: if they are missing, unfinished, or of other settings or files.
    """
    if not isinstance(data, R.Data):
        raise ValueError(
            f"open_prepared needs a Data value, such as recipe.data, not {data!r}"[:200]
        )
    prepared = locate_prepared(data)
    prepared.check(ranks)
    return replace(prepared, is_checked=True)


def is_complete(data: R.Data, root: Location) -> bool:
    """Return whether the directory has all data that a run reads, with the required rows."""
    data_json = read_data_json(root)
    if data_json is None or digest_plain(data_json["rows"]) != digest_plain(to_plain(data.rows)):
        return False
    for part in data.parts():
        if not (root / part.name / "index.json").exists():
            return False
        index = PreparedFolder(str(root)).read_sealed_json(f"{part.name}/index.json")
        meta = [data_json["sha256"], data_json["labels"]]
        if index["fingerprint"] != index_fingerprint(to_plain(part.rows), meta, index["shards"]):
            return False
    return True


def find_difference(data: R.Data, root: Location) -> str:
    """Return why a run cannot read a directory that it does not prepare: unfinished, or of other
    settings or files; "" if it can. Without the sources, the directory is used unchanged.
    """
    if not all((root / part.name / "index.json").exists() for part in data.parts("train")):
        return f"{root} is not prepared yet; run weft prepare with this recipe first"
    try:
        training = training_splits(data, plan_splits(data))
        check_same_settings(root, tokenizer_and_labels_key(data, training))
    except (
        MissingFile,
        OSError,
    ) as error:  # removed, or on a network that this machine does not reach
        return "" if is_complete(data, root) else str(error)
    except ValueError as error:
        return str(error)
    return ""
