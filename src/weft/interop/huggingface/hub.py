"""Resolution of model names: directories, the packaged demo model, then the Hugging Face hub. Only
weights, JSON and tokenizer files are downloaded.
"""

from pathlib import Path

from ...support.synonyms import suggest

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
PACKAGED = {"demo": Path(__file__).parents[2] / "demo"}  # models in the package


def packaged_folder(name: str | Path) -> Path | None:
    """Return the directory of a packaged model; None if a local directory has the same name, which
    takes precedence.
    """
    return None if Path(name).is_dir() else PACKAGED.get(str(name))


def check_model_folder(where: str | Path) -> None:
    """Raise ValueError for a path that is not a folder; the name of a hub repository passes."""
    folder = Path(where)
    name = str(where)
    is_path = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if not folder.is_dir() and (is_path or folder.exists()):
        raise ValueError(
            f"{name} is not a directory; give the directory of a model or a run, or a name on "
            f"the Hugging Face hub"
        )


def runs_in(folder: Path) -> list[str]:
    """Return the names of the runs in a directory."""
    if folder == Path() or not folder.is_dir():
        return []
    return sorted(path.parent.name for path in folder.glob("*/recipe.json"))


def local_folder(where: str | Path) -> Path:
    """Return a local directory, a packaged model, or the local copy of a hub repository."""
    check_model_folder(where)
    folder = Path(where)
    name = str(where)
    if folder.is_dir():
        return folder
    if (packaged := packaged_folder(where)) is not None:
        return packaged
    if runs := runs_in(folder.parent):  # a mistyped run rather than a hub name
        places = [str(folder.with_name(run)) for run in runs]
        raise ValueError(f"{name} is not a directory; {suggest(name, places)}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except Exception as error:
        raise ValueError(
            f"{name} is not a local directory and could not be downloaded from the hub "
            f"({type(error).__name__}); give a directory, or check the name and the network"
        ) from None
