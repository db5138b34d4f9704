"""Initialisation from an earlier model, and trainable parts: everything, only the head, or the head
and low-rank updates.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..interop.loading import FolderWeights, open_weights
from ..nn.initialisation import parameter_seed
from ..nn.layers.embedding import PatchEmbedding
from ..nn.layers.images.shifted_windows import ShiftedWindowAttention
from ..nn.layers.lora import LoRALinear, insert_lora, merged_reader
from ..nn.layers.roles import Part, Role, parameter_facts
from ..nn.model import Model, build_on_meta
from ..support.registry import implementation
from ..tasks.base import Loss
from .checkpoints.checkpoint import Checkpoint
from .parallel.sharding import local_slices, local_tensor

OBJECT_QUERIES = ("target.queries.weight", "target.anchors.weight")


@torch.no_grad()
def initialise_from(model: Model, folder: str) -> None:
    """Load the weights of an earlier model where name and shape match. A new head is initialised,
    except for a trained pooler. Position tables of another image size are interpolated; a different
    number of object queries is initialised. A rank of a sharded model reads only its slices.
    """
    with open_weights(folder) as before:
        state = model.state_dict()
        loaded = loaded_parts(before.model.spec.head, model.spec.head)
        facts = parameter_facts(model)
        resized = resized_positions(before, model)
        shapes = before.shapes | {name: table.shape for name, table in resized.items()}
        fit = {
            name
            for name, shape in shapes.items()
            if name in state and state[name].shape == shape and facts[name].part in loaded
        }
        lost = sorted(
            name
            for name, fact in parameter_facts(before.model).items()
            if fact.role is Role.STATISTIC and name not in state
        )
        if lost:
            raise ValueError(
                f"init_from = {folder!r}: it has {lost[0]}, but the norms of the recipe's model "
                f"have no such statistics; use the spec of that model in the recipe"
            )
        filled = fit | set(low_rank_names(model))
        if before.model.spec.queries != model.spec.queries:
            filled |= {name for name in OBJECT_QUERIES if name in state}
        missing = [name for name in state if name not in filled and facts[name].part is Part.BODY]
        if missing:
            raise ValueError(
                f"init_from = {folder!r}: it has no {missing[0]} of shape "
                f"{tuple(state[missing[0]].shape)}; "
                "use the spec of that model in the recipe"
            )
        for name in before.shapes:
            if name in fit and (part := local_tensor(state[name])).numel():
                slices = local_slices(state[name])
                part.copy_(resized[name][slices] if name in resized else before.read(name, slices))


def loaded_parts(old: S.Head, new: S.Head) -> set[Part]:
    """Return the parts of an earlier model that a model with another head loads."""
    names = {getattr(head, "labels", None) for head in (old, new)} - {None}
    if type(old) is type(new) and len(names) < 2:
        return {Part.BODY, Part.LAYER_MIX, Part.HEAD, Part.HEAD_TRANSFORM}
    if type(new) is S.ClassifierHead and type(old) in (S.NoHead, S.ClassifierHead):
        return {Part.BODY, Part.LAYER_MIX, Part.HEAD_TRANSFORM}
    return {Part.BODY, Part.LAYER_MIX}


def low_rank_names(model: Model) -> set[str]:
    return {
        f"{path}.{name}"
        for path, part in model.named_modules()
        if isinstance(part, LoRALinear)
        for name in ("narrow", "widen")
    }


def resized_positions(before: FolderWeights, model: Model) -> dict[str, Tensor]:
    """Return the position tables of `before`, resized to the image size (ViT, section 3.2) and the
    window size (Swin) of `model`.
    """
    tables = {}
    for path, part in model.named_modules():
        if isinstance(part, PatchEmbedding) and isinstance(part.positions, nn.Embedding):
            name = f"{path}.positions.weight"
            fits = part.s.extra_tokens == getattr(before.model.spec.source, "extra_tokens", None)
        elif isinstance(part, ShiftedWindowAttention):
            name = f"{path}.offsets.weight"
            fits = True
        else:
            continue
        if fits and name in before.shapes:
            tables[name] = part.resize(before.read_whole(name))
    return tables


def freeze_untrained(model: Model, trained: R.Trainable | None, seed: int = 0) -> None:
    """Freeze all parameters that are not trained. The state dict then has its final names."""
    if trained is None:
        return
    for part in model.body:
        part.requires_grad_(False)
    implementation(trained)(trained, model, seed)


def add_nothing(trained: R.HeadOnly, model: Model, seed: int) -> None:
    """Train only the head: add no parameters."""


def add_lora(trained: R.LoRA, model: Model, seed: int) -> None:
    for path in lora_paths(model, trained):
        generator = torch.Generator().manual_seed(parameter_seed(seed, path))
        insert_lora(model, path, trained.rank, trained.alpha, generator)


def lora_paths(model: Model, trained: R.LoRA) -> list[str]:
    """Return the paths of the linear maps with the names of `trained`, inside the blocks of the
    body.
    """
    facts = parameter_facts(model)
    return [
        f"{path}.{name}"
        for path, part in model.named_modules()
        for name, linear in part.named_children()
        if name in trained.target_modules
        and isinstance(linear, nn.Linear)
        and (weight_facts := facts[f"{path}.{name}.weight"]).role is Role.MATRIX
        and weight_facts.part is Part.BODY
    ]


def checkpoint_reader(
    checkpoint: Checkpoint, spec: S.Spec, trained: R.Trainable | None
) -> Callable[[str], Tensor]:
    """Return a function that reads the tensors of a checkpoint's model by name, with low-rank
    updates merged.
    """
    saved = checkpoint.saved()["model"]
    structure = build_on_meta(spec)
    freeze_untrained(structure, trained)
    return merged_reader(structure, lambda name: saved[f"model.{name}"].read())


def set_train_mode(loss: Loss, trained: R.Trainable | None) -> None:
    """Set training mode; a frozen body has no dropout."""
    loss.train()
    if trained is not None and not trained.trains_body:
        for part in loss.model.body:
            part.eval()
