"""COCO: images with boxes and classes."""

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from ...recipe import Source
from ...recipe.formats import BadRow, Format, Piece, SourceItem, SourceRow, Span
from ..files import file_identity, size_and_mtime
from ..json_cursor import JSONCursor, describe_missing_key
from .named_images import image_pieces, read_image, table_and_folder


class COCOFormat(Format):
    """`Source.paths` are two: the JSON, and the folder of its images (Lin et al. 2014, arXiv:1405.0312)."""

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
    """Images or why one is none, the annotations of each by its id, the names of categories, and annotations that are none."""

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
    """What a file of COCO's says, without what nobody asks for."""
    sections: dict[str, list[Entry]] = {}
    cursor = JSONCursor(path)
    for name in cursor.members() if cursor.peek() == "{" else ():
        if name not in LISTS or cursor.peek() != "[":
            cursor.value()
            continue
        sections[name] = [kept_fields(place, cursor.value(), name) for place in cursor.elements()]
    missing = [name for name in LISTS if name not in sections]
    if missing:
        raise ValueError(
            f"{path} is not COCO's JSON: it has no list {', '.join(map(repr, missing))}"
        )
    check_image_ids(path, sections["images"], sections["annotations"])
    names = {
        c["id"]: c["name"]
        for c in sorted(
            (c for c in sections["categories"] if not isinstance(c, BadRow)),
            key=lambda c: image_order(c["id"]),
        )
    }
    boxes, lost = dict[ID, list[Entry]](), list[BadRow]()
    for place, note in enumerate(sections["annotations"]):
        if isinstance(note, BadRow):
            lost.append(BadRow(place, f"annotation {place}: {note.reason}"))
        elif not note.get("iscrowd"):
            category = note["category_id"]
            boxes.setdefault(note["image_id"], []).append(
                {"bbox": note["bbox"], "name": names[category]}
                if category in names
                else BadRow(place, f"annotation {place}: no category {category!r}")
            )
    return Coco(without_shared_ids(sections["images"]), boxes, names, lost)


def kept_fields(place: int, value: Any, section: str) -> Entry:
    """The fields of an object that are read."""
    fields = LISTS[section]
    reason = describe_missing_key(value, fields)
    if reason:
        return BadRow(place, reason)
    return {name: value[name] for name in (*fields, *OPTIONAL.get(section, ())) if name in value}


def check_image_ids(path: str, images: list[Entry], annotations: list[Entry]) -> None:
    """Raise ValueError if no annotation belongs to an image. That some do not is usual where images were left out."""
    known = dict.fromkeys(image["id"] for image in images if not isinstance(image, BadRow))
    notes = (note["image_id"] for note in annotations if not isinstance(note, BadRow))
    first = next(notes, None)
    if first is None or not known or first in known or not known.keys().isdisjoint(notes):
        return
    id = next(iter(known))
    raise ValueError(
        f"{path}: no annotation belongs to an image: annotations name image_id {first!r} ({type(first).__name__}), "
        f"images have id {id!r} ({type(id).__name__}); write the ids alike, or give the annotations of these images"
    )


def without_shared_ids(images: list[Entry]) -> list[Entry]:
    """The images, with those set aside that are listed again, and those of several files under one id: nobody knows whose the boxes
    are."""
    files = dict[ID, str]()
    shared = {
        image["id"]
        for image in images
        if not isinstance(image, BadRow)
        and files.setdefault(image["id"], image["file_name"]) != image["file_name"]
    }
    left = list[Entry]()
    for place, image in enumerate(images):
        if isinstance(image, dict) and image["id"] in shared:
            image = BadRow(place, f"several images have the id {image['id']!r}")
        elif isinstance(image, dict) and files.pop(image["id"], None) is None:
            image = BadRow(place, f"the image of id {image['id']!r} is listed again")
        left.append(image)
    return left


def image_order(id: ID) -> tuple[bool, ID]:
    """Numbers by size, then names."""
    return isinstance(id, str), id


def read_coco(paths: tuple[str, ...], span: Span) -> Iterator[SourceItem]:
    """Broken annotations come first."""
    table = load_coco(paths[0], size_and_mtime(paths[0]))
    yield from table.lost if span[0] == 0 else ()
    for place, image in enumerate(table.images[slice(*span)], span[0]):
        if isinstance(image, BadRow):
            yield BadRow(place, f"image {place}: {image.reason}")
            continue
        annotations = table.boxes.get(image["id"], [])
        wrong = next((note for note in annotations if isinstance(note, BadRow)), None)
        yield (
            BadRow(place, wrong.reason)
            if wrong
            else boxed_row(place, paths[1], image, [n for n in annotations if isinstance(n, dict)])
        )


def boxed_row(
    place: int, folder: str, image: dict[str, Any], annotations: list[dict[str, Any]]
) -> SourceItem:
    path = os.path.join(folder, image["file_name"])
    try:
        fields = {
            "image": read_image(folder, image["file_name"]),
            "boxes": [note["bbox"] for note in annotations],
            "labels": [note["name"] for note in annotations],
            "file": path,
        }
    except ValueError as error:
        return BadRow(place, str(error))
    sides = {side: image[side] for side in ("width", "height") if side in image}
    return SourceRow(place, fields | sides, path=path)


COCO = COCOFormat()
