"""The ten arithmetic tasks: numbers as the paper draws them, right answers, and a tenth that
training never sees.
"""

import re
from collections import Counter

import pytest

from weft.data.tokenizing.tokenizer import Tokenizer
from weft.evaluation import arithmetic
from weft.evaluation.arithmetic import GPT3, TASKS, documents, problem, problems
from weft.evaluation.few_shot import DEFAULT_TEMPLATE, Example

TWO = re.compile(r"What is (\d+) (plus|minus|times) (\d+)\?")
THREE = re.compile(r"What is (\d)([-+*])\((\d)([-+*])(\d)\)\?")
DO = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "plus": int.__add__,
    "minus": int.__sub__,
    "times": int.__mul__,
}


def parts(example: Example) -> tuple[str, tuple[int, ...], int]:
    """Signs, numbers and the answer worked out by another way."""
    if found := TWO.fullmatch(example.question):
        a, word, b = found.groups()
        return word, (int(a), int(b)), DO[word](int(a), int(b))
    found = THREE.fullmatch(example.question)
    assert found is not None
    a, first, b, second, c = found.groups()
    return first + second, (int(a), int(b), int(c)), DO[first](int(a), DO[second](int(b), int(c)))


def test_there_are_ten_tasks_each_with_the_papers_figures() -> None:
    assert (
        list(TASKS)
        == ["2D+", "2D-", "3D+", "3D-", "4D+", "4D-", "5D+", "5D-", "2Dx", "1DC"]
        == list(GPT3)
    )


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("held", [True, False])
def test_answers_are_right_and_numbers_fill_the_papers_range(task: str, held: bool) -> None:
    found = [parts(example) for example in problems(task, 400, held_out=held)]
    assert [str(answer) for *_, answer in found] == [
        example.answer for example in problems(task, 400, held_out=held)
    ]
    numbers = [number for _, some, _ in found for number in some]
    top = 10 ** TASKS[task].digits
    assert 0 <= min(numbers) < 0.05 * top
    assert max(numbers) < top
    assert 0.46 * top < sum(numbers) / len(numbers) + 0.5 < 0.54 * top
    assert any(answer < 0 for *_, answer in found) == (task.endswith("-") or task == "1DC")


def test_signs_of_the_composite_are_drawn_evenly() -> None:
    signs = Counter(parts(example)[0] for example in problems("1DC", 1800, held_out=False))
    assert len(signs) == 9
    assert max(signs.values()) < 1.5 * min(signs.values())


def test_a_problem_is_decided_by_task_seed_and_number_alone() -> None:
    assert problems("3D+", 9)[7] == problem("3D+", 7)
    assert (
        len({problem("3D+", 7, seed) for seed in range(9)} | {problem("3D+", i) for i in range(9)})
        == 17
    )
    assert problem("3D+", 0).question == "What is 849 plus 927?"  # the same on every machine


def test_evaluation_problems_are_never_in_training_even_with_swapped_numbers() -> None:
    def keys(texts: list[Example]) -> set[tuple[object, ...]]:
        found = [parts(example)[:2] for example in texts]
        return {
            (signs, *(sorted(some) if len(some) == 2 else (some[0], *sorted(some[1:]))))
            for signs, some in found
        }

    trained = [
        Example(*solved.removeprefix("Q: ").split("\nA: "))
        for text in documents(4000)
        for solved in text.split("\n\n")
    ]
    asked = [problem(task, i) for task in TASKS for i in range(300)]
    assert len(keys(trained)) > 5000
    assert not keys(trained) & keys(asked)


def test_a_tenth_is_held_out() -> None:
    held = sum(arithmetic.is_held_out("+", 0, a, b) for a in range(100) for b in range(100))
    assert 0.08 < held / 10_000 < 0.12


def test_a_document_is_a_prompt_of_one_task_with_all_its_answers() -> None:
    counts = []
    for text in documents(300):
        solved = text.split("\n\n")
        examples = [Example(*one.removeprefix("Q: ").split("\nA: ")) for one in solved]
        assert (
            text
            == DEFAULT_TEMPLATE.prompt(examples[:-1], examples[-1].question)
            + " "
            + examples[-1].answer
        )
        words = {parts(example)[0] for example in examples}
        assert len(words) == 1 or all(len(word) == 2 for word in words)
        counts.append(len(examples))
    assert (min(counts), max(counts)) == (1, 17)
    assert list(documents(5)) == list(documents(5)) != list(documents(5, seed=1))


def test_its_tokenizer_writes_every_document_without_an_unknown_and_each_digit_alone() -> None:
    pieces = Tokenizer(arithmetic.tokenizer())
    for text in documents(60):
        ids = pieces.encode(text)
        assert pieces.special["unk"] not in ids
        assert pieces.decode(ids) == text
        assert sum(i >= pieces.size - 10 for i in ids) == sum(map(str.isdigit, text))
    assert len(pieces.encode("Q: What is 48 plus 76?\nA: 124\n\nQ: What is 6+(4*8)?\nA:")) == 20
