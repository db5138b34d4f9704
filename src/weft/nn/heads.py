"""Head layers: from hidden vectors to logits, boxes or pixels."""

from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .kernels.attention import apply_softcap
from .layers.activations import ACTIVATIONS
from .layers.dropout import Dropout
from .layers.images.object_queries import ObjectStates, inverse_sigmoid
from .layers.norms import build_norm
from .layers.positions import SinusoidalTable
from .layers.roles import INPUT, Part, Role, head_linear, with_base_rate, with_role, with_scope
from .layers.sequence import HiddenStates
from .stack import StackLayer

RARE = 0.01  # the initial probability of a class with sigmoid scores


class Detections(NamedTuple):
    logits_BNV: Tensor  # classes; with softmax scores the last means no object
    boxes_BN4: Tensor  # centre x, y, width, height, as fractions of the image


class Pooled(NamedTuple):
    x_BLD: Tensor
    pooled_BD: Tensor | None


class HeadTransformLayer(nn.Module):
    def __init__(self, head: S.HeadTransform, width: int, out: int) -> None:
        super().__init__()
        self.dense = head_linear(width, out, head.bias)
        self.activation = ACTIVATIONS[head.activation]
        self.norm = build_norm(head.norm, out)
        with_scope(self, part=Part.HEAD_TRANSFORM)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.activation(self.dense(x)))
        return y


class HeadLayer(nn.Module):
    """Base of head layers, with an optional transform."""

    def __init__(self, transform: S.HeadTransform | None, width: int, out: int) -> None:
        super().__init__()
        self.transform = (
            HeadTransformLayer(transform, width, out) if transform is not None else nn.Identity()
        )


class LMHeadLayer(HeadLayer):
    def __init__(self, head: S.LMHead, spec: S.Spec) -> None:
        inner = spec.embedding_dim if head.transform is not None else spec.head_input_width
        super().__init__(head.transform, spec.head_input_width, inner)
        self.scale = head.logit_scale
        self.softcap = head.softcap
        size = spec.vocab_size
        self.out = None if head.tied else nn.Linear(inner, size, bias=False)
        if self.out is not None:
            with_role(self.out, Role.LM_HEAD, stream_dim=INPUT)
        self.bias = nn.Parameter(torch.empty(size)) if head.bias == "trained" else None
        with_role(self, Role.BIAS)
        if head.bias == "buffer":
            del self.bias
            self.register_buffer("bias", torch.empty(size))

    def forward(self, sequence: HiddenStates, table_VD: Tensor) -> Tensor:
        x_BLD = self.transform(sequence.x_BLD)
        if self.scale != 1:
            x_BLD = x_BLD * self.scale
        logits_BLV = F.linear(x_BLD, table_VD if self.out is None else self.out.weight, self.bias)
        return logits_BLV if self.softcap is None else apply_softcap(logits_BLV, self.softcap)


class ClassifierHeadLayer(HeadLayer):
    def __init__(self, head: S.ClassifierHead, spec: S.Spec) -> None:
        width = spec.head_input_width
        super().__init__(head.transform, width, width)
        self.pool = head.pooling
        self.drop = Dropout(head.dropout)
        self.score = head_linear(width, 1) if head.pooling == "sequence" else None
        num_layers = (
            len(spec.source.extra_tokens)
            if head.pooling == "tokens" and isinstance(spec.source, S.Patches)
            else 0
        )
        self.out = (
            nn.ModuleList(head_linear(width, head.num_labels, head.bias) for _ in range(num_layers))
            if num_layers
            else head_linear(width, head.num_labels, head.bias)
        )

    def forward(self, sequence: HiddenStates) -> Tensor:
        if isinstance(self.out, nn.ModuleList):
            each = self.per_token_logits(sequence)
            return torch.stack(each).mean(0)
        pooled_BD = (
            pool_tokens(sequence, self.pool)
            if self.score is None
            else pool_by_score(sequence, self.score(sequence.x_BLD))
        )
        logits: Tensor = self.out(self.drop(self.transform(pooled_BD)))
        return logits

    def per_token_logits(self, sequence: HiddenStates) -> list[Tensor]:
        """Return the logits of each extra token: DeiT trains the class token on labels and the
        distillation token on a teacher.
        """
        assert isinstance(self.out, nn.ModuleList)
        return [
            out(self.drop(self.transform(sequence.x_BLD[:, i]))) for i, out in enumerate(self.out)
        ]


def pool_tokens(sequence: HiddenStates, pooling: str) -> Tensor:
    """Pool one vector per sequence: the mean or maximum, first or last of tokens that are not
    padding.
    """
    x_BLD = sequence.x_BLD
    mask_BL = sequence.attention_mask_BL
    if pooling == "max":
        return (
            x_BLD if mask_BL is None else x_BLD.masked_fill(~mask_BL[..., None], float("-inf"))
        ).amax(1)
    if mask_BL is None:
        if pooling == "mean":
            return x_BLD.mean(1)
        return x_BLD[:, 0] if pooling == "cls" else x_BLD[:, -1]
    if pooling == "mean":
        return (x_BLD * mask_BL[..., None]).sum(1) / mask_BL.sum(1, keepdim=True).clamp(min=1).to(
            x_BLD.dtype
        )
    slot_L = torch.arange(x_BLD.shape[1], device=x_BLD.device)
    at_B = mask_BL.long().argmax(1) if pooling == "cls" else (mask_BL * slot_L).argmax(1)
    return x_BLD[torch.arange(len(x_BLD), device=x_BLD.device), at_B]


