"""Stacks of blocks. Blocks with the same attention pattern share one attention context per forward
pass.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from .. import spec as S
from ..spec.attention import head_dims
from ..support.registry import named
from .block import BlockLayer
from .cache import KVCache
from .kernels.attention import PatternBackend, add_position_bias, sdpa_attention
from .kernels.document_attention import per_document_attention
from .kernels.masks import FULL, CausalMask, Positions, build_mask, pattern_mask
from .layers.attention import AttentionContext
from .layers.images.object_queries import apply_mlp, two_layers
from .layers.norms import build_norm
from .layers.positions import build_position_bias, rope_angles
from .layers.roles import Role, with_role, with_scope
from .layers.sequence import HiddenStates, sequence_keys


def token_positions(sequence: HiddenStates) -> Tensor:
    if sequence.position_BL is not None:
        return sequence.position_BL
    return torch.arange(sequence.x_BLD.shape[1], device=sequence.x_BLD.device)[None]


def self_positions(sequence: HiddenStates, cache: KVCache | None) -> Positions:
    position_BL = token_positions(sequence)
    if cache is None:
        return Positions(
            position_BL,
            position_BL,
            sequence.attention_mask_BL,
            sequence.document_ids_BL,
            sequence.document_ids_BL,
            first_query_slot=0 if sequence.position_BL is None else None,
        )
    end = cache.length
    L = position_BL.shape[1]
    if not cache.padded:
        return Positions(position_BL, cache.position_BM[:, :end], first_query_slot=end - L)
    # padding between a prompt and later tokens makes slots and positions differ
    return Positions(
        position_BL,
        cache.position_BM[:, :end],
        cache.attention_mask_BM[:, :end],
        first_query_slot=0 if end == L else None,
    )


class LayerCombination(nn.Module):
    """The learned combination of all earlier layers' normed outputs, which the next block reads
    (Wang et al. 2019, arXiv:1906.01787, equation 9).
    """

    def __init__(self, spec: S.DLCL, blocks: int, width: int) -> None:
        super().__init__()
        layers = range(1, blocks + 2)
        self.norms = nn.ModuleList(build_norm(spec.norm, width) for _ in layers)
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(count)) for count in layers)
        with_role(
            self.weights,
            Role.NORM,  # gains, without weight decay
            initialised_as=Role.MATRIX,
            formula=lambda weight_N, _: weight_N.fill_(1 / len(weight_N)),
        )

    def forward(self, outputs: list[Tensor]) -> Tensor:
        weight_N: Tensor = self.weights[len(outputs) - 1].to(outputs[0].dtype)
        x_BLD = weight_N[0] * outputs[0]
        for weight, y_BLD in zip(weight_N[1:], outputs[1:], strict=True):
            x_BLD = torch.addcmul(x_BLD, weight, y_BLD)
        return x_BLD


class StackLayer(nn.Module):
    def __init__(self, spec: S.Stack, width: int, layers: tuple[int, ...] = ()) -> None:
        """`layers`: the layers whose outputs are returned in addition to the last one's, numbered
        as in `S.LayerMix`.
        """
        super().__init__()
        self.blocks = nn.ModuleList(BlockLayer(b, width) for b in spec.blocks)
        self.layers = [i % (len(spec.blocks) + 1) for i in layers]
        inners = [b.attention.inner for b in spec.blocks]
        self.attentions = [a for a in inners if isinstance(a, S.Attention)]
        self.context_keys = list(dict.fromkeys(context_key(a) for a in self.attentions))
        self.context_of_block = [self.context_keys.index(context_key(a)) for a in self.attentions]
        self.patterns = [pattern_mask(a.pattern) for a in self.context_keys]
        self.backends: list[PatternBackend | None] = [
            named(PatternBackend, mask.backend) if mask.backend else None for mask in self.patterns
        ]
        self.width = width
        self.position_bias = build_position_bias(spec.position_bias, self.attentions[0].heads)
        self.position_scale = (
            two_layers(width, width, width) if spec.position_scale == "mlp" else None
        )
        self.layer_combination = (
            LayerCombination(spec.layer_combination, len(spec.blocks), width)
            if spec.layer_combination is not None
            else None
        )
        self.norm = build_norm(spec.norm, width)
        with_scope(self, residual_branches=count_branches(self))
        self.attention_mask_BL: Tensor | None = None  # of the newest forward, for routers' losses
        self.document_ids_BL: Tensor | None = None

    def in_order(self) -> list[nn.Module]:
        """The blocks from the input to the output."""
        return list(self.blocks)

    def forward(
        self,
        sequence: HiddenStates,
        memory: HiddenStates | None = None,
        cache: KVCache | None = None,
    ) -> HiddenStates:
        self.attention_mask_BL = sequence.attention_mask_BL
        self.document_ids_BL = sequence.document_ids_BL
        split = self.reads_long_rows_in_parts
        contexts = self.build_contexts(sequence, cache, split=split)
        across = None
        if memory is not None:
            across = cross_context(sequence, memory, split=split, training=self.training)
        x_BLD = sequence.x_BLD
        earlier: list[Tensor] = []
        layer_outputs = {0: x_BLD} if 0 in self.layers else {}
        for i, block in enumerate(self.blocks):
            x_BLD = self.combine(earlier, x_BLD)
            x_BLD = block(
                x_BLD,
                self.scale_position(x_BLD, contexts[self.context_of_block[i]]),
                None if memory is None else memory.x_BLD,
                across,
                None if cache is None else cache.blocks[i],
            )
            if i + 1 in self.layers:
                layer_outputs[i + 1] = x_BLD
        x_BLD = self.norm(self.combine(earlier, x_BLD))
        # The last layer's output is the stack's.
        if len(self.blocks) in layer_outputs:
            layer_outputs[len(self.blocks)] = x_BLD
        layers = tuple(layer_outputs[i] for i in self.layers)
        return replace(sequence, x_BLD=x_BLD, layer_outputs=layers)

    @property
    def reads_long_rows_in_parts(self) -> bool:
        """Return whether long rows may be split; a kernel that exposes attention weights needs
        whole rows.
        """
        return all(block.attention.inner.backend is sdpa_attention for block in self.blocks)  # type: ignore[union-attr]

    def combine(self, earlier: list[Tensor], x_BLD: Tensor) -> Tensor:
        """Return the next block's input, after the newest output is added to the earlier ones."""
        if self.layer_combination is None:
            return x_BLD
        earlier.append(self.layer_combination.norms[len(earlier)](x_BLD))
        combined: Tensor = self.layer_combination(earlier)
        return combined

    def scale_position(self, x_BLD: Tensor, context: AttentionContext) -> AttentionContext:
        """Return positions at queries and keys, scaled by the hidden vectors."""
        if self.position_scale is None or context.position_BLD is None:
            return context
        scale_BLD = apply_mlp(self.position_scale, x_BLD)
        return context._replace(position_BLD=context.position_BLD * scale_BLD)

    def positions(self, sequence: HiddenStates, cache: KVCache | None) -> Positions:
        return self_positions(sequence, cache)

    def build_contexts(
        self, sequence: HiddenStates, cache: KVCache | None, *, split: bool = False
    ) -> list[AttentionContext]:
        """`split`: whether long rows are computed in parts."""
        positions = self.positions(sequence, cache)
        keys = sequence_keys(sequence) if self.training else None
        contexts = []
        for a, pattern, backend in zip(
            self.context_keys, self.patterns, self.backends, strict=True
        ):
            # A window has dropped the tokens that it cannot attend to.
            begin = 0 if cache is None else cache.first_slot(a.pattern)
            seen = positions.from_key(begin) if begin else positions
            biased = self.position_bias is not None or a.position_bias is not None
            parts = backend(pattern, seen, biased) if split and backend is not None else None
            mask = None
            causal = isinstance(pattern, CausalMask)
            if parts is None:
                mask, causal = build_mask(pattern, seen, triangle=not biased)
            else:
                # A position bias is then that of one part.
                seen = getattr(parts, "pair", seen)
            if self.position_bias is not None:
                mask = add_position_bias(self.position_bias(seen), mask)
            angles = None
            if a.rope is not None:
                dtype = sequence.x_BLD.dtype
                angles = rope_angles(
                    a.rope,
                    positions.query_BL,
                    head_dims(a, self.width)[0],
                    dtype if dtype == torch.float64 else torch.float32,
                )
            context = AttentionContext(
                seen,
                mask,
                causal,
                rope_angles=angles,
                position_BLD=sequence.query_key_position_BLD,
                grid=sequence.grid,
                keys=keys,
                split_backend=parts,
            )
            contexts.append(context)
        return contexts


