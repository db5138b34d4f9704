"""Measure instruction and preference tuning of SmolLM2-135M-Instruct, which learns to answer in one
word.

    python -m benchmarks.smollm2 DATA/smollm2
    python -m benchmarks.assistants DATA/smollm2 [--steps 40] [--questions 60] [--output runs]
        [--receipt FILE]

Questions, answers and pairs are those of benchmarks.assistant_data; evaluation uses held-out
questions. Before, after instruction tuning, and after preference tuning of the original (DPO, with
the original as reference) every model answers greedily, by its own chat template. An answer is
right if it names the answer as a word. A right answer wins against a wrong one, and the shorter of
two right answers wins; the win rate is against the original, and a draw counts half. Finished runs
are reused. The last line is JSON.
"""

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft.generate.text_generator import TextGenerator

from . import command, receipt
from .assistant_data import Question, questions, write
from .trials import train_steps

MAX_NEW_TOKENS = 40


def recipes(folder: Path, data: Path, steps: int) -> dict[str, R.Recipe]:
    """Both methods from the same start."""
    model = weft.load(folder).spec
    source: dict[str, Any] = {"tokenizer": R.TokenizerFile(path=str(folder / "tokenizer.json"))}
    base: dict[str, Any] = {
        "model": model,
        "init_from": str(folder),
        "steps": steps,
        "schedule": R.CosineSchedule(warmup_steps=steps // 10, final_fraction=0.1),
        "precision": "auto",
        "checkpoints": R.Checkpoints(every_steps=steps // 2, keep=1),
    }
    talks, pairs = (
        R.Source(paths=(str(data / f"{name}.jsonl.gz"),)) for name in ("train", "preferences")
    )
    return {
        "instructed": R.Recipe(
            name="smollm2-instructed",
            task=R.InstructionTuning(),
            data=R.Data(rows=R.Conversations(), train=talks, **source),
            batch=R.PackedBatch(size=2, length=256),
            optimiser=R.AdamW(lr=5e-5),
            **base,
        ),
        "preferred": R.Recipe(
            name="smollm2-preferred",
            task=R.PreferenceTuning(reference=str(folder)),
            data=R.Data(rows=R.Preferences(template=R.ChatTemplate()), train=pairs, **source),
            batch=R.FixedBatch(size=8, length=96),
            optimiser=R.AdamW(lr=1e-5),
            **base,
        ),
    }


def answers(folder: Path, asked: list[Question]) -> list[str]:
    writer = TextGenerator(weft.open(folder))
    prompts = [writer.encode_chat([{"role": "user", "content": q.text}]) for q in asked]
    said = writer.generate(prompts, max_new_tokens=MAX_NEW_TOKENS)
    return [generations[0].text.strip() for generations in said]


def is_right(question: Question, said: str) -> bool:
    return re.search(rf"\b{re.escape(question.answer.lower())}\b", said.lower()) is not None


def score(question: Question, said: str, other: str) -> float:
    """1: wins over the other answer; 0.5: a draw."""
    right = is_right(question, said)
    wrong = is_right(question, other)
    if right != wrong:
        return float(right)
    mine = len(said.split())
    theirs = len(other.split())
    if not right or mine == theirs:
        return 0.5
    return float(mine < theirs)


def summary(asked: list[Question], said: list[str], before: list[str]) -> dict[str, Any]:
    rates = [score(*row) for row in zip(asked, said, before, strict=True)]
    return {
        "win rate": round(sum(rates) / len(rates), 4),
        "right": round(sum(map(is_right, asked, said)) / len(asked), 4),
        "words": round(sum(len(text.split()) for text in said) / len(said), 2),
        "examples": [[q.text, text] for q, text in list(zip(asked, said, strict=True))[:6]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--receipt", metavar="FILE")
    options = parser.parse_args()
    start_time = time.perf_counter()
    data = options.output / "assistant-data"
    write(data, 2000, 0)
    asked = list(dict.fromkeys(questions(4 * options.questions, 1, held_out=True)))
    asked = asked[: options.questions]
    before = answers(options.folder, asked)
    table: dict[str, Any] = {"original": summary(asked, before, before)}
    for name, recipe in recipes(options.folder.resolve(), data.resolve(), options.steps).items():
        folder = options.output / recipe.name
        for event in train_steps(recipe, folder):
            print(f"  {recipe.name} step {event.step} loss {event.loss:.4f}", flush=True)
        table[name] = summary(asked, answers(folder, asked), before)
        row = table[name]
        print(
            f"{name}: win rate {row['win rate']:.2f}, right {row['right']:.2f} (original "
            f"{table['original']['right']:.2f}), {row['words']} words "
            f"({table['original']['words']})",
            flush=True,
        )
    table["questions"] = len(asked)
    if options.receipt:
        receipt.write(options.receipt, table, time.perf_counter() - start_time)
    print(json.dumps(table))


if __name__ == "__main__":
    command.run(main)
