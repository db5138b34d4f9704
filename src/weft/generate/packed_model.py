"""Models packed for decoding on a CPU: linear maps packed once, stacks run without Python between their steps. The slow twin is the
model itself."""

import copy
import warnings

import torch
from torch import Tensor, nn
from torch.jit._fuser import optimized_execution

from .. import spec as S
from ..kernels.attention import apply_softcap
from ..kernels.packed_linear import Precision, pack_linear
from ..layers.attention import AttentionLayer
from ..layers.feedforward import FeedForward
from ..layers.norms import RMSNormLayer
from ..layers.sequence import HiddenStates
from ..model.block import BranchLayer
from ..model.cache import KVCache
from ..model.heads import LMHeadLayer
from ..model.model import Model
from ..model.stack import StackLayer, cross_context
from .packed_stack import PackedBlock, PackedBlocks


def pack_model(model: Model, precision: Precision = "fp32") -> Model:
    """Return a copy for inference. fp32 gives the numbers of the model; bf16 rounds everything to eight bits of mantissa; int8
    quantises the rows of each map, and its inputs, to 255 steps of their largest number, and keeps the rest in float32."""
    if precision == "int8" and "fbgemm" not in torch.backends.quantized.supported_engines:
        raise ValueError("this build of torch has no int8 maps (fbgemm); take bf16 or fp32")
    if model.token_embedding_VD.device.type != "cpu":
        raise ValueError(
            f"packing is for the CPU, and the model is on {model.token_embedding_VD.device}"
        )
    packed = (
        copy.deepcopy(model)
        .to(torch.bfloat16 if precision == "bf16" else torch.float32)
        .eval()
        .requires_grad_(False)
    )
    for name in ("encoder", "decoder"):
        stack, spec = getattr(packed, name), getattr(packed.spec, name)
        if type(stack) is StackLayer and can_pack(stack):  # a user's stack computes something else
            setattr(packed, name, PackedStack(stack, spec, precision))
    if type(packed.head) is LMHeadLayer:
        packed.head = PackedHead(packed.head, packed.token_embedding_VD, precision)
    return packed


def can_pack(stack: StackLayer) -> bool:
    """Return whether `packed_stack` supports every part of a stack; a stack with a user-defined norm or layer stays as it is."""
    if stack.layer_combination is not None:
        return False
    norms = [stack.norm]
    for branch in stack.modules():
        if not isinstance(branch, BranchLayer):
            continue
        inner = branch.inner
        if type(inner) not in (AttentionLayer, FeedForward):
            return False
        norms += [branch.before, branch.out, branch.after]
        if isinstance(inner, AttentionLayer):
            if inner.position_bias is not None:
                return False
            norms += [inner.query_norm, inner.key_norm]
    return all(type(norm) in (nn.Identity, nn.LayerNorm, RMSNormLayer) for norm in norms)


class PackedStack(nn.Module):
    """A stack that is called as `StackLayer` is: it takes the attention contexts from it, and runs the packed blocks."""

    def __init__(self, stack: StackLayer, spec: S.Stack, precision: Precision) -> None:
        super().__init__()
        blocks = [
            PackedBlock(block, block_spec, precision)  # type: ignore[arg-type]
            for block, block_spec in zip(stack.blocks, spec.blocks, strict=True)
        ]
        stack.blocks = nn.ModuleList()
        self.stack, self.which = stack, stack.context_of_block
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.run = torch.jit.freeze(
                torch.jit.script(PackedBlocks(blocks, stack.norm).eval()),
                preserved_attrs=["remember"],
            )

    def forward(
        self,
        sequence: HiddenStates,
        memory: HiddenStates | None = None,
        cache: KVCache | None = None,
    ) -> HiddenStates:
        views, dtype, layer_caches = (
            self.stack.build_contexts(sequence, cache),
            sequence.x_BLD.dtype,
            [] if cache is None else cache.blocks,
        )
        masks = [
            None if v.mask is None else v.mask if v.mask.dtype == torch.bool else v.mask.to(dtype)
            for v in views
        ]
        turns = [
            (None, None)
            if v.rope_angles is None
            else (v.rope_angles[0].to(dtype), v.rope_angles[1].to(dtype))
            for v in views
        ]
        starts = [block.make_room()[0] for block in layer_caches] or [0] * len(self.which)
        across = None if memory is None else cross_context(sequence, memory).mask
        cross_keys_values: list[list[Tensor]] = []
        with optimized_execution(
            False
        ):  # shapes change at every step: nothing to gain by studying them
            if memory is not None:
                cross_keys_values = [
                    list(block.memory) for block in layer_caches if block.memory is not None
                ] or self.run.remember(memory.x_BLD)
                for block, keys_values in zip(layer_caches, cross_keys_values, strict=False):
                    block.remember(*keys_values)
            x_BLD = self.run(
                sequence.x_BLD,
                [block.keys_BGMK for block in layer_caches],
                [block.values_BGMK for block in layer_caches],
                starts,
                [masks[i] for i in self.which],
                [views[i].causal for i in self.which],
                [turns[i][0] for i in self.which],
                [turns[i][1] for i in self.which],
                cross_keys_values,
                across,
            )
        return sequence._replace(x_BLD=x_BLD)


class PackedHead(nn.Module):
    def __init__(self, head: LMHeadLayer, table_VD: Tensor, precision: Precision) -> None:
        super().__init__()
        self.transform, self.scale, self.softcap = head.transform, head.scale, head.softcap
        self.out = pack_linear(
            precision, table_VD if head.out is None else head.out.weight, head.bias
        )

    def forward(self, sequence: HiddenStates, table_VD: Tensor) -> Tensor:
        x_BLD = self.transform(sequence.x_BLD)
        logits_BLV: Tensor = self.out(x_BLD if self.scale == 1 else x_BLD * self.scale)
        return logits_BLV if self.softcap is None else apply_softcap(logits_BLV, self.softcap)
