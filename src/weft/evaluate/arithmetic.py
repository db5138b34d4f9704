"""The ten arithmetic tasks of GPT-3 (Brown et al. 2020, arXiv:2005.14165, section 3.9.1), made from a seed.

A tenth of all problems is held out, by a hash of the numbers and the operation: what may be trained on never holds a problem that is
asked, nor the same one with its numbers exchanged."""
import hashlib
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ..data.vocabulary import PLAIN as MARKS
from .shots import PLAIN, Example

SIGNS = {"plus": "+", "minus": "-", "times": "*"}


class Task(NamedTuple):
    digits: int
    word: str | None                       # None: a composite of three numbers


TASKS = {**{f"{digits}D{SIGNS[word]}": Task(digits, word) for digits in (2, 3, 4, 5) for word in ("plus", "minus")},
         "2Dx": Task(2, "times"), "1DC": Task(1, None)}
# Per cent with no, one and fifty examples: table 3.9, the largest model.
GPT3 = {"2D+": (76.9, 99.6, 100.0), "2D-": (58.0, 86.4, 98.9), "3D+": (34.2, 65.5, 80.4), "3D-": (48.3, 78.7, 94.2),
        "4D+": (4.0, 14.0, 25.5), "4D-": (7.5, 14.0, 26.8), "5D+": (0.7, 3.5, 9.3), "5D-": (0.8, 3.8, 9.9),
        "2Dx": (19.8, 27.4, 29.2), "1DC": (9.8, 14.3, 21.3)}


def work_out(sign: str, a: int, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def is_held(signs: str, alone: int, *together: int) -> bool:
    """`together`: numbers that may change places."""
    return hashlib.sha256("/".join(map(str, (signs, alone, *sorted(together)))).encode()).digest()[0] < 26


def draw(task: str, random: Random, held: bool) -> Example:
    """A problem of the held-out tenth, or of the rest: numbers drawn uniformly, again until it is one."""
    digits, word = TASKS[task]
    while True:
        a, b = random.randrange(10 ** digits), random.randrange(10 ** digits)
        if word is not None:
            found, key = Example(f"What is {a} {word} {b}?", str(work_out(SIGNS[word], a, b))), (SIGNS[word], 0, a, b)
        else:
            c, first, second = random.randrange(10), random.choice("+-*"), random.choice("+-*")
            found = Example(f"What is {a}{first}({b}{second}{c})?", str(work_out(first, a, work_out(second, b, c))))
            key = (first + second, a, b, c)
        if is_held(*key) == held:
            return found


def problem(task: str, index: int, seed: int = 0, held: bool = True) -> Example:
    """A pure function: problem `index` of a task."""
    return draw(task, Random(f"{task}/{seed}/{index}/{held}"), held)


def problems(task: str, count: int, seed: int = 0, held: bool = True) -> list[Example]:
    return [problem(task, i, seed, held) for i in range(count)]


def documents(count: int, seed: int = 0, held: bool = False, most: int = 17) -> Iterator[str]:
    """Text to train on: from one to `most` solved problems of one task, one after another, as a prompt shows them."""
    for index in range(count):
        random = Random(f"document/{seed}/{index}/{held}")
        task = random.choice(list(TASKS))
        solved = [PLAIN.solved(draw(task, random, held)) for _ in range(random.randint(1, most))]
        yield PLAIN.between.join(solved)


def tokenizer() -> str:
    """A tokenizer.json for these texts: each digit and sign a token, as are the words between two numbers."""
    words = ("\n\nQ: What is ", "Q: What is ", "?\nA:", " plus ", " minus ", " times ")
    made = Tokenizer(models.WordLevel({name: i for i, name in enumerate([*MARKS, *words, *" -+*()0123456789"])}, unk_token=MARKS[1]))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*words, "."]).replace("?", r"\?")), "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens([AddedToken(name, special=True) for name in MARKS])
    return str(made.to_str(pretty=True))
