"""Dropout that draws 16 bits a number, beside the formula with the same draws."""

import pytest
import torch

from weft.nn.kernels import keyed_random
from weft.nn.kernels.attention import attention_weights
from weft.nn.kernels.dropout import dropout, kept_fraction_16bit
from weft.nn.kernels.keyed_random import (
    MASK_LEVELS,
    indexed_words,
    random_attention_mask,
    random_mask,
    random_mask_fast,
    random_mask_slow,
    row_keys,
    sample_numbers,
)
from weft.nn.kernels.matmul_attention import matmul_attention
from weft.nn.layers.dropout import Dropout, DropPath

DTYPES = [torch.float32, torch.bfloat16, torch.float64]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.93])
def test_a_million_draws_have_the_mean_and_the_spread_of_their_rate(rate: float) -> None:
    torch.manual_seed(0)
    many = 1_000_000
    y = dropout(torch.ones(many, dtype=torch.float64), rate)
    spread = (rate / (1 - rate)) ** 0.5
    assert abs(y.mean() - 1) < 4 * spread / many**0.5
    assert abs(y.std() / spread - 1) < 0.01
    dropped = (y == 0).double()
    assert abs(dropped.mean() - rate) < 4 * (rate * (1 - rate) / many) ** 0.5 + 1 / MASK_LEVELS
    # neighbours, within a random word and beyond it, know nothing of one another
    for step in (
        1,
        2,
        3,
        4,
        256,
    ):
        assert (
            abs(torch.corrcoef(torch.stack((dropped[step:], dropped[:-step])))[0, 1])
            < 5 / many**0.5
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (5,), (2, 0, 3), (3, 7, 5)])
def test_result_and_gradient_are_the_draws_times_one_over_their_share(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    torch.manual_seed(3)
    y = dropout(x, 0.3)
    torch.manual_seed(3)
    kept = kept_fraction_16bit(0.3)
    mask = random_mask(x.shape, kept).double() * (MASK_LEVELS / kept)
    assert y.dtype == dtype
    torch.testing.assert_close(y.detach(), (x.detach().double() * mask).to(dtype))
    g = torch.randn(shape, dtype=dtype)
    torch.testing.assert_close(torch.autograd.grad(y, x, g)[0], (g.double() * mask).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_transposed_tensor_is_dropped_in_its_own_order(dtype: torch.dtype) -> None:
    x = torch.randn(5, 6, dtype=dtype)
    found = []
    for t in (x.T, x.T.contiguous()):
        torch.manual_seed(4)
        found.append(dropout(t, 0.5))
    assert torch.equal(*found)


def test_a_tiny_rate_drops_some_and_a_huge_rate_keeps_some() -> None:
    assert kept_fraction_16bit(1e-9) == MASK_LEVELS - 1
    assert kept_fraction_16bit(1 - 1e-9) == 1
    assert 0 < random_mask(torch.Size((1 << 21,)), MASK_LEVELS - 1).sum() < 1 << 21
    assert 0 < random_mask(torch.Size((1 << 21,)), 1).sum() < 200


def test_a_gradient_can_be_derived_again() -> None:
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(6)
        return dropout(x, 0.5).pow(3)

    assert torch.autograd.gradgradcheck(f, x)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 2**-6)]
)
def test_attention_with_dropped_weights_is_the_open_formula_with_the_same_draws(
    dtype: torch.dtype, tolerance: float, groups: int, causal: bool
) -> None:
    g = torch.Generator().manual_seed(7)
    q, k, v = (
        torch.randn(2, h, 9, w, generator=g, dtype=torch.float64).to(dtype)
        for h, w in ((4, 8), (groups, 8), (groups, 6))
    )
    mask = None if causal else torch.rand(2, 1, 9, 9, generator=g) > 0.3
    out = torch.randn(2, 4, 9, 6, generator=g, dtype=torch.float64)
    kept = kept_fraction_16bit(0.2)

    def fast(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return matmul_attention(q, k, v, mask, causal=causal, scale=None, dropout=0.2)

    def slow(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weight = (
            attention_weights(q, k, mask, causal, None)
            * random_attention_mask(torch.Size((2, 4, 9, 9)), kept).double()
            * (MASK_LEVELS / kept)
        )
        return weight @ v.repeat_interleave(4 // groups, 1)

    found = []
    for kernel, kind in ((fast, dtype), (slow, torch.float64)):
        parts = [t.to(kind).requires_grad_() for t in (q, k, v)]
        torch.manual_seed(8)
        y = kernel(*parts)
        found.append(
            [t.detach().double() for t in (y, *torch.autograd.grad(y, parts, out.to(kind)))]
        )
    for ours, true in zip(*found, strict=True):
        assert float((ours - true).norm() / true.norm()) <= tolerance


@pytest.mark.slow
def test_a_compiled_dropout_has_the_same_share_and_scale() -> None:
    torch.manual_seed(0)
    y = torch.compile(Dropout(0.25), fullgraph=True)(torch.ones(100_000))
    assert abs((y == 0).double().mean() - 0.25) < 0.01
    assert torch.allclose(y[y != 0], torch.tensor(4 / 3))


# Which numbers belong to which token

CPU = torch.device("cpu")
PACKED = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]])


