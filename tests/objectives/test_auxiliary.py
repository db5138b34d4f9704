"""GPT's auxiliary loss: L3 = L2 + λ · L1, the next tokens of the task's own rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from weft import recipe as R
from weft import spec as S
from weft.tasks.base import Batch

from .cases import bert, gpt
from .holds import HOLDS, Built
from .made import batch, build_pair, meta, rows
from .tuning import ENDINGS, choices, examples, labelled, twins

PAIR, NUMBER = (
    R.LabelledTexts(second_text="b"),
    R.LabelledTexts(second_text="b", numeric_label=True),
)
LAST, ONE = (
    S.ClassifierHead(num_labels=3, pooling="last"),
    S.ClassifierHead(num_labels=1, pooling="last"),
)
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
    total, count, model = torch.zeros((), dtype=torch.float64), 0, objective.model
    for row in given:
        for stream in STREAMS[name]:
            ids = torch.from_numpy(row[stream])
            logits = model.decode(model.embed(ids[None])).x_BLD[0] @ model.source.tokens.weight.T  # type: ignore[union-attr]
            total += F.cross_entropy(logits[:-1], ids[1:], reduction="sum")
            count += len(ids) - 1
    torch.testing.assert_close(found["token"], total, rtol=1e-12, atol=1e-12)
    assert corruption.loss_counts(batch(corruption, given))["token"] == count


def test_the_next_token_loss_is_that_of_transformers_gpt2_double_heads_on_the_same_rows(
    tmp_path: Path,
) -> None:
    other, model = twins(
        "GPT2LMHeadModel", tmp_path, vocab_size=60, n_positions=64, n_embd=16, n_layer=2, n_head=2
    )
    spec = S.replace(model.spec, head=LAST)
    value, _, known, samples = VALUES["class"](0.5)
    corruption, objective = build_pair(value, spec, known)
    trunk = {
        name: tensor for name, tensor in model.state_dict().items() if not name.startswith("head.")
    }
    objective.model.load_state_dict(objective.model.state_dict() | trunk)
    given: Batch = batch(corruption, rows(corruption, samples))
    labels = given["tokens"].masked_fill(~given["tokens_attention_mask"], -100)
    theirs = other(
        input_ids=given["tokens"],
        attention_mask=given["tokens_attention_mask"].long(),
        labels=labels,
    ).loss.item()
    with torch.no_grad():
        ours = float(objective.eval()(given)["token"]) / corruption.loss_counts(given)["token"]
    assert abs(ours - theirs) <= 1e-5
    assert theirs > 1


@pytest.mark.parametrize("hold", HOLDS, ids=lambda hold: hold.__name__)
@pytest.mark.parametrize("name", VALUES)
def test_it_holds_what_every_objective_holds(name: str, hold: Callable[[Built], None]) -> None:
    hold(parts(name, 0.5))


def test_an_encoder_has_no_next_token() -> None:
    with pytest.raises(
        ValueError, match=r"lm_weight = 0\.5: only a decoder alone predicts next tokens"
    ):
        build_pair(
            R.Classification(lm_weight=0.5),
            bert(head=S.ClassifierHead(num_labels=3)),
            labelled(PAIR),
        )


def test_without_a_weight_nothing_changes() -> None:
    corruption, objective, samples = parts("class", 0.0)
    assert corruption.terms == ("class",)
    assert isinstance(
        objective.forward_outputs(batch(corruption, rows(corruption, samples))), torch.Tensor
    )
