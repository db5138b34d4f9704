"""Formats that are not lines: Parquet, the hub's data sets, JSON arrays, folders of images, COCO. (SQuAD: `data.squad`.)"""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .address import filesystem, remote
from .files import size, stamp, unpacked_limit
from .json_cursor import Cursor
from .lines import WHOLE, Bad, Found, Item, Span, stretch
from .squad import lack

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
LARGEST = 1 << 28                          # bytes of one image's file
ROWS = 1 << 10                             # read together


# Parquet

@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """ValueError for a file that is not Parquet's, damaged in what says where everything is, or a bomb."""
    import pyarrow.parquet as pq
    given = {"memory_map": True} if not remote(path) else {}
    system, inner = filesystem(path) if remote(path) else (None, path)
    try:
        file = pq.ParquetFile(inner, filesystem=system, **given)
        rows = file.metadata.num_rows
    except Exception as error:             # damaged bytes make Arrow raise errors of every kind
        raise ValueError(f"{path} cannot be read as Parquet: {first_line(error)}; fetch it again") from None
    if rows > unpacked_limit(path):
        raise ValueError(f"{path} claims {rows:,} rows in {size(path):,} bytes; if that is right, write it without dictionaries")
    with file:
        yield file


def parquet_groups(path: str) -> list[tuple[int, int]]:
    """Rows and bytes of each row group."""
    with open_parquet(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        return [(g.num_rows, g.total_byte_size) for g in groups]


def parquet(path: str, span: Span, columns: tuple[str, ...]) -> Iterator[Item]:
    begin, end = span
    with open_parquet(path) as file:
        wanted = [name for name in columns if name in file.schema_arrow.names]
        first = 0
        for group in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if first + count > begin and (end is None or first < end):
                yield from (item for item in group_rows(file, group, first, count, wanted)
                            if begin <= item.offset and (end is None or item.offset < end))
            first += count


def group_rows(file: Any, group: int, first: int, count: int, wanted: list[str]) -> Iterator[Item]:
    """The rows of a row group. Damaged pages make those that follow unreadable: each of them is a bad row."""
    place = first
    try:
        for batch in file.iter_batches(ROWS, [group], columns=wanted or None, use_threads=False):
            yield from batch_rows(batch, place)
            place += batch.num_rows
        reason = f"row group {group} has fewer rows than the file says"
    except Exception as error:             # of every kind, as above
        reason = first_line(error)
    yield from (Bad(lost, reason) for lost in range(place, first + count))


def batch_rows(batch: Any, place: int) -> Iterator[Item]:
    """Row by row where one of them holds what Python has no value for, such as a time after the year 9999."""
    try:
        rows: list[Any] = batch.to_pylist()
    except (ValueError, OverflowError):
        rows = [one_row(batch.slice(i, 1)) for i in range(batch.num_rows)]
    yield from (Found(place + i, row) if isinstance(row, dict) else Bad(place + i, row) for i, row in enumerate(rows))


def one_row(batch: Any) -> dict[str, Any] | str:
    """Its cells, or why it has none."""
    try:
        found: dict[str, Any] = batch.to_pylist()[0]
        return found
    except (ValueError, OverflowError) as error:
        return first_line(error)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error).strip() else type(error).__name__


# The hub

@lru_cache(maxsize=4)
def hub_table(path: str) -> Any:
    """`name`, `name:split` or `name:config:split`."""
    try:
        import datasets
    except ImportError:
        raise ValueError(f"{path}: data sets of the hub need the extra: pip install 'weft[hub]'") from None
    name, *rest = path.split(":")
    config, split = (rest[0], rest[1]) if len(rest) == 2 else (None, rest[0] if rest else "train")
    data = datasets.load_dataset(name, config, split=split)
    for column, kind in data.features.items():             # an image as its bytes, not as pixels
        if type(kind).__name__ == "Image":
            data = data.cast_column(column, datasets.Image(decode=False))
    return data


def hub(path: str, span: Span) -> Iterator[Item]:
    data = hub_table(path)
    end = len(data) if span[1] is None else span[1]
    for first in range(span[0], end, ROWS):
        columns = data[first:min(end, first + ROWS)]
        for i, cells in enumerate(zip(*columns.values(), strict=True)):
            yield Found(first + i, dict(zip(columns, cells, strict=True)))


# JSON arrays

def array(path: str, part: tuple[float, float]) -> Iterator[Item]:
    """A JSON array of objects."""
    begin, end = (0, None) if part == WHOLE else stretch(sum(1 for _ in values(path)), part)
    for place, row in values(path):
        if begin <= place and (end is None or place < end):
            yield Found(place, row) if isinstance(row, dict) else Bad(place, f"element {place} of the array is not an object")


def values(path: str) -> Iterator[tuple[int, Any]]:
    """The elements of the array that a file is."""
    cursor = Cursor(path)
    if cursor.peek() != "[":
        cursor.value()
        raise ValueError(f"{path} is not an array of objects; write one object per line (.jsonl), or [{{…}}, {{…}}]")
    for place in cursor.elements():
        yield place, cursor.value()
    cursor.end()


# Images

