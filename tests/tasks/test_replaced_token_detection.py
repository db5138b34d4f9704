"""Replaced token detection."""

from typing import Any

import numpy as np
import pytest
import torch

from weft import recipe as R
from weft.nn.kernels.cross_entropy import IGNORE_INDEX
from weft.nn.model import build, build_on_meta
from weft.spec import replace
from weft.tasks.base import Preprocess, masks
from weft.tasks.replaced_token_detection import (
    ReplacedTokenLoss,
    ReplacedTokenOutputs,
    sample_tokens,
)
from weft.training.parallel.sharding import allocate, initialise_shards

from .cases import SENTENCES, electra
from .made import SPECIAL, VOCABULARY, batch, build_pair, meta, near, rows, sure, texts


def replaced(**more: Any) -> tuple[Preprocess, ReplacedTokenLoss]:
    model, generator = electra()
    corruption, objective = build_pair(
        R.ReplacedTokenDetection(generator=generator, **more),
        model,
        meta(SENTENCES),
        dtype=torch.float64,
    )
    return corruption, objective.eval()


def test_every_chosen_token_is_masked_and_the_share_is_as_asked() -> None:
    corruption, _ = replaced(mask_rate=0.25)
    given = rows(corruption, texts(1000, 1000, 1002))
    off = []
    for row in given:
        chosen = row["labels"] != IGNORE_INDEX
        assert ((row["tokens"] == SPECIAL["mask"]) == chosen).all()
        off.append(chosen.sum() - 0.25 * (np.where(chosen, row["labels"], row["tokens"]) > 4).sum())
    assert np.abs(off).max() < 1
    assert abs(np.mean(off)) < 5 * 0.5 / 1000**0.5
    uniform = np.concatenate([row["uniform"] for row in given])
    assert all(near(c, len(uniform), 0.1) for c in np.histogram(uniform, 10, (0, 1))[0])


def test_the_generator_s_words_follow_its_softmax() -> None:
    logits = torch.randn(9, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    uniform = torch.rand(1_000_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn = sample_tokens(logits.expand(1_000_000, 9), uniform)
    assert all(
        near((drawn == i).sum().item(), 1_000_000, p)
        for i, p in enumerate(logits.softmax(0).tolist())
    )


@pytest.mark.parametrize("mask_rate", [0.15, 0.4])
def test_the_bias_of_the_output_starts_at_the_share_of_replaced_tokens(mask_rate: float) -> None:
    """Else the trunk learns this constant, as one vector that all tokens have in common."""
    _, objective = replaced(mask_rate=mask_rate)
    assert objective.model.head.out.bias.sigmoid().item() == pytest.approx(mask_rate)
    _, every = replaced(mask_rate=1.0)
    assert every.model.head.out.bias.isfinite()


def test_a_trained_model_and_other_heads_keep_the_bias_of_their_output() -> None:
    model, generator = electra()
    trained = build(model)
    trained.head.out.bias.data.fill_(0.25)
    task = R.ReplacedTokenDetection(generator=generator)
    _, objective = build_pair(task, model, meta(SENTENCES), model=trained)
    assert objective.model.head.out.bias.item() == 0.25
    assert build(model).head.out.bias.item() == 0


def test_the_bias_starts_there_too_where_every_rank_has_only_parts() -> None:
    model, generator = electra()
    task = R.ReplacedTokenDetection(generator=generator)
    _, objective = build_pair(task, model, meta(SENTENCES), model=build_on_meta(model))
    allocate(objective.model, torch.device("cpu"))
    initialise_shards(objective.model, model, 0)
    assert objective.model.head.out.bias.sigmoid().item() == pytest.approx(0.15)


def test_no_gradient_passes_through_what_was_drawn() -> None:
    corruption, objective = replaced()
    made = batch(corruption, rows(corruption, texts(5, 38, 40)))
    objective(made)["replaced"].backward()
    shared = {id(p) for p in objective.model.parameters()}
    assert all(p.grad is None for p in objective.generator.parameters() if id(p) not in shared)
    assert all(p.grad is not None for p in objective.model.parameters())


def test_a_drawn_token_that_is_the_text_s_own_counts_as_original() -> None:
    corruption, objective = replaced()
    made = batch(corruption, rows(corruption, texts(5, 38, 40)))
    labels = made["labels"][made["labels"] != IGNORE_INDEX]
    drawn = labels.clone()
    drawn[::2] = (drawn[::2] + 1) % VOCABULARY  # every other one is wrong
    truth = torch.full(made["tokens"].shape, -1e4, dtype=torch.float64)
    truth[made["labels"] != IGNORE_INDEX] = torch.where(drawn == labels, -1e4, 1e4).double()
    assert objective.loss_sums(
        ReplacedTokenOutputs(sure(labels, VOCABULARY), drawn, truth), made
    ) == {
        "token": 0,
        "replaced": 0,
    }
    assert objective.loss_sums(ReplacedTokenOutputs(sure(labels, VOCABULARY), labels, truth), made)[
        "replaced"
    ] == 1e4 * len(labels[::2])


def test_the_model_reads_the_text_with_the_drawn_tokens_in_place_of_masks() -> None:
    corruption, objective = replaced()
    made = batch(corruption, rows(corruption, texts(5, 38, 40)))
    answer = objective.forward_outputs(made)
    filled = made["tokens"].clone()
    filled[made["labels"] != IGNORE_INDEX] = answer.drawn_T
    expected = objective.model(filled, **masks(made))[..., 0]
    torch.testing.assert_close(answer.replaced_BL, expected, rtol=1e-12, atol=1e-12)
    assert (
        answer.drawn_T.tolist()
        == sample_tokens(
            answer.logits_TV.detach(), made["uniform"].flatten()[made["labels_at"]]
        ).tolist()
    )
    assert len(set(answer.drawn_T.tolist())) > 5


def test_both_models_start_with_numbers_of_their_own() -> None:
    model, generator = electra()
    same = replace(model, head=generator.head)
    _, objective = build_pair(R.ReplacedTokenDetection(generator=same), model, meta(SENTENCES))
    ours = objective.model.encoder
    theirs = objective.generator.encoder
    for name, weight in ours.named_parameters():
        if weight.dim() == 2:
            assert not torch.equal(weight, theirs.get_parameter(name)), name
