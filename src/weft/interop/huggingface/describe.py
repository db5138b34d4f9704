"""What a folder says it holds, read from its JSON alone: no torch, so that `weft show FOLDER`
answers at once.
"""

from pathlib import Path
from typing import Any

from ... import spec as S
from ...families import families
from ...families.base import Family, read_labels
from ...support.folder_files import find_file
from ..json_files import read_json_object
from ..manifest import SPEC_FILE, check_model_of_run, verify_manifest
from .sentence_transformers import read_modules

CONFIG_FILE = "config.json"


def read_folder(folder: Path) -> tuple[Family | None, S.Spec]:
    """What a folder holds: a spec, and the family whose names its tensors have (None: our own)."""
    check_model_of_run(folder)
    if find_file(folder, SPEC_FILE):
        verify_manifest(folder)
        return None, read_spec(folder)
    if not find_file(folder, CONFIG_FILE):
        raise ValueError(
            f"{folder} holds neither {CONFIG_FILE} nor {SPEC_FILE}; give a folder with one of them"
        )
    config = read_json_object(folder, CONFIG_FILE)
    kind = config.get("model_type")
    families_of_type = [f for f in families() if f.model_type and f.model_type == kind]
    if not families_of_type:
        raise ValueError(
            f"{folder / CONFIG_FILE}: model type {kind!r} is not known; Weft reads "
            f"{', '.join(sorted({f.model_type for f in families() if f.model_type}))}; "
            f"give a family of your own with --code FILE"
        )
    problems = []
    for (
        family
    ) in families_of_type:  # t5 and t5 v1.1 share a model type: the first that reads it exactly
        try:
            spec = family.from_config(config)
            family.to_config(spec)
            return family, cross_encoder_head(folder, config, spec)
        except ValueError as error:
            problems.append(str(error))
        except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
            problems.append(
                f"a key is missing or of another type ({type(error).__name__}: {str(error)[:200]})"
            )
    raise ValueError(f"{folder / CONFIG_FILE}: {problems[0].removeprefix('config.json: ')}")


def cross_encoder_head(folder: Path, config: dict[str, Any], spec: S.Spec) -> S.Spec:
    """The spec with a head that lies apart from the weights: a CrossEncoder's pooling and linear
    map.
    """
    try:
        modules = read_modules(folder) if isinstance(spec.head, S.NoHead) else None
    except ValueError:  # modules that only weft embed reads
        return spec
    if modules is None or modules.dense is None:
        return spec
    return S.replace(
        spec,
        head=S.ClassifierHead(
            num_labels=modules.outputs,
            pooling=modules.pooling,  # type: ignore[arg-type]
            bias=modules.bias,
            labels=read_labels(config).labels,
        ),
    )


def read_spec(folder: Path) -> S.Spec:
    plain = read_json_object(folder, SPEC_FILE)
    path = folder / SPEC_FILE
    try:
        spec = S.from_plain(plain)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(spec, S.Spec):
        raise ValueError(f"{path} holds a {type(spec).__name__}, not a Spec")
    return spec


def check_output_folder(out: Path, overwrite: bool) -> None:
    """Only a new or an empty folder is written to, or where that is asked for a model's: a slip of
    the finger must not cost anyone's files.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a folder to write")
    existing = {p.name for p in out.iterdir()} if out.exists() else set()
    if existing and not (
        existing & {"config.json", "weft.json"}
        and any(name.endswith(".safetensors") for name in existing)
    ):
        raise ValueError(f"{out} is not empty and holds no model; give a new or an empty folder")
    if existing and not overwrite:
        raise ValueError(
            f"{out} holds a model; give a new or an empty folder, or replace this model with "
            "--overwrite"
        )


def folder_summary(folder: Path, spec: S.Spec) -> dict[str, Any]:
    """What a model folder holds; the loaded spec counts, since tensors may say more than a config
    (a head that is not tied).
    """
    family = read_folder(folder)[0]
    files = {p.name: p.stat().st_size for p in sorted(folder.iterdir()) if p.is_file()}
    return {
        "folder": str(folder),
        "layout": "hf" if family else "weft",
        "family": family.name if family else None,
        "parameters": spec.parameter_count(),
        "files": files,
    }
