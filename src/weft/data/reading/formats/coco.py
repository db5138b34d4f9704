"""COCO: images with boxes and classes."""

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from ....recipe import Source
from ....recipe.data.formats import BadRow, Format, Piece, SourceItem, SourceRow, Span
from ..files import file_identity, size_and_mtime
from .json_cursor import JSONCursor, describe_missing_key
from .named_images import image_pieces, read_image, table_and_folder


class COCOFormat(Format):
    """`Source.paths` are two: the JSON, and the folder of its images (Lin et al. 2014,
    arXiv:1405.0312)."""

    name = "coco"
    suffixes = (".json",)
    offset_unit = "row"

    def sniff(self, head: bytes, path: str) -> float:
        """0: the JSON is half of the data, and what tells it may be far from its start."""
        return 0.0

    def class_names(self, source: Source, pieces: list[Piece], column: str) -> list[str]:
        table = pieces[0].paths[0]
        return list(dict.fromkeys(load_coco(table, size_and_mtime(table)).names.values()))

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        table, _ = paths = table_and_folder(source, "JSON")
        names = [[name] for name in load_coco(table, size_and_mtime(table)).files]
        return image_pieces(paths, source.fraction, file_identity(table), names, piece_bytes)

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        return read_coco(piece.paths, piece.spans[0])


ID = str | int
Entry = dict[str, Any] | BadRow  # an image, a category or an annotation


class Coco(NamedTuple):
    """Images or why one is none, the annotations of each by its id, the names of categories, and
    annotations that are none."""

    images: list[Entry]
    boxes: dict[ID, list[Entry]]
    names: dict[ID, str]
    lost: list[BadRow]

    @property
    def files(self) -> list[str]:
        """The names of the images' files, "" for what is no image."""
        return ["" if isinstance(image, BadRow) else image["file_name"] for image in self.images]


LISTS = {
    "images": {"id": ID, "file_name": str},
    "categories": {"id": ID, "name": str},
    "annotations": {"image_id": ID, "category_id": ID, "bbox": list},
}
OPTIONAL = {"images": ("width", "height"), "annotations": ("iscrowd",)}


@lru_cache(maxsize=2)
def load_coco(path: str, version: str) -> Coco:
    """Return the content of a file, without the fields that are not read."""
    cursor = JSONCursor(path)
    sections = {
        name: [kept_fields(place, cursor.value(), name) for place in cursor.elements()]
        for name in cursor.arrays(*LISTS)
    }
    missing = [name for name in LISTS if name not in sections]
    if missing:
        raise ValueError(
            f"{path} is not in COCO's format: it has no list {', '.join(map(repr, missing))}; give "
            "a file such as instances_train2017.json"
        )
    check_image_ids(path, sections["images"], sections["annotations"])
    categories = [entry for entry in sections["categories"] if isinstance(entry, dict)]
    categories.sort(key=lambda category: image_order(category["id"]))
    names = {category["id"]: category["name"] for category in categories}
    boxes: dict[ID, list[Entry]] = {}
    lost: list[BadRow] = []
    for place, annotation in enumerate(sections["annotations"]):
        if isinstance(annotation, BadRow):
            lost.append(BadRow(place, f"annotation {place}: {annotation.reason}"))
        elif not annotation.get("iscrowd"):
            of_image = boxes.setdefault(annotation["image_id"], [])
            of_image.append(named_box(place, annotation, names))
    return Coco(without_shared_ids(sections["images"]), boxes, names, lost)


def named_box(place: int, annotation: dict[str, Any], names: dict[ID, str]) -> Entry:
    category = annotation["category_id"]
    if category not in names:
        return BadRow(place, f"annotation {place}: no category {category!r}")
    return {"bbox": annotation["bbox"], "name": names[category]}


def kept_fields(place: int, value: Any, section: str) -> Entry:
    """Return the fields of an object that are read."""
    required = LISTS[section]
    reason = describe_missing_key(value, required)
    if reason:
        return BadRow(place, reason)
    kept = (*required, *OPTIONAL.get(section, ()))
    return {name: value[name] for name in kept if name in value}


def check_image_ids(path: str, images: list[Entry], annotations: list[Entry]) -> None:
    """Raise ValueError if no annotation belongs to an image. That some do not is usual where images
    were left out."""
    image_ids = dict.fromkeys(image["id"] for image in images if not isinstance(image, BadRow))
    notes = (note["image_id"] for note in annotations if not isinstance(note, BadRow))
    first = next(notes, None)
    if (
        first is None
        or not image_ids
        or first in image_ids
        or not image_ids.keys().isdisjoint(notes)
    ):
        return
    id = next(iter(image_ids))
    raise ValueError(
        f"{path}: no annotation belongs to an image: annotations name image_id {first!r} "
        f"({type(first).__name__}), images have id {id!r} ({type(id).__name__}); "
        "write the ids alike, or give the annotations of these images"
    )


def without_shared_ids(images: list[Entry]) -> list[Entry]:
    """Return the images, with those set aside that are listed again, and those of several files
    under one id: nobody knows whose the boxes are."""
    files: dict[ID, set[str]] = {}
    for image in images:
        if isinstance(image, dict):
            files.setdefault(image["id"], set()).add(image["file_name"])
    seen: set[ID] = set()
    entries: list[Entry] = []
    for place, image in enumerate(images):
        if isinstance(image, dict) and len(files[image["id"]]) > 1:
            image = BadRow(place, f"several images have the id {image['id']!r}")
        elif isinstance(image, dict) and image["id"] in seen:
            image = BadRow(place, f"the image of id {image['id']!r} is listed again")
        elif isinstance(image, dict):
            seen.add(image["id"])
        entries.append(image)
    return entries


def image_order(id: ID) -> tuple[bool, ID]:
    """Numbers by size, then names."""
    return isinstance(id, str), id


def read_coco(paths: tuple[str, ...], span: Span) -> Iterator[SourceItem]:
    """Yield the images of a span with their boxes; annotations that cannot be read come first."""
    table = load_coco(paths[0], size_and_mtime(paths[0]))
    yield from table.lost if span[0] == 0 else ()
    for place, image in enumerate(table.images[slice(*span)], span[0]):
        if isinstance(image, BadRow):
            yield BadRow(place, f"image {place}: {image.reason}")
        else:
            yield boxed_row(place, paths[1], image, table.boxes.get(image["id"], []))


def boxed_row(
    place: int, folder: str, image: dict[str, Any], annotations: list[Entry]
) -> SourceItem:
    path = os.path.join(folder, image["file_name"])
    boxes = []
    labels = []
    for annotation in annotations:
        if isinstance(annotation, BadRow):
            return BadRow(place, annotation.reason)
        boxes.append(annotation["bbox"])
        labels.append(annotation["name"])
    try:
        encoded = read_image(folder, image["file_name"])
    except ValueError as error:
        return BadRow(place, str(error))
    fields = {"image": encoded, "boxes": boxes, "labels": labels, "file": path}
    sides = {side: image[side] for side in ("width", "height") if side in image}
    return SourceRow(place, fields | sides, path=path)


COCO = COCOFormat()
