"""Residual branches and the two types of blocks."""

from torch import Tensor, nn

from .. import spec as S
from ..support.registry import implementation
from .cache import LayerCache
from .kernels.keyed_random import use_keys
from .layers.attention import AttentionContext
from .layers.dropout import Dropout, DropPath
from .layers.norms import LayerScaleLayer, build_norm
from .layers.roles import with_scope


class BranchLayer(nn.Module):
    """x <- after(x * residual_scale + drop(layer_scale * out(inner(before(x))))): the only place
    that positions norms.
    """

    def __init__(self, spec: S.Branch, width: int) -> None:
        super().__init__()
        self.before = build_norm(spec.before, width)
        self.out = build_norm(spec.out, width)
        self.after = build_norm(spec.after, width)
        self.inner: nn.Module = implementation(spec.inner)(spec.inner, width)
        self.residual_scale = spec.residual_scale
        self.drop = Dropout(spec.dropout)
        self.layer_scale = (
            LayerScaleLayer(spec.layer_scale, width) if spec.layer_scale else nn.Identity()
        )
        self.drop_path = DropPath(spec.drop_path) if spec.drop_path else nn.Identity()
        with_scope(self, init_gain=spec.init_gain)

    def update(self, x_BLD: Tensor, *looks: object) -> Tensor:
        y_BLD = self.out(self.inner(self.before(x_BLD), *looks))
        update_BLD: Tensor = self.drop_path(self.drop(self.layer_scale(y_BLD)))
        return update_BLD

    def forward(self, x_BLD: Tensor, *looks: object) -> Tensor:
        kept_BLD = x_BLD if self.residual_scale == 1 else x_BLD * self.residual_scale
        y_BLD: Tensor = self.after(kept_BLD + self.update(x_BLD, *looks))
        return y_BLD


class BlockLayer(nn.Module):
    """A block: the unit of activation checkpointing, compilation and sharding."""

    def __init__(self, spec: S.Block | S.ParallelBlock, width: int) -> None:
        super().__init__()
        self.parallel = isinstance(spec, S.ParallelBlock)
        self.attention = BranchLayer(spec.attention, width)
        self.cross_attention = (
            BranchLayer(spec.cross_attention, width)
            if isinstance(spec, S.Block) and spec.cross_attention is not None
            else None
        )
        self.feedforward = BranchLayer(spec.feedforward, width)
        with_scope(self, inside_block=True)

    @property
    def branches(self) -> int:
        """The number of residual branches."""
        return 2 if self.cross_attention is None else 3

    def forward(
        self,
        x_BLD: Tensor,
        context: AttentionContext,
        memory_BMD: Tensor | None = None,
        cross_context: AttentionContext | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        with use_keys(context.keys):
            if self.parallel:
                attended_BLD = self.attention.update(x_BLD, None, context, cache)
                return x_BLD + attended_BLD + self.feedforward.update(x_BLD)
            x_BLD = self.attention(x_BLD, None, context, cache)
            if self.cross_attention is not None:
                x_BLD = self.cross_attention(x_BLD, memory_BMD, cross_context, cache)
            y_BLD: Tensor = self.feedforward(x_BLD)
            return y_BLD
