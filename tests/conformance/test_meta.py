"""Every family and task runs on the meta device, where a tensor created on a fixed device raises an
error.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import weft
from tests.references.test_start import SPECS
from tests.tasks import test_distillation as test_distil
from tests.tasks import test_masked_autoencoding as test_autoencode
from tests.tasks.cases import CASES
from tests.tasks.made import batch, build_pair, rows
from weft import recipe as R
from weft import spec as S
from weft.data.batches.collate import SAMPLES
from weft.nn.kernels.keyed_random import sample_numbers
from weft.tasks.base import Batch, Loss

# `keyed_random.call_word` takes one number of the CPU's generator, so that every device drops the
# same.
ALLOWED = {"aten.randint.default"}


class OneDevice(TorchDispatchMode):
    """Collects every operation that makes a tensor on another device."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.strays = set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if any(isinstance(t, Tensor) and t.device.type != self.device for t in tree_leaves(found)):
            self.strays |= {str(func)} - ALLOWED
        return found


def family_inputs(s: S.Spec) -> tuple[Tensor, Tensor | None]:
    targets = None
    if isinstance(s.target, S.Tokens | S.SharedTokens):
        targets = torch.zeros(2, 5, dtype=torch.long, device="meta")
    if isinstance(s.source, S.Tokens):
        return torch.zeros(2, 7, dtype=torch.long, device="meta"), targets
    side = s.source.image_size if isinstance(s.source, S.Patches) else 64
    return torch.zeros(2, s.source.channels, side, side, device="meta"), targets


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_every_family_runs_forwards_and_backwards_on_meta(name: str, training: bool) -> None:
    s = SPECS[name]
    model = weft.build(s, device="meta").train(training)
    inputs, targets = family_inputs(s)
    mask = None
    if isinstance(s.source, S.Tokens):
        mask = torch.ones(inputs.shape, dtype=torch.bool, device="meta")
    with OneDevice("meta") as mode:
        output = model(inputs, targets, attention_mask=mask)
        tensors = [output] if isinstance(output, Tensor) else [t for t in output if t is not None]
        sum(t.float().sum() for t in tensors).backward()
    assert mode.strays == set()
    assert all(p.grad is None or p.grad.is_meta for p in model.parameters())
    assert any(p.grad is not None for p in model.parameters())


def case(name: str) -> Callable[[], tuple[Loss, Batch]]:
    def made() -> tuple[Loss, Batch]:
        value, s, meta, samples = CASES[name]()
        preprocess, loss = build_pair(value, s, meta, seed=1)
        return loss, batch(preprocess, rows(preprocess, samples)[:4])

    return made


def autoencoder() -> Any:
    preprocess, loss = build_pair(
        R.MaskedAutoencoding(), test_autoencode.mae(), test_autoencode.KNOWN, seed=1
    )
    return preprocess, loss, test_autoencode.images(4, test_autoencode.mae())


def built(make: Callable[[], Any]) -> Callable[[], tuple[Loss, Batch]]:
    def made() -> tuple[Loss, Batch]:
        preprocess, loss, samples = make()
        return loss.float(), batch(preprocess, rows(preprocess, samples)[:4])

    return made


TASKS = {
    **{name: case(name) for name in CASES},
    **{f"distil, {name}": built(partial(test_distil.built, name)) for name in test_distil.CASES},
    "autoencode": built(autoencoder),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_every_task_runs_forwards_and_backwards_on_meta(name: str, training: bool) -> None:
    loss, inputs = TASKS[name]()
    loss = loss.to("meta").train(training)
    inputs = {field: tensor.to("meta") for field, tensor in inputs.items()}
    samples = inputs.pop(SAMPLES, None)
    with OneDevice("meta") as mode, sample_numbers(samples):
        terms = loss(inputs)
        sum(terms[term] for term in loss.weights).backward()
    assert mode.strays == set()
    assert all(term.is_meta for term in terms.values())
    assert any(p.grad is not None for p in loss.parameters())
