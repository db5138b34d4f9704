"""Tags for words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.order import sample_generator
from weft.kernels.cross_entropy import IGNORE_INDEX

from .cases import bert
from .made import SPECIAL, Given, LengthLimitedSamples, batch, build_pair, rows, sure
from .tuning import LABELS, TEXT, album, labelled, mean, ready, tagged, told, twins

ROW, HEAD = R.TaggedWords(), S.TokenClassifierHead(num_labels=3)


@pytest.mark.parametrize(("length", "kept"), [(9, 4), (6, 4), (5, 3)])
def test_tags_stand_at_first_pieces_and_nothing_is_asked_at_marks_and_further_pieces(
    length: int, kept: int
) -> None:
    corruption, _ = build_pair(R.TokenClassification(), bert(head=HEAD), labelled(ROW))
    sample = {
        "tokens": np.array([7, 8, 9, 10], np.uint16),
        "tags": np.array([2, IGNORE_INDEX, 0, 1], np.int32),
    }
    row = corruption(LengthLimitedSamples(Given([sample]), length), 0, sample_generator(0, 0, 0))
    assert row["tokens"].tolist() == [SPECIAL["bos"], *[7, 8, 9, 10][:kept], SPECIAL["eos"]]
    assert row["labels"].tolist() == [IGNORE_INDEX, *[2, IGNORE_INDEX, 0, 1][:kept], IGNORE_INDEX]


def test_the_loss_is_transformers(tmp_path: Path) -> None:
    other, model = twins("BertForTokenClassification", tmp_path, **TEXT, num_labels=3)
    corruption, objective, given = ready(R.TokenClassification(), model, labelled(ROW), tagged(14))
    assert "tokens_attention_mask" in given
    theirs = other(**told(given), labels=given["labels"]).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5
    assert theirs > 0.5


def test_a_sure_and_right_answer_costs_nothing_and_first_pieces_are_counted() -> None:
    corruption, objective = build_pair(R.TokenClassification(), bert(head=HEAD), labelled(ROW))
    samples = tagged(14)
    given = batch(corruption, rows(corruption, samples))
    assert corruption.loss_counts(given) == {
        "tag": sum(int((samples[i]["tags"] >= 0).sum()) for i in range(14))
    }
    right = given["labels"].flatten()[given["labels_at"]]
    assert objective.loss_sums(sure(right, 3), given)["tag"] == 0
    assert objective.loss_sums(sure((right + 1) % 3, 3), given)["tag"] > 1


def test_a_run_of_packed_sentences_validates_each_sentence_by_itself(tmp_path: Path) -> None:
    """Rows of training hold several sentences; a metric needs one prediction per sentence."""
    paths = {}
    for split, many in (("train", 20), ("valid", 9)):
        paths[split] = tmp_path / f"{split}.jsonl"
        words = [["the", "loom", "holds"][: 1 + i % 3] for i in range(many)]
        rows = [{"words": w, "tags": ["B-X" if t == "loom" else "O" for t in w]} for w in words]
        paths[split].write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = R.Data(
        rows=R.TaggedWords(labels=("O", "B-X")),
        train=R.Source(paths=(str(paths["train"]),)),
        valid=R.Source(paths=(str(paths["valid"]),)),
        tokenizer=R.ByteTokenizer(),
        prepared_folder=str(tmp_path / "prepared"),
    )
    recipe = R.Recipe(
        name="tag",
        model=bert(head=S.TokenClassifierHead(num_labels=2), vocab_size=261),
        task=R.TokenClassification(),
        data=data,
        batch=R.PackedBatch(size=2, length=32, pack_pool=8),
        steps=3,
        eval_every=2,
        optimiser=R.AdamW(lr=1e-3),
        threads=1,
    )
    _, step, _ = weft.train(recipe, weft.prepare(recipe.data), tmp_path / "run")
    assert len(step.sample_ids) > 2, "rows hold several sentences"
    assert step.validation.keys() == {"loss", "tag", "f1", "accuracy"}


REFUSED: dict[str, tuple[S.Spec, R.RowSchema, tuple[str, ...] | None]] = {
    "TokenClassification needs a TokenClassifierHead head, not LMHead": (bert(), ROW, LABELS),
    "the data have 3 labels, the head 9 outputs": (
        bert(head=S.TokenClassifierHead(num_labels=9)),
        ROW,
        LABELS,
    ),
    "TokenClassification needs labels, and the data have none": (bert(head=HEAD), ROW, None),
    "TokenClassification reads rows of TaggedWords, not of LabelledTexts": (
        bert(head=HEAD),
        R.LabelledTexts(),
        LABELS,
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(said: str) -> None:
    spec, row, labels = REFUSED[said]
    with pytest.raises(ValueError, match=said):
        build_pair(R.TokenClassification(), spec, labelled(row, labels=labels))


def test_a_length_beyond_the_positions_is_refused() -> None:
    corruption, _ = build_pair(R.TokenClassification(), bert(head=HEAD), labelled(ROW))
    store: Any = album(1)
    with pytest.raises(ValueError, match="length = 65: the model has 64 learned positions"):
        corruption.open_samples(store, 65)
