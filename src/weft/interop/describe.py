"""What a folder says it holds, read from its JSON alone: no torch, so that `weft show FOLDER` answers at once."""
from pathlib import Path
from typing import Any

from .. import spec as S
from ..data.members import member
from ..families import families
from ..weights import Family, read_labels
from .manifest import SPEC as SPEC
from .manifest import verify
from .modules import modules_of
from .parse import parse

CONFIG = "config.json"


def describe(folder: Path) -> tuple[Family | None, S.Model]:
    """What a folder holds: a spec, and the family whose names its tensors have (None: our own)."""
    if member(folder, SPEC):
        verify(folder)
        return None, read_spec(folder)
    if not member(folder, CONFIG):
        raise ValueError(f"{folder} holds neither {CONFIG} nor {SPEC}; give a folder with one of them")
    config = parse(folder, CONFIG)
    kind = config.get("model_type")
    known = [f for f in families() if f.model_type and f.model_type == kind]
    if not known:
        raise ValueError(f"{folder / CONFIG}: model type {kind!r} is not known; Weft reads "
                         f"{', '.join(sorted({f.model_type for f in families() if f.model_type}))}")
    problems = []
    for family in known:                   # t5 and t5 v1.1 share a model type: the first that reads it exactly
        try:
            spec = family.read(config)
            family.write(spec)
            return family, scoring_head(folder, config, spec)
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
            problems.append(f"a key is missing or of another type ({type(error).__name__}: {str(error)[:200]})")
    raise ValueError(f"{folder / CONFIG}: {problems[0].removeprefix('config.json: ')}")


def scoring_head(folder: Path, config: dict[str, Any], spec: S.Model) -> S.Model:
    """The spec with a head that lies apart from the weights: a CrossEncoder's pooling and linear map."""
    try:
        found = modules_of(folder) if isinstance(spec.head, S.Features) else None
    except ValueError:                     # modules that only weft embed asks for
        return spec
    if found is None or found.dense is None:
        return spec
    return S.replace(spec, head=S.Classes(outputs=found.outputs, pool=found.pooling, bias=found.bias,  # type: ignore[arg-type]
                                          labels=read_labels(config).labels))


def read_spec(folder: Path) -> S.Model:
    plain, path = parse(folder, SPEC), folder / SPEC
    try:
        found = S.from_plain(plain)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(found, S.Model):
        raise ValueError(f"{path} holds a {type(found).__name__}, not a Model")
    return found


def refuse(out: Path, overwrite: bool) -> None:
    """Only a new or an empty folder is written to, or where that is asked for a model's: a slip of the finger must not cost anyone's
    files."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a folder to write")
    held = {p.name for p in out.iterdir()} if out.exists() else set()
    if held and not (held & {"config.json", "weft.json"} and any(name.endswith(".safetensors") for name in held)):
        raise ValueError(f"{out} is not empty and holds no model; give a new or an empty folder")
    if held and not overwrite:
        raise ValueError(f"{out} holds a model; give a new or an empty folder, or replace this model with --overwrite")


def inside(folder: Path, spec: S.Model) -> dict[str, Any]:
    """What a model folder holds; the loaded spec counts, since tensors may say more than a config (a head that is not tied)."""
    family = describe(folder)[0]
    files = {p.name: p.stat().st_size for p in sorted(folder.iterdir()) if p.is_file()}
    return {"folder": str(folder), "layout": "hf" if family else "weft", "family": family.name if family else None,
            "parameters": spec.parameters(), "files": files}
