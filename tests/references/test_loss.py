"""The cross entropy that never holds float32 logits, beside torch's own."""

import pytest
import torch
import torch.nn.functional as F

from weft.nn.kernels.cross_entropy import IGNORE_INDEX, cross_entropy

CASES = [(7, 11), (1, 3), (300, 1500), (5, 300_000)]


def inputs(T: int, V: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(T)
    label_T = torch.randint(V, (T,))
    label_T[1::3] = IGNORE_INDEX
    return (torch.randn(T, V, dtype=torch.float64) * 3).to(dtype).requires_grad_(), label_T


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("T", "V"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_loss_and_gradient_are_those_of_torch(
    dtype: torch.dtype, tolerance: float, T: int, V: int, smoothing: float
) -> None:
    logits_TV, label_T = inputs(T, V, dtype)
    ours = cross_entropy(logits_TV, label_T, smoothing)
    exact = logits_TV.detach().double().requires_grad_()
    theirs = F.cross_entropy(exact, label_T, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)
    grads = [
        torch.autograd.grad(loss * 0.7, x)[0].double()
        for loss, x in ((ours, logits_TV), (theirs, exact))
    ]
    torch.testing.assert_close(*grads, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("T", [0, 4])
def test_without_a_label_the_loss_is_0_and_so_is_its_gradient(T: int) -> None:
    logits_TV = torch.randn(T, 9, requires_grad=True)
    loss = cross_entropy(logits_TV, torch.full((T,), IGNORE_INDEX))
    loss.backward()
    assert loss.item() == 0
    assert not logits_TV.grad.any()


def test_bfloat16_logits_give_a_float32_loss_and_a_bfloat16_gradient() -> None:
    logits_TV, label_T = inputs(300, 1500, torch.bfloat16)
    loss = cross_entropy(logits_TV, label_T)
    loss.backward()
    exact = logits_TV.detach().double().requires_grad_()
    theirs = F.cross_entropy(exact, label_T, reduction="sum")
    theirs.backward()
    assert loss.dtype == torch.float32
    assert logits_TV.grad.dtype == torch.bfloat16
    torch.testing.assert_close(loss.double(), theirs, rtol=1e-6, atol=0)
    torch.testing.assert_close(logits_TV.grad, exact.grad.to(torch.bfloat16), rtol=2**-7, atol=1e-9)


def test_masked_logits_have_no_gradient() -> None:
    logits_TV, label_T = inputs(7, 11, torch.float32)
    hidden = logits_TV.detach().clone()
    hidden[:, 3] = float("-inf")
    label_T[label_T == 3] = 4
    hidden.requires_grad_()
    cross_entropy(hidden, label_T).backward()
    assert hidden.grad.isfinite().all()
    assert not hidden.grad[:, 3].any()


def test_logits_beyond_the_labels_count_for_nothing() -> None:
    logits_TV, label_T = inputs(7, 11, torch.float64)
    grads = [
        torch.autograd.grad(loss, logits_TV)[0]
        for loss in (
            cross_entropy(logits_TV, label_T[:4], 0.1),
            cross_entropy(logits_TV[:4], label_T[:4], 0.1),
        )
    ]
    assert torch.equal(*grads)
    assert not grads[0][4:].any()
