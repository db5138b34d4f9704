"""Long rows in parts (windows in blocks, documents one by one) are the same kernel with the whole
mask, at linear cost.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import weft
from weft import spec as S
from weft.generate import session
from weft.nn.kernels import block_local, document_attention
from weft.nn.kernels.attention import eager_attention, sdpa_attention
from weft.nn.kernels.block_local import BlockLocalAttention
from weft.nn.kernels.document_attention import PerDocumentAttention
from weft.nn.kernels.masks import Positions, build_mask, pattern_mask, resolve_masks
from weft.nn.layers.attention import attention_backend
from weft.nn.layers.positions import build_position_bias
from weft.observe.attention import attention_maps
from weft.spec.attention import sliding_window_block

SCORES = (None, S.ALiBi(), S.RelativeBias(buckets=8, max_distance=20))


@st.composite
def masks(
    draw: st.DrawFn, length: int, kinds: tuple[str, ...] = ("none", "left", "right", "documents")
) -> tuple[Tensor | None, Tensor | None]:
    """Attention mask and document ids of two rows: nothing, padding on either side, or documents
    with padding at the end.
    """
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        return None, None
    rows = []
    for _ in range(2):
        many = draw(st.integers(1, length))
        if kind == "documents":
            cuts = sorted(draw(st.lists(st.integers(0, many), max_size=4)))
            rows.append(
                torch.tensor(
                    [1 + sum(c <= i for c in cuts) if i < many else 0 for i in range(length)]
                )
            )
        else:
            rows.append(
                torch.arange(length) < many
                if kind == "right"
                else torch.arange(length) >= length - many
            )
    rows_BL = torch.stack(rows)
    return resolve_masks(None, rows_BL) if kind == "documents" else (rows_BL, None)


def far(a: Tensor, b: Tensor) -> float:
    """Relative to the norm of `b`, an answer in fp64."""
    a = a.detach().double()
    b = b.detach()
    return float((a - b).norm() / b.norm().clamp(min=1))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_window_in_blocks_is_the_window_in_a_mask_forward_and_backward(
    data: st.DataObject,
) -> None:
    """To 1e-12 in fp64, to 4e-6 in fp32 or twice as far as the mask in fp32: gradients sum terms
    that cancel.
    """
    dtype, bound = data.draw(st.sampled_from(((torch.float64, 1e-12), (torch.float32, 4e-6))))
    length, before, after, size = (
        data.draw(st.integers(a, b)) for a, b in ((1, 40), (0, 20), (0, 20), (1, 9))
    )
    first = data.draw(st.integers(0, 12)) if not after else 0  # keys that a cache held already
    mask_BM, ids_BL = data.draw(masks(length)) if not first else (None, None)
    groups, score, scale, softcap = (
        data.draw(st.sampled_from(values))
        for values in ((1, 2, 4), SCORES, (None, 1.0), (None, 1.5))
    )
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    keys = first + length
    q, k, v = (
        torch.randn(2, h, n, w, generator=g)
        for h, n, w in ((4, length, 8), (groups, keys, 8), (groups, keys, 6))
    )
    pair = Positions(
        torch.arange(first, keys)[None],
        torch.arange(keys)[None],
        mask_BM,
        ids_BL,
        ids_BL,
        first_query_slot=first,
    )
    bias = build_position_bias(score, 4)
    if bias is not None:
        bias.double()
    if isinstance(score, S.RelativeBias):
        torch.nn.init.normal_(bias.weight, generator=g)
    pattern = S.SlidingWindow(before=before, after=after)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            block_local, "SCORES_PER_CHUNK", data.draw(st.sampled_from((1, 1000, 1 << 20)))
        )
        for blocks, kind in (
            (BlockLocalAttention(pattern, pair, size), dtype),
            (None, dtype),
            (None, torch.float64),
        ):
            parts = [t.to(kind).requires_grad_() for t in (q, k, v)]
            if blocks is not None:
                y = blocks(sdpa_attention)(
                    *parts,
                    None if bias is None else bias(blocks.pair).to(kind),
                    causal=False,
                    scale=scale,
                    dropout=0.0,
                    softcap=softcap,
                )
            else:
                mask = (pair.offset_BLM >= -before) & (pair.offset_BLM <= after)
                if mask_BM is not None:
                    mask = mask & mask_BM[:, None]
                if ids_BL is not None:
                    mask = mask & (ids_BL[:, :, None] == ids_BL[:, None])
                mask = (
                    mask[:, None]
                    if bias is None
                    else bias(pair).to(kind).masked_fill(~mask[:, None], float("-inf"))
                )
                y = eager_attention(
                    *parts, mask, causal=False, scale=scale, dropout=0.0, softcap=softcap
                )
            learned = [bias.weight] if isinstance(score, S.RelativeBias) else []
            # what stands at padding, nobody reads
            seen = y if mask_BM is None else y * mask_BM[:, None, :, None]
            results.append(
                [
                    seen,
                    *torch.autograd.grad(
                        seen.square().sum(), [*parts, *learned], allow_unused=True
                    ),
                ]
            )
    for a, twin, b in zip(*results, strict=True):
        assert torch.isfinite(a).all()
        assert far(a, b) <= max(bound, 2 * far(twin, b))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_documents_one_by_one_are_documents_in_a_mask_forward_and_backward(
    data: st.DataObject,
) -> None:
    length = data.draw(st.integers(1, 30))
    mask_BM, ids_BL = data.draw(masks(length, ("left", "right", "documents")))
    pattern = (
        S.CausalAttention()
        if ids_BL is None
        else data.draw(st.sampled_from((S.FullAttention(), S.CausalAttention())))
    )
    groups = data.draw(st.sampled_from((1, 2, 4)))
    at = torch.arange(length)[None]
    pair = Positions(at, at, mask_BM, ids_BL, ids_BL, first_query_slot=0)
    q, k, v = (torch.randn(2, h, length, w) for h, w in ((4, 8), (groups, 8), (groups, 6)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_attention, "MIN_SCORES", 1)
        split = document_attention.per_document_attention(pattern_mask(pattern), pair)
    assert isinstance(split, PerDocumentAttention)
    results = []
    for kernel, mask, causal in (
        (split(sdpa_attention), None, isinstance(pattern, S.CausalAttention)),
        (eager_attention, build_mask(pattern_mask(pattern), pair, False)[0], False),
    ):
        parts = [
            t.to(torch.float64 if kernel is eager_attention else torch.float32).requires_grad_()
            for t in (q, k, v)
        ]
        y = kernel(*parts, mask, causal=causal, scale=None, dropout=0.0) * mask_BM[:, None, :, None]
        results.append([y, *torch.autograd.grad(y.square().sum(), parts)])
    for a, b in zip(*results, strict=True):
        assert far(a, b) <= 4e-6


def test_a_document_that_stands_in_two_places_is_left_to_the_mask() -> None:
    assert document_attention.document_runs(torch.tensor([[1, 1, 2, 1]])) is None
    assert document_attention.document_runs(torch.tensor([[0, 1, 2, 0]])) == [
        [(0, 1), (1, 1), (2, 1), (0, 1)]
    ]


def test_documents_on_another_device_are_left_to_the_mask_since_their_lengths_are_not_known() -> (
    None
):
    at = torch.arange(1 << 10)[None]
    ids = torch.ones(1, 1 << 10, dtype=torch.long)
    for device, split in (("cpu", PerDocumentAttention), ("meta", type(None))):
        place, mask, document_ids = (t.to(device) for t in (at, ids != 0, ids))
        pair = Positions(place, place, mask, document_ids, document_ids, first_query_slot=0)
        for pattern in (S.CausalAttention(), S.FullAttention()):
            parts = document_attention.per_document_attention(pattern_mask(pattern), pair)
            assert isinstance(parts, split)


def test_dropout_in_blocks_hides_the_same_weights_in_both_passes() -> None:
    """By finite differences, the random numbers the same each time; and it hides as many as it
    should.
    """
    at = torch.arange(21)[None]
    blocks = BlockLocalAttention(
        S.SlidingWindow(before=3, after=2), Positions(at, at, first_query_slot=0), 4
    )

    def run(*parts: Tensor) -> Tensor:
        torch.manual_seed(5)
        return blocks(sdpa_attention)(*parts, None, causal=False, scale=None, dropout=0.3)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_local, "SCORES_PER_CHUNK", 100)
        parts = [
            torch.randn(1, 2, 21, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)
        ]
        assert torch.autograd.gradcheck(run, parts, fast_mode=True)
    v = torch.ones(8, 2, 21, 1, dtype=torch.float64)
    q = torch.randn(8, 2, 21, 3, dtype=torch.float64)
    assert float(run(q, q, v).mean()) == pytest.approx(1, abs=0.05)
    assert float(run(q, q, v).std()) > 0.1


# Models


def model_of(
    pattern: object,
    score: object = None,
    shared: object = None,
    softcap: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> weft.Model:
    look = S.Attention(
        heads=4, kv_heads=2, pattern=pattern, rope=S.RoPE(), position_bias=score, softcap=softcap
    )
    block = S.Block(
        attention=S.pre_norm(S.RMSNorm(), look),
        feedforward=S.pre_norm(S.RMSNorm(), S.MLP(hidden=16)),
    )
    back = isinstance(pattern, S.CausalAttention) or (
        isinstance(pattern, S.SlidingWindow) and not pattern.after
    )
    place = {"decoder" if back else "encoder": S.Stack(blocks=(block,) * 2, position_bias=shared)}
    return weft.build(
        S.Spec(
            width=16,
            source=S.Tokens(vocab_size=19),
            head=S.LMHead(),
            init=S.NormalInit(std=0.3),
            **place,
        ),
        dtype=dtype,
    ).eval()


def ragged(side: str, length: int, *counts: int) -> Tensor:
    at = torch.arange(length)[None]
    count = torch.tensor(counts)[:, None]
    return at < count if side == "right" else at >= length - count


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of any length are split, in small parts and chunks."""
    monkeypatch.setattr(block_local, "sliding_window_block", lambda *_: 4)
    monkeypatch.setattr(block_local, "SCORES_PER_CHUNK", 500)
    monkeypatch.setattr(document_attention, "MIN_SCORES", 1)


