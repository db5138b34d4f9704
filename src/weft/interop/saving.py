"""Saving of model directories in the published layout of a family or Weft's own. Safetensors and
JSON only.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from .. import spec as S
from ..families.base import Family, write_labels
from ..nn.model import Model
from ..recipe import ChatTemplate, Transform
from ..support.folder_files import find_file
from .huggingface.companion_files import (
    CHAT_TEMPLATE,
    CODE_KEYS,
    TOKENIZER,
    add_missing_files,
    copy_companion_files,
    tokenizer_without_config,
    with_special_ids,
    without_keys,
    write_json,
)
from .huggingface.convert import export_weights
from .huggingface.describe import CONFIG_FILE
from .huggingface.equivalent_specs import ExportPlan, find_family
from .huggingface.image_processor import IMAGES, detection_processor_config, image_processor_config
from .huggingface.sentence_transformers import cross_encoder_files
from .json_files import read_json_object
from .manifest import SPEC_FILE, publish_folder, write_manifest
from .tensor_files import INDEX, WEIGHTS, LazyTensors, in_memory, plan_files, write_tensors

STALE_KEYS = {"transformers_version", "_name_or_path", "torch_dtype"}
SHARD = 5_000_000_000  # maximum bytes per file


def read_as_saved(model: Model, weights: Callable[[str], Tensor]) -> None:
    """Read the tensors of a model in the order of `save(model, …, to="weft", weights=weights)`, on
    the other ranks if `weights` is a collective operation.
    """
    for names in plan_files(model.state_dict(), SHARD):
        for name in names:
            weights(name)


def save(
    model: Model,
    folder: str | Path,
    *,
    to: str = "hf",
    shard: int = SHARD,
    tokenizer: str | None = None,
    transforms: Sequence[Transform] | None = None,
    chat_template: ChatTemplate | None = None,
    weights: Callable[[str], Tensor] | None = None,
) -> Path:
    """Write a model as safetensors with its configuration and a manifest of SHA-256s. Tensors are
    written one at a time.

    Args:
        model: the model, such as `weft.open(…).model`.
        folder: a new or empty directory.
        to: "hf" for the published layout of its family, "weft" for Weft's own layout.
        shard: the maximum number of bytes per weight file.
        tokenizer: the text of tokenizer.json (default: that of the directory from which the model
            was loaded).
        transforms: evaluation transforms of images (default: those of that directory).
        chat_template: chat template of conversations (default: that of that directory).
        weights: reads a tensor by name, for a model on the meta device.

    Returns: The directory.

    Raises:
        ValueError: if no family can express the spec (`to="hf"`), or the directory contains other
            files.
    """
    if not isinstance(model, Model):
        raise ValueError(
            "save takes a model, such as weft.load(…) or weft.open(…).model, not "
            f"{type(model).__name__}"
        )
    if to not in ("hf", "weft"):
        raise ValueError(f"to={to!r}; give 'hf' or 'weft'")
    folder = Path(folder)
    state = model.state_dict()
    tensors = in_memory(state) if weights is None else LazyTensors(state, weights)
    spec = model.spec
    if to == "hf" and (carried := tokenizer_without_config(model.origin)) is not None:
        spec = with_special_ids(spec, carried.special)
    plan = find_family(spec, model.family) if to == "hf" else None
    # complete before it replaces an older one
    with (
        new_folder(folder),
        TemporaryDirectory(prefix=".weft-", dir=folder) as temporary,
    ):
        new = Path(temporary)
        if plan is None:
            write_tensors(tensors, new, shard)
            (new / SPEC_FILE).write_text(spec.to_json() + "\n", encoding="utf-8")
        else:
            write_published(model, spec, plan, tensors, new, shard)
        write_companions(model, spec, new, tokenizer, transforms, chat_template)
        if plan is not None:
            add_missing_files(new, plan.spec, ours=model.family is None)
        else:
            write_manifest(new)
        remove_stale(folder, publish_folder(new, folder))
    return folder


def write_published(
    model: Model, spec: S.Spec, plan: ExportPlan, tensors: LazyTensors, new: Path, shard: int
) -> None:
    """Write config.json and the weights as the family publishes them."""
    no_head = isinstance(plan.spec.head, S.NoHead)
    theirs = export_weights(plan.family, plan.spec, plan.export_tensors(tensors), no_head)
    write_tensors(theirs, new, shard)
    dtype = str(next(iter(tensors.like.values())).dtype).removeprefix("torch.")
    write_json(new / CONFIG_FILE, merged_config(plan.family, plan.spec, model) | {"dtype": dtype})
    if isinstance(spec.head, S.ClassifierHead) and no_head:
        write_cross_encoder(spec, tensors, new)


def write_companions(
    model: Model,
    spec: S.Spec,
    new: Path,
    tokenizer: str | None,
    transforms: Sequence[Transform] | None,
    chat_template: ChatTemplate | None,
) -> None:
    """Write the companion files: those of the original directory, and those that are given."""
    if model.origin is not None:
        copy_companion_files(model.origin, new, spec)
    if tokenizer is not None:
        (new / TOKENIZER).write_text(tokenizer, "utf-8")
    if chat_template is not None:
        (new / CHAT_TEMPLATE).write_text(chat_template.to_jinja(), "utf-8")
    if transforms is not None and isinstance(spec.source, S.Patches):
        write_json(new / IMAGES, image_processor_config(spec.source, transforms))
    elif transforms is not None and isinstance(spec.source, S.ResNet):
        write_json(new / IMAGES, detection_processor_config(transforms))


def remove_stale(folder: Path, written: set[Path]) -> None:
    """Remove weights and configs of an older model that were not overwritten."""
    for old in (
        *folder.glob("model-?????-of-?????.safetensors"),
        *(folder / n for n in (WEIGHTS, INDEX, CONFIG_FILE, SPEC_FILE)),
    ):
        if old.relative_to(folder) not in written:
            old.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Create the directory and its parents; after an error, remove those that are empty."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in missing:
                path.rmdir()
        raise


def merged_config(family: Family, spec: S.Spec, model: Model) -> dict[str, Any]:
    """Return config.json: the fields of the spec and of the original config, without fields that
    run code.
    """
    origin_config = (
        read_json_object(model.origin, CONFIG_FILE)
        if model.origin is not None and find_file(model.origin, CONFIG_FILE)
        else {}
    )
    origin_config = (
        without_keys(CODE_KEYS | STALE_KEYS, origin_config)
        if origin_config.get("model_type") == family.model_type
        else {}
    )
    return origin_config | family.to_config(spec) | write_labels(model.spec.head)


def write_cross_encoder(spec: S.Spec, tensors: LazyTensors, folder: Path) -> None:
    """Write a head without a transformers class in the format of sentence-transformers'
    CrossEncoder.
    """
    assert isinstance(spec.head, S.ClassifierHead)
    learned = getattr(spec.source, "positions", None)
    for file, plain in cross_encoder_files(
        spec.head, spec.width, getattr(learned, "count", spec.context_length)
    ).items():
        write_json(folder / file, plain)
    linear = {
        name.replace("head.out", "linear"): tensors.read(name).detach().contiguous().cpu()
        for name in tensors.like
        if name.startswith("head.out.")
    }
    save_file(linear, folder / "2_Dense" / WEIGHTS, metadata={"format": "pt"})
