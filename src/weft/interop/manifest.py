"""The SHA-256 of every file of a model folder in our own layout: one that is not as it was written
is found before it is used.
"""

import shutil
from pathlib import Path
from typing import Any

from ..data.reading.files import file_identity
from ..support.storage import (
    DamagedFile,
    named_os_errors,
    publish,
    seal_json,
    unseal_json,
    write_atomically,
)

SPEC_FILE = "weft.json"
MANIFEST_FILE = "manifest.json"
CURVE = "curve.svg"  # the last file of a finished run
FINISHED_FILE = (
    "finished.json"  # of a finished run: the SHA-256s of its model's manifest and its log
)


def write_manifest(folder: Path) -> None:
    """Of all files that the folder holds now."""
    files = {
        str(path.relative_to(folder)): file_identity(str(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    write_atomically(
        folder / MANIFEST_FILE,
        seal_json(
            {"files": {name: sha256 for name, sha256 in files.items() if name != MANIFEST_FILE}}
        ),
    )


def publish_folder(new: Path, folder: Path) -> set[Path]:
    """All files of a new folder in the place of an older one's, on the disk, weights as readable as
    any file that is made here. The manifest goes first: of what is broken off between two files, it
    tells.
    """
    files = sorted(
        (path.relative_to(new) for path in new.rglob("*") if path.is_file()),
        key=lambda file: file.name != MANIFEST_FILE,
    )
    if not (new / MANIFEST_FILE).exists():
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
    (new / ".mode").touch()
    for file in files:
        with named_os_errors(folder / file):
            if file.suffix == ".safetensors":
                # its library makes files that only their owner can read
                shutil.copymode(new / ".mode", new / file)
            (folder / file).parent.mkdir(exist_ok=True)
            publish(new / file, folder / file)
    return set(files)


def find_damage(folder: Path) -> str | None:
    """What is wrong with a model folder of a run; None where every file is as it was written."""
    if not (folder / MANIFEST_FILE).exists():
        return f"{folder / MANIFEST_FILE} is missing"
    try:
        files = unseal_json((folder / MANIFEST_FILE).read_text("utf-8")).get("files")
    except (ValueError, OSError) as error:
        return (
            f"{folder / MANIFEST_FILE} is damaged: "
            f"{error if isinstance(error, DamagedFile) else 'not JSON'}"
        )
    if not isinstance(files, dict) or any(
        Path(name).is_absolute() or ".." in Path(name).parts for name in files
    ):
        return f"{folder / MANIFEST_FILE} is damaged: it names other files than those beside it"
    for name, sha256 in files.items():
        if not (folder / name).is_file():  # a pipe or a device never ends
            return f"{folder / name} is damaged: it is missing, or no file"
        try:
            identity = file_identity(str(folder / name))
        except OSError as error:
            return f"{folder / name} is damaged: {error.strerror}"
        if identity != sha256:
            return f"{folder / name} is damaged: its SHA-256 is not the manifest's"
    return None


def verify_manifest(folder: Path) -> None:
    """ValueError for a file of ours that is not as it was written; a folder without a manifest is
    somebody else's.
    """
    if (
        (folder / SPEC_FILE).exists()
        and (folder / MANIFEST_FILE).exists()
        and (wrong := find_damage(folder))
    ):
        raise ValueError(
            f"{wrong}; make the folder again, that of a run with weft resume RUN; if you changed "
            "the file yourself, "
            f"delete {MANIFEST_FILE}"
        )


def write_finished(run: Path) -> None:
    """Record which model and which log a run ended with."""
    files = {"model": run / "model" / MANIFEST_FILE, "log": run / "log.jsonl"}
    record = {name: file_identity(str(path)) for name, path in files.items() if path.is_file()}
    write_atomically(run / FINISHED_FILE, seal_json(record))


def read_finished(run: Path) -> dict[str, Any]:
    """Return what `write_finished` recorded; nothing of an unfinished run, or if the record is
    damaged.
    """
    try:
        return unseal_json((run / FINISHED_FILE).read_text("utf-8"))
    except (ValueError, OSError):
        return {}


def model_of_run(run: Path) -> Path | None:
    """Return the model folder of a run; None for a run without one, and for one that has
    checkpoints and is not finished: its newest checkpoint counts, and a model beside it is an
    earlier one, or that of somebody else.
    """
    model = run / "model"
    goes_on = not (run / CURVE).exists() and any((run / "checkpoints").glob("step-*"))
    return None if goes_on or not model.is_dir() else model


def check_model_of_run(folder: Path) -> None:
    """Raise ValueError if the folder `model` of a finished run holds another model than the run
    wrote. One that the user changed, and whose manifest they deleted, is allowed; a damaged one is
    found by its manifest.
    """
    recorded = read_finished(folder.parent).get("model") if folder.name == "model" else None
    if recorded is None or not folder.is_dir():
        return
    manifest = folder / MANIFEST_FILE
    if manifest.is_file():
        foreign = file_identity(str(manifest)) != recorded and is_sealed(manifest)
    else:
        foreign = not (folder / SPEC_FILE).exists() and any(folder.iterdir())
    if foreign:
        raise ValueError(
            f"{folder} is not the model that this run wrote; move it to another place, then make "
            "the run's own again with "
            f"weft resume {folder.parent}, or with the same weft tune command if that made it"
        )


def is_sealed(path: Path) -> bool:
    try:
        return bool(unseal_json(path.read_text("utf-8")))
    except (ValueError, OSError):
        return False
