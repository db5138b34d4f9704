"""Invariants of every model, for any spec. Each function raises if its invariant is violated.

Accepted exceptions are listed in `EXCEPTIONS` with the reason.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import weft
from weft import spec as S
from weft.nn.block import BlockLayer
from weft.nn.kernels.attention import eager_attention
from weft.nn.layers.attention import attention_backend
from weft.nn.model import Model
from weft.spec.count import iterate_blocks, parameter_shapes

from .draw import LENGTH, VOCABULARY

Invariant = Callable[[Model, S.Spec], None]
INVARIANTS: dict[str, Invariant] = {}
KEPT = (LENGTH, LENGTH - 3)  # how many tokens of each of the two rows are real


def invariant(check: Invariant) -> Invariant:
    INVARIANTS[check.__name__] = check
    return check


def has(s: S.Spec, kind: type) -> bool:
    def walk(thing: Any) -> Iterator[Any]:
        yield thing
        if isinstance(thing, tuple):
            for item in thing:
                yield from walk(item)
        elif hasattr(thing, "__dataclass_fields__"):
            for name in thing.__dataclass_fields__:
                yield from walk(getattr(thing, name))

    return any(isinstance(part, kind) for part in walk(s))


EXCEPTIONS: dict[str, tuple[Callable[[S.Spec], bool], str]] = {
    "the_future_does_not_show_in_a_bit": (
        lambda s: has(s, S.MixtureOfExperts),
        "an expert's tokens share one matrix product, whose rounding may depend on how many they "
        "are",
    ),
    "packed_is_separate": (
        lambda s: has(s, S.Linformer),
        "Linformer mixes all keys of a row; it refuses packed documents with a clear error",
    ),
}


def ids(rows: int = 2, length: int = LENGTH, seed: int = 1) -> Tensor:
    return torch.randint(
        0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed)
    )


def padded(side: str, seed: int = 1, garbage: int = 0) -> tuple[Tensor, Tensor]:
    """Two rows of `KEPT` tokens, the same ones whatever the side of the padding."""
    tokens = torch.full((2, LENGTH), garbage)
    mask = torch.zeros(2, LENGTH, dtype=torch.bool)
    for row, count in enumerate(KEPT):
        at = slice(0, count) if side == "right" else slice(LENGTH - count, LENGTH)
        tokens[row, at] = ids(seed=seed)[row, :count]
        mask[row, at] = True
    return tokens, mask


def is_text(s: S.Spec) -> bool:
    return isinstance(s.source, S.Tokens)


def images(s: S.Spec, rows: int = 2) -> Tensor:
    side = 8 if isinstance(s.source, S.Patches) else 32
    return torch.randn(
        rows,
        s.source.channels,
        side,
        side,
        generator=torch.Generator().manual_seed(3),
        dtype=torch.float64,
    )


def given(s: S.Spec, rows: int = 2) -> dict[str, Tensor]:
    """Inputs without padding."""
    batch = {"inputs": ids(rows) if is_text(s) else images(s, rows)}
    if is_text(s) and s.encoder is not None and s.decoder is not None:
        batch["targets"] = ids(rows, LENGTH - 2, seed=2)
    return batch


def flat(output: Any) -> Tensor:
    parts = [t for t in output if t is not None] if isinstance(output, tuple) else [output]
    return torch.cat([t.flatten(1) for t in parts], 1)


def run(model: Model, batch: dict[str, Tensor]) -> Any:
    """A forward; a model that guesses pixels sees only some."""
    if not isinstance(model.spec.head, S.PixelDecoder):
        return model(**batch)
    sequence = model.embed(batch["inputs"])
    shown = torch.arange(0, sequence.x_BLD.shape[1], 2).expand(len(sequence.x_BLD), -1)
    return model.read(model.encode(sequence.select(shown)))


def per_token(s: S.Spec) -> bool:
    return isinstance(s.head, S.LMHead | S.TokenClassifierHead | S.SpanHead)


def near(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    """In fp64, where no random spec is so ill-conditioned that rounding looks like a mistake."""
    assert a.shape == b.shape
    assert torch.isfinite(a).all()
    difference = float((a - b).abs().max() / b.abs().max().clamp(min=1))
    assert difference <= tolerance, f"differs by {difference:.2e}"


@invariant
def json_round_trip(model: Model, s: S.Spec) -> None:
    again = S.from_json(s.to_json())
    assert again == s
    assert hash(again) == hash(s)


@invariant
def parameters_predicted_are_built(model: Model, s: S.Spec) -> None:
    assert dict(parameter_shapes(s)) == {
        name: tuple(p.shape) for name, p in model.named_parameters()
    }
    assert s.parameter_count() == sum(p.numel() for p in model.parameters())


@invariant
def flops_predicted_are_counted(model: Model, s: S.Spec) -> None:
    meta = weft.build(s, device="meta", dtype=torch.float64).requires_grad_(False).eval()
    batch = {name: t.to("meta") for name, t in given(s).items()}
    with FlopCounterMode(display=False) as counter:
        meta(**batch)
    length = LENGTH if is_text(s) else batch["inputs"].shape[-1]
    assert (
        s.flops(2, length, LENGTH - 2 if "targets" in batch else None) == counter.get_total_flops()
    )


@invariant
def every_parameter_gets_a_finite_gradient(model: Model, s: S.Spec) -> None:
    model.train()
    model.zero_grad()
    flat(run(model, given(s))).square().mean().backward()
    for name, p in model.named_parameters():
        if p.requires_grad:
            assert p.grad is not None, name
            assert torch.isfinite(p.grad).all(), name
    model.eval()


@invariant
def eval_twice_is_bit_equal(model: Model, s: S.Spec) -> None:
    assert torch.equal(flat(run(model, given(s))), flat(run(model, given(s))))


@invariant
def a_batch_is_its_rows(model: Model, s: S.Spec) -> None:
    whole = flat(run(model, given(s)))
    for row in range(2):
        near(
            whole[row : row + 1],
            flat(run(model, {name: t[row : row + 1] for name, t in given(s).items()})),
        )


@invariant
def the_fused_kernel_is_the_open_one(model: Model, s: S.Spec) -> None:
    batch = given(s)
    if is_text(s):
        batch["inputs"], batch["attention_mask"] = padded("right")
    fused = flat(run(model, batch))
    with attention_backend(model, eager_attention):
        near(fused, flat(run(model, batch)))


@invariant
def left_right_and_no_padding_agree(model: Model, s: S.Spec) -> None:
    if not is_text(s):
        return
    extra = {name: t for name, t in given(s).items() if name != "inputs"}
    outputs = {}
    for side in ("left", "right"):
        tokens, mask = padded(side)
        outputs[side] = model(tokens, attention_mask=mask, **extra)
    for row, count in enumerate(KEPT):
        alone = model(
            ids()[row : row + 1, :count], **{name: t[row : row + 1] for name, t in extra.items()}
        )
        for side, output in outputs.items():
            near(pick(output, row, count, side, s), pick(alone, 0, count, "right", s))


def pick(output: Any, row: int, count: int, side: str, s: S.Spec) -> Tensor:
    """The real part of a row's output."""

    def real(t: Tensor) -> Tensor:
        tokens = (t.dim() == 3 and s.decoder is None) or (s.encoder is None and t.dim() == 3)
        if not tokens:
            return t[row]
        return t[row, :count] if side == "right" else t[row, -count:]

    parts = [t for t in output if t is not None] if isinstance(output, tuple) else [output]
    return torch.cat([real(t).flatten() for t in parts])[None]