PATTERNS = {
    "window": S.SlidingWindow(before=5, after=0),
    "two-sided window": S.SlidingWindow(before=3, after=2),
    "causal": S.CausalAttention(),
    "full": S.FullAttention(),
}
SHARED = {
    "none": {},
    "soft cap": {"softcap": 2.0},
    "alibi": {"score": S.ALiBi()},
    "buckets": {"score": S.RelativeBias(buckets=8, max_distance=20)},
    "shared alibi": {"shared": S.ALiBi()},
    "shared buckets": {"shared": S.RelativeBias(buckets=8, max_distance=20)},
}


@pytest.mark.parametrize("score", SHARED)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.usefixtures("short")
def test_a_model_that_splits_its_rows_is_the_one_seen_with_the_open_kernel(
    pattern: str, score: str
) -> None:
    model = model_of(PATTERNS[pattern], **SHARED[score])
    ids = torch.randint(0, 19, (3, 23))
    documents = torch.tensor([[1] * 9 + [2] * 14, [7] * 2 + [3] * 20 + [0], [1] * 23])
    for masked in (
        {},
        {"attention_mask": ragged("left", 23, 23, 20, 1)},
        {"attention_mask": ragged("right", 23, 23, 20, 1)},
        {"document_ids": documents},
    ):
        real = next((t != 0 for t in masked.values()), torch.ones(3, 23, dtype=torch.bool))
        results = []
        for kernel in (sdpa_attention, eager_attention):
            with attention_backend(model, kernel):
                y = model(ids, **masked)[real]
                results.append(
                    [y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))]
                )
        for a, b in zip(*results, strict=True):
            assert far(a, b) <= 1e-10


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("pattern", ["window", "causal"])
@pytest.mark.usefixtures("short")
def test_a_prompt_read_at_once_in_pieces_and_token_by_token_is_the_whole(
    pattern: str, side: str
) -> None:
    model = model_of(PATTERNS[pattern], score=S.RelativeBias(buckets=8, max_distance=20))
    ids = torch.randint(0, 19, (2, 90))
    mask = None if side == "none" else ragged(side, 80, 80, 71)
    with attention_backend(model, eager_attention):
        if mask is None:
            rows = [model(ids[i : i + 1])[0] for i in range(2)]
        else:
            rows = [
                model(torch.cat((ids[i, :80][mask[i]], ids[i, 80:]))[None])[0] for i in range(2)
            ]
    for pieces in ((80, 5, 5), (80, *[1] * 10)) + (((30, 50, 10),) if mask is None else ()):
        cache = model.new_cache(2, 90)
        found = []
        at = 0
        for n in pieces:
            new = mask if not at else None
            found.append(
                model.read(
                    model.decode(
                        model.embed(ids[:, at : at + n], attention_mask=new, cache=cache),
                        cache=cache,
                    )
                )
            )
            at += n
        real = torch.ones(2, 90, dtype=torch.bool)
        if mask is not None:
            real[:, :80] = mask
        for i in range(2):
            assert far(torch.cat(found, 1)[i][real[i]], rows[i]) <= 1e-10


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("pattern", ["window", "causal"])
def test_a_long_prompt_is_read_in_pieces(
    pattern: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(PATTERNS[pattern], dtype=torch.float32)
    ids = torch.randint(0, 19, (2, 90))
    mask = None if side == "none" else ragged(side, 90, 90, 71)
    found = []
    for piece in (100, 40):
        monkeypatch.setattr(session, "PREFILL_CHUNK", piece)
        under_way = session.DecodingSession(model, 2, 91)
        found += [under_way(ids, mask), under_way(ids[:, :1])]
    for whole, pieces in zip(found[:2], found[2:], strict=True):
        if side == "right":  # the last of a row that is shorter stands at padding
            whole = whole[:1]
            pieces = pieces[:1]
        assert far(pieces, whole.double()) <= 1e-5


def test_attention_maps_of_a_long_row_are_whole_and_change_nothing() -> None:
    model = model_of(S.SlidingWindow(before=31, after=0))
    ids = torch.randint(0, 19, (1, 600))
    plain = model(ids)
    with attention_maps(model) as maps:
        assert far(model(ids), plain) <= 1e-10
    (weight, _) = maps.values()
    assert weight.shape == (1, 4, 600, 600)
    assert weight.tril(-32).abs().max() == 0


# Cost


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation gives."""

    many = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for t in result if isinstance(result, tuple | list) else (result,):
            if isinstance(t, Tensor):
                self.many = max(self.many, t.untyped_storage().nbytes() // t.element_size())
        return result


def nothing_masked(length: int) -> dict[str, Tensor]:
    return {}


def left_padding(length: int) -> dict[str, Tensor]:
    return {"attention_mask": ragged("left", length, length - 100)}


def four_documents(length: int) -> dict[str, Tensor]:
    return {"document_ids": (torch.arange(length) // (length // 4) + 1)[None]}


CASES: dict[str, tuple[object, dict[str, object], Any]] = {
    "window": (S.SlidingWindow(before=63, after=0), {}, nothing_masked),
    "two-sided window": (S.SlidingWindow(before=32, after=32), {}, nothing_masked),
    "window with scores": (
        S.SlidingWindow(before=63, after=0),
        {"score": S.RelativeBias(buckets=8, max_distance=20)},
        nothing_masked,
    ),
    "window, shared scores": (
        S.SlidingWindow(before=63, after=0),
        {"shared": S.ALiBi()},
        nothing_masked,
    ),
    "window, documents": (S.SlidingWindow(before=63, after=0), {}, four_documents),
    "window, left padding": (
        S.SlidingWindow(before=63, after=0),
        {},
        left_padding,
    ),
    "causal, documents": (S.CausalAttention(), {}, four_documents),
    "full, documents": (S.FullAttention(), {}, four_documents),
    "causal, left padding": (S.CausalAttention(), {}, left_padding),
    "causal": (S.CausalAttention(), {}, nothing_masked),
}


@pytest.mark.parametrize("name", CASES)
def test_no_tensor_is_quadratic_in_the_length_forward_or_backward(name: str) -> None:
    """Twice the length, twice the largest tensor at most; an (L, L) mask would be four times as
    large.
    """
    pattern, more, masked = CASES[name]
    model = model_of(pattern, dtype=torch.float32, **more)
    largest = []
    for length in (4096, 8192):
        with Largest() as seen:
            model(torch.zeros(1, length, dtype=torch.long), **masked(length)).sum().backward()
        largest.append(seen.many)
    assert largest[1] <= 2.01 * largest[0]
    assert largest[1] < 8192 * 8192 // 8


@torch.no_grad()
@pytest.mark.parametrize("mask", [None, ragged("left", 4096, 4000)], ids=["plain", "padded"])
@pytest.mark.parametrize("pattern", ["window", "causal"])
def test_reading_a_long_prompt_and_a_token_after_it_make_nothing_quadratic(
    pattern: str, mask: Tensor | None
) -> None:
    model = model_of(PATTERNS[pattern], dtype=torch.float32)
    cache = model.new_cache(1, 4100)
    for n in (4096, 1):
        with Largest() as seen:
            model.decode(
                model.embed(
                    torch.zeros(1, n, dtype=torch.long),
                    attention_mask=mask if n > 1 else None,
                    cache=cache,
                ),
                cache=cache,
            )
        assert seen.many <= max(4100 * 16, block_local.SCORES_PER_CHUNK if n > 1 else 0)


@pytest.mark.parametrize("length", [64, 500, 2048, 5000])
@pytest.mark.parametrize(
    "window",
    [
        S.SlidingWindow(before=15, after=0),
        S.SlidingWindow(before=64, after=64),
        S.SlidingWindow(before=255, after=0),
    ],
)
def test_flops_of_a_window_are_those_of_its_blocks(window: S.SlidingWindow, length: int) -> None:
    """As computed, like all counts: a block's queries meet all keys that the block can reach.
    Linear in the length.
    """
    spec = model_of(window).spec
    meta = weft.build(spec, device="meta").requires_grad_(False).eval()
    with FlopCounterMode(display=False) as counter:
        meta(torch.zeros(2, length, dtype=torch.long, device="meta"))
    assert spec.flops(2, length) == counter.get_total_flops()
    assert spec.flops(length=1 << 16) == 2 * spec.flops(length=1 << 15)


def test_a_window_is_split_where_that_is_cheaper() -> None:
    assert sliding_window_block(S.SlidingWindow(before=255, after=0), 512, 512) is None
    assert sliding_window_block(S.SlidingWindow(before=255, after=0), 4096, 4096) == 128
    assert sliding_window_block(S.SlidingWindow(before=64, after=64), 1, 5000) is None
    with torch.no_grad(), Largest() as seen:
        model_of(S.SlidingWindow(before=4000, after=0))(torch.zeros(1, 1000, dtype=torch.long))
    assert seen.many < 1000 * 1000 // 2  # wider than the row: the kernel's own triangle, no mask
