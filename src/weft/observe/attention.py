"""Attention maps: compute the weights of every attention in addition to the kernel's output."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..nn.block import BlockLayer, BranchLayer
from ..nn.kernels.attention import attention_weights, eager_attention
from ..nn.layers.attention import AttentionContext, AttentionLayer
from ..nn.model import Model
from ..nn.stack import PyramidLayer, StackLayer


@contextmanager
def attention_maps(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Inside the block every forward pass fills the dictionary with the weights of each
    attention, without dropout.

    The outputs stay those of the model's own kernels, bit for bit.

    Args:
        model: any module with attention layers of Weft.

    Yields:
        The name of the module -> (B, H, L, M); of shifted windows: (windows, H, cells, cells).
    """
    maps: dict[str, Tensor] = {}
    layers = {name: m for name, m in model.named_modules() if isinstance(m, AttentionLayer)}
    try:
        for name, layer in layers.items():
            layer.attend = ObservedAttention(layer, name, maps)  # type: ignore[method-assign]
        yield maps
    finally:
        for layer in layers.values():
            del layer.attend


class ObservedAttention:
    """`AttentionLayer.attend` that also stores its weights."""

    def __init__(self, layer: AttentionLayer, name: str, maps: dict[str, Tensor]) -> None:
        self.layer = layer
        self.name = name
        self.maps = maps
        self.attend = layer.attend  # bound before this object takes its name

    def __call__(
        self, q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, context: AttentionContext
    ) -> Tensor:
        layer = self.layer
        backend = self.layer.backend
        training = self.layer.training
        try:
            if context.split_backend is None:
                layer.backend = self.beside(backend)
                return self.attend(q_BHLK, k_BGMK, v_BGMK, context)
            # Block-local kernels have no full mask: with the identity as values, the output equals
            # the weights.
            M = k_BGMK.shape[2]
            eye_MM = torch.eye(M, dtype=v_BGMK.dtype, device=v_BGMK.device)
            eye_BGMM = eye_MM.expand(*k_BGMK.shape[:2], M, M)
            layer.backend = eager_attention
            layer.training = False
            with torch.no_grad():
                self.maps[self.name] = self.attend(q_BHLK, k_BGMK, eye_BGMM, context)
        finally:
            layer.backend = backend
            layer.training = training
        return self.attend(q_BHLK, k_BGMK, v_BGMK, context)

    def beside(self, backend: Any) -> Any:
        """Return a backend that stores the weights and returns the given backend's output."""

        def kernel(
            q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, mask: Tensor | None, **options: Any
        ) -> Tensor:
            exact = {key: value for key, value in options.items() if key != "dropout"}
            with torch.no_grad():
                self.maps[self.name] = attention_weights(q_BHLK, k_BGMK, mask, **exact)
            output: Tensor = backend(q_BHLK, k_BGMK, v_BGMK, mask, **options)
            return output

        return kernel


class AttentionPlace(NamedTuple):
    """The position of an attention layer in a model."""

    kind: str  # "encoder", "decoder", "cross", or "pixel decoder" of a masked autoencoder
    layer: int  # from 0, at the input
    name: str  # of the module: the key in the dictionary of `attention_maps`
    module: AttentionLayer


def attention_places(model: Model) -> list[AttentionPlace]:
    """Every attention of a model: encoder, decoder, cross, each from the input to the output."""
    stacks = {
        "encoder": model.encoder,
        "decoder": model.decoder,
        "pixel decoder": getattr(model.head, "stack", None),
    }
    names = {module: name for name, module in model.named_modules()}
    places = []
    for kind, stack in stacks.items():
        blocks = stack_blocks(stack) if stack is not None else []
        of_kind: dict[str, list[BranchLayer | None]] = {kind: [b.attention for b in blocks]}
        if kind == "decoder":
            of_kind["cross"] = [b.cross_attention for b in blocks]
        for each, branches in of_kind.items():
            places += [
                AttentionPlace(each, i, names[branch.inner], branch.inner)
                for i, branch in enumerate(branches)
                if branch is not None and isinstance(branch.inner, AttentionLayer)
            ]
    return places


def stack_blocks(stack: nn.Module) -> list[BlockLayer]:
    """The blocks of a stack or a pyramid, from the input to the output."""
    if not isinstance(stack, StackLayer | PyramidLayer):
        return []  # a user's stack without blocks
    return [part for part in stack.in_order() if isinstance(part, BlockLayer)]