def context_key(a: S.Attention) -> S.Attention:
    """Return the fields of an attention that decide its context."""
    return S.Attention(
        heads=a.heads,
        head_dim=a.head_dim,
        pattern=a.pattern,
        rope=a.rope,
        position_bias=a.position_bias,
    )


def cross_context(
    sequence: HiddenStates, memory: HiddenStates, *, split: bool = False, training: bool = False
) -> AttentionContext:
    positions = Positions(
        token_positions(sequence),
        token_positions(memory),
        memory.attention_mask_BL,
        sequence.document_ids_BL,
        memory.document_ids_BL,
    )
    parts = per_document_attention(FULL, positions) if split else None
    mask = None if parts is not None else build_mask(FULL, positions, triangle=False)[0]
    keys = sequence_keys(sequence, memory) if training else None
    return AttentionContext(
        positions,
        mask,
        position_BLD=sequence.query_key_position_BLD,
        memory_position_BMD=memory.query_key_position_BLD,
        keys=keys,
        split_backend=parts,
    )


class PatchMerging(nn.Module):
    """Merge 2×2 neighbours into one token of twice the width (Swin, section 3.1)."""

    def __init__(self, norm: S.Norm, width: int) -> None:
        super().__init__()
        self.norm = build_norm(norm, 4 * width)
        self.reduce = with_role(nn.Linear(4 * width, 2 * width, bias=False), Role.PROJECTION)

    def forward(self, sequence: HiddenStates) -> HiddenStates:
        assert sequence.grid is not None
        rows, columns = sequence.grid
        x = sequence.x_BLD.unflatten(1, (rows, columns))
        x = nn.functional.pad(x, (0, 0, 0, columns % 2, 0, rows % 2))
        x = torch.cat([x[:, r::2, c::2] for c in (0, 1) for r in (0, 1)], -1)
        return HiddenStates(self.reduce(self.norm(x.flatten(1, 2))), grid=(x.shape[1], x.shape[2]))