@invariant
def garbage_behind_the_mask_changes_nothing(model: Model, s: S.Spec) -> None:
    if is_text(s):
        extra = {name: t for name, t in given(s).items() if name != "inputs"}
        (clean, mask) = padded("right")
        (dirty, _) = padded("right", garbage=VOCABULARY - 1)
        for row, count in enumerate(KEPT):
            near(
                pick(model(dirty, attention_mask=mask, **extra), row, count, "right", s),
                pick(model(clean, attention_mask=mask, **extra), row, count, "right", s),
            )


@invariant
def a_fully_masked_row_is_finite(model: Model, s: S.Spec) -> None:
    if is_text(s):
        mask = torch.ones(2, LENGTH, dtype=torch.bool)
        mask[1] = False
        assert torch.isfinite(flat(model(**given(s), attention_mask=mask))).all()
        with attention_backend(model, eager_attention):
            assert torch.isfinite(flat(model(**given(s), attention_mask=mask))).all()


def change_the_future(model: Model, s: S.Spec) -> Iterator[tuple[Tensor, Tensor]]:
    """What is said before j, with one and with another token at j."""
    batch = given(s)
    name = "targets" if "targets" in batch else "inputs"
    if s.decoder is not None and is_text(s) and per_token(s):
        before = model(**batch)
        for j in (1, batch[name].shape[1] - 1):
            changed = batch[name].clone()
            changed[:, j] = (changed[:, j] + 1) % VOCABULARY
            yield before[:, :j], model(**batch | {name: changed})[:, :j]


