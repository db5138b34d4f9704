"""Description of a model directory from its JSON files, without torch, so that `weft show` starts
fast.
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
    """Return the family and the spec of a model directory; the family is None for Weft's own
    layout.
    """
    check_model_of_run(folder)
    if find_file(folder, SPEC_FILE):
        verify_manifest(folder)
        return None, read_spec(folder)
    if not find_file(folder, CONFIG_FILE):
        raise ValueError(
            f"{folder} contains neither {CONFIG_FILE} nor {SPEC_FILE}; give a directory with one "
            f"of them"
        )
    config = read_json_object(folder, CONFIG_FILE)
    kind = config.get("model_type")
    families_of_type = [f for f in families() if f.model_type and f.model_type == kind]
    if not families_of_type:
        raise ValueError(
            f"{folder / CONFIG_FILE}: model type {kind!r} is not supported; available: "
            f"{', '.join(sorted({f.model_type for f in families() if f.model_type}))}; "
            f"or register a family and pass its file with --code FILE"
        )
    problems = []
    for family in families_of_type:  # t5 and t5 v1.1 share a model type: take the first exact match
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
    """Return the spec with the head of a CrossEncoder, whose pooling and linear map are in separate
    files.
    """
    try:
        modules = read_modules(folder) if isinstance(spec.head, S.NoHead) else None
    except ValueError:  # modules that only weft embed supports
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
        raise ValueError(f"{path} contains a {type(spec).__name__}, not a Spec")
    return spec


def check_output_folder(out: Path, overwrite: bool) -> None:
    """Raise ValueError unless the directory is new or empty or, with `overwrite`, holds a model.
    This protects other files from typing errors.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a directory")
    existing = {p.name for p in out.iterdir()} if out.exists() else set()
    if existing and not (
        existing & {"config.json", "weft.json"}
        and any(name.endswith(".safetensors") for name in existing)
    ):
        raise ValueError(f"{out} is not empty and contains no model; give a new or empty directory")
    if existing and not overwrite:
        raise ValueError(
            f"{out} contains a model; give a new or empty directory, or replace the model with "
            f"--overwrite"
        )


def folder_summary(folder: Path, spec: S.Spec) -> dict[str, Any]:
    """Return a summary of a model directory from the loaded spec, since tensors may override the
    config (an untied head).
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
