"""Formats that are not lines: Parquet, the hub's data sets, JSON arrays, SQuAD, folders of images, COCO."""
import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from .files import blocks, filesystem, remote, stamp
from .lines import Bad, Found, Item, Span

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
LARGEST = 1 << 28                          # bytes of one image's file
ROWS = 1 << 10                             # read together


def stretch(count: int, part: tuple[float, float]) -> tuple[int, int]:
    return int(count * part[0]), int(count * part[1])


# Parquet

def open_parquet(path: str) -> Any:
    import pyarrow.parquet as pq
    if not remote(path):
        return pq.ParquetFile(path, memory_map=True)
    system, inner = filesystem(path)
    return pq.ParquetFile(inner, filesystem=system)


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
                place = first
                for batch in file.iter_batches(ROWS, [group], columns=wanted or None, use_threads=False):
                    yield from (Found(place + i, row) for i, row in enumerate(batch.to_pylist())
                                if begin <= place + i and (end is None or place + i < end))
                    place += batch.num_rows
            first += count


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


# JSON arrays and SQuAD

def load_json(path: str) -> Any:
    try:
        return json.loads(b"".join(blocks(path)))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def array(path: str, part: tuple[float, float]) -> Iterator[Item]:
    """A JSON array of objects."""
    held = load_json(path)
    if not isinstance(held, list):
        raise ValueError(f"{path} is not an array of objects; write one object per line (.jsonl), or [{{…}}, {{…}}]")
    begin, end = stretch(len(held), part)
    for place in range(begin, end):
        row = held[place]
        yield Found(place, row) if isinstance(row, dict) else Bad(place, f"element {place} of the array is not an object")


WRONG = (KeyError, TypeError, AttributeError)                   # what a value of another shape raises


def lacks(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def squad(path: str, part: tuple[float, float]) -> Iterator[Item]:
    """A row a question, versions 1.1 and 2.0 (arXiv:1806.03822); parts are counted in articles, so that no text is on both sides."""
    held = load_json(path)
    if not isinstance(held, dict) or not isinstance(held.get("data"), list):
        raise ValueError(f"{path} is not SQuAD's JSON: it has no list \"data\"")
    begin, end = stretch(len(held["data"]), part)
    number = 0
    try:
        for place, article in enumerate(held["data"]):
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    if begin <= place < end:
                        yield question(number, paragraph, asked)
                    number += 1
    except WRONG as error:
        raise ValueError(f"{path} is not SQuAD's JSON: {lacks(error)} in article {place}, at question {number}") from None


def question(number: int, paragraph: dict[str, Any], asked: dict[str, Any]) -> Item:
    answers = [] if asked.get("is_impossible") else asked.get("answers", [])
    context = paragraph["context"]
    answer, place = (answers[0]["text"], answers[0]["answer_start"]) if answers else ("", -1)
    if answer and context[place:place + len(answer)] != answer:
        place = context.find(answer)
        if place < 0:
            return Bad(number, f"the answer {answer[:40]!r} is not in the context")
    return Found(number, {"id": str(asked["id"]), "question": asked["question"], "context": context, "begin": place,
                          "end": place + len(answer) if answer else -1})


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


@lru_cache(maxsize=2)
def coco_table(path: str, version: str) -> tuple[list[dict[str, Any]], dict[int, list[dict[str, Any]]], dict[int, str]]:
    """Images, their annotations, and the names of categories."""
    held = load_json(path)
    boxes: dict[int, list[dict[str, Any]]] = {}
    try:
        images = [{"id": image["id"], "file_name": image["file_name"]} for image in held["images"]]
        names = {c["id"]: c["name"] for c in sorted(held["categories"], key=lambda c: c["id"])}
        for note in held["annotations"]:
            if not note.get("iscrowd"):
                boxes.setdefault(note["image_id"], []).append({"bbox": note["bbox"], "name": names[note["category_id"]]})
    except WRONG as error:
        raise ValueError(f"{path} is not COCO's JSON: {lacks(error)}") from None
    return images, boxes, names


def coco(paths: tuple[str, ...], span: Span) -> Iterator[Item]:
    """`paths`: the JSON, then the folder of its images (Lin et al. 2014, arXiv:1405.0312)."""
    images, boxes, _ = coco_table(paths[0], stamp(paths[0]))
    root = Path(paths[1]).resolve()
    for place, image in enumerate(images[slice(*span)], span[0]):
        file = (root / image["file_name"]).resolve()
        if not file.is_relative_to(root):
            yield Bad(place, f"{image['file_name']} is outside {root}")
            continue
        try:
            own = boxes.get(image["id"], [])
            yield Found(place, {"image": file_bytes(file), "boxes": [note["bbox"] for note in own],
                                "labels": [note["name"] for note in own], "file": str(file)})
        except ValueError as error:
            yield Bad(place, f"{file}: {error}")
