"""Rows that a model reads a few tokens at a time, and what it says to the last of them."""
from collections.abc import Iterator
from collections.abc import Sequence as Many

import torch
from torch import Tensor

from .. import spec as S
from ..count import vocabulary
from ..layers.sequence import Sequence
from ..model.model import Model

Ids = Many[Many[int]]
PIECE = 2048                               # tokens of a prompt that are read at once: no mask is longer, and a window lets go in between
DIVERGED = "the model's scores are not numbers; its training diverged"


class Reading:
    """A batch under way. What was read stays in the cache; rows may leave, multiply and change places."""

    def __init__(self, model: Model, batch: int, room: int, memory: Sequence | None = None) -> None:
        self.model, self.memory, self.cache = model, memory, model.cache(batch, room)

    def __call__(self, ids_BL: Tensor, keep_BL: Tensor | None = None, last: int = 1) -> Tensor:
        """Scores of the next token after each of the `last` newest: (B, last, V) in float32 or better."""
        pieces = ids_BL.split(PIECE, 1)
        keeps = [None] * len(pieces) if keep_BL is None else keep_BL.split(PIECE, 1)
        x_BLD = torch.cat([self.read(ids, keep) for ids, keep in zip(pieces, keeps, strict=True)], 1)
        logits_BLV = self.model.read(Sequence(x_BLD[:, -last:]))
        assert isinstance(logits_BLV, Tensor)
        return logits_BLV if logits_BLV.dtype == torch.float64 else logits_BLV.float()

    def read(self, ids_BL: Tensor, keep_BL: Tensor | None) -> Tensor:
        model, cache = self.model, self.cache
        if self.memory is None:
            return model.decode(model.embed(ids_BL, keep=keep_BL, cache=cache), cache=cache).x_BLD
        return model.decode(model.embed_target(ids_BL, self.memory, keep=keep_BL, cache=cache), self.memory, cache=cache).x_BLD

    def multiply(self, beams: int) -> None:
        """Each row becomes `beams` rows, side by side, that share one memory."""
        self.cache.multiply(beams)

    def reorder(self, row_B: Tensor) -> None:
        """Row i goes on from what row `row_B[i]` has read."""
        if self.memory is not None:
            beams = len(self.cache.next_B) // len(self.memory.x_BLD)
            sentence_B = row_B[::beams] // beams
            x_BLD, keep_BL = self.memory.x_BLD[sentence_B], self.memory.keep_BL
            self.memory = self.memory._replace(x_BLD=x_BLD, keep_BL=None if keep_BL is None else keep_BL[sentence_B])
        self.cache.reorder(row_B)

    def forget(self, count: int) -> None:
        self.cache.forget(count)


def open_rows(model: Model, inputs: Ids, starts: Ids | None, most: int) -> tuple[Reading, list[list[int]]]:
    """An encoder-decoder reads `inputs` in its encoder and begins to decode with `starts`; a decoder begins with `inputs`.
    -> a reading with room for `most` more, and what the decoder shall read first."""
    refuse(model, inputs, most)
    device, memory = model.table_VD.device, None
    if model.encoder is not None:
        ids_BL, keep_BL = pad(inputs, device, left=False)
        memory = model.encode(model.embed(ids_BL, keep=keep_BL))
        inputs = starts or [[start_of(model)]] * len(inputs)
        refuse(model, inputs, most)
        if len(inputs) != len(ids_BL):
            raise ValueError(f"{len(ids_BL)} sources need as many starts, not {len(inputs)}")
    elif starts:
        raise ValueError("only a decoder beside an encoder has starts; put them in front of the prompts")
    length = max(map(len, inputs))
    fits(model, length, most)
    return Reading(model, len(inputs), length + most, memory), [list(row) for row in inputs]


def begin(model: Model, inputs: Ids, starts: Ids | None, most: int) -> tuple[Reading, Tensor, list[list[int]]]:
    """Reads all prompts at once; also the scores of each row's next token, (B, V)."""
    reading, prompts = open_rows(model, inputs, starts, most)
    return reading, reading(*pad(prompts, model.table_VD.device, left=True))[:, -1], prompts


def pad(rows: Ids, device: torch.device, left: bool) -> tuple[Tensor, Tensor | None]:
    """Rows of one length; `keep` is None where they already are. On the left, the newest tokens of all rows stand together."""
    lengths, side = [len(row) for row in rows], max(map(len, rows))
    if min(lengths) == side:
        return torch.tensor(rows, device=device), None
    holes = [[0] * (side - n) for n in lengths]
    ids = [[*h, *row] if left else [*row, *h] for h, row in zip(holes, rows, strict=True)]
    slot_L, length_B1 = torch.arange(side, device=device), torch.tensor(lengths, device=device)[:, None]
    return torch.tensor(ids, device=device), slot_L >= side - length_B1 if left else slot_L < length_B1


def start_of(model: Model) -> int:
    start = model.spec.special.start
    if start is None:
        raise ValueError("the model does not say what its decoder reads first (special.start); give starts")
    return start


def refuse(model: Model, rows: Ids, most: int) -> None:
    """A sentence for what cannot be read."""
    if model.decoder is None:
        raise ValueError("this model is an encoder, which has no next token to say; weft fill guesses hidden words")
    if not isinstance(model.spec.head, S.Vocabulary):
        raise ValueError(f"this model has no decoder with a vocabulary: its head is {type(model.spec.head).__name__}")
    if model.training:
        raise ValueError("the model is being trained, so it drops out at random; call model.eval() first")
    if most < 1:
        raise ValueError(f"most = {most}; ask for at least one token")
    size = vocabulary(model.spec)
    for i, row in enumerate(rows):
        if not len(row):
            raise ValueError(f"prompt {i} is empty; give at least one token to go on from")
        if min(row) < 0 or max(row) >= size:
            raise ValueError(f"prompt {i} holds a token outside the vocabulary of {size}")


def positions(model: Model) -> int | None:
    """How many tokens a decoder can read, where a table of positions ends."""
    reads = model.spec.source if model.spec.encoder is None else model.spec.target
    learned = getattr(reads, "positions", None)
    return learned.count if isinstance(learned, S.Learned) else None


def each(most: int | Many[int], rows: int) -> list[int]:
    """A limit for every row."""
    found = [most] * rows if isinstance(most, int) else [*most]
    if len(found) != rows or min(found, default=1) < 1:
        raise ValueError(f"most = {most}: give at least one token, the same for all or one for each of the {rows} prompts")
    return found


def batches(lengths: Many[int], limits: Many[int], size: int, count: int | None) -> Iterator[list[int]]:
    """Rows of about one length, `size` at a time. The longest prompt and the longest answer of a batch are within `count` positions: no
    row's limit depends on its neighbours."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if len(group) == size or (group and count is not None and lengths[i] + max(limits[j] for j in [*group, i]) > count):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def fits(model: Model, length: int, most: int) -> None:
    count = positions(model)
    if count is not None and length + most > count:
        raise ValueError(f"a prompt of {length} tokens and {most} more are over the model's {count} positions; "
                         f"after it, {max(count - length, 0)} fit")
