"""Heads: from vectors to what is asked."""
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from ..count import out_width, table_width, vocabulary
from ..layers.dropout import Dropout
from ..layers.norm import ACTIVATIONS, build_norm, cap
from ..layers.roles import Role, with_role
from ..layers.sequence import Sequence
from .stack import Stack


class Detected(NamedTuple):
    logits_BNV: Tensor                     # classes, the last: no object
    boxes_BN4: Tensor                      # centre x, y, width, height, as shares of the image


class Pooled(NamedTuple):
    x_BLD: Tensor
    pooled_BD: Tensor | None


class Transform(nn.Module):
    def __init__(self, s: S.Transform, width: int, out: int) -> None:
        super().__init__()
        self.dense, self.activation = nn.Linear(width, out, bias=s.bias), ACTIVATIONS[s.activation]
        self.norm = build_norm(s.norm, out)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.activation(self.dense(x)))
        return y


class Head(nn.Module):
    """What all heads share: an optional transform."""

    def __init__(self, transform: S.Transform | None, width: int, out: int) -> None:
        super().__init__()
        self.transform = Transform(transform, width, out) if transform is not None else nn.Identity()


class Vocabulary(Head):
    def __init__(self, s: S.Vocabulary, m: S.Model) -> None:
        inner = table_width(m) if s.transform is not None else out_width(m)
        super().__init__(s.transform, out_width(m), inner)
        self.scale, self.softcap, size = s.scale, s.softcap, vocabulary(m)
        self.out = None if s.tied else nn.Linear(inner, size, bias=False)
        self.bias = nn.Parameter(torch.empty(size)) if s.bias == "trained" else None
        if s.bias == "stored":
            del self.bias
            self.register_buffer("bias", torch.empty(size))

    def forward(self, sequence: Sequence, table_VD: Tensor) -> Tensor:
        x_BLD = self.transform(sequence.x_BLD)
        if self.scale != 1:
            x_BLD = x_BLD * self.scale
        logits_BLV = F.linear(x_BLD, table_VD if self.out is None else self.out.weight, self.bias)
        return logits_BLV if self.softcap is None else cap(logits_BLV, self.softcap)


class Classes(Head):
    def __init__(self, s: S.Classes, m: S.Model) -> None:
        width = out_width(m)
        super().__init__(s.transform, width, width)
        self.pool, self.drop = s.pool, Dropout(s.dropout)
        many = len(m.source.tokens) if s.pool == "tokens" and isinstance(m.source, S.Patches) else 0
        self.out = nn.ModuleList(nn.Linear(width, s.outputs, bias=s.bias) for _ in range(many)) if many else \
            nn.Linear(width, s.outputs, bias=s.bias)

    def forward(self, sequence: Sequence) -> Tensor:
        if isinstance(self.out, nn.ModuleList):
            each = self.apart(sequence)
            return torch.stack(each).mean(0)
        logits: Tensor = self.out(self.drop(self.transform(pool(sequence, self.pool))))
        return logits

    def apart(self, sequence: Sequence) -> list[Tensor]:
        """One answer a token: DeiT trains the class token on labels, the distillation token on a teacher."""
        assert isinstance(self.out, nn.ModuleList)
        return [out(self.drop(self.transform(sequence.x_BLD[:, i]))) for i, out in enumerate(self.out)]


def pool(sequence: Sequence, how: str) -> Tensor:
    """One vector a sequence, of the tokens that are kept: their mean or maximum, or the first or last of them."""
    x_BLD, keep_BL = sequence.x_BLD, sequence.keep_BL
    if how == "max":
        return (x_BLD if keep_BL is None else x_BLD.masked_fill((keep_BL == 0)[..., None], float("-inf"))).amax(1)
    if keep_BL is None:
        return x_BLD.mean(1) if how == "mean" else x_BLD[:, 0 if how == "first" else -1]
    kept_BL = keep_BL != 0
    if how == "mean":
        return (x_BLD * kept_BL[..., None]).sum(1) / kept_BL.sum(1, keepdim=True).clamp(min=1).to(x_BLD.dtype)
    slot_L = torch.arange(x_BLD.shape[1], device=x_BLD.device)
    at_B = kept_BL.long().argmax(1) if how == "first" else (kept_BL * slot_L).argmax(1)
    return x_BLD[torch.arange(len(x_BLD), device=x_BLD.device), at_B]


