"""The fused and the unfused attention kernel, and attention maps."""

import itertools
from functools import partial

import pytest
import torch

import weft
from weft.nn.kernels.attention import eager_attention, sdpa_attention, sdpa_backward_is_slow
from weft.nn.kernels.matmul_attention import matmul_attention
from weft.observe.attention import attention_maps

MASKS = {
    "none": None,
    "bool": torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0)) > 0.4,
    "blind row": torch.ones(2, 1, 5, 7, dtype=torch.bool).index_fill(2, torch.tensor([2]), False),
    "added": torch.randn(1, 4, 5, 7, generator=torch.Generator().manual_seed(1)),
    "added and barred": torch.zeros(2, 4, 5, 7).masked_fill(
        torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(2)) > 0.5, float("-inf")
    ),
}


@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize(
    ("mask", "groups", "scale"), list(itertools.product(MASKS, (1, 2, 4), (None, 1.0)))
)
def test_the_fused_kernel_is_the_open_one_to_1e6_in_fp32_forward_and_backward(
    mask: str, groups: int, scale: float | None, softcap: float | None
) -> None:
    g = torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn(2, h, n, w, generator=g)
        for h, n, w in ((4, 5, 8), (groups, 7, 8), (groups, 7, 6))
    )
    results = []
    for kernel in (sdpa_attention, *([] if softcap else [matmul_attention]), eager_attention):
        parts = [t.clone().requires_grad_() for t in (q, k, v)]
        capped = partial(kernel, softcap=softcap) if softcap else kernel
        y = capped(*parts, MASKS[mask], causal=False, scale=scale, dropout=0.0)
        y.square().sum().backward()
        results.append([y.detach(), *(p.grad for p in parts)])
    for fast in results[:-1]:
        for a, b in zip(fast, results[-1], strict=True):
            assert torch.isfinite(a).all()
            assert (a - b).abs().max() <= 1e-6 * b.abs().max().clamp(min=1)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_learned_bias_has_its_gradient_from_products_as_in_the_open(rows: int) -> None:
    """As Swin's windows and T5's distances have it; some pairs are masked, one query sees
    nothing.
    """
    g = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 4, n, 8, generator=g) for n in (5, 7, 7))
    bias = torch.randn(rows, 4, 5, 7, generator=g)
    hidden = torch.rand(rows, 1, 5, 7, generator=g) < 0.3
    hidden[:, :, 2] = True
    results = []
    for kernel in (sdpa_attention, eager_attention):
        q_, k_, v_, bias_ = parts = [t.clone().requires_grad_() for t in (q, k, v, bias)]
        mask = bias_.masked_fill(hidden, float("-inf"))
        assert sdpa_backward_is_slow(q_, k_, mask)
        y = kernel(q_, k_, v_, mask, causal=False, scale=None, dropout=0.0)
        y.square().sum().backward()
        results.append([y.detach(), *(p.grad for p in parts)])
    assert not sdpa_backward_is_slow(q.clone().requires_grad_(), k, bias)
    for a, b in zip(*results, strict=True):
        assert (a - b).abs().max() <= 1e-6 * b.abs().max().clamp(min=1)


@pytest.mark.parametrize("causal", [True, False])
def test_products_in_bf16_stay_within_one_bf16_ulp_of_fp64_and_their_gradients_within_two(
    causal: bool,
) -> None:
    """In the mean; an ulp is 2^-7. torch's kernel, which keeps scores in fp32, has about half of
    the error.
    """
    g = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, 4, 64, 32, generator=g).bfloat16() for _ in range(3))

    def run(kernel: object, dtype: torch.dtype) -> list[torch.Tensor]:
        parts = [t.to(dtype).requires_grad_() for t in (q, k, v)]
        y = kernel(*parts)
        return [t.detach().double() for t in (y, *torch.autograd.grad(y.square().sum(), parts))]

    def torchs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert sdpa_backward_is_slow(q, k, None)
        return sdpa_attention(q, k, v, None, causal=causal, scale=None, dropout=0.0)

    for i, (true, found) in enumerate(
        zip(run(torchs, torch.float64), run(ours, torch.bfloat16), strict=True)
    ):
        assert float((found - true).norm() / true.norm()) <= 2 ** (-6 if i else -7)


def tiny() -> weft.Model:
    return weft.build(
        weft.t5(depth=2, width=16, heads=2, hidden=32, head_dim=8, vocab_size=32)
    ).eval()


def test_maps_are_seen_without_a_flag_and_change_nothing() -> None:
    model = tiny()
    ids = torch.randint(0, 32, (2, 6))
    targets = torch.randint(0, 32, (2, 4))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    plain = model(ids, targets, attention_mask=mask)
    with attention_maps(model) as maps:
        seen = model(ids, targets, attention_mask=mask)
    assert torch.allclose(plain, seen, atol=1e-5)
    assert len(maps) == 6
    for name, weight in maps.items():
        assert torch.allclose(weight.sum(-1), torch.ones(()), atol=1e-6), name
    assert (maps["encoder.blocks.0.attention.inner"][1, :, :, 4:] == 0).all()
    assert maps["decoder.blocks.0.attention.inner"].triu(1).abs().max() == 0
    assert maps["decoder.blocks.1.cross_attention.inner"].shape == (2, 2, 4, 6)
    assert all(m.backend is sdpa_attention for m in model.modules() if hasattr(m, "backend"))