@invariant
def the_future_does_not_show(model: Model, s: S.Spec) -> None:
    for before, after in change_the_future(model, s):
        near(before, after)


@invariant
def the_future_does_not_show_in_a_bit(model: Model, s: S.Spec) -> None:
    for before, after in change_the_future(weft.build(s, seed=1).eval(), s):
        assert torch.equal(before, after)


@invariant
def cached_is_uncached(model: Model, s: S.Spec) -> None:
    if s.decoder is None or not is_text(s) or not per_token(s):
        return
    batch = given(s)
    memory = model.encode(model.embed(batch["inputs"])) if "targets" in batch else None
    for side in ("none", "right", "left"):
        tokens = batch.get("targets", batch["inputs"])
        mask = None
        if side != "none" and memory is None:
            tokens, mask = padded(side)
            tokens = tokens[:, :LENGTH]
            mask = mask
        check_cached(model, tokens, mask, memory)


def check_cached(model: Model, tokens: Tensor, mask: Tensor | None, memory: Any) -> None:
    """A prompt at once, then two more tokens one at a time, against the whole row every time."""
    cache = model.new_cache(len(tokens), tokens.shape[1] + 2)
    more = ids(len(tokens), 2, seed=5)
    pieces = [tokens, more[:, :1], more[:, 1:]]
    masks = [mask, None, None]
    for i, piece in enumerate(pieces):
        piece_mask = masks[i]
        sequence = (
            model.embed(piece, attention_mask=piece_mask, cache=cache)
            if memory is None
            else model.embed_target(piece, memory, attention_mask=piece_mask, cache=cache)
        )
        step = model.read(model.decode(sequence, memory, cache=cache))
        for row in range(len(tokens)):
            real = tokens[row] if mask is None else tokens[row][mask[row]]
            whole = torch.cat((real, *(p[row] for p in pieces[1 : i + 1])))[None]
            if memory is None:
                alone = model(whole)
            else:
                rows = type(memory)(memory.x_BLD[row : row + 1])
                alone = model.read(model.decode(model.embed_target(whole, rows), rows))
            last = step[row, -1] if i or mask is None else step[row][mask[row]][-1]
            near(last[None], alone[0, -1][None])


@invariant
def packed_is_separate(model: Model, s: S.Spec) -> None:
    if not is_text(s) or not per_token(s):
        return
    first = 3
    second = LENGTH - 3
    document = torch.tensor([[1] * first + [2] * second])
    whole = ids(1)
    extra: dict[str, Tensor] = {}
    if s.encoder is not None and s.decoder is not None:
        extra = {"targets": ids(1, 4, seed=2), "decoder_document_ids": torch.tensor([[1, 1, 2, 2]])}
    packed = model(whole, document_ids=document, **extra)
    parts = ((slice(0, first), slice(0, 2)), (slice(first, LENGTH), slice(2, 4)))
    for source, target in parts:
        alone = model(
            whole[:, source], **({"targets": extra["targets"][:, target]} if extra else {})
        )
        near(packed[:, target if extra else source], alone)


@invariant
def recomputing_gives_bit_equal_gradients(model: Model, s: S.Spec) -> None:
    def gradients() -> list[Tensor]:
        model.zero_grad()
        torch.manual_seed(7)
        flat(run(model, given(s))).square().mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    model.train()
    plain = gradients()
    found = [m for m in model.modules() if isinstance(m, BlockLayer)]
    try:
        for block in found:
            block.forward = partial(
                checkpoint, type(block).forward.__get__(block), use_reentrant=False
            )  # type: ignore[method-assign]
        again = gradients()
    finally:
        for block in found:
            del block.forward
        model.eval()
    assert len(plain) == len(again)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@invariant
def tied_weights_stay_tied(model: Model, s: S.Spec) -> None:
    if isinstance(s.head, S.LMHead):
        assert ("head.out.weight" in model.state_dict()) != s.head.tied
        moved = weft.build(s).to(torch.float64)
        assert moved.token_embedding_VD.dtype == torch.float64


@invariant
def blocks_are_units(model: Model, s: S.Spec) -> None:
    """Every block of the spec is one module, so recomputation, compilation and sharding find it."""
    assert sum(isinstance(m, BlockLayer) for m in model.modules()) == sum(
        1 for _ in iterate_blocks(s)
    )
