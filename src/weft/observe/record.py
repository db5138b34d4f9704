"""Recording of one forward pass: attention maps, image grids, layer states, input and output."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from .. import spec as S
from ..nn.layers.attention import AttentionLayer
from ..nn.layers.images.conditional_attention import AnchorContext
from ..nn.layers.images.shifted_windows import ShiftedWindowAttention
from ..nn.layers.sequence import HiddenStates
from ..nn.model import Model, Output
from .attention import AttentionPlace, attention_maps, attention_places
from .lens import layer_states, lens_stack
from .measures import attention_rollout
from .panels import AttentionPanel, Grid
from .vision import windows_on_grid

ROLLOUT = "rollout"


@dataclass(eq=False)
class Recording:
    """The values of the newest forward pass.

    Attributes:
        maps: the weights of each attention by the name of its module.
        grids: of the attentions whose tokens are the cells of an image and nothing else, rows and
            columns.
        states: of `layer_states`; empty for a head that the logit lens cannot read.
        inputs: what the model read.
        output: what its head returned.
    """

    maps: dict[str, Tensor] = field(default_factory=dict)
    grids: dict[str, tuple[int, int]] = field(default_factory=dict)
    states: list[HiddenStates] = field(default_factory=list)
    inputs: Tensor | None = None
    output: Output | None = None


@contextmanager
def record(model: Model) -> Iterator[Recording]:
    """Inside the block, every forward pass fills the recording; outputs are unchanged bit for bit.

    Args:
        model: of any family, also one that is in training.
    """
    recording = Recording()

    def keep_input(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        recording.inputs = inputs[0]

    def keep_output(module: nn.Module, inputs: tuple[Any, ...], output: Output) -> None:
        recording.output = output

    with ExitStack() as stack:
        recording.maps = stack.enter_context(attention_maps(model))
        if reads_layers(model):
            recording.states = stack.enter_context(layer_states(model))
        hooks = [
            model.source.register_forward_pre_hook(keep_input),
            model.head.register_forward_hook(keep_output),
            *(
                layer.register_forward_pre_hook(keep_grid(name, recording.grids))
                for name, layer in model.named_modules()
                if isinstance(layer, AttentionLayer)
            ),
        ]
        try:
            yield recording
        finally:
            for hook in hooks:
                hook.remove()


def keep_grid(name: str, grids: dict[str, tuple[int, int]]) -> Any:
    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        given = inputs[2]
        context = given.context if isinstance(given, AnchorContext) else given
        if context.grid is not None:
            grids[name] = context.grid

    return hook


def reads_layers(model: Model) -> bool:
    """Whether the logit lens can read the model's head."""
    try:
        lens_stack(model)
    except ValueError:
        return False
    return True


# Panels


def attention_panels(
    model: Model, recording: Recording, source: tuple[str, ...], target: tuple[str, ...] = ()
) -> tuple[AttentionPanel, ...]:
    """Return the maps of the first row, grouped by shape, and the rollout of each self-attention.

    Args:
        model: that was recorded.
        recording: of one forward pass.
        source: the label of each token of the source; of an image, of its extra tokens.
        target: the label of each token that the decoder of an encoder-decoder reads.
    """
    groups: dict[tuple[str, Any, Any], list[tuple[AttentionPlace, Tensor]]] = {}
    for place in attention_places(model):
        if place.name in recording.maps:
            grid = recording.grids.get(place.name)
            weight_HLM = recording.maps[place.name][0]
            if isinstance(place.module, ShiftedWindowAttention):
                assert grid is not None
                weight_HLM = windows_on_grid(recording.maps[place.name], place.module, grid)
            key = (place.kind, grid, weight_HLM.shape)
            groups.setdefault(key, []).append((place, weight_HLM))
    kinds = [kind for kind, _, _ in groups]
    panels: list[AttentionPanel] = []
    for (kind, _, _), members in groups.items():
        stage = kinds[: len(panels) + 1].count(kind) if kinds.count(kind) > 1 else 0
        panels.append(build_panel(model, recording, kind, stage, members, source, target))
    return tuple(panels) + rollout_panels(panels, len(groups) == len(set(kinds)))


def build_panel(
    model: Model,
    recording: Recording,
    kind: str,
    stage: int,
    members: list[tuple[AttentionPlace, Tensor]],
    source: tuple[str, ...],
    target: tuple[str, ...],
) -> AttentionPanel:
    first, weight_HLM = members[0]
    L, M = weight_HLM.shape[1:]
    on_source = kind != "decoder" or model.encoder is None
    grid = image_grid(model, recording, first.name, M) if on_source else None
    query_grid = grid if kind != "cross" else None
    of_queries = target if kind == "cross" or not on_source else source
    of_keys = source if on_source else target
    return AttentionPanel(
        f"{kind} stage {stage}" if stage else kind,
        tuple(place.layer for place, _ in members),
        tuple(weight for _, weight in members),
        labels(of_queries, L, query_grid),
        labels(of_keys, M, grid),
        query_grid,
        grid,
    )


def image_grid(model: Model, recording: Recording, name: str, tokens: int) -> Grid | None:
    """The cells of the image among the keys of an attention; None for text."""
    source = model.spec.source
    inputs = recording.inputs
    if isinstance(source, S.Tokens) or inputs is None:
        return None
    if (grid := recording.grids.get(name)) is not None:
        return Grid(*grid)
    if isinstance(source, S.Patches):
        rows, columns = (-(-side // source.patch_size) for side in inputs.shape[-2:])
        grid = (rows, columns)
        extra = len(source.extra_tokens)
    else:  # a decoder's attention to the encoder's cells
        grid = next((g for g in recording.grids.values()), (0, 0))
        extra = 0
    return Grid(*grid, extra) if grid[0] * grid[1] + extra == tokens else None


def labels(names: tuple[str, ...], count: int, grid: Grid | None) -> tuple[str, ...]:
    """The label of each token: as given, of a cell its row and column, else its number."""
    if grid is not None:
        cells = (
            f"row {r + 1}, column {c + 1}" for r in range(grid.rows) for c in range(grid.columns)
        )
        names = (*names[: grid.extra], *cells)
    return names if len(names) == count else tuple(map(str, range(1, count + 1)))


def rollout_panels(panels: list[AttentionPanel], whole: bool) -> tuple[AttentionPanel, ...]:
    """Rollout of self-attention, as a panel with one head; a decoder that also reads an encoder
    mixes in more than it shows."""
    if not whole:
        return ()
    alone = {"encoder", "decoder"} if "cross" not in {p.kind for p in panels} else {"encoder"}
    return tuple(
        AttentionPanel(
            f"{panel.kind} {ROLLOUT}",
            panel.layers,
            tuple(attention_rollout([weight_HLM[None] for weight_HLM in panel.maps])),
            panel.queries,
            panel.keys,
            panel.query_grid,
            panel.key_grid,
        )
        for panel in panels
        if panel.kind in alone and len(panel.queries) == len(panel.keys)
    )
