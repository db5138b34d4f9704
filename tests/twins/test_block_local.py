"""Long rows in parts (windows in blocks, documents one by one) are the same kernel with the whole mask, at linear cost."""
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
from weft.count import window_block
from weft.generate import reading
from weft.generate.fast import pack
from weft.layers import block_local, segments
from weft.layers.attention import fused, opened, using
from weft.layers.block_local import Blocks
from weft.layers.mask import Pair, see
from weft.layers.position import build_score
from weft.layers.segments import Segments
from weft.model import stack
from weft.observe import attention_maps

SCORES = (None, S.Alibi(), S.Buckets(count=8, distance=20))


@st.composite
def keeps(draw: st.DrawFn, length: int) -> Tensor | None:
    """Nothing, padding on either side, or documents with padding at the end: two rows."""
    kind = draw(st.sampled_from(("none", "left", "right", "documents")))
    if kind == "none":
        return None
    rows = []
    for _ in range(2):
        many = draw(st.integers(1, length))
        if kind == "documents":
            cuts = sorted(draw(st.lists(st.integers(0, many), max_size=4)))
            rows.append(torch.tensor([1 + sum(c <= i for c in cuts) if i < many else 0 for i in range(length)]))
        else:
            rows.append(torch.arange(length) < many if kind == "right" else torch.arange(length) >= length - many)
    return torch.stack(rows)


