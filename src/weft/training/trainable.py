"""Where a model starts from, and what of it is trained: everything, its head alone, or its head and low-rank updates."""

import torch
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..interop.folder import load
from ..layers.embedding import PatchEmbedding
from ..layers.lora import insert_lora
from ..layers.roles import Part, Role, parameter_facts
from ..layers.shifted_windows import ShiftedWindowAttention
from ..model.initialisation import parameter_seed
from ..model.model import Model
from ..registry import implementation
from ..tasks.base import Loss


def initialise_from(model: Model, folder: str) -> None:
    """Weights of an earlier model, wherever name and shape agree; a new head starts afresh, but for a pooler that was trained.
    Position tables of another image size are interpolated."""
    before = load(folder)
    old, state, heads = (
        resize_positions(before, model),
        model.state_dict(),
        (before.spec.head, model.spec.head),
    )
    names = {getattr(head, "labels", None) for head in heads} - {None}
    loaded_parts = {Part.BODY, Part.LAYER_MIX}
    if type(heads[0]) is type(heads[1]) and len(names) < 2:
        loaded_parts |= {Part.HEAD, Part.HEAD_TRANSFORM}
    elif type(heads[1]) is S.ClassifierHead and type(heads[0]) in (S.NoHead, S.ClassifierHead):
        loaded_parts |= {Part.HEAD_TRANSFORM}
    facts = parameter_facts(model)
    fit = {
        name: tensor
        for name, tensor in old.items()
        if name in state and state[name].shape == tensor.shape and facts[name].part in loaded_parts
    }
    missing = [name for name in state if name not in fit and facts[name].part is Part.BODY]
    if missing:
        raise ValueError(
            f"init_from = {folder!r}: it has no {missing[0]} of shape {tuple(state[missing[0]].shape)}; "
            "give the recipe the model that was trained"
        )
    model.load_state_dict(state | fit)


def resize_positions(before: Model, model: Model) -> dict[str, Tensor]:
    """The weights of `before`, its position tables at the image size (ViT, section 3.2) and the window size (Swin) of `model`."""
    state = before.state_dict()
    for path, part in model.named_modules():
        if isinstance(part, PatchEmbedding) and isinstance(part.positions, nn.Embedding):
            name, fits = (
                f"{path}.positions.weight",
                part.s.extra_tokens == getattr(before.spec.source, "extra_tokens", None),
            )
        elif isinstance(part, ShiftedWindowAttention):
            name, fits = f"{path}.offsets.weight", True
        else:
            continue
        if fits and name in state:
            state[name] = part.resize(state[name])
    return state


def freeze_untrained(model: Model, trained: R.Trainable | None, seed: int = 0) -> None:
    """Freeze what is not trained. Once the weights to start from are in place; the state then has its final names."""
    if trained is None:
        return
    for part in model.body:
        part.requires_grad_(False)
    implementation(trained)(trained, model, seed)


def add_nothing(trained: R.HeadOnly, model: Model, seed: int) -> None:
    """The head alone is trained."""


def add_lora(trained: R.LoRA, model: Model, seed: int) -> None:
    for path in lora_paths(model, trained):
        generator = torch.Generator().manual_seed(parameter_seed(seed, path))
        insert_lora(model, path, trained.rank, trained.alpha, generator)


def lora_paths(model: Model, trained: R.LoRA) -> list[str]:
    """Return the linear maps with these names inside the blocks of the body."""
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


def set_train_mode(loss: Loss, trained: R.Trainable | None) -> None:
    """Ready to train; a trunk that gives features drops nothing."""
    loss.train()
    if trained is not None and not trained.trains_body:
        for part in loss.model.body:
            part.eval()
