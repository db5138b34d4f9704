"""Windows and Linformer against attention written out cell by cell."""

import pytest
import torch

from weft import spec as S
from weft.nn.kernels.masks import Positions
from weft.nn.layers.attention import AttentionContext
from weft.nn.layers.images.shifted_windows import ShiftedWindowAttention
from weft.nn.layers.linformer import LinformerAttention
from weft.observe.attention import attention_maps


def started(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(0)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0, 0.4)
    return module


def run(m: ShiftedWindowAttention, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A random grid and the attention's answer."""
    x = torch.randn(2, rows * columns, 8, dtype=torch.float64)
    at = torch.arange(rows * columns)[None]
    return x, m(
        x, None, AttentionContext(Positions(at, at, first_query_slot=0), grid=(rows, columns))
    )


@pytest.mark.parametrize(
    ("rows", "columns", "shift"), [(6, 6, 0), (6, 6, 1), (5, 7, 1), (4, 8, 2), (3, 3, 1), (3, 7, 1)]
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_shifted_windows_are_a_mask_and_a_bias_on_the_padded_grid(
    rows: int, columns: int, shift: int, has_bias: bool
) -> None:
    size = 3
    width = 8
    pattern = S.ShiftedWindows(size=size, shift=shift, bias=has_bias)
    m = started(ShiftedWindowAttention(S.Attention(heads=2, pattern=pattern), width)).double()
    x, found = run(m, rows, columns)

    shifted = shift if min(rows, columns) > size else 0
    R = -(-rows // size) * size
    C = -(-columns // size) * size
    padded = torch.zeros(2, R, C, width, dtype=torch.float64)
    padded[:, :rows, :columns] = x.view(2, rows, columns, width)
    cells = [(r, c) for r in range(R) for c in range(C)]

    def place(r: int, c: int) -> tuple[int, int]:  # where the shift moves a cell
        return (r - shifted) % R, (c - shifted) % C

    allowed = torch.zeros(R * C, R * C, dtype=torch.bool)
    bias = torch.zeros(2, R * C, R * C, dtype=torch.float64)
    for i, a in enumerate(cells):
        for j, b in enumerate(cells):
            (ar, ac) = place(*a)
            (br, bc) = place(*b)
            neighbours = (a[0] >= shifted) == (b[0] >= shifted) and (a[1] >= shifted) == (
                b[1] >= shifted
            )
            if ar // size == br // size and ac // size == bc // size and neighbours:
                allowed[i, j] = True
                if m.offsets is None:
                    continue
                bias[:, i, j] = m.offsets.weight[
                    (ar - br + size - 1) * (2 * size - 1) + ac - bc + size - 1
                ]
    flat = padded.view(2, R * C, width)
    q, k, v = (t(flat).unflatten(-1, (2, 4)).transpose(1, 2) for t in (m.query, m.key, m.value))
    score = (q @ k.transpose(-1, -2) / 2 + bias).masked_fill(~allowed, float("-inf"))
    slow = (
        m.out((score.softmax(-1) @ v).transpose(1, 2).flatten(2))
        .view(2, R, C, width)[:, :rows, :columns]
        .flatten(1, 2)
    )
    assert (found - slow).abs().max() < 1e-12
    weights = list(m.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(found.square().sum(), weights),
        torch.autograd.grad(slow.square().sum(), weights),
        strict=True,
    ):
        assert (ours - theirs).abs().max() < 1e-10


def maps_of(m: ShiftedWindowAttention, rows: int, columns: int) -> torch.Tensor:
    """The attention weights, (windows, heads, cells, cells)."""
    with attention_maps(m) as maps:
        run(m, rows, columns)
    return maps[""]


@pytest.mark.parametrize("size", [2, 3, 5, 7])
@pytest.mark.parametrize("bias", [True, False])
def test_a_grid_that_fits_in_the_window_is_one_window_and_nothing_outside_it_is_attended_to(
    size: int, bias: bool
) -> None:
    """Before, the grid was padded to the window and the padding took the weight: this test's twin
    padded as the code did.
    """
    m = started(
        ShiftedWindowAttention(
            S.Attention(heads=2, pattern=S.ShiftedWindows(size=size, shift=1, bias=bias)), 8
        )
    ).double()
    for rows in range(1, size + 1):
        for columns in range(1, size + 1):
            weight = maps_of(m, rows, columns)
            assert weight.shape == (2, 2, rows * columns, rows * columns)
            assert torch.allclose(weight.sum(-1), torch.ones((), dtype=torch.float64))


def test_linformer_is_attention_over_projected_keys_and_values() -> None:
    m = started(
        LinformerAttention(S.Attention(heads=2, pattern=S.Linformer(length=10, rank=3)), 8)
    ).double()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    at = torch.arange(7)[None]
    q, k, v = (t(x).unflatten(-1, (2, 4)).transpose(1, 2) for t in (m.query, m.key, m.value))
    k = torch.einsum("mr,bhmk->bhrk", m.keys.weight[:7], k)
    v = torch.einsum("mr,bhmk->bhrk", m.values.weight[:7], v)
    slow = m.out(((q @ k.transpose(-1, -2) / 2).softmax(-1) @ v).transpose(1, 2).flatten(2))
    assert (
        m(x, None, AttentionContext(Positions(at, at, first_query_slot=0))) - slow
    ).abs().max() < 1e-12
    with pytest.raises(ValueError, match=r"tokens exceed Linformer\.length"):
        m(
            torch.randn(1, 11, 8, dtype=torch.float64),
            None,
            AttentionContext(
                Positions(torch.arange(11)[None], torch.arange(11)[None], first_query_slot=0)
            ),
        )
