"""Tags for words."""
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import recipe as R
from weft import spec as S
from weft.data.order import draw
from weft.objectives import IGNORE, build

from .cases import bert
from .made import SPECIAL, Given, Reader, batch, rows, sure
from .tuning import LABELS, TEXT, album, labelled, mean, ready, tagged, told, twins

ROW, HEAD = R.Tagged(), S.Tags(outputs=3)


@pytest.mark.parametrize(("length", "kept"), [(9, 4), (6, 4), (5, 3)])
def test_tags_stand_at_first_pieces_and_nothing_is_asked_at_marks_and_further_pieces(length: int, kept: int) -> None:
    corruption, _ = build(R.Tagging(), bert(head=HEAD), labelled(ROW))
    sample = {"tokens": np.array([7, 8, 9, 10], np.uint16), "tags": np.array([2, IGNORE, 0, 1], np.int32)}
    row = corruption(Reader(Given([sample]), length), 0, draw(0, 0, 0))
    assert row["tokens"].tolist() == [SPECIAL["begin"], *[7, 8, 9, 10][:kept], SPECIAL["end"]]
    assert row["labels"].tolist() == [IGNORE, *[2, IGNORE, 0, 1][:kept], IGNORE]


def test_the_loss_is_transformers(tmp_path: Path) -> None:
    other, model = twins("BertForTokenClassification", tmp_path, **TEXT, num_labels=3)
    corruption, objective, given = ready(R.Tagging(), model, labelled(ROW), tagged(14))
    assert "tokens_keep" in given
    theirs = other(**told(given), labels=given["labels"]).loss.item()
    assert abs(mean(corruption, objective, given) - theirs) <= 1e-5
    assert theirs > 0.5


def test_a_sure_and_right_answer_costs_nothing_and_first_pieces_are_counted() -> None:
    corruption, objective = build(R.Tagging(), bert(head=HEAD), labelled(ROW))
    samples = tagged(14)
    given = batch(corruption, rows(corruption, samples))
    assert corruption.counts(given) == {"tag": sum(int((samples[i]["tags"] >= 0).sum()) for i in range(14))}
    right = given["labels"].flatten()[given["labels_at"]]
    assert objective.score(sure(right, 3), given)["tag"] == 0
    assert objective.score(sure((right + 1) % 3, 3), given)["tag"] > 1


REFUSED: dict[str, tuple[S.Model, R.Row, tuple[str, ...] | None]] = {
    "Tagging needs a Tags head, not Vocabulary": (bert(), ROW, LABELS),
    "the data have 3 labels, the head 9 outputs": (bert(head=S.Tags(outputs=9)), ROW, LABELS),
    "Tagging needs labels, and the data have none": (bert(head=HEAD), ROW, None),
    "Tagging reads rows of Tagged, not of Examples": (bert(head=HEAD), R.Examples(), LABELS),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(said: str) -> None:
    spec, row, labels = REFUSED[said]
    with pytest.raises(ValueError, match=said):
        build(R.Tagging(), spec, labelled(row, labels=labels))


def test_a_length_beyond_the_positions_is_refused() -> None:
    corruption, _ = build(R.Tagging(), bert(head=HEAD), labelled(ROW))
    store: Any = album(1)
    with pytest.raises(ValueError, match="length = 65: the model has 64 learned positions"):
        corruption.samples(store, 65)
