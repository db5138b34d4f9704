"""Checks of a command's input and output files before its work begins."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..support.console import report

NOT_WRITTEN = (".gz", ".zst", ".xls", ".xlsx", ".npy")


def check_input_files(option: str, paths: Sequence[str]) -> None:
    """Raise MissingFile before torch is imported if a file is missing."""
    from ..data.reading.files import MissingFile, find
    from ..support.addresses import is_remote

    for path in paths:
        try:
            if not is_remote(path):  # an address is opened once, when it is read
                find(path)
        except MissingFile as error:
            raise MissingFile(f"{option} {path}: {error}") from None


def warn_of_shared_files(data: Sequence[str], valid: Sequence[str]) -> None:
    """Warn about files in both the training and the validation data. Two tables may share a folder
    of images."""
    from ..data.reading.files import find
    from ..support.addresses import is_remote

    def places(paths: Sequence[str]) -> set[str]:
        found = [file for path in paths for file in ([path] if is_remote(path) else find(path))]
        return {file if is_remote(file) else os.path.realpath(file) for file in found}

    valid_places = places(valid)
    shared = valid_places & places(data)
    if shared != valid_places:
        shared = {place for place in shared if not os.path.isdir(place)}
    if shared:
        report(
            f"--valid {min(shared)} is also training data, so its metrics do not measure "
            "generalisation; give other files, or omit --valid"
        )


def check_output_file(
    path: str | None, suffixes: tuple[str, ...] = (), option: str = "--output"
) -> None:
    """Raise ValueError before the work if the output file cannot be written. With `suffixes`, the
    file name must have one of these or none."""
    if path is None:
        return
    file = Path(path)
    suffix = file.suffix.lower()
    if suffixes and suffix not in ("", *suffixes):
        raise ValueError(
            f"{option} {path}: cannot write {file.suffix}; use one of {', '.join(suffixes)}"
        )
    if not suffixes and suffix in NOT_WRITTEN:
        raise ValueError(
            f"{option} {path}: cannot write the format {file.suffix}; --help lists the formats"
        )
    if file.is_dir():
        raise ValueError(f"{option} {path} is a folder; give a file in it")
    if not file.parent.is_dir():
        raise ValueError(f"{option} {path}: {file.parent} does not exist; create it first")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ValueError(f"{option} {path} is not writable; give another file")


def check_picture_file(path: str, option: str) -> None:
    """Raise ValueError before the work if an image file cannot be written."""
    from PIL import Image

    check_output_file(path, option=option)
    Image.init()
    extension = Path(path).suffix
    if Image.EXTENSION.get(extension.lower()) not in Image.SAVE:
        raise ValueError(
            f"{option} {path}: unknown image file extension {extension!r}; "
            "give a file such as out.png"
        )


def check_output_folder(path: str, option: str) -> None:
    """Raise ValueError before the work if a folder cannot be created or written to. Creates
    nothing."""
    there = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"{option} {path}: {there} is a file; give a folder")
    if not os.access(there, os.W_OK):
        raise ValueError(f"{option} {path} is not writable; give another folder")


def check_keeps_inputs(
    option: str, targets: Sequence[str | Path], inputs: Sequence[str | Path]
) -> None:
    """Raise ValueError if a target is one of the inputs, under this or another name."""
    input_numbers = {file_number(path) for path in inputs if os.path.isfile(path)}
    for target in targets:
        if os.path.isfile(target) and file_number(target) in input_numbers:
            raise ValueError(
                f"{option}: {target} is an input and would be overwritten; give another path"
            )


def check_outside_model(
    option: str, targets: Sequence[str | Path | None], name: str | Path
) -> None:
    """Raise ValueError if a target is inside the input model or run, or links to a file in it.

    Args:
        option: the option that gives the targets.
        targets: the files to write; None and "" are ignored.
        name: the model or run; a name that is no local folder needs no check.
    """
    folder = Path(name).resolve()
    if folder.name == "model" and (folder.parent / "recipe.json").is_file():
        folder = folder.parent
    if not folder.is_dir():
        return
    outputs = [target for target in targets if target]
    for target in outputs:
        if Path(target).resolve().is_relative_to(folder):
            raise ValueError(
                f"{option} {target} is inside {folder}, the model or run that this command reads; "
                "give another path"
            )
    check_keeps_inputs(option, outputs, [*folder.rglob("*")])


def check_different_outputs(outputs: Sequence[tuple[str, str | Path | None]]) -> None:
    """Raise ValueError if two options, given as (option, path), write the same file."""
    options = dict[Any, str]()
    for option, path in outputs:
        if path is None:
            continue
        file = file_number(path) if os.path.exists(path) else os.path.realpath(path)
        if (other := options.setdefault(file, option)) != option:
            raise ValueError(f"{other} and {option} both write {path}; give them different files")


def file_number(path: str | Path) -> tuple[int, int]:
    """Return the device and inode of a file, which all its names share: links, and names that the
    file system does not distinguish."""
    status = os.stat(path)
    return status.st_dev, status.st_ino
