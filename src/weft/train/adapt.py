"""Where a model starts from, and what of it is trained: everything, its head alone, or its head and low-rank updates."""
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .. import recipe as R
from .. import spec as S
from ..interop.folder import load
from ..layers.attention import Attention
from ..layers.embed import Patches
from ..layers.lowrank import insert
from ..layers.window import WindowAttention
from ..model.model import Model
from ..model.start import number
from ..objectives.base import Objective


def begin_from(model: Model, folder: str) -> None:
    """Weights of an earlier model, wherever name and shape agree; a new head starts afresh, but for a pooler that was trained.
    Position tables of another image size are interpolated."""
    before = load(folder)
    old, own, heads = resized(before, model), model.state_dict(), (before.spec.head, model.spec.head)
    names = {getattr(head, "labels", None) for head in heads} - {None}
    alike = ("head.",) if type(heads[0]) is type(heads[1]) and len(names) < 2 else \
        ("head.transform.",) if type(heads[1]) is S.Classes and type(heads[0]) in (S.Features, S.Classes) else ()
    fit = {name: tensor for name, tensor in old.items() if name in own and own[name].shape == tensor.shape
           and (not name.startswith("head.") or name.startswith(alike))}
    missing = [name for name in own if name not in fit and not name.startswith(("head.", "features."))]
    if missing:
        raise ValueError(f"start = {folder!r}: it has no {missing[0]} of shape {tuple(own[missing[0]].shape)}; "
                         "give the recipe the model that was trained")
    model.load_state_dict(own | fit)


def resized(before: Model, model: Model) -> dict[str, Tensor]:
    """The weights of `before`, its position tables at the image size (ViT, section 3.2) and the window size (Swin) of `model`."""
    state = before.state_dict()
    for path, part in model.named_modules():
        if isinstance(part, Patches) and isinstance(part.positions, nn.Embedding):
            name, fits = f"{path}.positions.weight", part.s.tokens == getattr(before.spec.source, "tokens", None)
        elif isinstance(part, WindowAttention):
            name, fits = f"{path}.offsets.weight", True
        else:
            continue
        if fits and name in state:
            state[name] = part.resize(state[name])
    return state


def trunk(model: Model) -> Iterator[nn.Module]:
    """A model without its head and what weighs the head's layers."""
    return (part for name, part in model.named_children() if name not in ("head", "features"))


def adapt(model: Model, trained: R.HeadOnly | R.LoRA | None, seed: int = 0) -> None:
    """Freeze what is not trained. Once the weights to start from are in place; the state then has its final names."""
    if trained is None:
        return
    for part in trunk(model):
        part.requires_grad_(False)
    if isinstance(trained, R.LoRA):
        maps = [f"{name}.{own}" for name, part in model.named_modules() if isinstance(part, Attention) and not name.startswith("head.")
                for own in trained.maps]
        for path in maps:
            insert(model, path, trained.rank, trained.alpha, torch.Generator().manual_seed(number(seed, path)))


def awake(objective: Objective, trained: R.HeadOnly | R.LoRA | None) -> None:
    """Ready to train; a trunk that gives features drops nothing."""
    objective.train()
    if isinstance(trained, R.HeadOnly):
        for part in trunk(objective.model):
            part.eval()
