"""Invariants of every task."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from weft.data.batches.collate import pack
from weft.nn.kernels.cross_entropy import IGNORE_INDEX
from weft.nn.layers.mixture_of_experts import MixtureOfExpertsLayer
from weft.tasks.base import ROUTER_TERMS, ArrayRow, LengthLimitedSamples, Loss, Preprocess

from .cases import CASES
from .made import batch, build_pair, collate, gradients, loss, rows, to_torch

Built = tuple[Preprocess, Loss, LengthLimitedSamples]


def built(name: str) -> Built:
    value, spec, meta, samples = CASES[name]()
    corruption, objective = build_pair(value, spec, meta, seed=1, dtype=torch.float64)
    return corruption, objective.eval(), samples


@pytest.fixture(params=CASES, scope="module")
def made(request: pytest.FixtureRequest) -> Built:
    return built(request.param)


def close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_samples_are_never_written_to(made: Built) -> None:
    corruption, _, samples = made
    before = pickle.dumps(samples)
    rows(corruption, samples)
    assert pickle.dumps(samples) == before


def test_terms_counts_sums_and_weights_have_the_same_names(made: Built) -> None:
    corruption, objective, samples = made
    whole = batch(corruption, rows(corruption, samples))
    sums = objective(whole)
    routers = (
        set(ROUTER_TERMS)
        if any(isinstance(m, MixtureOfExpertsLayer) for m in objective.modules())
        else set()
    )
    assert (
        {*corruption.terms, *routers}
        == corruption.loss_counts(whole).keys()
        == sums.keys()
        == objective.weights.keys()
    )
    assert all(
        value.dim() == 0 and value.dtype == torch.float64 and value > 0 for value in sums.values()
    )
    assert all(count > 0 for count in corruption.loss_counts(whole).values())


def test_every_parameter_gets_a_gradient(made: Built) -> None:
    corruption, objective, samples = made
    loss(objective, corruption, [batch(corruption, rows(corruption, samples))])
    for name, grad in gradients(objective).items():
        # adds the same to every score of a query: softmax does not see it
        if not name.endswith("key.bias"):
            assert grad.any(), name
        assert grad.isfinite().all(), name


def test_a_micro_batch_of_few_labels_weighs_no_more_than_they_do(made: Built) -> None:
    corruption, objective, samples = made
    given = rows(corruption, samples)
    if "labels" in corruption.fields:  # three labels in the first, all others in the second
        labels = given[0]["labels"].copy()
        labels[np.flatnonzero(labels != IGNORE_INDEX)[3:]] = IGNORE_INDEX
        given[0] = {**given[0], "labels": labels}
    whole = loss(objective, corruption, [batch(corruption, given)])
    expected = gradients(objective)
    close(
        loss(objective, corruption, [batch(corruption, given[:1]), batch(corruption, given[1:])]),
        whole,
    )
    close(gradients(objective), expected)


def padded(array: np.ndarray, widths: tuple[int, ...], value: Any) -> np.ndarray:
    return np.pad(
        array,
        [(0, w) for w in widths] + [(0, 0)] * (array.ndim - len(widths)),
        constant_values=value,
    )


def widen(
    corruption: Preprocess, given: list[ArrayRow], down: int, right: int
) -> dict[str, torch.Tensor]:
    """The batch with more padding: rows below, columns at the right."""
    plain = {
        name: value
        for name, value in collate(given, corruption.fields).items()
        if not name.endswith("_at")
    }
    for stream, first in {
        stream: field for field, (stream, _) in reversed(corruption.fields.items())
    }.items():
        if f"{stream}_document_ids" not in plain:
            plain.setdefault(f"{stream}_attention_mask", np.ones(plain[first].shape, bool))
    wide = {}
    for name, value in plain.items():
        ragged = name in corruption.fields or name.endswith("_attention_mask")
        fill = IGNORE_INDEX if name.startswith("labels") else 0
        if name in corruption.fields:
            fill = corruption.fields[name][1]
        wide[name] = padded(value, (down, right) if ragged else (down,), fill)
    at = {
        f"{name}_at": np.flatnonzero(value.ravel() != IGNORE_INDEX)
        for name, value in wide.items()
        if name.startswith("labels")
    }
    return to_torch({**wide, **at})


@pytest.mark.parametrize(("down", "right"), [(0, 5), (3, 0), (2, 3)])
def test_padding_changes_nothing(made: Built, down: int, right: int) -> None:
    corruption, objective, samples = made
    given = rows(corruption, samples)
    tight = batch(corruption, given)
    wide = widen(corruption, given, down, right)
    assert corruption.loss_counts(wide) == corruption.loss_counts(tight)
    whole = loss(objective, corruption, [tight])
    expected = gradients(objective)
    close(loss(objective, corruption, [wide]), whole)
    close(gradients(objective), expected)


def test_several_samples_in_one_row_score_as_they_do_alone(made: Built) -> None:
    corruption, objective, samples = made
    given = rows(corruption, samples)
    if given[0].keys() != corruption.fields.keys():
        pytest.skip("it has fields that are not in a stream")
    whole = loss(objective, corruption, [batch(corruption, given)])
    expected = gradients(objective)
    packed = to_torch(
        pack([given[i : i + 2] for i in range(0, len(given), 2)], corruption.fields, 64)
    )
    assert corruption.loss_counts(packed) == corruption.loss_counts(batch(corruption, given))
    close(loss(objective, corruption, [packed]), whole)
    close(gradients(objective), expected)


def test_a_seed_decides_every_number_that_is_trained(
    made: Built, request: pytest.FixtureRequest
) -> None:
    _, objective, _ = made
    again = built(request.node.callspec.params["made"])[1]
    close(dict(again.named_parameters()), dict(objective.named_parameters()))


def test_even_routing_has_balance_one_whatever_the_objective_reads(made: Built) -> None:
    corruption, objective, samples = made
    if "balance" not in objective.weights:
        pytest.skip("it has no experts")
    # as its spec says
    assert (objective.weights["balance"], objective.weights["router_z"]) == (
        0.5,
        0.1,
    )
    whole = batch(corruption, rows(corruption, samples))
    routers = [m.router for m in objective.modules() if isinstance(m, MixtureOfExpertsLayer)]
    before = [router.weight.detach().clone() for router in routers]
    with torch.no_grad():
        for router in routers:
            router.weight.zero_()  # all probabilities alike: their product with any shares is 1
    sums = objective(whole)
    count = corruption.loss_counts(whole)
    with torch.no_grad():
        for router, weight in zip(routers, before, strict=True):
            router.weight.copy_(weight)
    close(sums["balance"].item() / count["balance"], 1.0)
    close(sums["router_z"].item() / count["router_z"], float(np.log(3)) ** 2)
