"""GPT's auxiliary loss: L3 = L2 + λ · L1, the next tokens of the task's own rows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from weft import recipe as R
from weft import spec as S

from .cases import gpt
from .holds import HOLDS, Built
from .made import batch, build_pair, meta, rows
from .tuning import ENDINGS, choices, examples, labelled

PAIR = R.LabelledTexts(second_text="b")
NUMBER = R.LabelledTexts(second_text="b", numeric_label=True)
LAST = S.ClassifierHead(num_labels=3, pooling="last")
ONE = S.ClassifierHead(num_labels=1, pooling="last")
VALUES: dict[str, Callable[[float], Any]] = {
    "class": lambda weight: (
        R.Classification(input_format="gpt", lm_weight=weight),
        LAST,
        labelled(PAIR),
        examples(14),
    ),
    "similarity": lambda weight: (
        R.Regression(input_format="gpt", both_orders=True, lm_weight=weight),
        ONE,
        labelled(NUMBER, labels=None),
        examples(14, number=True),
    ),
    "choice": lambda weight: (
        R.MultipleChoice(input_format="gpt", lm_weight=weight),
        ONE,
        meta(R.ChoiceQuestions(endings=ENDINGS)),
        choices(14),
    ),
}
STREAMS = {
    "class": ["tokens"],
    "similarity": ["tokens", "swapped"],
    "choice": ["tokens0", "tokens1", "tokens2"],
}


def parts(name: str, weight: float) -> Built:
    value, head, known, samples = VALUES[name](weight)
    corruption, objective = build_pair(
        value, S.replace(gpt(), head=head), known, seed=1, dtype=torch.float64
    )
    return corruption, objective.eval(), samples


@pytest.mark.parametrize("name", VALUES)
def test_the_loss_is_the_tasks_and_a_weight_times_that_of_each_next_token_row_by_row(
    name: str,
) -> None:
    """A twin written by hand: every row alone, without padding."""
    corruption, objective, samples = parts(name, 0.5)
    given = rows(corruption, samples)
    found = objective(batch(corruption, given))
    own, plain, _ = parts(name, 0.0)
    assert objective.weights == {own.terms[0]: 1.0, "token": 0.5}
    torch.testing.assert_close(
        found[own.terms[0]], plain(batch(own, given))[own.terms[0]], rtol=1e-12, atol=1e-12
    )
    total = torch.zeros((), dtype=torch.float64)
    count = 0
    model = objective.model
    for row in given:
        for stream in STREAMS[name]:
            ids = torch.from_numpy(row[stream])
            logits = model.decode(model.embed(ids[None])).x_BLD[0] @ model.source.tokens.weight.T  # type: ignore[union-attr]
            total += F.cross_entropy(logits[:-1], ids[1:], reduction="sum")
            count += len(ids) - 1
    torch.testing.assert_close(found["token"], total, rtol=1e-12, atol=1e-12)
    assert corruption.loss_counts(batch(corruption, given))["token"] == count


@pytest.mark.parametrize("hold", HOLDS, ids=lambda hold: hold.__name__)
@pytest.mark.parametrize("name", VALUES)
def test_it_holds_what_every_objective_holds(name: str, hold: Callable[[Built], None]) -> None:
    hold(parts(name, 0.5))
