"""Causal language modelling."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft import recipe as R
from weft.data.batches.collate import pack
from weft.data.batches.loader import to_torch
from weft.nn.kernels.cross_entropy import IGNORE_INDEX
from weft.tasks.base import LengthLimitedSamples, Loss, Preprocess

from .cases import TEXT, bert, gpt
from .made import Given, batch, build_pair, meta, rows, texts


def causal(**more: Any) -> tuple[Preprocess, Loss]:
    corruption, objective = build_pair(R.CausalLM(**more), gpt(), meta(TEXT), dtype=torch.float64)
    return corruption, objective.eval()


def test_the_loss_is_that_of_every_token_given_those_before_it() -> None:
    corruption, objective = causal()
    samples = texts(3, 21, 20)
    by_hand = torch.zeros((), dtype=torch.float64)
    for i in range(3):
        tokens = torch.from_numpy(samples[i]["tokens"].astype(np.int64))
        for at in range(1, 21):  # one prefix at a time: nothing later can leak in
            by_hand += F.cross_entropy(objective.model(tokens[None, :at])[0, -1], tokens[at])
    found = objective(batch(corruption, rows(corruption, samples)))["token"]
    torch.testing.assert_close(found, by_hand, rtol=1e-12, atol=1e-12)


def test_separate_documents_do_not_attend_to_each_other() -> None:
    corruption, objective = causal(isolate_documents=True)
    samples = texts(4, 33, 32, seed=3, document=8)
    together = objective(batch(corruption, rows(corruption, samples)))["token"]
    alone = torch.zeros((), dtype=torch.float64)
    asked = 0
    for i in range(4):
        for piece in np.split(samples[i]["tokens"].astype(np.int64), samples[i]["documents"]):
            if len(piece) > 1:
                tokens = torch.from_numpy(piece)
                alone += F.cross_entropy(
                    objective.model(tokens[None, :-1])[0], tokens[1:], reduction="sum"
                )
                asked += len(piece) - 1
    assert corruption.loss_counts(batch(corruption, rows(corruption, samples))) == {"token": asked}
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)


def test_apart_numbers_documents_and_asks_no_label_across_their_border() -> None:
    sample = {"tokens": np.arange(10, 19), "documents": np.array([0, 3, 8])}
    row = causal(isolate_documents=True)[0](
        LengthLimitedSamples(Given([sample]), 8), 0, np.random.default_rng(0)
    )
    assert row["tokens_document_ids"].tolist() == [1, 1, 1, 2, 2, 2, 2, 2]
    assert row["labels"].tolist() == [11, 12, IGNORE_INDEX, 14, 15, 16, 17, IGNORE_INDEX]


def test_packed_documents_are_each_document_alone() -> None:
    corruption, objective = causal(one_document_per_sample=True)
    generator = np.random.default_rng(5)
    given = [{"tokens": generator.integers(5, 40, size=n)} for n in (3, 40, 9, 2, 17, 33)]
    samples = LengthLimitedSamples(Given(given), 32)
    made = [corruption(samples, i, generator) for i in range(6)]
    packed = to_torch(
        pack([[made[0], made[2], made[4]], [made[1]], [made[3]], [made[5]]], corruption.fields, 32)
    )
    alone = torch.zeros((), dtype=torch.float64)
    for sample in given:
        tokens = torch.from_numpy(sample["tokens"][:33])  # cut at the length
        alone += F.cross_entropy(objective.model(tokens[None, :-1])[0], tokens[1:], reduction="sum")
    torch.testing.assert_close(objective(packed)["token"], alone, rtol=1e-12, atol=1e-12)


def test_a_packed_row_may_end_in_more_padding_than_the_model_has_positions() -> None:
    corruption, objective = causal(one_document_per_sample=True)
    row = corruption(
        LengthLimitedSamples(Given([{"tokens": np.arange(10, 20)}]), 32),
        0,
        np.random.default_rng(0),
    )
    assert objective(to_torch(pack([[row]], corruption.fields, 200)))["token"].isfinite()


def test_a_batch_that_shares_rows_is_refused_where_a_row_has_one_answer() -> None:
    with pytest.raises(ValueError, match="one prediction per row"):
        R.Recipe(
            name="x",
            model=bert(),
            task=R.Classification(),
            data=R.Data(rows=R.LabelledTexts(), train=R.Source(paths=("a",))),
            steps=1,
            batch=R.PackedBatch(size=1, length=8),
            optimiser=R.AdamW(lr=1e-3),
        )
