"""The verbs of `weft`, one file per kind. Nothing heavy is imported before its verb needs it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..spec import Spec

EXIT_STOPPED = 75  # stopped and saved, not finished: run it again (EX_TEMPFAIL)
Fields = dict[str, Any]  # as in recipe.formats, which `weft --help` must not load


def export_hint(run: str) -> str:
    """Return the command that exports the model of a finished run; "" where no family of
    transformers matches it."""
    from ..interop.huggingface.describe import read_folder
    from ..interop.huggingface.equivalent_specs import find_family

    try:
        spec = read_folder(Path(run) / "model")[1]
        family = find_family(spec).family.name
    except (ValueError, OSError):
        return ""
    return (
        f"to open {Path(run) / 'model'} in transformers (as {family}): "
        f"weft export {run} OUT --to hf" + (f"; {note}" if (note := head_note(spec)) else "")
    )


def head_note(spec: "Spec") -> str:
    """Return where an exported head is, if no class of transformers has one like it."""
    from ..interop.huggingface.equivalent_specs import find_family
    from ..spec import NoHead

    if isinstance(spec.head, NoHead) or not isinstance(find_family(spec).spec.head, NoHead):
        return ""
    return (
        f"no class of transformers has this {type(spec.head).__name__}: "
        "it is written to modules.json, which sentence-transformers opens, "
        "and AutoModel opens the rest"
    )
