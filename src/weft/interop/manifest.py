"""The SHA-256 of every file of a model folder in our own layout: one that is not as it was written is found before it is used."""
import shutil
from pathlib import Path

from ..data.files import identity, named, sync, write
from ..values import Damaged, seal, unseal

SPEC, MANIFEST = "weft.json", "manifest.json"


def write_manifest(folder: Path) -> None:
    """Of all files that the folder holds now."""
    files = {str(path.relative_to(folder)): identity(str(path)) for path in sorted(folder.rglob("*")) if path.is_file()}
    write(folder / MANIFEST, seal({"files": {name: sha256 for name, sha256 in files.items() if name != MANIFEST}}))


def publish(new: Path, folder: Path) -> set[Path]:
    """All files of a new folder in the place of an older one's, on the disk, weights as readable as any file that is made here.
    The manifest goes first: of what is broken off between two files, it tells."""
    files = sorted((path.relative_to(new) for path in new.rglob("*") if path.is_file()), key=lambda file: file.name != MANIFEST)
    if not (new / MANIFEST).exists():
        (folder / MANIFEST).unlink(missing_ok=True)
    (new / ".mode").touch()
    for file in files:
        with named(folder / file):
            if file.suffix == ".safetensors":
                shutil.copymode(new / ".mode", new / file)     # its library makes files that only their owner can read
            sync(new / file)
            (folder / file).parent.mkdir(exist_ok=True)
            (new / file).replace(folder / file)
            sync((folder / file).parent)
    return set(files)


def damage(folder: Path) -> str | None:
    """What is wrong with a model folder of a run; None where every file is as it was written."""
    if not (folder / MANIFEST).exists():
        return f"{folder / MANIFEST} is missing"
    try:
        files = unseal((folder / MANIFEST).read_text("utf-8")).get("files")
    except (ValueError, OSError) as error:
        return f"{folder / MANIFEST} is damaged: {error if isinstance(error, Damaged) else 'not JSON'}"
    if not isinstance(files, dict) or any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        return f"{folder / MANIFEST} is damaged: it names other files than those beside it"
    for name, sha256 in files.items():
        if not (folder / name).is_file():  # a pipe or a device never ends
            return f"{folder / name} is damaged: it is missing, or no file"
        try:
            found = identity(str(folder / name))
        except OSError as error:
            return f"{folder / name} is damaged: {error.strerror}"
        if found != sha256:
            return f"{folder / name} is damaged: its SHA-256 is not the manifest's"
    return None


def verify(folder: Path) -> None:
    """ValueError for a file of ours that is not as it was written; a folder without a manifest is somebody else's."""
    if (folder / SPEC).exists() and (folder / MANIFEST).exists() and (wrong := damage(folder)):
        raise ValueError(f"{wrong}; make the folder again, that of a run with weft resume RUN; if you changed the file yourself, "
                         f"delete {MANIFEST}")
