"""Collation: values, padding and labels of batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.data.batches.batching import SampleIndex
from weft.data.batches.collate import (
    IGNORE_INDEX,
    ArrayRow,
    RaggedFields,
    attention_mask,
    build_batch,
    collate,
    count_tokens,
    pack,
)
from weft.data.batches.loader import to_torch
from weft.nn.kernels import cross_entropy
from weft.support.order import SampleGenerators, sample_generator

from ..made import Copy, Lists

FIELDS: RaggedFields = {
    "tokens": ("tokens", 9),
    "labels": ("tokens", IGNORE_INDEX),
    "target": ("target", 7),
}
ROWS: list[ArrayRow] = [
    {
        "tokens": np.array([1, 2, 3], np.uint16),
        "labels": np.array([IGNORE_INDEX, 5, 6]),
        "target": np.array([4]),
        "label": np.asarray(1),
    },
    {
        "tokens": np.array([8], np.uint16),
        "labels": np.array([0]),
        "target": np.array([5]),
        "label": np.asarray(0),
    },
]


def test_rows_are_padded_to_the_longest_of_their_stream() -> None:
    batch = collate(ROWS, FIELDS)
    assert batch["tokens"].tolist() == [[1, 2, 3], [8, 9, 9]]
    assert batch["labels"].tolist() == [[IGNORE_INDEX, 5, 6], [0, IGNORE_INDEX, IGNORE_INDEX]]
    assert batch["tokens_attention_mask"].tolist() == [[True, True, True], [True, False, False]]
    assert batch["labels_at"].tolist() == [1, 2, 3]
    assert batch["target"].tolist() == [[4], [5]]
    assert "target_attention_mask" not in batch  # nothing of it is padded
    assert batch["label"].tolist() == [1, 0]
    assert count_tokens(batch, FIELDS) == 6


def test_packed_rows_are_concatenated_and_numbered() -> None:
    first, second = ROWS
    batch = pack([[first, second, first], [second]], FIELDS, 8)
    assert batch["tokens"].tolist() == [[1, 2, 3, 8, 1, 2, 3, 9], [8, 9, 9, 9, 9, 9, 9, 9]]
    assert batch["tokens_document_ids"].tolist() == [
        [1, 1, 1, 2, 3, 3, 3, 0],
        [1, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch["target"].tolist() == [[4, 5, 4, 7, 7, 7, 7, 7], [5, 7, 7, 7, 7, 7, 7, 7]]
    assert batch["target_document_ids"].tolist() == [
        [1, 2, 3, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch["labels_at"].tolist() == [1, 2, 3, 5, 6, 8]
    assert batch["label"].tolist() == [1, 0, 1, 0]
    assert count_tokens(batch, FIELDS) == 12


def test_padding_stands_in_one_field_per_stream_and_the_mask_reads_either() -> None:
    first, second = ROWS
    padded = collate([first, second], FIELDS)
    packed = pack([[first, second]], FIELDS, 8)
    assert [name for name in padded if name.endswith(("_document_ids", "_attention_mask"))] == [
        "tokens_attention_mask"
    ]
    assert not any(name.endswith("_attention_mask") for name in packed)
    assert attention_mask(padded, "tokens").tolist() == [[True] * 3, [True, False, False]]
    assert attention_mask(padded, "target") is None
    assert attention_mask(packed, "tokens").tolist() == [[True] * 4 + [False] * 4]


def test_a_stream_that_is_empty_in_one_sample_keeps_the_numbers_of_the_others_in_step() -> None:
    rows = [
        {"tokens": np.array([1]), "target": np.array([], np.int64)},
        {"tokens": np.array([2]), "target": np.array([3])},
    ]
    batch = pack([rows], {"tokens": ("tokens", 0), "target": ("target", 0)}, 2)
    assert (batch["tokens_document_ids"].tolist(), batch["target_document_ids"].tolist()) == (
        [[1, 2]],
        [[2, 0]],
    )


def test_documents_that_a_sample_has_of_its_own_stay_apart_padded_and_packed() -> None:
    fields: RaggedFields = {"tokens": ("tokens", 0), "tokens_document_ids": ("tokens", 0)}
    rows = [
        {"tokens": np.array([1, 2, 3]), "tokens_document_ids": np.array([1, 1, 2])},
        {"tokens": np.array([4]), "tokens_document_ids": np.array([1])},
    ]
    assert collate(rows, fields)["tokens_document_ids"].tolist() == [[1, 1, 2], [1, 0, 0]]
    assert pack([rows], fields, 6)["tokens_document_ids"].tolist() == [[1, 1, 2, 3, 0, 0]]


def test_samples_longer_than_was_said_widen_the_batch_and_lose_nothing() -> None:
    assert pack([[ROWS[0], ROWS[0]], [ROWS[1]]], FIELDS, 4)["tokens"].shape == (2, 6)


def test_fields_of_one_stream_that_differ_in_length_are_an_error() -> None:
    with pytest.raises(AssertionError, match="tokens has 3 values, but its stream tokens has 1"):
        collate([ROWS[0] | {"labels": np.array([1])}], FIELDS)


def test_labels_that_are_stacked_are_found_too_and_numbers_are_not_labels() -> None:
    rows = [
        {"labels_next": np.asarray(label), "labels_number": np.asarray(0.5)}
        for label in (1, IGNORE_INDEX, 0)
    ]
    batch = collate(rows, {})
    assert batch["labels_next_at"].tolist() == [0, 2]
    assert "labels_number_at" not in batch


def test_whole_numbers_become_indices_of_torch_and_fractions_single_without_a_copy() -> None:
    rows = [
        {
            "tokens": np.array([1], np.uint32),
            "image": np.zeros((3, 2, 2), np.float32),
            "pixels": np.zeros(2, np.uint8),
            "number": np.asarray(0.5),
            "flag": np.asarray(True),
        }
    ]
    batch = collate(rows, {"tokens": ("tokens", 0)})
    tensors = to_torch(batch)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "tokens": torch.int64,
        "image": torch.float32,
        "pixels": torch.uint8,
        "number": torch.float32,
        "flag": torch.bool,
    }
    batch["tokens"][0, 0] = 5
    assert tensors["tokens"].tolist() == [[5]]


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=5))
def test_padded_and_packed_hold_the_same_values_in_the_same_order(groups: list[list[int]]) -> None:
    samples = Lists([size for group in groups for size in group])
    copy = Copy()
    numbers = iter(range(len(samples)))
    rows = [
        [copy(samples, i, sample_generator(0, 0, i)) for i in (next(numbers) for _ in group)]
        for group in groups
    ]
    padded = collate([row for group in rows for row in group], copy.fields)
    packed = pack(rows, copy.fields, 20)
    real = padded.get("tokens_attention_mask", np.ones(padded["tokens"].shape, bool))
    for name in ("tokens", "labels", "noise"):
        assert (padded[name][real] == packed[name][packed["tokens_document_ids"] > 0]).all()
    assert (
        padded["labels"].flatten()[padded["labels_at"]]
        == packed["labels"].flatten()[packed["labels_at"]]
    ).all()
    assert (
        count_tokens(padded, copy.fields)
        == count_tokens(packed, copy.fields)
        == sum(map(sum, groups))
    )


def test_a_sample_draws_from_its_own_generator_and_a_fixed_corruption_from_the_first_epochs() -> (
    None
):
    samples = Lists([4, 4, 4])
    copy = Copy()
    picks = [[SampleIndex(5, 2)], [SampleIndex(6, 0)]]
    batch = build_batch(samples, copy, picks, SampleGenerators(3))
    assert (
        batch["noise"]
        == np.array(
            [sample_generator(3, 5, 2).random(4), sample_generator(3, 6, 0).random(4)], np.float32
        )
    ).all()
    copy.same_every_epoch = True
    batch = build_batch(samples, copy, picks, SampleGenerators(3))
    assert (
        batch["noise"]
        == np.array(
            [sample_generator(3, 0, 2).random(4), sample_generator(3, 0, 0).random(4)], np.float32
        )
    ).all()


def test_what_is_ignored_here_is_ignored_by_the_loss() -> None:
    assert IGNORE_INDEX == cross_entropy.IGNORE_INDEX