class Tags(Head):
    """At every position: tags, or start and end (`Spans`)."""

    def __init__(self, s: S.Tags | S.Spans, m: S.Model) -> None:
        width = out_width(m)
        super().__init__(s.transform, width, width)
        outputs, rate = (s.outputs, s.dropout) if isinstance(s, S.Tags) else (2, 0.0)
        self.drop, self.out = Dropout(rate), nn.Linear(width, outputs)

    def forward(self, sequence: Sequence) -> Tensor:
        logits: Tensor = self.out(self.drop(self.transform(sequence.x_BLD), sequence.keep_BL))
        return logits


class Boxes(nn.Module):
    def __init__(self, s: S.Boxes, m: S.Model) -> None:
        super().__init__()
        width = out_width(m)
        self.classes = nn.Linear(width, s.classes + 1)
        self.box = nn.ModuleList(nn.Linear(width, width if i < s.layers - 1 else 4) for i in range(s.layers))

    def forward(self, sequence: Sequence) -> Detected:
        h = sequence.x_BLD
        for layer in self.box[:-1]:
            h = layer(h).relu()
        return Detected(self.classes(sequence.x_BLD), self.box[-1](h).sigmoid())


class Pixels(nn.Module):
    """The canvas: visible patches at their places, one learned vector everywhere else; then a light stack."""

    def __init__(self, s: S.Pixels, m: S.Model) -> None:
        super().__init__()
        assert isinstance(m.source, S.Patches)
        self.cells, self.extras = (m.source.image // m.source.patch) ** 2, len(m.source.tokens)
        self.narrow = nn.Linear(m.width, s.width)
        self.mask = nn.Parameter(torch.empty(s.width))
        with_role(self, Role.TABLE)        # the mask token
        self.positions = with_role(nn.Embedding(self.cells + self.extras, s.width), Role.POSITION)
        self.positions.weight.requires_grad_(False)
        self.stack = Stack(s.stack, s.width)
        self.out = nn.Linear(s.width, m.source.channels * m.source.patch ** 2)

    def forward(self, sequence: Sequence) -> Tensor:
        x_BSD = self.narrow(sequence.x_BLD)
        if sequence.position_BL is not None:
            canvas_BLD = self.mask.to(x_BSD.dtype).expand(len(x_BSD), self.cells + self.extras, -1)
            x_BSD = canvas_BLD.scatter(1, sequence.position_BL[..., None].expand_as(x_BSD), x_BSD)
        rebuilt: Tensor = self.out(self.stack(Sequence(x_BSD + self.positions.weight)).x_BLD)
        return rebuilt[:, self.extras:]


class Features(Head):
    def __init__(self, s: S.Features, m: S.Model) -> None:
        super().__init__(s.transform, out_width(m), out_width(m))
        self.pools = s.transform is not None

    def forward(self, sequence: Sequence) -> Pooled:
        return Pooled(sequence.x_BLD, self.transform(pool(sequence, "first")) if self.pools else None)


class Layers(nn.Module):
    """One vector per token from those of several layers."""

    def __init__(self, s: S.Layers) -> None:
        super().__init__()
        self.combine = s.combine
        self.weight = nn.Parameter(torch.empty(len(s.layers))) if s.combine == "weighted" else None

    def forward(self, sequence: Sequence) -> Sequence:
        if self.combine == "concat":
            return sequence._replace(x_BLD=torch.cat(sequence.layers, -1), layers=())
        each_BLDS = torch.stack(sequence.layers, -1)
        x_BLD = each_BLDS.sum(-1) if self.weight is None else each_BLDS @ self.weight.softmax(0).to(each_BLDS.dtype)
        return sequence._replace(x_BLD=x_BLD, layers=())


def build_head(m: S.Model) -> nn.Module:
    kinds: dict[type, type] = {S.Vocabulary: Vocabulary, S.Classes: Classes, S.Tags: Tags, S.Spans: Tags, S.Boxes: Boxes, S.Pixels: Pixels,
                              S.Features: Features}
    head: nn.Module = kinds[type(m.head)](m.head, m)
    return head
