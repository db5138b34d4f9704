"""Multiple choice: one score per ending."""

from pathlib import Path

import numpy as np

from weft import recipe as R
from weft import spec as S
from weft.support.order import sample_generator

from .cases import bert, gpt
from .made import SPECIAL, Given, LengthLimitedSamples, build_pair, meta
from .tuning import ENDINGS, TEXT, choices, mean, ready, twins

ROW = R.ChoiceQuestions(endings=ENDINGS)
ONE = S.ClassifierHead(num_labels=1)
BEGIN = SPECIAL["bos"]
END = SPECIAL["eos"]


def test_every_ending_follows_the_context_in_a_separate_stream() -> None:
    sample = {
        "context": np.array([7, 8]),
        "endings": [np.array([11]), np.array([12, 13]), np.array([14])],
        "label": 1,
    }
    corruption, _ = build_pair(R.MultipleChoice(), bert(head=ONE), meta(ROW))
    row = corruption(LengthLimitedSamples(Given([sample]), 32), 0, sample_generator(0, 0, 0))
    assert row["tokens1"].tolist() == [BEGIN, 7, 8, END, 12, 13, END]
    assert row["segments1"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert row["tokens2"].tolist() == [BEGIN, 7, 8, END, 14, END]
    assert row["labels"] == 1
    assert corruption.fields["tokens2"] == ("ending2", SPECIAL["pad"])
    corruption, _ = build_pair(
        R.MultipleChoice(input_format="gpt"),
        S.replace(gpt(), head=S.ClassifierHead(num_labels=1, pooling="last")),
        meta(ROW),
    )
    assert set(
        corruption(LengthLimitedSamples(Given([sample]), 32), 0, sample_generator(0, 0, 0))
    ) == {
        "tokens0",
        "tokens1",
        "tokens2",
        "labels",
    }


def test_the_loss_is_transformers(tmp_path: Path) -> None:
    other, model = twins("BertForMultipleChoice", tmp_path, **TEXT)
    corruption, objective, given = ready(R.MultipleChoice(), model, meta(ROW), choices(9))
    beside = objective.flatten_endings(given)  # type: ignore[operator]
    told = {
        name: beside[ours].long().unflatten(0, (9, 3))
        for name, ours in (
            ("input_ids", "tokens"),
            ("attention_mask", "tokens_attention_mask"),
            ("token_type_ids", "segments"),
        )
    }
    theirs = other(**told, labels=given["labels"]).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5
    assert theirs > 0.3
