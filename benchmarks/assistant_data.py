"""Generate the data of recipes/instruct.py and recipes/prefer.py: questions with a short and a
verbose answer.

    python -m benchmarks.assistant_data assistant [--count 4000] [--seed 0]

Writes conversations (train.jsonl.gz, valid.jsonl.gz) and preferences (preferences.jsonl.gz,
preferences_valid.jsonl.gz) there. A question is either to train on or held out, never both.
"""

import argparse
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from . import command

HELD_OUT = 8  # one question in so many
WORDY = (
    "The answer to your question is {answer}.",
    "That is a good question! I would say that it is {answer}, if I am not mistaken.",
    "Let me think about it. It is {answer}.",
    "Sure, I can help you with that. The answer is {answer}, I believe.",
)
CAPITALS = dict(
    pair.split(":")
    for pair in [
        "France:Paris",
        "Italy:Rome",
        "Spain:Madrid",
        "Germany:Berlin",
        "Austria:Vienna",
        "Greece:Athens",
        "Egypt:Cairo",
        "Japan:Tokyo",
        "China:Beijing",
        "Russia:Moscow",
        "Sweden:Stockholm",
        "Norway:Oslo",
        "Finland:Helsinki",
        "Denmark:Copenhagen",
        "Poland:Warsaw",
        "Portugal:Lisbon",
        "Ireland:Dublin",
        "Hungary:Budapest",
        "Belgium:Brussels",
        "Cuba:Havana",
        "Peru:Lima",
        "Kenya:Nairobi",
        "Canada:Ottawa",
        "Turkey:Ankara",
        "Iran:Tehran",
        "Iraq:Baghdad",
        "Thailand:Bangkok",
        "Chile:Santiago",
        "Ukraine:Kyiv",
        "Romania:Bucharest",
        "Bulgaria:Sofia",
        "Serbia:Belgrade",
    ]
)
OPPOSITES = dict(
    pair.split(":")
    for pair in [
        "hot:cold",
        "big:small",
        "old:new",
        "fast:slow",
        "light:dark",
        "high:low",
        "early:late",
        "full:empty",
        "strong:weak",
        "wet:dry",
        "rich:poor",
        "open:closed",
        "left:right",
        "up:down",
        "day:night",
        "good:bad",
        "hard:soft",
        "long:short",
        "near:far",
        "first:last",
        "clean:dirty",
    ]
)


class Question(NamedTuple):
    text: str
    answer: str

    @property
    def is_held_out(self) -> bool:
        return hashlib.sha256(self.text.encode()).digest()[0] % HELD_OUT == 0


def question(random: Random) -> Question:
    a = random.randrange(10)
    b = random.randrange(10)
    kind = random.randrange(5)
    if kind == 0:
        country = random.choice(list(CAPITALS))
        return Question(f"What is the capital of {country}?", CAPITALS[country])
    if kind == 1:
        word = random.choice(list(OPPOSITES))
        return Question(f"What is the opposite of {word}?", OPPOSITES[word])
    if kind == 2:
        c, d = random.sample(range(100), 2)
        return Question(f"Which is larger, {c} or {d}?", str(max(c, d)))
    if kind == 3:
        return Question(f"What is {a + b} minus {b}?", str(a))
    return Question(f"What is {a} plus {b}?", str(a + b))


def questions(count: int, seed: int, held_out: bool) -> Iterator[Question]:
    random = Random(f"{seed}/{held_out}")
    left = count
    while left:
        asked = question(random)
        if asked.is_held_out == held_out:
            left -= 1
            yield asked


def conversation(asked: Question) -> dict[str, object]:
    turns = (("user", asked.text), ("assistant", asked.answer))
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def preference(asked: Question, random: Random) -> dict[str, object]:
    """The short answer before the long one."""
    wordy = random.choice(WORDY).format(answer=asked.answer)
    return {"prompt": asked.text, "chosen": asked.answer, "rejected": wordy}


def write(folder: Path, count: int, seed: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for held_out, number, (talks, likes) in (
        (False, count, ("train", "preferences")),
        (True, max(1, count // 20), ("valid", "preferences_valid")),
    ):
        asked = list(questions(number, seed, held_out))
        random = Random(f"{seed}/{held_out}/wordy")
        for name, rows in (
            (talks, [conversation(q) for q in asked]),
            (likes, [preference(q, random) for q in asked]),
        ):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=4000, help="questions to train on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write(options.out, options.count, options.seed)
    print(f"{options.count:,} questions in {options.out}")


if __name__ == "__main__":
    command.run(main)
