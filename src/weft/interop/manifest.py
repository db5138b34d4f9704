"""Manifests of model directories: the SHA-256 of every file, to detect changes before a file is
used.
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
CURVE = "curve.svg"  # the last file that a finished run writes
FINISHED_FILE = (
    "finished.json"  # of a finished run: the SHA-256s of its model's manifest and its log
)


def write_manifest(folder: Path) -> None:
    """Write the manifest of all files in the directory."""
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
    """Move all files of a new directory over those of an older one, durably and with default
    permissions. The manifest is moved first, so that it detects an interruption between two files.
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
                # the safetensors library creates files that only the owner can read
                shutil.copymode(new / ".mode", new / file)
            (folder / file).parent.mkdir(exist_ok=True)
            publish(new / file, folder / file)
    return set(files)


def find_damage(folder: Path) -> str | None:
    """Return a description of the first damaged file of a model directory; None if all files match
    the manifest.
    """
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
        return f"{folder / MANIFEST_FILE} is damaged: it names files outside of its directory"
    for name, sha256 in files.items():
        if not (folder / name).is_file():  # reading a pipe or a device may never end
            return f"{folder / name} is missing or not a regular file"
        try:
            identity = file_identity(str(folder / name))
        except OSError as error:
            return f"{folder / name} is damaged: {error.strerror}"
        if identity != sha256:
            return f"{folder / name} is damaged: its SHA-256 differs from the manifest"
    return None


def verify_manifest(folder: Path) -> None:
    """Raise ValueError for a file that differs from the manifest; directories without one are not
    checked.
    """
    if (
        (folder / SPEC_FILE).exists()
        and (folder / MANIFEST_FILE).exists()
        and (wrong := find_damage(folder))
    ):
        raise ValueError(
            f"{wrong}; recreate the directory (for a run: weft resume RUN); if you changed the "
            f"file on purpose, delete {MANIFEST_FILE}"
        )


def write_finished(run: Path) -> None:
    """Record the hashes of a finished run's model and log."""
    files = {"model": run / "model" / MANIFEST_FILE, "log": run / "log.jsonl"}
    record = {name: file_identity(str(path)) for name, path in files.items() if path.is_file()}
    write_atomically(run / FINISHED_FILE, seal_json(record))


def read_finished(run: Path) -> dict[str, Any]:
    """Return the record of `write_finished`; empty for an unfinished run or a damaged record."""
    try:
        return unseal_json((run / FINISHED_FILE).read_text("utf-8"))
    except (ValueError, OSError):
        return {}


def model_of_run(run: Path) -> Path | None:
    """Return the model directory of a run; None if there is none, or if the run has checkpoints and
    is not finished: its newest checkpoint is used, since the directory may hold an older or foreign
    model.
    """
    model = run / "model"
    goes_on = not (run / CURVE).exists() and any((run / "checkpoints").glob("step-*"))
    return None if goes_on or not model.is_dir() else model


def check_model_of_run(folder: Path) -> None:
    """Raise ValueError if the directory `model` of a finished run contains a model that the run did
    not write. A model without a manifest, which the user changed on purpose, is allowed; the
    manifest detects damage.
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
            f"{folder} is not the model that this run wrote; move it away, then restore the "
            f"run's model with weft resume {folder.parent}, or by repeating the weft tune command"
        )


def is_sealed(path: Path) -> bool:
    try:
        return bool(unseal_json(path.read_text("utf-8")))
    except (ValueError, OSError):
        return False