@pytest.mark.parametrize("chunk", [1, 50, 1 << 15])
@pytest.mark.parametrize(
    ("rows", "heads", "length", "n"),
    [(3, 2, 5, 7), (2, 1, 130, 300), (2, 3, 7, 260), (1, 1, 1, 1001), (5, 1, 9, 3)],
)
def test_the_fast_draw_has_the_bits_of_the_slow_one(
    rows: int, heads: int, length: int, n: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_random, "CHUNK", chunk)
    keys = row_keys(rows, length, CPU)
    table = indexed_words(indexed_words(torch.tensor(5), 2 * heads).view(2, heads, 1), -(-n // 4))
    fast, slow = (f(keys, table, n, -9000) for f in (random_mask_fast, random_mask_slow))
    assert fast.shape == (rows, heads, length, n)
    assert torch.equal(fast, slow)


def test_the_fast_draw_of_packed_rows_has_the_bits_of_the_slow_one_within_every_document() -> None:
    with sample_numbers(torch.tensor([[0, 5, 6, 7], [0, 9, 0, 0]])):
        keys = row_keys(2, 10, CPU, PACKED)
    table = indexed_words(indexed_words(torch.tensor(5), 4).view(2, 2, 1), 3)
    same = ((PACKED[:, :, None] == PACKED[:, None, :]) & (PACKED != 0)[:, :, None])[:, None]
    fast, slow = (f(keys, table, 10, 0) * same for f in (random_mask_fast, random_mask_slow))
    assert torch.equal(fast, slow)
    with sample_numbers(torch.tensor([6])):  # the second document by itself
        alone = random_mask_fast(row_keys(1, 4, CPU), table[..., :1], 4, 0)
    assert torch.equal(fast[:1, :, 3:7, 3:7], alone)


def test_tokens_heads_and_calls_know_nothing_of_one_another() -> None:
    """Correlations of all kinds of pairs, and of the products of four that lie at the corners of a
    rectangle of tokens and words.
    """
    torch.manual_seed(11)
    kept = [
        random_attention_mask(torch.Size((16, 4, 64, 256)), MASK_LEVELS // 2).double() * 2 - 1
        for _ in range(2)
    ]
    x = kept[0]
    most = 5 / kept[0][..., :-4].numel() ** 0.5
    assert float(x.mean()) == pytest.approx(0, abs=most)
    for a, b in (
        (kept[0], kept[1]),
        (x[1:], x[:-1]),
        (x[:, 1:], x[:, :-1]),
        (x[:, :, 1:], x[:, :, :-1]),
        *((x[..., step:], x[..., :-step]) for step in (1, 2, 3, 4)),
    ):
        assert float((a * b).mean()) == pytest.approx(0, abs=1.5 * most)
    for step in (1, 4):
        corners = (
            x[:, :, 1:, step:] * x[:, :, :-1, step:] * x[:, :, 1:, :-step] * x[:, :, :-1, :-step]
        )
        assert float(corners.mean()) == pytest.approx(0, abs=1.5 * most)
    for lane in range(4):  # every 16 bits of a word, not their mean alone
        assert float(x[..., lane::4].mean()) == pytest.approx(0, abs=3 * most)


@pytest.mark.parametrize("layer", [Dropout(0.5), DropPath(0.5)])
def test_dropout_of_a_sample_does_not_depend_on_its_batch(layer: torch.nn.Module) -> None:
    x = torch.ones(6, 5, 8)
    numbers = torch.tensor([40, 41, 42, 43, 44, 45])
    found = []
    for rows in ([0, 1, 2, 3, 4, 5], [4, 2]):
        torch.manual_seed(12)
        with sample_numbers(numbers[rows]):
            found.append(layer(x[rows]))
    assert torch.equal(found[0][[4, 2]], found[1])
    assert len(found[0].unique(dim=0)) > 1
