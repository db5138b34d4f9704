"""Hub names: downloaded through huggingface_hub, never more than weights, JSON and tokenizer files."""

from pathlib import Path

PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja"]


def local_folder(where: str | Path) -> Path:
    """The folder itself, or the local copy of a hub repository."""
    folder = Path(where)
    if folder.is_dir():
        return folder
    name = str(where)
    if (
        folder.is_absolute()
        or name.startswith((".", "~"))
        or name.count("/") > 1
        or folder.exists()
    ):
        raise ValueError(f"{name} is no folder")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS))
    except Exception as error:
        raise ValueError(
            f"{name} is no folder here, and could not be fetched from the hub ({type(error).__name__}); "
            "give a folder, or check the name and the network"
        ) from None
