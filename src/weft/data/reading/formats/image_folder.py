"""Images in folders, one folder per class."""

import os
from collections.abc import Iterator
from pathlib import Path

from ....recipe import Source
from ....recipe.data.formats import BadRow, Format, Piece, SourceItem, SourceRow
from ....support.storage import digest_plain
from ..files import expand, local_file_size, read_bounded, size_and_mtime
from .base import group_by_size, stretch

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
)

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")


class FolderFormat(Format):
    """`Source.paths` are folders; the name of a sub-folder is the class of its images."""

    name = "folder"
    offset_unit = "file"

    def sniff(self, head: bytes, path: str) -> float:
        """The usual reading of a folder."""
        return 0.5 if not head and os.path.isdir(path) else 0.0

    def class_names(self, source: Source, pieces: list[Piece], column: str) -> list[str]:
        folders = expand(source.paths)
        return sorted({Path(file).parent.name for f in folders for file in image_files(f)})

    def pieces(self, source: Source, piece_bytes: int) -> list[Piece]:
        return [
            piece
            for path in expand(source.paths)
            for piece in folder_pieces(path, source.fraction, piece_bytes)
        ]

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        return read_image_folder(piece.paths, not columns or "image" in columns)


def image_files(folder: str, fraction: tuple[float, float] = (0.0, 1.0)) -> list[str]:
    """Class by class, each in the order of names; `fraction` is a stretch of each class."""
    if not os.path.isdir(folder):
        raise ValueError(
            f"{folder} is not a directory; give a directory with one subdirectory per class"
        )
    classes = {name: files_of_class(folder, name) for name in class_folders(folder)}
    if not any(classes.values()):
        raise ValueError(
            f"{folder} has no images in sub-folders; a class is a "
            f"sub-folder{nested_split(folder) or named_by_table(folder)}"
        )
    stretches = {name: stretch(len(files), fraction) for name, files in classes.items()}
    selected = [file for name, files in classes.items() for file in files[slice(*stretches[name])]]
    if not selected:
        raise ValueError(
            f"{folder} has too few images of each class to train on some and validate on others; "
            "give more, or validation images of their own"
        )
    return selected


def class_folders(folder: str) -> list[str]:
    return sorted(e.name for e in os.scandir(folder) if e.is_dir() and not e.name.startswith("."))


def nested_split(folder: str) -> str:
    """Return a hint where folders such as train and test hold the classes."""
    names = [name for name in class_folders(folder) if class_folders(os.path.join(folder, name))]
    if not names:
        return ""
    split = "train" if "train" in names else names[0]
    return f", and here those of {split} are: give {os.path.join(folder, split)}"


def named_by_table(folder: str) -> str:
    """Return a hint where a table in the folder may name the images."""
    names = sorted(entry.name for entry in os.scandir(folder))
    tables = [name for name in names if name.lower().endswith(TABLE_SUFFIXES)]
    return (
        f"; if {tables[0]} names them, give {os.path.join(folder, tables[0])} {folder}"
        if tables
        else ""
    )


def files_of_class(folder: str, name: str) -> list[str]:
    return sorted(
        e.path
        for e in os.scandir(os.path.join(folder, name))
        if e.name.lower().endswith(IMAGE_SUFFIXES)
    )


def read_image_folder(paths: tuple[str, ...], with_images: bool) -> Iterator[SourceItem]:
    for path in paths:
        try:
            image = {"image": read_bounded(path)} if with_images else {}
            yield SourceRow(0, image | {"label": Path(path).parent.name, "file": path}, path=path)
        except ValueError as error:
            yield BadRow(0, str(error), path)


def folder_pieces(path: str, fraction: tuple[float, float], piece_bytes: int) -> list[Piece]:
    files = image_files(path, fraction)
    return [
        Piece(
            tuple(group),
            (),
            bytes_,
            digest_plain([[os.path.relpath(name, path), size_and_mtime(name)] for name in group]),
        )
        for group, bytes_ in group_by_size(
            files, [local_file_size(name) for name in files], piece_bytes
        )
    ]


FOLDER = FolderFormat()
