"""Names of models: folders first, then the model that ships with Weft, then the hub, of which never
more than weights, JSON and tokenizer files is downloaded.
"""

from pathlib import Path

from ...support.synonyms import suggest

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]
PACKAGED = {"demo": Path(__file__).parents[2] / "demo"}  # what ships with Weft


def packaged_folder(name: str | Path) -> Path | None:
    """Return the folder of the model that ships with Weft under this name; None if a folder here
    has the name, which comes first.
    """
    return None if Path(name).is_dir() else PACKAGED.get(str(name))


def check_model_folder(where: str | Path) -> None:
    """Raise ValueError for a path that is not a folder; the name of a hub repository passes."""
    folder = Path(where)
    name = str(where)
    is_path = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if not folder.is_dir() and (is_path or folder.exists()):
        raise ValueError(
            f"{name} is not a folder; give the folder of a model or a run, or a name on the "
            "Hugging Face hub"
        )


def runs_in(folder: Path) -> list[str]:
    """Return the names of the runs in a folder; a name on the hub has none beside it."""
    if folder == Path() or not folder.is_dir():
        return []
    return sorted(path.parent.name for path in folder.glob("*/recipe.json"))


def local_folder(where: str | Path) -> Path:
    """Return the folder itself, that of a model which ships with Weft, or the local copy of a hub
    repository.
    """
    check_model_folder(where)
    folder = Path(where)
    name = str(where)
    if folder.is_dir():
        return folder
    if (packaged := packaged_folder(where)) is not None:
        return packaged
    if runs := runs_in(folder.parent):  # a mistyped run, and no name on the hub
        places = [str(folder.with_name(run)) for run in runs]
        raise ValueError(f"{name} is not a folder; {suggest(name, places)}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except Exception as error:
        raise ValueError(
            f"{name} is not a folder here, and could not be fetched from the hub "
            f"({type(error).__name__}); "
            "give a folder, or check the name and the network"
        ) from None