def image_files(folder: str, part: tuple[float, float]) -> list[str]:
    """Class by class, each in the order of names; `part` is a stretch of each class."""
    found = []
    for name in classes(folder):
        files = sorted(e.path for e in os.scandir(os.path.join(folder, name)) if e.name.lower().endswith(IMAGES))
        begin, end = stretch(len(files), part)
        found += files[begin:end]
    if not found:
        raise ValueError(f"{folder} has no images in sub-folders; a class is a sub-folder")
    return found


def classes(folder: str) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith("."))


def folder(paths: tuple[str, ...]) -> Iterator[Item]:
    for path in paths:
        try:
            yield Found(0, {"image": file_bytes(path), "label": Path(path).parent.name, "file": path})
        except ValueError as error:
            yield Bad(0, str(error), path)


def file_size(path: str) -> int:
    """Bytes of a regular file, 0 for anything else: such a row is set aside when it is read."""
    return os.path.getsize(path) if os.path.isfile(path) else 0


def file_bytes(path: str | Path) -> bytes:
    """The bytes of a regular file; ValueError for anything else, which could block or never end."""
    if not os.path.isfile(path):
        raise ValueError("a dangling link" if os.path.islink(path) else "not a regular file" if os.path.lexists(path) else "missing")
    if os.path.getsize(path) > LARGEST:
        raise ValueError(f"a file of {os.path.getsize(path):,} bytes")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None


class Coco(NamedTuple):
    """Images or why one is none, the annotations of each by its id, the names of categories, and annotations that are none."""
    images: list[dict[str, Any] | Bad]
    boxes: dict[str | int, list[dict[str, Any] | Bad]]
    names: dict[str | int, str]
    lost: list[Bad]

    @property
    def files(self) -> list[str]:
        """The names of the images' files, "" for what is no image."""
        return ["" if isinstance(image, Bad) else image["file_name"] for image in self.images]


ID = str | int
LISTS = {"images": {"id": ID, "file_name": str}, "categories": {"id": ID, "name": str},
         "annotations": {"image_id": ID, "category_id": ID, "bbox": list}}


@lru_cache(maxsize=2)
def coco_table(path: str, version: str) -> Coco:
    """What a file of COCO's says, without what nobody asks for."""
    held: dict[str, list[dict[str, Any] | Bad]] = {}
    cursor = Cursor(path)
    for name in cursor.members() if cursor.peek() == "{" else ():
        if name not in LISTS or cursor.peek() != "[":
            cursor.value()
            continue
        held[name] = [kept(place, cursor.value(), LISTS[name]) for place in cursor.elements()]
    missing = [name for name in LISTS if name not in held]
    if missing:
        raise ValueError(f"{path} is not COCO's JSON: it has no list {', '.join(map(repr, missing))}")
    names = {c["id"]: c["name"] for c in sorted((c for c in held["categories"] if not isinstance(c, Bad)), key=lambda c: order(c["id"]))}
    boxes, lost = dict[str | int, list[dict[str, Any] | Bad]](), list[Bad]()
    for place, note in enumerate(held["annotations"]):
        if isinstance(note, Bad):
            lost.append(Bad(place, f"annotation {place}: {note.reason}"))
        elif not note["iscrowd"]:
            category = note["category_id"]
            boxes.setdefault(note["image_id"], []).append({"bbox": note["bbox"], "name": names[category]} if category in names else
                                                          Bad(place, f"annotation {place}: no category {category!r}"))
    return Coco(held["images"], boxes, names, lost)


def kept(place: int, value: Any, fields: dict[str, Any]) -> dict[str, Any] | Bad:
    """The fields of an object that are read."""
    reason = lack(value, fields)
    return Bad(place, reason) if reason else {name: value[name] for name in fields} | {"iscrowd": bool(value.get("iscrowd"))}


def order(id: str | int) -> tuple[bool, str | int]:
    """Numbers by size, then names."""
    return isinstance(id, str), id


def coco(paths: tuple[str, ...], span: Span) -> Iterator[Item]:
    """`paths`: the JSON, then the folder of its images (Lin et al. 2014, arXiv:1405.0312). Broken annotations come first."""
    table = coco_table(paths[0], stamp(paths[0]))
    root = Path(paths[1]).resolve()
    yield from table.lost if span[0] == 0 else ()
    for place, image in enumerate(table.images[slice(*span)], span[0]):
        if isinstance(image, Bad):
            yield Bad(place, f"image {place}: {image.reason}")
            continue
        own = table.boxes.get(image["id"], [])
        wrong = next((note for note in own if isinstance(note, Bad)), None)
        yield Bad(place, wrong.reason) if wrong else boxed(place, root, image["file_name"], [n for n in own if isinstance(n, dict)])


def boxed(place: int, root: Path, name: str, own: list[dict[str, Any]]) -> Item:
    try:
        file = (root / name).resolve()
        if not file.is_relative_to(root):
            return Bad(place, f"{name} is outside {root}")
        return Found(place, {"image": file_bytes(file), "boxes": [note["bbox"] for note in own], "labels": [note["name"] for note in own],
                             "file": str(file)})
    except (ValueError, OSError, RuntimeError) as error:                     # RuntimeError: links in a circle
        return Bad(place, f"{root / name}: {error}")