class PyramidLayer(nn.Module):
    def __init__(self, spec: S.Pyramid, width: int) -> None:
        super().__init__()
        plain = [
            StackLayer(S.Stack(blocks=stage), width << i) for i, stage in enumerate(spec.stages)
        ]
        self.stages = nn.ModuleList(stack.blocks for stack in plain)
        self.merges = nn.ModuleList(
            PatchMerging(spec.merge_norm, width << i) for i in range(len(spec.stages) - 1)
        )
        self.norm = build_norm(spec.norm, width << len(spec.stages) - 1)
        self.position_bias: nn.Module | None = None  # each window has its own
        with_scope(self, residual_branches=count_branches(self))

    def in_order(self) -> list[nn.Module]:
        """Blocks and merges from the input to the output."""
        merges = [[], *([merge] for merge in self.merges)]
        return [
            part
            for before, stage in zip(merges, self.stages, strict=True)
            for part in (*before, *stage.children())
        ]

    def forward(self, sequence: HiddenStates) -> HiddenStates:
        for i, stage in enumerate(self.stages):
            if i:
                sequence = self.merges[i - 1](sequence)
            attention_context = AttentionContext(
                self_positions(sequence, None),
                grid=sequence.grid,
                keys=sequence_keys(sequence) if self.training else None,
            )
            x_BLD = sequence.x_BLD
            for block in stage:  # type: ignore[attr-defined]
                x_BLD = block(x_BLD, attention_context)
            sequence = replace(sequence, x_BLD=x_BLD)
        return replace(sequence, x_BLD=self.norm(sequence.x_BLD))


def count_branches(stack: StackLayer | PyramidLayer) -> int:
    """Return the number of residual branches from input to output of a stack."""
    return sum(part.branches for part in stack.in_order() if isinstance(part, BlockLayer))


def declare_layers_above(inputs: list[nn.Module], stacks: list[StackLayer | PyramidLayer]) -> None:
    """Set, for every parameter, the number of blocks between it and the head."""
    parts = [part for stack in stacks for part in stack.in_order()]
    above = blocks = sum(isinstance(part, BlockLayer) for part in parts)
    for part in (
        *inputs,
        *(stack.position_bias for stack in stacks if stack.position_bias is not None),
    ):
        with_scope(part, layers_above=blocks)
    for part in parts:
        if isinstance(part, BlockLayer):
            above -= 1
        with_scope(part, layers_above=above)
