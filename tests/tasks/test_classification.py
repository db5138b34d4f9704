"""Classes and numbers for texts, pairs and images."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.images.images import decode, encode_pixels, normalise
from weft.support.order import sample_generator
from weft.tasks.classification import label_cross_entropy
from weft.tasks.pair_encoding import truncate_longest_first

from ..data.made import centre_crop
from .cases import IMAGE_CASES, bert, gpt
from .holds import HOLDS, Built
from .made import SPECIAL, Given, LengthLimitedSamples, batch, build_pair, rows
from .tuning import (
    IMAGE,
    TEXT,
    Kept,
    album,
    examples,
    images,
    labelled,
    mean,
    ready,
    told,
    twins,
    vit,
)

PAIR = R.LabelledTexts(text="a", second_text="b")
SINGLE = R.LabelledTexts()
BEGIN = SPECIAL["bos"]
END = SPECIAL["eos"]


def classes(outputs: int = 3, **more: Any) -> S.ClassifierHead:
    return S.ClassifierHead(num_labels=outputs, **more)


def decoder() -> S.Spec:
    return S.replace(gpt(), head=classes(pooling="last"))


def one(
    value: R.Task,
    spec: S.Spec,
    row: R.RowSchema,
    length: int = 32,
    special: Any = SPECIAL,
    **sample: Any,
) -> dict[str, np.ndarray]:
    corruption, _ = build_pair(value, spec, labelled(row, special_tokens=special))
    return corruption(
        LengthLimitedSamples(Given([{"label": 2} | sample]), length), 0, sample_generator(0, 0, 0)
    )


def test_bert_reads_begin_a_end_b_end_with_segments() -> None:
    row = one(
        R.Classification(),
        bert(head=classes()),
        PAIR,
        first=np.array([7, 8, 9]),
        second=np.array([11, 12]),
    )
    assert row["tokens"].tolist() == [BEGIN, 7, 8, 9, END, 11, 12, END]
    assert row["segments"].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert row["labels"] == 2
    row = one(R.Classification(), bert(head=classes()), SINGLE, first=np.array([7, 8, 9]))
    assert row["tokens"].tolist() == [BEGIN, 7, 8, 9, END]
    assert not row["segments"].any()


def test_gpt_reads_start_a_delimiter_b_extract_without_segments() -> None:
    for spec in (decoder(), bert(head=classes())):
        row = one(
            R.Classification(input_format="gpt"),
            spec,
            PAIR,
            first=np.array([7]),
            second=np.array([11, 12]),
        )
        assert row["tokens"].tolist() == [BEGIN, 7, END, 11, 12, END]
        assert "segments" not in row


def test_where_no_mark_begins_the_end_does_for_a_decoder_and_nothing_for_an_encoder() -> None:
    texts = {"first": np.array([7, 8]), "second": np.array([11, 12])}
    only = {"eos": END}
    for spec, begin in ((decoder(), [END]), (bert(head=classes()), [])):
        value = R.Classification(input_format="gpt" if begin else "bert", both_orders=True)
        row = one(value, spec, PAIR, special=only, **texts)
        assert row["tokens"].tolist() == [*begin, 7, 8, END, 11, 12, END]
        assert row.get("segments", np.array([0, 0, 0, 1, 1, 1])).tolist() == [0, 0, 0, 1, 1, 1]
        assert one(value, spec, PAIR, 5, only, **texts)["swapped"].tolist() == [
            *begin,
            11,
            END,
            *([7] if begin else [7, 8]),
            END,
        ]
        assert one(R.Classification(), spec, SINGLE, 3, only, **texts)["tokens"].tolist() == [
            *begin,
            7,
            *([] if begin else [8]),
            END,
        ]


def test_the_longer_side_loses_its_last_tokens_first() -> None:
    for n in range(12):
        for m in range(12):
            for room in range(1, 14):
                a = list(range(n))
                b = list(range(m))
                while len(a) + len(b) > room:
                    (a if len(a) > len(b) else b).pop()
                mine = truncate_longest_first(np.arange(n), np.arange(m), room)
                assert [x.tolist() for x in mine] == [a, b], (n, m, room)


@pytest.mark.parametrize("length", [5, 6, 9, 64])
def test_rows_are_within_the_length_and_truncated_rows_are_full(length: int) -> None:
    for pair in (True, False):
        corruption, _ = build_pair(
            R.Classification(), bert(head=classes()), labelled(PAIR if pair else SINGLE)
        )
        samples = examples(30, length, pair)
        for i, row in enumerate(rows(corruption, samples)):
            whole = len(samples[i]["first"]) + (len(samples[i]["second"]) + 3 if pair else 2)
            assert len(row["tokens"]) == min(whole, length)
            assert row["tokens"][-1] == END


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (R.Classification(input_format="gpt", both_orders=True), decoder()),
        (
            R.Classification(both_orders=True),
            bert(head=classes(transform=S.HeadTransform(activation="tanh"))),
        ),
    ],
)
def test_a_symmetric_answer_adds_the_vectors_of_both_orders_before_the_linear_map(
    value: R.Classification, spec: S.Spec
) -> None:
    samples = examples(9, length=12)
    mirrored = LengthLimitedSamples(
        Given(
            [
                {"first": s["second"], "second": s["first"], "label": s["label"]}
                for s in samples.samples.samples
            ]
        ),
        64,
    )  # type: ignore[attr-defined]
    straight = LengthLimitedSamples(samples.samples, 64)
    corruption, objective = build_pair(value, spec, labelled(PAIR), dtype=torch.float64)
    answers = [
        objective.eval().forward_outputs(batch(corruption, rows(corruption, each)))
        for each in (straight, mirrored)
    ]
    torch.testing.assert_close(*answers, rtol=0, atol=1e-12)
    head = objective.model.head
    model = objective.model
    row = rows(corruption, straight)[4]
    vectors = []
    for tokens, segments in (("tokens", "segments"), ("swapped", "swapped_segments")):
        sides = torch.tensor(row[segments])[None] if segments in row else None
        embedded = model.embed(torch.tensor(row[tokens])[None], token_type_ids=sides)
        run = model.decode(embedded) if model.decoder is not None else model.encode(embedded)
        vectors.append(head.transform(run.x_BLD[:, -1 if model.decoder is not None else 0]))
    torch.testing.assert_close(
        head.out(vectors[0] + vectors[1])[0], answers[0][4], rtol=0, atol=1e-12
    )
    for i, short in enumerate(rows(corruption, samples)):  # cut alike in both orders
        one_way, other = (
            [t for t in short[name].tolist() if t != END][1:] for name in ("tokens", "swapped")
        )
        assert sorted(one_way) == sorted(other), i


def test_with_smoothed_labels_the_least_loss_is_their_entropy() -> None:
    corruption, objective = build_pair(
        R.Classification(label_smoothing=0.3), vit(), labelled(R.LabelledImages())
    )
    given = batch(corruption, rows(corruption, images(6, vit())))
    target = torch.full((6, 3), 0.1, dtype=torch.float64).scatter_(1, given["labels"][:, None], 0.8)
    least = -(0.8 * math.log(0.8) + 0.2 * math.log(0.1))
    assert abs(float(objective.loss_sums(target.log(), given)["class"]) / 6 - least) < 1e-12
    assert float(objective.loss_sums(target.log() * 1.01, given)["class"]) / 6 > least


@pytest.mark.parametrize("pair", [True, False])
def test_the_loss_of_a_class_is_transformers(pair: bool, tmp_path: Path) -> None:
    other, model = twins("BertForSequenceClassification", tmp_path, **TEXT, num_labels=3)
    known = labelled(PAIR if pair else SINGLE)
    corruption, objective, given = ready(R.Classification(), model, known, examples(14, pair=pair))
    assert "tokens_attention_mask" in given
    theirs = other(**told(given), labels=given["labels"]).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5
    assert 0.5 < theirs < 5


def test_the_loss_of_a_number_is_transformers(tmp_path: Path) -> None:
    other, _ = twins("BertForSequenceClassification", tmp_path, **TEXT, num_labels=1)
    model = weft.load(tmp_path, head="BertForMultipleChoice")  # one output, as published
    corruption, objective, given = ready(
        R.Regression(),
        model,
        labelled(R.LabelledTexts(second_text="b", numeric_label=True), labels=None),
        examples(14, number=True),
    )
    theirs = other(**told(given), labels=given["number"]).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5
    assert theirs > 0.2


def test_the_loss_of_an_image_is_transformers(tmp_path: Path) -> None:
    other, model = twins("ViTForImageClassification", tmp_path, **IMAGE, num_labels=3)
    known = labelled(R.LabelledImages())
    corruption, objective, given = ready(R.Classification(), model, known, images(8, model.spec))
    theirs = other(**told(given), labels=given["labels"]).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5
    assert theirs > 0.5


def test_training_sees_random_parts_and_validation_the_middle() -> None:
    corruption, _ = build_pair(R.Classification(), vit(), labelled(R.LabelledImages()))
    store: Any = album(3)
    train = corruption.open_samples(store, 17)
    valid = corruption.open_samples(store, 17, include_partial=True)
    for i in range(3):
        seen = [corruption(train, i, sample_generator(0, epoch, i))["image"] for epoch in (0, 0, 1)]
        assert np.array_equal(seen[0], seen[1])
        assert not np.array_equal(seen[0], seen[2])
        still = corruption(valid, i, sample_generator(0, 7, i))
        assert np.array_equal(
            still["image"], normalise(centre_crop(decode(store.row(i)["image"]), 16))
        )
        assert still["labels"] == store.row(i)["label"]


@pytest.mark.parametrize("hold", HOLDS, ids=lambda hold: hold.__name__)
@pytest.mark.parametrize("kind", ["number", "image", "mixed images"])
def test_numbers_and_images_hold_what_every_objective_holds(
    kind: str, hold: Callable[[Built], None]
) -> None:
    if kind == "number":
        numbers = R.LabelledTexts(second_text="b", numeric_label=True)
        value = R.Regression()
        spec = bert(head=classes(1))
        known = labelled(numbers, labels=None)
        samples = examples(14, number=True)
    elif kind == "mixed images":
        value, spec, known, samples = IMAGE_CASES["images, mixed"]()  # type: ignore[assignment]
    else:
        value = R.Classification()
        spec = vit()
        known = labelled(R.LabelledImages())
        samples = images(14, vit())
    corruption, objective = build_pair(value, spec, known, seed=1, dtype=torch.float64)
    hold((corruption, objective.eval(), samples))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["class", "teacher"])
def test_mixed_labels_are_the_cross_entropy_of_their_soft_targets(
    kind: str, smoothing: float
) -> None:
    """The twin: a whole distribution as the target, smoothed, then mixed."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 5, generator=draw, dtype=torch.float64).requires_grad_()
    first, second = (torch.randint(5, (9,), generator=draw) for _ in range(2))
    weight = torch.rand(9, generator=draw, dtype=torch.float64)
    given = {
        "labels": first,
        "labels_at": torch.arange(9),
        "mixed_labels": second,
        "label_weight": weight,
    }
    ours = label_cross_entropy(logits, given, smoothing)
    one_hot = torch.nn.functional.one_hot
    mixed = weight[:, None] * one_hot(first, 5) + (1 - weight[:, None]) * one_hot(second, 5)
    target = (1 - smoothing) * mixed + smoothing / 5
    twin = -(target * logits.log_softmax(-1)).sum()
    torch.testing.assert_close(ours, twin, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (ours, twin)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
    if kind == "teacher":  # a distillation's own labels go the same way
        _, objective = build_pair(
            R.Distillation(teacher="t", label_smoothing=smoothing),
            vit(),
            labelled(R.LabelledImages()),
            teacher=weft.build(vit()),
        )
        part = objective.loss_sums((logits, logits, logits.detach()), given)["label"]
        torch.testing.assert_close(part, twin, rtol=1e-12, atol=1e-12)


def test_a_sample_is_mixed_with_another_of_all_by_its_own_generator() -> None:
    """Images of one shade each: the pixels say who was mixed, and how much of it."""
    spec = vit(channels=1)
    shades = [np.full((16, 16), shade, np.uint8) for shade in (0, 51, 255)]
    rows = [{"image": encode_pixels(pixels), "label": i} for i, pixels in enumerate(shades)]
    value = R.Classification(transforms=(R.Normalize(mean=(0.0,), std=(1.0,)), R.MixUp()))
    corruption, _ = build_pair(value, spec, labelled(R.LabelledImages()))
    samples = corruption.open_samples(Kept(rows), 17)  # type: ignore[arg-type]
    partners = []
    for epoch in range(300):
        row = corruption(samples, 1, sample_generator(0, epoch, 1))
        again = corruption(samples, 1, sample_generator(0, epoch, 1))
        assert all(np.array_equal(row[name], again[name]) for name in row)
        share = float(row["label_weight"])
        other = int(row["mixed_labels"])
        expected = share * 0.2 + (1 - share) * (0.0, 0.2, 1.0)[other]
        np.testing.assert_allclose(row["image"], expected, atol=1e-6)
        assert row["labels"] == 1
        partners.append(other)
    assert all(abs(partners.count(i) - 100) < 35 for i in range(3))
    still = corruption.open_samples(Kept(rows), 17, include_partial=True)  # type: ignore[arg-type]
    plain = corruption(still, 1, sample_generator(0, 0, 1))
    assert set(plain) == {"image", "labels"}
    np.testing.assert_allclose(plain["image"], 0.2, atol=1e-6)


def test_transforms_that_give_another_size_than_the_model_reads_are_named() -> None:
    value = R.Classification(transforms=(R.RandomCrop(size=12),))
    corruption, _ = build_pair(value, vit(), labelled(R.LabelledImages()))
    samples = corruption.open_samples(album(2), 17)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"give 12 × 12 pixels, but the model reads 16 × 16"):
        corruption(samples, 0, sample_generator(0, 0, 0))
