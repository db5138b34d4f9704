"""The ten arithmetic tasks of GPT-3 (Brown et al. 2020, arXiv:2005.14165,
section 3.9.1), generated from a seed.

A tenth of all problems is held out, by a hash of the numbers and the operation: training text
never contains a problem of the evaluation, nor one with its numbers exchanged."""

import hashlib
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ..data.tokenizing.train_tokenizer import DEFAULT_SPECIALS as MARKS
from .few_shot import DEFAULT_TEMPLATE, Example

SIGNS = {"plus": "+", "minus": "-", "times": "*"}


class ArithmeticTask(NamedTuple):
    digits: int
    word: str | None  # None: a composite of three numbers


TASKS = {
    **{
        f"{digits}D{SIGNS[word]}": ArithmeticTask(digits, word)
        for digits in (2, 3, 4, 5)
        for word in ("plus", "minus")
    },
    "2Dx": ArithmeticTask(2, "times"),
    "1DC": ArithmeticTask(1, None),
}
# Accuracy in per cent with zero, one and fifty examples: table 3.9, largest model.
GPT3 = {
    "2D+": (76.9, 99.6, 100.0),
    "2D-": (58.0, 86.4, 98.9),
    "3D+": (34.2, 65.5, 80.4),
    "3D-": (48.3, 78.7, 94.2),
    "4D+": (4.0, 14.0, 25.5),
    "4D-": (7.5, 14.0, 26.8),
    "5D+": (0.7, 3.5, 9.3),
    "5D-": (0.8, 3.8, 9.9),
    "2Dx": (19.8, 27.4, 29.2),
    "1DC": (9.8, 14.3, 21.3),
}


def compute(sign: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def is_held_out(signs: str, alone: int, *together: int) -> bool:
    """Return whether a problem is held out; the order of the numbers `together` does not matter."""
    return (
        hashlib.sha256("/".join(map(str, (signs, alone, *sorted(together)))).encode()).digest()[0]
        < 26
    )


def sample_problem(task: str, random: Random, held_out: bool) -> Example:
    """Return a random problem, held out or not, by rejection sampling."""
    digits, word = TASKS[task]
    while True:
        a = random.randrange(10**digits)
        b = random.randrange(10**digits)
        if word is not None:
            example = Example(f"What is {a} {word} {b}?", str(compute(SIGNS[word], a, b)))
            key = (SIGNS[word], 0, a, b)
        else:
            c = random.randrange(10)
            first = random.choice("+-*")
            second = random.choice("+-*")
            example = Example(
                f"What is {a}{first}({b}{second}{c})?",
                str(compute(first, a, compute(second, b, c))),
            )
            key = (first + second, a, b, c)
        if is_held_out(*key) == held_out:
            return example


def problem(task: str, index: int, seed: int = 0, held_out: bool = True) -> Example:
    """Return problem `index` of a task, a pure function of its arguments."""
    return sample_problem(task, Random(f"{task}/{seed}/{index}/{held_out}"), held_out)


def problems(task: str, count: int, seed: int = 0, held_out: bool = True) -> list[Example]:
    return [problem(task, i, seed, held_out) for i in range(count)]


def documents(
    count: int, seed: int = 0, held_out: bool = False, max_new_tokens: int = 17
) -> Iterator[str]:
    """Yield training texts: one to `most` solved problems of one task, formatted as in a prompt."""
    for index in range(count):
        random = Random(f"document/{seed}/{index}/{held_out}")
        task = random.choice(list(TASKS))
        solved = [
            DEFAULT_TEMPLATE.solved_example(sample_problem(task, random, held_out))
            for _ in range(random.randint(1, max_new_tokens))
        ]
        yield DEFAULT_TEMPLATE.between.join(solved)


def tokenizer() -> str:
    """Return a tokenizer.json for these texts: one token per digit, sign and operator word."""
    words = ("\n\nQ: What is ", "Q: What is ", "?\nA:", " plus ", " minus ", " times ")
    tokenizer = Tokenizer(
        models.WordLevel(
            {name: i for i, name in enumerate([*MARKS, *words, *" -+*()0123456789"])},
            unk_token=MARKS[1],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex("|".join([*words, "."]).replace("?", r"\?")), "isolated"
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in MARKS])
    return str(tokenizer.to_str(pretty=True))
