"""The commands of `weft`, in modules by topic. Heavy packages are imported only on use."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..spec import Spec

EXIT_STOPPED = 75  # stopped and saved, not finished: run it again (EX_TEMPFAIL)
Fields = dict[str, Any]  # as in recipe.formats, which `weft --help` must not load


def export_hint(run: str) -> str:
    """Return the command that exports the model of a finished run, or "" if transformers has no
    matching architecture."""
    from ..interop.huggingface.describe import read_folder
    from ..interop.huggingface.equivalent_specs import find_family

    try:
        spec = read_folder(Path(run) / "model")[1]
        family = find_family(spec).family.name
    except (ValueError, OSError):
        return ""
    return f"to open the model in transformers ({family}): weft export {run} OUT --to hf" + (
        f"\nweft: {note}" if (note := head_note(spec)) else ""
    )


def head_note(spec: "Spec") -> str:
    """Return a note on the exported head, or "" if transformers has a class with this head."""
    from ..interop.huggingface.equivalent_specs import find_family
    from ..spec import NoHead

    if isinstance(spec.head, NoHead) or not isinstance(find_family(spec).spec.head, NoHead):
        return ""
    return (
        f"transformers has no class with this {type(spec.head).__name__}; "
        "sentence-transformers opens all of it, AutoModel only the body"
    )