def far(a: Tensor, b: Tensor) -> float:
    """Relative to the norm of `b`, an answer in fp64."""
    a, b = a.detach().double(), b.detach()
    return float((a - b).norm() / b.norm().clamp(min=1))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_window_in_blocks_is_the_window_in_a_mask_forward_and_backward(data: st.DataObject) -> None:
    """To 1e-12 in fp64, to 4e-6 in fp32: a gradient of the bias sums terms that cancel."""
    dtype, bound = data.draw(st.sampled_from(((torch.float64, 1e-12), (torch.float32, 4e-6))))
    length, before, after, size = (data.draw(st.integers(a, b)) for a, b in ((1, 40), (0, 20), (0, 20), (1, 9)))
    first = data.draw(st.integers(0, 12)) if not after else 0                  # keys that a cache held already
    keep = data.draw(keeps(length)) if not first else None
    groups, score, scale, softcap = (data.draw(st.sampled_from(values)) for values in ((1, 2, 4), SCORES, (None, 1.0), (None, 1.5)))
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    keys = first + length
    q, k, v = (torch.randn(2, h, n, w, generator=g) for h, n, w in ((4, length, 8), (groups, keys, 8), (groups, keys, 6)))
    pair = Pair(torch.arange(first, keys)[None], torch.arange(keys)[None], keep, keep, first=first)
    bias = build_score(score, 4)
    if bias is not None:
        bias.double()
    if isinstance(score, S.Buckets):
        torch.nn.init.normal_(bias.weight, generator=g)
    pattern, results = S.Window(before=before, after=after), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_local, "SCORES", data.draw(st.sampled_from((1, 1000, 1 << 20))))
        for blocks in (Blocks(pattern, pair, size), None):
            parts = [t.to(torch.float64 if blocks is None else dtype).requires_grad_() for t in (q, k, v)]
            if blocks is not None:
                y = blocks(fused)(*parts, None if bias is None else bias(blocks.pair).to(dtype), causal=False, scale=scale, dropout=0.0,
                                  softcap=softcap)
            else:
                mask = (pair.offset_BLM >= -before) & (pair.offset_BLM <= after)
                if keep is not None:
                    mask = mask & (keep != 0)[:, None]
                    mask = mask if keep.dtype == torch.bool else mask & (keep[:, :, None] == keep[:, None])
                mask = mask[:, None] if bias is None else bias(pair).masked_fill(~mask[:, None], float("-inf"))
                y = opened(*parts, mask, causal=False, scale=scale, dropout=0.0, softcap=softcap)
            learned = [bias.weight] if isinstance(score, S.Buckets) else []
            seen = y if keep is None else y * (keep != 0)[:, None, :, None]     # what stands at padding, nobody reads
            results.append([seen, *torch.autograd.grad(seen.square().sum(), [*parts, *learned], allow_unused=True)])
    for a, b in zip(*results, strict=True):
        assert torch.isfinite(a).all()
        assert far(a, b) <= bound


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_documents_one_by_one_are_documents_in_a_mask_forward_and_backward(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 30))
    keep = data.draw(keeps(length).filter(lambda keep: keep is not None))
    pattern = S.Causal() if keep.dtype == torch.bool else data.draw(st.sampled_from((S.Full(), S.Causal())))
    groups, at = data.draw(st.sampled_from((1, 2, 4))), torch.arange(length)[None]
    pair = Pair(at, at, keep, keep, first=0)
    q, k, v = (torch.randn(2, h, length, w) for h, w in ((4, 8), (groups, 8), (groups, 6)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "LONG", 1)
        split = segments.segments(pattern, pair)
    assert isinstance(split, Segments)
    results = []
    for kernel, mask, causal in ((split(fused), None, isinstance(pattern, S.Causal)), (opened, see(pattern, pair, False)[0], False)):
        parts = [t.to(torch.float64 if kernel is opened else torch.float32).requires_grad_() for t in (q, k, v)]
        y = kernel(*parts, mask, causal=causal, scale=None, dropout=0.0) * (keep != 0)[:, None, :, None]
        results.append([y, *torch.autograd.grad(y.square().sum(), parts)])
    for a, b in zip(*results, strict=True):
        assert far(a, b) <= 4e-6


def test_a_document_that_stands_in_two_places_is_left_to_the_mask() -> None:
    assert segments.runs(torch.tensor([[1, 1, 2, 1]])) is None
    assert segments.runs(torch.tensor([[0, 1, 2, 0]])) == [[(0, 1), (1, 1), (2, 1), (0, 1)]]


def test_dropout_in_blocks_hides_the_same_weights_in_both_passes() -> None:
    """By finite differences, the random numbers the same each time; and it hides as many as it should."""
    at = torch.arange(21)[None]
    blocks = Blocks(S.Window(before=3, after=2), Pair(at, at, first=0), 4)
    def run(*parts: Tensor) -> Tensor:
        torch.manual_seed(5)
        return blocks(fused)(*parts, None, causal=False, scale=None, dropout=0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_local, "SCORES", 100)
        parts = [torch.randn(1, 2, 21, 3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
        assert torch.autograd.gradcheck(run, parts, fast_mode=True)
    v = torch.ones(8, 2, 21, 1, dtype=torch.float64)
    q = torch.randn(8, 2, 21, 3, dtype=torch.float64)
    assert float(run(q, q, v).mean()) == pytest.approx(1, abs=0.05)
    assert float(run(q, q, v).std()) > 0.1


# Models

def model_of(pattern: object, score: object = None, shared: object = None, softcap: float | None = None,
             dtype: torch.dtype = torch.float64) -> weft.Model:
    look = S.Attention(heads=4, groups=2, pattern=pattern, rotary=S.Rotary(), score=score, softcap=softcap)
    block = S.Block(attention=S.pre(S.RMSNorm(), look), feedforward=S.pre(S.RMSNorm(), S.Dense(hidden=16)))
    back = isinstance(pattern, S.Causal) or (isinstance(pattern, S.Window) and not pattern.after)
    place = {"decoder" if back else "encoder": S.Stack(blocks=(block,) * 2, score=shared)}
    return weft.build(S.Model(width=16, source=S.Tokens(vocabulary=19), head=S.Vocabulary(), start=S.Normal(std=0.3), **place),
                      dtype=dtype).eval()


def ragged(side: str, length: int, *counts: int) -> Tensor:
    at = torch.arange(length)[None]
    count = torch.tensor(counts)[:, None]
    return at < count if side == "right" else at >= length - count


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of any length are split, in small parts and chunks."""
    monkeypatch.setattr(stack, "window_block", lambda *_: 4)
    monkeypatch.setattr(block_local, "SCORES", 500)
    monkeypatch.setattr(segments, "LONG", 1)


PATTERNS = {"window": S.Window(before=5, after=0), "two-sided window": S.Window(before=3, after=2), "causal": S.Causal(), "full": S.Full()}
SHARED = {"none": {}, "soft cap": {"softcap": 2.0}, "alibi": {"score": S.Alibi()}, "buckets": {"score": S.Buckets(count=8, distance=20)},
          "shared alibi": {"shared": S.Alibi()}, "shared buckets": {"shared": S.Buckets(count=8, distance=20)}}


@pytest.mark.parametrize("score", SHARED)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.usefixtures("short")
def test_a_model_that_splits_its_rows_is_the_one_seen_with_the_open_kernel(pattern: str, score: str) -> None:
    model, ids = model_of(PATTERNS[pattern], **SHARED[score]), torch.randint(0, 19, (3, 23))
    documents = torch.tensor([[1] * 9 + [2] * 14, [7] * 2 + [3] * 20 + [0], [1] * 23])
    for keep in (None, ragged("left", 23, 23, 20, 1), ragged("right", 23, 23, 20, 1), documents):
        results = []
        for kernel in (fused, opened):
            with using(model, kernel):
                kept = torch.ones(3, 23, dtype=torch.bool) if keep is None else keep != 0
                y = model(ids, keep=keep)[kept]
                results.append([y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))])
        for a, b in zip(*results, strict=True):
            assert far(a, b) <= 1e-10


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.usefixtures("short")
def test_packed_documents_are_the_documents_alone(pattern: str) -> None:
    model, ids, at = model_of(PATTERNS[pattern]), torch.randint(0, 19, (1, 30)), 0
    lengths = (7, 1, 13, 6)
    keep = torch.cat([torch.full((n,), i + 1) for i, n in enumerate(lengths)] + [torch.zeros(3, dtype=torch.long)])[None]
    packed = model(ids, keep=keep)
    for n in lengths:
        assert far(packed[:, at:at + n], model(ids[:, at:at + n])) <= 1e-10
        at += n


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("pattern", ["window", "causal"])
@pytest.mark.usefixtures("short")
def test_a_prompt_read_at_once_in_pieces_and_token_by_token_is_the_whole(pattern: str, side: str) -> None:
    model, ids = model_of(PATTERNS[pattern], score=S.Buckets(count=8, distance=20)), torch.randint(0, 19, (2, 90))
    keep = None if side == "none" else ragged(side, 80, 80, 71)
    with using(model, opened):
        if keep is None:
            rows = [model(ids[i:i + 1])[0] for i in range(2)]
        else:
            rows = [model(torch.cat((ids[i, :80][keep[i]], ids[i, 80:]))[None])[0] for i in range(2)]
    for pieces in ((80, 5, 5), (80, *[1] * 10)) + (((30, 50, 10),) if keep is None else ()):
        cache, found, at = model.cache(2, 90), [], 0
        for n in pieces:
            new = keep if keep is not None and not at else None
            found.append(model.read(model.decode(model.embed(ids[:, at:at + n], keep=new, cache=cache), cache=cache)))
            at += n
        kept = torch.ones(2, 90, dtype=torch.bool)
        if keep is not None:
            kept[:, :80] = keep
        for i in range(2):
            assert far(torch.cat(found, 1)[i][kept[i]], rows[i]) <= 1e-10


@torch.no_grad()
@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pattern", ["window", "causal"])
def test_a_long_prompt_is_read_in_pieces(pattern: str, packed: bool, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = model_of(PATTERNS[pattern], dtype=torch.float32), torch.randint(0, 19, (2, 90))
    model, keep = pack(model) if packed else model, None if side == "none" else ragged(side, 90, 90, 71)
    found = []
    for piece in (100, 40):
        monkeypatch.setattr(reading, "PIECE", piece)
        under_way = reading.Reading(model, 2, 91)
        found += [under_way(ids, keep), under_way(ids[:, :1])]
    for whole, pieces in zip(found[:2], found[2:], strict=True):
        if side == "right":                # the last of a row that is shorter stands at padding
            whole, pieces = whole[:1], pieces[:1]
        assert far(pieces, whole.double()) <= 1e-5


def test_bf16_in_blocks_is_as_near_to_fp64_as_bf16_with_a_mask() -> None:
    model, ids = model_of(S.Window(before=63, after=0), dtype=torch.float32), torch.randint(0, 19, (2, 700))
    def run(kind: torch.dtype | None, kernel: Any = fused) -> list[Tensor]:
        model.double() if kind is None else model.float()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind is not None), using(model, kernel):
            y = model(ids)
        return [y.detach().double(), *(t.double() for t in torch.autograd.grad(y.float().square().sum(), list(model.parameters())))]
    exact, blocks, dense = run(None, opened), run(torch.bfloat16), run(torch.bfloat16, lambda *a, **b: fused(*a, **b))
    for true, near, other in zip(exact, blocks, dense, strict=True):
        assert far(near, true) <= 1.5 * far(other, true) + 1e-3


def test_attention_maps_of_a_long_row_are_whole_and_change_nothing() -> None:
    model, ids = model_of(S.Window(before=31, after=0)), torch.randint(0, 19, (1, 600))
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


def documents(length: int, many: int) -> Tensor:
    return (torch.arange(length) // (length // many) + 1)[None]


CASES: dict[str, tuple[object, dict[str, object], Any]] = {
    "window": (S.Window(before=63, after=0), {}, lambda n: None),
    "two-sided window": (S.Window(before=32, after=32), {}, lambda n: None),
    "window with scores": (S.Window(before=63, after=0), {"score": S.Buckets(count=8, distance=20)}, lambda n: None),
    "window, shared scores": (S.Window(before=63, after=0), {"shared": S.Alibi()}, lambda n: None),
    "window, documents": (S.Window(before=63, after=0), {}, lambda n: documents(n, 4)),
    "window, left padding": (S.Window(before=63, after=0), {}, lambda n: ragged("left", n, n - 100)),
    "causal, documents": (S.Causal(), {}, lambda n: documents(n, 4)),
    "full, documents": (S.Full(), {}, lambda n: documents(n, 4)),
    "causal, left padding": (S.Causal(), {}, lambda n: ragged("left", n, n - 100)),
    "causal": (S.Causal(), {}, lambda n: None),
}


@pytest.mark.parametrize("name", CASES)
def test_no_tensor_is_quadratic_in_the_length_forward_or_backward(name: str) -> None:
    """Twice the length, twice the largest tensor at most; an (L, L) mask would be four times as large."""
    pattern, more, keep = CASES[name]
    model, largest = model_of(pattern, dtype=torch.float32, **more), []
    for length in (4096, 8192):
        with Largest() as seen:
            model(torch.zeros(1, length, dtype=torch.long), keep=keep(length)).sum().backward()
        largest.append(seen.many)
    assert largest[1] <= 2.01 * largest[0]
    assert largest[1] < 8192 * 8192 // 8


@torch.no_grad()
@pytest.mark.parametrize("keep", [None, ragged("left", 4096, 4000)], ids=["plain", "padded"])
@pytest.mark.parametrize("pattern", ["window", "causal"])
def test_reading_a_long_prompt_and_a_token_after_it_make_nothing_quadratic(pattern: str, keep: Tensor | None) -> None:
    model = model_of(PATTERNS[pattern], dtype=torch.float32)
    cache = model.cache(1, 4100)
    for n in (4096, 1):
        with Largest() as seen:
            model.decode(model.embed(torch.zeros(1, n, dtype=torch.long), keep=keep if n > 1 else None, cache=cache), cache=cache)
        assert seen.many <= max(4100 * 16, block_local.SCORES if n > 1 else 0)


@pytest.mark.parametrize("length", [64, 500, 2048, 5000])
@pytest.mark.parametrize("window", [S.Window(before=15, after=0), S.Window(before=64, after=64), S.Window(before=255, after=0)])
def test_flops_of_a_window_are_those_of_its_blocks(window: S.Window, length: int) -> None:
    """As computed, like all counts: a block's queries meet all keys that the block can reach. Linear in the length."""
    spec = model_of(window).spec
    meta = weft.build(spec, device="meta").requires_grad_(False).eval()
    with FlopCounterMode(display=False) as counter:
        meta(torch.zeros(2, length, dtype=torch.long, device="meta"))
    assert spec.flops(2, length) == counter.get_total_flops()
    assert spec.flops(length=1 << 16) == 2 * spec.flops(length=1 << 15)


def test_a_window_is_split_where_that_is_cheaper() -> None:
    assert window_block(S.Window(before=255, after=0), 512, 512) is None
    assert window_block(S.Window(before=255, after=0), 4096, 4096) == 128
    assert window_block(S.Window(before=64, after=64), 1, 5000) is None
    with torch.no_grad(), Largest() as seen:
        model_of(S.Window(before=4000, after=0))(torch.zeros(1, 1000, dtype=torch.long))
    assert seen.many < 1000 * 1000 // 2                        # wider than the row: the kernel's own triangle, no mask
