"""Hub names: downloaded through huggingface_hub, never more than weights, JSON and tokenizer files."""

from pathlib import Path

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]


def check_model_folder(where: str | Path) -> None:
    """Raise ValueError for a path that is not a folder; the name of a hub repository passes."""
    folder, name = Path(where), str(where)
    is_path = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if not folder.is_dir() and (is_path or folder.exists()):
        raise ValueError(
            f"{name} is not a folder; give the folder of a model or a run, or a name on the Hugging Face hub"
        )


def local_folder(where: str | Path) -> Path:
    """Return the folder itself, or the local copy of a hub repository."""
    check_model_folder(where)
    folder, name = Path(where), str(where)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except Exception as error:
        raise ValueError(
            f"{name} is not a folder here, and could not be fetched from the hub ({type(error).__name__}); "
            "give a folder, or check the name and the network"
        ) from None
