"""A model: four verbs and no loss."""
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .. import spec as S
from ..count import table_width
from ..layers import embed
from ..layers.sequence import Sequence
from .cache import Cache
from .head import Detected, Layers, Pooled, build_head
from .stack import Pyramid, Stack
from .start import initialise

Output = Tensor | Detected | Pooled


class Model(nn.Module):
    """embed -> encode and/or decode -> read. A tied head reads the embedding's own table: there is no second copy."""

    def __init__(self, s: S.Model) -> None:
        super().__init__()
        self.spec = s
        self.family: str | None = None     # whose published names it came with, and from where: `interop.folder`
        self.origin: Path | None = None
        self.source = build_source(s)
        self.target: nn.Module | None = None
        if isinstance(s.target, S.Queries):
            self.target = embed.Queries(s.target, s.width)
        elif s.target is not None:
            self.target = embed.Tokens(s.target, table_width(s), s.width)
        read = s.features.layers if s.features is not None else ()     # from the stack that the head reads
        self.encoder = Pyramid(s.encoder, s.width) if isinstance(s.encoder, S.Pyramid) else \
            Stack(s.encoder, s.width, () if s.decoder else read) if s.encoder else None
        self.decoder = Stack(s.decoder, s.width, read) if s.decoder else None
        self.features = Layers(s.features) if s.features is not None else None
        self.head = build_head(s)

    @property
    def table_VD(self) -> Tensor:
        """The token table that the decoder reads and a tied head writes."""
        owner = self.target if isinstance(self.spec.target, S.Tokens) else self.source
        weight = owner.tokens.weight  # type: ignore[union-attr]
        assert isinstance(weight, Tensor)
        return weight

    def embed(self, inputs: Tensor, *, keep: Tensor | None = None, segments: Tensor | None = None,
              cache: Cache | None = None) -> Sequence:
        """Ids (B, L) or images (B, C, rows, columns) of the source. `keep`: see `Sequence`; for a backbone, pixels."""
        if isinstance(self.source, embed.Tokens):
            position = None if cache is None else cache.place(inputs.shape[1], keep)
            assert self.source.tokens is not None
            found: Sequence = self.source(inputs, self.source.tokens.weight, keep, segments, position)
        elif isinstance(self.source, embed.Backbone):
            found = self.source(inputs, keep)
        else:
            if keep is not None:
                raise ValueError("patches have no padding; leave keep None")
            found = self.source(inputs)
        if segments is not None and getattr(self.source, "segments", None) is None:
            raise ValueError("this model has no segments; leave them None")
        return found

    def embed_target(self, targets: Tensor | None, memory: Sequence, *, keep: Tensor | None = None,
                     cache: Cache | None = None) -> Sequence:
        """What the decoder beside an encoder reads: target ids, or the object queries."""
        if isinstance(self.target, embed.Queries):
            found: Sequence = self.target(len(memory.x_BLD), memory.x_BLD.dtype)
            return found
        if self.target is None or targets is None:
            raise ValueError("a decoder beside an encoder reads targets; give them" if self.target else "this model has no target")
        position = None if cache is None else cache.place(targets.shape[1], keep)
        found = self.target(targets, self.table_VD, keep, None, position)
        return found

    def encode(self, sequence: Sequence) -> Sequence:
        if self.encoder is None:
            raise ValueError("this model has no encoder; use decode")
        found: Sequence = self.encoder(sequence)
        return found if self.features is None or self.decoder is not None else self.features(found)

    def decode(self, sequence: Sequence, memory: Sequence | None = None, *, cache: Cache | None = None) -> Sequence:
        if self.decoder is None:
            raise ValueError("this model has no decoder; use encode")
        found: Sequence = self.decoder(sequence, memory, cache)
        return found if self.features is None else self.features(found)

    def read(self, sequence: Sequence) -> Output:
        found: Output = self.head(sequence, self.table_VD) if isinstance(self.spec.head, S.Vocabulary) else self.head(sequence)
        return found

    def forward(self, inputs: Tensor, targets: Tensor | None = None, *, keep: Tensor | None = None,
                target_keep: Tensor | None = None, segments: Tensor | None = None) -> Output:
        if (targets is not None or target_keep is not None) and not isinstance(self.target, embed.Tokens):
            raise ValueError("this model reads no targets; leave targets and target_keep None")
        sequence = self.embed(inputs, keep=keep, segments=segments)
        if self.encoder is not None:
            sequence = self.encode(sequence)
            if self.decoder is not None:
                sequence = self.decode(self.embed_target(targets, sequence, keep=target_keep), sequence)
        else:
            sequence = self.decode(sequence)
        return self.read(sequence)

    def cache(self, batch: int, room: int) -> Cache:
        """Room to decode `room` tokens, prompt included, for `batch` rows."""
        weight = next(self.parameters())
        return Cache(self.spec, batch, room, weight.dtype, weight.device)


def build_source(s: S.Model) -> nn.Module:
    if isinstance(s.source, S.Tokens):
        return embed.Tokens(s.source, s.source.width or s.width, s.width)
    return embed.Patches(s.source, s.width) if isinstance(s.source, S.Patches) else embed.Backbone(s.source, s.width)


class _NoStart(TorchFunctionMode):
    """torch's layers start themselves when made; here `start.initialise` does, once there is memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return (kwargs or {}).get("tensor", args[0] if args else None)
        return func(*args, **(kwargs or {}))


def shapes_of(s: S.Model) -> Model:
    """The model of a spec without memory for its numbers: on the meta device."""
    with torch.device("meta"), _NoStart():
        return Model(s)


def build(s: S.Model, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> Model:
    """The model of a spec, initialised; on the meta device, its shapes only."""
    if not isinstance(s, S.Model):
        raise ValueError(f"build takes a spec, such as weft.bert(\"base\"), not {s!r}"[:200])
    model = shapes_of(s).to(dtype)
    if torch.device(device).type == "meta":
        return model
    model.to_empty(device=device)
    initialise(model, s, seed)
    return model
