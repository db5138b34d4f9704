"""`weft evaluate --few-shot` and `--arithmetic`: the questions, the prompts, the scores, the
receipt.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import weft
from weft import recipe as R
from weft.cli import main
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.evaluation import few_shot as few_shot_module
from weft.evaluation.arithmetic import TASKS
from weft.evaluation.few_shot import Example
from weft.evaluation.in_context import QuestionSet, evaluate_in_context, few_shot, longest_answer
from weft.inference.open_model import open_model
from weft.interop.saving import save
from weft.nn.model import build

from ..inference.small import ready as small

SUMS = [(f"What is {a} plus {b}?", str(a + b)) for a, b in product(range(6), range(6))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A language model of characters, untrained."""
    made: Path = tmp_path_factory.mktemp("lm")
    text = [
        f"Q: {q}\nA: {a} yes no-+*()times minus 0123456789 spam ham text: kind:" for q, a in SUMS
    ]
    pieces = fit_tokenizer(R.CharacterTokenizer(), lambda: iter(text))
    spec = weft.gpt2(
        depth=2,
        width=32,
        heads=2,
        vocab_size=pieces.size,
        positions=512,
        init=weft.spec.NormalInit(std=0.3),
    )
    save(build(weft.with_dropout(spec, 0.0), seed=1), made, to="weft")
    pieces.save(made / "tokenizer.json")
    return str(made)


def table(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# Which questions


def test_few_answers_are_choices_and_many_are_written(tmp_path: Path) -> None:
    mail = [{"text": q, "label": i % 2, "id": i} for i, (q, _) in enumerate(SUMS)]
    found = few_shot(table(tmp_path / "mail.jsonl", mail))
    assert found.choices == ["0", "1"]
    worded = few_shot(table(tmp_path / "mail.jsonl", mail), label_words=["ham", "spam"], count=5)
    assert (worded.choices, len(worded), len(worded.pool)) == (["ham", "spam"], 5, 36)
    assert [one.answer for one in worded.questions] == ["ham", "spam", "ham", "spam", "ham"]
    free = few_shot(
        table(
            tmp_path / "free.jsonl",
            [{"question": q, "answer": str(i)} for i, (q, _) in enumerate(SUMS)],
        )
    )
    assert free.choices is None
    assert found.fingerprint != worded.fingerprint


def test_several_columns_are_lines_and_a_reason_stands_before_the_answer(tmp_path: Path) -> None:
    rows = [{"a": f"one {i}", "b": "two", "kind": "x", "reason": "because."} for i in range(9)]
    found = few_shot(table(tmp_path / "a.jsonl", rows), columns=["a", "b", "kind"])
    assert found.questions[0] == Example("a: one 0\nb: two", "x", "because.")
    assert found.choices is None, "a chain of thought is written"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"columns": ["question"]}, "then the answer column"),
        ({"columns": ["question", "nothing"]}, "no column 'nothing'"),
        ({"label_words": ["a"]}, "1 texts for the 11 values of 'answer'"),
    ],
)
def test_columns_and_words_that_do_not_fit_are_refused(
    more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "sums.jsonl", [{"question": q, "answer": a} for q, a in SUMS])
    with pytest.raises(ValueError, match=message):
        few_shot(path, **more)


# Scores


def test_written_answers_are_those_of_the_prompts_one_by_one(folder: str, tmp_path: Path) -> None:
    """The right answers are what the model says after four examples, but for every third: the score
    must be two thirds.
    """
    opened = open_model(folder)
    pool = [Example(q, a) for q, a in SUMS]
    from weft.generate.text_generator import TextGenerator

    writer = TextGenerator(opened)
    asked = pool[:12]
    greedy = [
        few_shot_module.DEFAULT_TEMPLATE.parse_answer(
            writer.complete([prompt], max_new_tokens=4, stop_strings=("\n",))[0]
        )
        for prompt in few_shot_module.build_prompts(pool, asked, 4, seed=3)
    ]
    right = [
        one._replace(answer=text if i % 3 else text + "!")
        for i, (one, text) in enumerate(zip(asked, greedy, strict=True))
    ]
    questions = QuestionSet("mine", right, pool)
    assert longest_answer(writer, questions) >= 4
    found = list(evaluate_in_context(opened, [questions], [4], seed=3))
    assert [(s.questions, s.shots, s.metric) for s in found] == [("mine", 4, "exact_match")]
    free = [
        few_shot_module.DEFAULT_TEMPLATE.parse_answer(
            writer.complete(
                [prompt], max_new_tokens=longest_answer(writer, questions), stop_strings=("\n",)
            )[0]
        )
        for prompt in few_shot_module.build_prompts(pool, right, 4, seed=3)
    ]
    assert found[0].value == sum(a == b.answer for a, b in zip(free, right, strict=True)) / 12


