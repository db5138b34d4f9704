"""The residual equation, and the two ways to join branches."""
from torch import Tensor, nn

from .. import spec as S
from ..layers.attention import Attention, View
from ..layers.dropout import Dropout, SkipBranch
from ..layers.experts import Experts
from ..layers.feedforward import FeedForward
from ..layers.keyed import drawing
from ..layers.linformer import LinformerAttention
from ..layers.norm import LayerScale, build_norm
from ..layers.window import WindowAttention
from .cache import BlockCache


def build_inner(s: S.Inner, width: int) -> nn.Module:
    if isinstance(s, S.Attention):
        kinds: dict[type, type[Attention]] = {S.Windows: WindowAttention, S.Linformer: LinformerAttention}
        return kinds.get(type(s.pattern), Attention)(s, width)
    return Experts(s, width) if isinstance(s, S.Experts) else FeedForward(s, width)


class Branch(nn.Module):
    """x <- after(x * alpha + drop(layer_scale(out(inner(before(x)))))): the only place that knows where a norm sits."""

    def __init__(self, s: S.Branch, width: int) -> None:
        super().__init__()
        self.before, self.out, self.after = (build_norm(n, width) for n in (s.before, s.out, s.after))
        self.inner, self.alpha, self.drop = build_inner(s.inner, width), s.alpha, Dropout(s.dropout)
        self.layer_scale = LayerScale(width) if s.layer_scale else nn.Identity()
        self.skip = SkipBranch(s.skip) if s.skip else nn.Identity()

    def update(self, x_BLD: Tensor, *looks: object) -> Tensor:
        update_BLD: Tensor = self.skip(self.drop(self.layer_scale(self.out(self.inner(self.before(x_BLD), *looks)))))
        return update_BLD

    def forward(self, x_BLD: Tensor, *looks: object) -> Tensor:
        kept_BLD = x_BLD if self.alpha == 1 else x_BLD * self.alpha
        y_BLD: Tensor = self.after(kept_BLD + self.update(x_BLD, *looks))
        return y_BLD


class Block(nn.Module):
    """One unit of recomputation, compilation and sharding."""

    def __init__(self, s: S.Block | S.Parallel, width: int) -> None:
        super().__init__()
        self.parallel = isinstance(s, S.Parallel)
        self.attention = Branch(s.attention, width)
        self.cross = Branch(s.cross, width) if isinstance(s, S.Block) and s.cross is not None else None
        self.feedforward = Branch(s.feedforward, width)

    def forward(self, x_BLD: Tensor, view: View, memory_BMD: Tensor | None = None, across: View | None = None,
                cache: BlockCache | None = None) -> Tensor:
        with drawing(view.keys):
            if self.parallel:
                return x_BLD + self.attention.update(x_BLD, None, view, cache) + self.feedforward.update(x_BLD)
            x_BLD = self.attention(x_BLD, None, view, cache)
            if self.cross is not None:
                x_BLD = self.cross(x_BLD, memory_BMD, across, cache)
            y_BLD: Tensor = self.feedforward(x_BLD)
            return y_BLD