def pool_by_score(sequence: HiddenStates, score_BL1: Tensor) -> Tensor:
    """Pool the mean of tokens that are not padding, weighted by the softmax of their scores."""
    if sequence.attention_mask_BL is not None:
        score_BL1 = score_BL1.masked_fill(~sequence.attention_mask_BL[..., None], float("-inf"))
    return (score_BL1.softmax(1).mT @ sequence.x_BLD)[:, 0]


class TokenClassifierHeadLayer(HeadLayer):
    """Scores per token: tags, or start and end (`SpanHead`)."""

    def __init__(self, head: S.TokenClassifierHead | S.SpanHead, spec: S.Spec) -> None:
        width = spec.head_input_width
        super().__init__(head.transform, width, width)
        outputs, rate = (
            (head.num_labels, head.dropout) if isinstance(head, S.TokenClassifierHead) else (2, 0.0)
        )
        self.drop = Dropout(rate)
        self.out = head_linear(width, outputs)

    def forward(self, sequence: HiddenStates) -> Tensor:
        logits: Tensor = self.out(
            self.drop(self.transform(sequence.x_BLD), sequence.document_ids_BL)
        )
        return logits


class DetectionHeadLayer(nn.Module):
    def __init__(self, head: S.DetectionHead, spec: S.Spec) -> None:
        super().__init__()
        width = spec.head_input_width
        self.classes = head_linear(width, head.num_scores)
        self.box = nn.ModuleList(
            head_linear(width, width if i < head.box_layers - 1 else 4)
            for i in range(head.box_layers)
        )
        if head.scores == "sigmoid":  # all classes start rare (arXiv:1708.02002, section 3.3)
            with_base_rate(self.classes, RARE)
        if isinstance(spec.target, S.AnchorQueries):  # boxes start as their anchors
            with_role(self.box[-1], Role.HEAD, "weight", initial=0.0)

    def box_offset(self, x_BND: Tensor) -> Tensor:
        """Return the logits of boxes, to be added to those of anchors if there are any."""
        for layer in self.box[:-1]:
            x_BND = layer(x_BND).relu()
        logits_BN4: Tensor = self.box[-1](x_BND)
        return logits_BN4

    def forward(self, sequence: HiddenStates) -> Detections:
        boxes_BN4 = self.box_offset(sequence.x_BLD)
        if isinstance(sequence, ObjectStates) and sequence.anchor_BN4 is not None:
            boxes_BN4 = boxes_BN4 + inverse_sigmoid(sequence.anchor_BN4)
        return Detections(self.classes(sequence.x_BLD), boxes_BN4.sigmoid())


class PixelDecoderLayer(nn.Module):
    """A light decoder of visible patches at their positions and one learned mask vector
    elsewhere.
    """

    def __init__(self, head: S.PixelDecoder, spec: S.Spec) -> None:
        super().__init__()
        assert isinstance(spec.source, S.Patches)
        side = spec.source.image_size // spec.source.patch_size
        self.cells = side**2
        self.extras = len(spec.source.extra_tokens)
        self.narrow = head_linear(spec.width, head.width)
        self.mask = nn.Parameter(torch.empty(head.width))
        with_role(self, Role.TABLE)  # the mask token
        self.positions = with_role(
            nn.Embedding(self.cells + self.extras, head.width),
            Role.POSITION,
            formula=SinusoidalTable(side, self.extras),
        )
        self.positions.weight.requires_grad_(False)
        self.stack = StackLayer(head.stack, head.width)
        self.out = head_linear(head.width, spec.source.channels * spec.source.patch_size**2)

    def forward(self, sequence: HiddenStates) -> Tensor:
        x_BSD = self.narrow(sequence.x_BLD)
        if sequence.position_BL is not None:
            canvas_BLD = self.mask.to(x_BSD.dtype).expand(len(x_BSD), self.cells + self.extras, -1)
            x_BSD = canvas_BLD.scatter(1, sequence.position_BL[..., None].expand_as(x_BSD), x_BSD)
        rebuilt: Tensor = self.out(self.stack(HiddenStates(x_BSD + self.positions.weight)).x_BLD)
        return rebuilt[:, self.extras :]


class NoHeadLayer(HeadLayer):
    def __init__(self, head: S.NoHead, spec: S.Spec) -> None:
        super().__init__(head.transform, spec.head_input_width, spec.head_input_width)
        self.pools = head.transform is not None

    def forward(self, sequence: HiddenStates) -> Pooled:
        return Pooled(
            sequence.x_BLD, self.transform(pool_tokens(sequence, "cls")) if self.pools else None
        )


class LayerMixLayer(nn.Module):
    """Combine the outputs of several layers into one vector per token."""

    def __init__(self, spec: S.LayerMix) -> None:
        super().__init__()
        self.combine = spec.combine
        self.weight = (
            nn.Parameter(torch.empty(len(spec.layers))) if spec.combine == "weighted" else None
        )
        with_role(self, Role.HEAD, initial=0.0)  # equal weights
        with_scope(self, part=Part.LAYER_MIX)

    def forward(self, sequence: HiddenStates) -> HiddenStates:
        if self.combine == "concat":
            x_BLD = torch.cat(sequence.layer_outputs, -1)
            return replace(sequence, x_BLD=x_BLD, layer_outputs=())
        each_BLDS = torch.stack(sequence.layer_outputs, -1)
        x_BLD = (
            each_BLDS.sum(-1)
            if self.weight is None
            else each_BLDS @ self.weight.softmax(0).to(each_BLDS.dtype)
        )
        return replace(sequence, x_BLD=x_BLD, layer_outputs=())
