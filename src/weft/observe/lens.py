"""The logit lens: apply the model's head to the output of every layer (nostalgebraist 2020,
"interpreting GPT: the logit lens").
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from .. import spec as S
from ..nn.layers.sequence import HiddenStates
from ..nn.model import Model
from ..nn.stack import StackLayer
from .attention import stack_blocks

READABLE = (S.LMHead, S.ClassifierHead, S.TokenClassifierHead)


def lens_stack(model: Model) -> StackLayer:
    """The stack that the head reads.

    Raises:
        ValueError: if its layers cannot be read one by one, with the reason.
    """
    stack = model.decoder if model.decoder is not None else model.encoder
    if not isinstance(model.spec.head, READABLE):
        raise ValueError(
            f"the logit lens needs a head with logits, not {type(model.spec.head).__name__}"
        )
    if type(stack) is not StackLayer:
        raise ValueError(
            "the logit lens needs blocks of one width; the stages of a pyramid differ, and "
            "user-defined stacks may have no blocks"
        )
    if model.layer_mix is not None or stack.layer_combination is not None:
        raise ValueError(
            "the logit lens reads one layer at a time, but this head reads a combination of layers"
        )
    return stack


@contextmanager
def layer_states(model: Model) -> Iterator[list[HiddenStates]]:
    """Inside the block, every forward pass fills the list with the input of the stack that the head
    reads and the output of each of its blocks.

    Args:
        model: with a head of logits.
    """
    stack = lens_stack(model)
    states = list[HiddenStates]()
    blocks_BLD = list[Tensor]()

    def begin(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        blocks_BLD[:] = [inputs[0].x_BLD]

    def keep(module: nn.Module, inputs: tuple[Any, ...], x_BLD: Tensor) -> None:
        blocks_BLD.append(x_BLD)

    def end(module: nn.Module, inputs: tuple[Any, ...], sequence: HiddenStates) -> None:
        states[:] = [replace(sequence, x_BLD=x_BLD) for x_BLD in blocks_BLD]

    hooks = [
        stack.register_forward_pre_hook(begin),
        *(block.register_forward_hook(keep) for block in stack_blocks(stack)),
        stack.register_forward_hook(end),
    ]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


def logit_lens(model: Model, states: Sequence[HiddenStates]) -> Iterator[Tensor]:
    """Read every layer through the stack's final norm and the head;
    the last equals the model's output, bit for bit.

    Args:
        model: that filled `states`.
        states: of `layer_states`, from the input to the output.

    Yields:
        The logits of each layer, such as (B, L, V) of an LM head.
    """
    stack = lens_stack(model)
    for state in states:
        logits = model.read(replace(state, x_BLD=stack.norm(state.x_BLD)))
        assert isinstance(logits, Tensor)
        yield logits