def test_choices_are_scored_by_their_likelihood(folder: str) -> None:
    opened = open_model(folder)
    pool = [few_shot_module.Example(q, ("no", "yes")[i % 2]) for i, (q, _) in enumerate(SUMS)]
    found = list(
        evaluate_in_context(opened, [QuestionSet("mine", pool[:10], pool, ["no", "yes"])], [0, 2])
    )
    assert [(s.shots, s.metric) for s in found] == [
        (n, m) for n in (0, 2) for m in ("accuracy", "accuracy by length")
    ]
    prompts = few_shot_module.build_prompts(pool, pool[:10], 2)
    scores, _ = few_shot_module.choice_likelihoods(
        opened.model, opened.require_tokenizer, prompts, [["no", "yes"]] * 10
    )
    assert found[2].value == sum(own.index(max(own)) == i % 2 for i, own in enumerate(scores)) / 10


def test_the_verb_prints_one_column_per_number_of_examples_and_keeps_a_receipt(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "sums.jsonl", [{"question": q, "answer": a} for q, a in SUMS])
    out = str(tmp_path / "out.json")
    one = said(
        capsys,
        "evaluate",
        folder,
        "--few-shot",
        path,
        "--shots",
        "0",
        "2",
        "--num-questions",
        "4",
        "--output",
        out,
    )
    assert list(one["scores"]) == [
        f"{m}, {n}-shot" for n in (0, 2) for m in ("accuracy", "accuracy by length")
    ]
    assert (one["samples"], one["seed"]) == (4, 0)
    (key, kept), *_ = json.loads(Path(out).read_text()).items()
    assert (key.rpartition(" (")[0], kept) == (f"few-shot {path}", one)
    words = ["evaluate", folder, "--few-shot", path, "--num-questions", "4", "--output", out]
    more = [
        ("--shots", "0"),
        ("--shots", "0", "--precision", "bf16"),
        ("--shots", "1", "--seed", "1"),
    ]
    written = [one, *(said(capsys, *words, *given) for given in more)]
    assert [*json.loads(Path(out).read_text()).values()] == written
    again = said(capsys, *words, *more[0], "--batch-size", "2")
    assert [*json.loads(Path(out).read_text()).values()] == [one, again, *written[2:]]
    assert (
        main(["evaluate", folder, "--few-shot", path, "--shots", "0", "2", "--num-questions", "4"])
        == 0
    )
    page = capsys.readouterr().out
    assert page.splitlines()[0].split() == ["metric", "0-shot", "2-shot"]
    assert "most likely of 11 answers" in page


def test_arithmetic_asks_ten_tasks(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = said(
        capsys,
        "evaluate",
        folder,
        "--arithmetic",
        "--shots",
        "1",
        "--num-questions",
        "2",
        "--output",
        str(tmp_path / "out.json"),
    )
    assert list(found["scores"]) == [*(f"{task}, 1-shot" for task in TASKS), "mean, 1-shot"]
    assert found["samples"] == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--arithmetic", "--shots", "99"), "give smaller numbers with --shots"),
        (("--arithmetic", "--data", "x"), "remove --data and --task"),
        (("--arithmetic", "--shots", "-1"), "--shots -1: give an integer of at least 0"),
        (("--few-shot", "a.csv", "--arithmetic"), "cannot be combined"),
    ],
)
def test_unsupported_requests_are_one_line_errors(
    words: tuple[str, ...], message: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", folder, *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_a_model_that_is_no_language_model_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a decoder"):
        next(evaluate_in_context(small(None), [], [0]))


def test_bad_rows_of_a_table_of_questions_are_set_aside_by_the_one_rule(tmp_path: Path) -> None:
    rows: list[Any] = [{"question": q, "answer": a} for q, a in SUMS]
    rows[3] = {"question": None, "answer": "1"}
    path = table(tmp_path / "a.jsonl", rows)
    told: list[str] = []
    found = few_shot(path, report=told.append)
    assert len(found) == len(SUMS) - 1
    assert "1 of 36 rows set aside" in told[0]
    assert "a.jsonl, line 4: empty question" in told[0]
    (tmp_path / "a.jsonl").write_text((tmp_path / "a.jsonl").read_text() + '{"question": "half\n')
    with pytest.raises(ValueError, match=r"2 of 37 rows cannot be read .* line.* 4"):
        few_shot(path, report=told.append)
    assert len(few_shot(path, max_bad_rows=0.1, report=told.append)) == 35
