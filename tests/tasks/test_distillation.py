"""Learning from a teacher."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft import recipe as R
from weft import spec as S
from weft.runs.teachers import check_teacher_pixels
from weft.tasks import build_task
from weft.tasks.base import LengthLimitedSamples, encode_batch
from weft.tasks.distillation import soft_cross_entropy

from .cases import bert, gpt
from .holds import HOLDS, Built
from .made import batch, build_pair, meta, rows, texts
from .tuning import AUGMENTED, LABELS, album, deit, examples, images, labelled, vit

CLASSES = S.ClassifierHead(num_labels=3)
PAIR = R.LabelledTexts(second_text="b")


def value(**more: Any) -> R.Distillation:
    return R.Distillation(teacher="teacher", **more)


CASES: dict[str, tuple[R.Distillation, S.Spec, S.Spec, Any, LengthLimitedSamples]] = {
    "text, soft": (
        value(),
        bert(head=CLASSES),
        bert(head=CLASSES, depth=3),
        labelled(PAIR),
        examples(14),
    ),
    "text, hard": (
        value(hard_labels=True),
        bert(head=CLASSES, token_types=None),
        bert(head=CLASSES),
        labelled(PAIR),
        examples(14),
    ),
    "text, decoder": (
        value(),
        S.replace(gpt(), head=S.ClassifierHead(num_labels=3, pooling="last")),
        bert(head=CLASSES),
        labelled(PAIR),
        examples(14),
    ),
    "images, soft": (
        value(teacher_weight=0.9),
        vit(),
        vit(depth=3),
        labelled(R.LabelledImages()),
        images(14, vit()),
    ),
    "images, hard": (
        value(hard_labels=True),
        deit(),
        vit(depth=3, dropout=0.5),
        labelled(R.LabelledImages()),
        images(14, deit()),
    ),
    "images, mixed": (
        value(label_smoothing=0.1, transforms=AUGMENTED),
        vit(),
        vit(depth=3),
        labelled(R.LabelledImages()),
        images(14, vit(), transforms=AUGMENTED),
    ),
    "tokens": (
        value(),
        gpt(),
        S.replace(gpt(), head=S.LMHead(tied=False)),
        meta(R.Documents()),
        texts(14, 33, 32),
    ),
}


def built(name: str) -> Built:
    value, student, teacher, known, samples = CASES[name]
    corruption, objective = build_pair(
        value,
        student,
        known,
        seed=1,
        dtype=torch.float64,
        teacher=weft.build(teacher, seed=2, dtype=torch.float64).train(),
    )
    return corruption, objective.eval(), samples


@pytest.fixture(params=CASES, scope="module")
def made(request: pytest.FixtureRequest) -> Built:
    return built(request.param)


@pytest.mark.parametrize("hold", HOLDS, ids=lambda hold: hold.__name__)
def test_it_holds_what_every_objective_holds(made: Built, hold: Callable[[Built], None]) -> None:
    hold(made)


def test_the_teacher_is_neither_trained_nor_saved_and_stays_calm(made: Built) -> None:
    corruption, objective, samples = made
    teacher = objective.teacher[0]  # type: ignore[index]
    own = {id(p) for p in objective.parameters()}
    state = objective.state_dict()
    assert not any(id(p) in own for p in teacher.parameters())
    assert all(name.startswith("model.") for name in state)
    assert not any(module is teacher for module in objective.modules())
    given = batch(corruption, rows(corruption, samples))
    before = {name: p.clone() for name, p in teacher.named_parameters()}
    objective.train()
    first, second = (objective.forward_outputs(given)[2] for _ in range(2))
    objective.eval()
    assert torch.equal(first, second)  # no dropout, whatever the student does
    assert not first.requires_grad
    assert all(
        p.grad is None and torch.equal(p, before[name]) for name, p in teacher.named_parameters()
    )


def test_teacher_logits_equal_those_of_the_teacher_model() -> None:
    for name in ("text, hard", "images, soft"):
        corruption, objective, samples = built(name)
        teacher = objective.teacher[0]  # type: ignore[index]
        for row in rows(corruption, samples)[:3]:
            given = batch(corruption, [row])
            if "image" in given:
                alone = teacher(given["image"].double())
            else:  # the student has no segments, the teacher has
                alone = teacher(given["tokens"], token_type_ids=given["segments"])
            torch.testing.assert_close(objective.forward_outputs(given)[2], alone)


def test_soft_labels_are_the_teachers_at_a_temperature_scaled_by_its_square() -> None:
    torch.manual_seed(0)
    student, teacher = torch.randn(2, 9, 5, dtype=torch.float64) * 3
    for temperature in (1.0, 3.0, 7.5):
        expected = sum(
            float(p * (p / q).log())
            for s, t in zip(student, teacher, strict=True)
            for p, q in zip((t / temperature).softmax(0), (s / temperature).softmax(0), strict=True)
        )
        assert (
            abs(
                float(soft_cross_entropy(student, teacher, temperature)) - expected * temperature**2
            )
            < 1e-9
        )
    assert soft_cross_entropy(teacher, teacher, 3.0) == 0


def test_hard_distillation_is_half_label_and_half_choice_of_the_teacher() -> None:
    """DeiT, equation 3."""
    corruption, objective, samples = built("images, hard")
    given = batch(corruption, rows(corruption, samples))
    model = objective.model  # type: ignore[index]
    teacher = objective.teacher[0]  # type: ignore[index]
    of_class, of_token = model.head.per_token_logits(encode_batch(model, given))
    choice = teacher(given["image"].double()).argmax(-1)
    expected = (
        torch.nn.functional.cross_entropy(of_class, given["labels"])
        + torch.nn.functional.cross_entropy(of_token, choice)
    ) / 2
    found = sum(
        objective.weights[term] * total / corruption.loss_counts(given)[term]
        for term, total in objective(given).items()
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    grads = [
        torch.autograd.grad(
            objective(given)[term], [out.weight for out in model.head.out], allow_unused=True
        )  # type: ignore[union-attr]
        for term in ("label", "teacher")
    ]
    assert [[grad is not None for grad in pair] for pair in grads] == [[True, False], [False, True]]


@pytest.mark.parametrize("name", ["text, hard", "images, soft", "images, hard"])
def test_validation_judges_the_student_as_classification_does(name: str) -> None:
    """Of both tokens, the mean: what the model answers without its teacher."""
    task, student, teacher, known, samples = CASES[name]
    made = build_task(
        task,
        student,
        known,
        seed=1,
        dtype=torch.float64,
        teacher=weft.build(teacher, seed=2, dtype=torch.float64),
    )
    given = batch(made.preprocess, rows(made.preprocess, samples))
    made.loss.eval()
    model = made.loss.model
    alone = model.head(encode_batch(model, given)).softmax(-1)
    predicted = made.predict(made.loss.forward_outputs(given), given)
    torch.testing.assert_close(torch.tensor(predicted, dtype=torch.float64), alone)
    scores = dict(made.evaluate(predicted, given["labels"].tolist()))
    right = (alone.argmax(-1) == given["labels"]).double().mean()
    assert scores["accuracy"] == pytest.approx(float(right))
    assert task.validation_metrics(known.rows) == R.Classification.metrics
    assert task.validation_metrics(R.Documents()) == ()


def test_the_weight_is_the_teachers_and_the_rest_the_labels() -> None:
    _, objective, _ = built("images, soft")
    assert objective.weights == pytest.approx({"label": 0.1, "teacher": 0.9})


REFUSED: dict[str, tuple[S.Spec, S.Spec | None, Any]] = {
    "Distillation needs a teacher": (vit(), None, labelled(R.LabelledImages())),
    "the teacher has 5 outputs, the student 3": (
        vit(),
        vit(classes=5),
        labelled(R.LabelledImages()),
    ),
    "the teacher turns Tokens into LMHead, the student Patches into ClassifierHead": (
        vit(),
        bert(),
        labelled(R.LabelledImages()),
    ),
    "the data have 2 labels, the head 3 outputs": (
        vit(),
        vit(),
        labelled(R.LabelledImages(), labels=LABELS[:2]),
    ),
    "needs a model with a decoder and no encoder": (bert(), bert(), meta(R.Documents())),
    "the teacher reads images of 32 pixels, the student of": (
        vit(),
        vit(image_size=32),
        labelled(R.LabelledImages()),
    ),
    "classes are in a different order": (
        vit(),
        S.with_label_names(vit(), LABELS[::-1]),
        labelled(R.LabelledImages()),
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(said: str) -> None:
    student, teacher, known = REFUSED[said]
    with pytest.raises(ValueError, match=said):
        build_pair(value(), student, known, teacher=teacher and weft.build(teacher))


def test_a_teacher_that_would_see_other_pixels_than_it_was_trained_on_is_refused(
    tmp_path: Path,
) -> None:
    own = R.Normalize(mean=(0.5,), std=(0.5,))
    weft.save(weft.build(vit()), tmp_path / "bare", to="weft")
    weft.save(weft.build(vit()), tmp_path / "teacher", to="weft", transforms=(own,))
    bare = weft.load(tmp_path / "bare")
    teacher = weft.load(tmp_path / "teacher")
    check_teacher_pixels(value(), bare)  # its folder says nothing: ImageNet's numbers
    with pytest.raises(
        ValueError, match=r"preprocessor_config.json is missing, which means Normal"
    ):
        check_teacher_pixels(value(transforms=(own,)), bare)
    check_teacher_pixels(value(transforms=(own,)), teacher)
    with pytest.raises(ValueError, match="give the task the teacher's Normalize"):
        check_teacher_pixels(value(), teacher)


def test_a_length_beyond_the_teachers_positions_is_refused() -> None:
    corruption, _ = build_pair(
        value(),
        bert(head=CLASSES),
        labelled(PAIR),
        teacher=weft.build(bert(head=CLASSES, positions=48)),
    )
    store: Any = album(1)
    with pytest.raises(ValueError, match="length = 49: the model has 48 learned positions"):
        corruption.open_samples(store, 49)
