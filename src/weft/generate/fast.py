"""The same model laid out for reading few tokens at a time on a CPU: maps packed once, a stack run without Python between its steps.
Its slow twin is the model itself."""
import copy
import warnings

import torch
from torch import Tensor, nn
from torch.jit._fuser import optimized_execution

from .. import spec as S
from ..layers.attention import Attention
from ..layers.feedforward import FeedForward
from ..layers.norm import cap
from ..layers.sequence import Sequence
from ..model.block import Block
from ..model.cache import Cache
from ..model.head import Vocabulary
from ..model.model import Model
from ..model.stack import Stack, look_across
from .packed import Blocks, PackedBlock, Precision, lay


def pack(model: Model, precision: Precision = "float32") -> Model:
    """A copy for reading only. float32 gives the model's own numbers; bf16 rounds everything to eight bits of mantissa; int8 rounds each
    map's rows, and what they multiply, to 255 steps of their largest number, and keeps the rest in float32."""
    if precision == "int8" and "fbgemm" not in torch.backends.quantized.supported_engines:
        raise ValueError("this build of torch has no int8 maps (fbgemm); take bf16 or float32")
    if model.table_VD.device.type != "cpu":
        raise ValueError(f"packing is for the CPU, and the model is on {model.table_VD.device}")
    packed = copy.deepcopy(model).to(torch.bfloat16 if precision == "bf16" else torch.float32).eval().requires_grad_(False)
    for name in ("encoder", "decoder"):
        stack, spec = getattr(packed, name), getattr(packed.spec, name)
        if isinstance(stack, Stack) and all(can_pack(block) for block in stack.blocks):
            setattr(packed, name, PackedStack(stack, spec, precision))
    if isinstance(packed.head, Vocabulary):
        packed.head = PackedHead(packed.head, packed.table_VD, precision)
    return packed


def can_pack(block: nn.Module) -> bool:
    assert isinstance(block, Block)
    inners = [branch.inner for branch in (block.attention, block.cross, block.feedforward) if branch is not None]
    return all(type(inner) in (Attention, FeedForward) and getattr(inner, "score", None) is None for inner in inners)


class PackedStack(nn.Module):
    """Called as `Stack` is; it asks the stack what each block may see, and runs the blocks itself."""

    def __init__(self, stack: Stack, s: S.Stack, precision: Precision) -> None:
        super().__init__()
        blocks = [PackedBlock(block, own, precision) for block, own in zip(stack.blocks, s.blocks, strict=True)]   # type: ignore[arg-type]
        stack.blocks = nn.ModuleList()
        self.stack, self.which = stack, stack.which
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.run = torch.jit.freeze(torch.jit.script(Blocks(blocks, stack.norm).eval()), preserved_attrs=["remember"])

    def forward(self, sequence: Sequence, memory: Sequence | None = None, cache: Cache | None = None) -> Sequence:
        views, dtype, held = self.stack.views(sequence, cache), sequence.x_BLD.dtype, [] if cache is None else cache.blocks
        masks = [None if v.mask is None else v.mask if v.mask.dtype == torch.bool else v.mask.to(dtype) for v in views]
        turns = [(None, None) if v.angles is None else (v.angles[0].to(dtype), v.angles[1].to(dtype)) for v in views]
        starts = [block.make_room()[0] for block in held] or [0] * len(self.which)
        across = None if memory is None else look_across(sequence, memory).mask
        kept: list[list[Tensor]] = []
        with optimized_execution(False):             # shapes change at every step: nothing to gain by studying them
            if memory is not None:
                kept = [list(block.memory) for block in held if block.memory is not None] or self.run.remember(memory.x_BLD)
                for block, own in zip(held, kept, strict=False):
                    block.remember(*own)
            x_BLD = self.run(sequence.x_BLD, [block.keys_BGMK for block in held], [block.values_BGMK for block in held], starts,
                             [masks[i] for i in self.which], [views[i].causal for i in self.which],
                             [turns[i][0] for i in self.which], [turns[i][1] for i in self.which], kept, across)
        return sequence._replace(x_BLD=x_BLD)


class PackedHead(nn.Module):
    def __init__(self, head: Vocabulary, table_VD: Tensor, precision: Precision) -> None:
        super().__init__()
        self.transform, self.scale, self.softcap = head.transform, head.scale, head.softcap
        self.out = lay(precision, table_VD if head.out is None else head.out.weight, head.bias)

    def forward(self, sequence: Sequence, table_VD: Tensor) -> Tensor:
        x_BLD = self.transform(sequence.x_BLD)
        logits_BLV: Tensor = self.out(x_BLD if self.scale == 1 else x_BLD * self.scale)
        return logits_BLV if self.softcap is None else cap(logits_BLV, self.softcap)
