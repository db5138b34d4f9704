"""Token classification: one tag per word."""

import json
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import recipe as R
from weft import spec as S
from weft.nn.kernels.cross_entropy import IGNORE_INDEX
from weft.support.order import sample_generator

from .cases import bert
from .made import SPECIAL, Given, LengthLimitedSamples, build_pair
from .tuning import TEXT, labelled, mean, ready, tagged, told, twins

ROW = R.TaggedWords()
HEAD = S.TokenClassifierHead(num_labels=3)


@pytest.mark.parametrize(("length", "kept"), [(9, 4), (6, 4), (5, 3)])
def test_labels_are_at_first_pieces_only(length: int, kept: int) -> None:
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
