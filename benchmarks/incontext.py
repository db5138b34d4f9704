"""Measure in-context learning: answers after a few examples in the prompt (Brown et al. 2020,
arXiv:2005.14165, figure 3.10).

    python -m benchmarks.smollm2 smollm2
    python -m benchmarks.incontext --model smollm2 [--own RUN] [--shots 0 1 4 16] [--count 60]
        [--same 24] [--receipt FILE]

For the model: the answers to the lines of a lecture, and the ten arithmetic tasks after so many
examples; for `--own`, a run of recipes/gpt_arithmetic.py, the same questions. `--same` prompts are
also answered by transformers: greedy text, token for token. Finished parts are stored under
`--output`; a repeated call continues. With `--receipt`, a picture is written next to it. The last
line is JSON.
"""

import argparse
import hashlib
import json
import time
from html import escape
from pathlib import Path
from typing import Any

import torch

from weft.evaluation import arithmetic, few_shot
from weft.generate.text_generator import TextGenerator
from weft.inference.open_model import open_model

from . import command, receipt

# Fleuret, Deep Learning, 13.3: a prompt, and how a model of 1.6 B parameters goes on
LINES = {
    "Cherry is red, lettuce is green, lemon is": "yellow",
    "Cherry is sweet, lettuce is bland, lemon is": "sour",
    "Cherry is a fruit, lettuce is a vegetable, lemon is": "a fruit",
}
MOST = 10  # tokens of an answer: a space, a sign, six digits and the end of the line
POOL = 500  # problems that examples are drawn from


def priming(writer: TextGenerator) -> dict[str, Any]:
    """How each line goes on, and which of the three answers it makes likeliest."""
    said = writer.complete(list(LINES), max_new_tokens=16, stop_strings=("\n",))
    scores, _ = few_shot.choice_likelihoods(
        writer.model, writer.tokenizer, list(LINES), [list(LINES.values())] * len(LINES)
    )
    best = [list(LINES.values())[row.index(max(row))] for row in scores]
    return {
        line: {"says": text, "likeliest": own, "lecture": LINES[line]}
        for line, text, own in zip(LINES, said, best, strict=True)
    }


def cell(writer: TextGenerator, task: str, examples: int, count: int, batch: int) -> dict[str, Any]:
    """One task after so many examples."""
    asked = arithmetic.problems(task, count)
    pool = arithmetic.problems(task, POOL, held_out=False)
    began = time.perf_counter()
    said = few_shot.complete_prompts(
        lambda texts: writer.complete(
            texts,
            max_new_tokens=MOST,
            stop_strings=(few_shot.DEFAULT_TEMPLATE.stop,),
            batch_size=batch,
        ),
        pool,
        asked,
        examples,
    )
    return {
        **dict(few_shot.exact_match(said, asked)),
        "seconds": round(time.perf_counter() - began, 1),
        "first": [
            f"{example.question} {answer}" for example, answer in zip(asked, said, strict=True)
        ][:2],
    }


def measure(name: str, given: argparse.Namespace, dtype: torch.dtype) -> dict[str, Any]:
    opened = open_model(name, dtype=dtype)
    writer = TextGenerator(opened)
    weights = opened.folder / "model.safetensors"
    weights = weights if weights.exists() else opened.folder / "model" / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    kept = given.output / f"{digest[:12]}-{given.count}-{str(dtype).removeprefix('torch.')}.json"
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for task in arithmetic.TASKS:
        for examples in given.shots:
            key = f"{task}/{examples}"
            if key not in done:
                done[key] = one = cell(writer, task, examples, given.count, given.batch_size)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(done, indent=1))
                print(
                    f"  {Path(name).name} {key}: {one['exact_match']:.0%}, {one['seconds']} s; "
                    f"{one['first'][0]}",
                    flush=True,
                )
    table = {
        task: [
            round(100 * done[f"{task}/{examples}"]["exact_match"], 1) for examples in given.shots
        ]
        for task in arithmetic.TASKS
    }
    mean = [round(sum(column) / len(column), 1) for column in zip(*table.values(), strict=True)]
    return {
        "parameters": sum(p.numel() for p in opened.model.parameters()),
        "weights": digest,
        "dtype": str(dtype).removeprefix("torch."),
        "seconds": round(sum(one["seconds"] for one in done.values()), 1),
        "per cent": table,
        "mean": mean,
    }


def same(folder: str, count: int, batch: int, most: int = 16) -> dict[str, Any]:
    """Greedy tokens here, many prompts of unequal length at once, and in transformers, one prompt
    at a time; both in float32.
    """
    from transformers import AutoModelForCausalLM

    writer = TextGenerator(open_model(folder))
    texts = list(LINES)
    for i in range(count - len(texts)):
        task = list(arithmetic.TASKS)[i % len(arithmetic.TASKS)]
        examples = (0, 1, 4, 16)[i % 4]
        texts += few_shot.build_prompts(
            arithmetic.problems(task, POOL, held_out=False), [arithmetic.problem(task, i)], examples
        )
    prompts = [writer.encode_prompt(text) for text in texts]
    began = time.perf_counter()
    ours = [
        answers[0].tokens.tokens
        for answers in writer.generate(prompts, max_new_tokens=most, batch_size=batch)
    ]
    middle = time.perf_counter()
    theirs = []
    other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    begun = time.perf_counter()
    for prompt in prompts:
        ids = torch.tensor([prompt])
        said = other.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=most, do_sample=False
        )
        theirs.append(said[0, len(prompt) :].tolist())
    equal = [a == b for a, b in zip(ours, theirs, strict=True)]
    return {
        "prompts": len(prompts),
        "equal": sum(equal),
        "tokens": sum(map(len, theirs)),
        "seconds": round(middle - began, 1),
        "transformers seconds": round(time.perf_counter() - begun, 1),
        "differ": [text for text, one in zip(texts, equal, strict=True) if not one],
    }


# The picture

COLOURS = (
    "#1f5fa8",
    "#60a5fa",
    "#15803d",
    "#4ade80",
    "#c2410c",
    "#fb923c",
    "#7e22ce",
    "#c084fc",
    "#111827",
    "#9ca3af",
)
WIDE = 400
HIGH = 300
LEFT = 48
TOP = 60


def panel(found: dict[str, Any], at: list[int], title: str, left: float) -> str:
    def x(i: int) -> float:
        return left + LEFT + (WIDE - LEFT - 20) * i / max(1, len(at) - 1)

    def y(percent: float) -> float:
        return TOP + HIGH * (1 - percent / 100)

    parts = [f'<text x="{left + LEFT}" y="{TOP - 14}">{escape(title)}</text>']
    parts += [
        f'<path d="M{x(0)} {y(v):.1f}H{x(len(at) - 1)}" stroke="#e5e7eb"/>'
        f'<text x="{x(0) - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v}</text>'
        for v in range(0, 101, 20)
    ]
    parts += [
        f'<text x="{x(i):.1f}" y="{TOP + HIGH + 20}" text-anchor="middle">{n}</text>'
        for i, n in enumerate(at)
    ]
    for colour, line in zip(COLOURS, found["per cent"].values(), strict=True):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(line))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
    return "".join(parts)


def picture(found: dict[str, Any]) -> str:
    """Per cent right by the number of examples, a panel a model."""
    titles = {
        "model": "SmolLM2-135M-Instruct, never trained for it",
        "own": "a small GPT, trained on such problems",
    }
    shown = [name for name in titles if name in found]
    parts = [
        '<text x="48" y="22" font-weight="600">Ten arithmetic tasks: per cent right after so many '
        "examples</text>"
    ]
    parts += [
        panel(
            found[name],
            found["shots"],
            f"{titles[name]} ({found[name]['parameters'] / 1e6:.1f} M)",
            WIDE * i,
        )
        for i, name in enumerate(shown)
    ]
    edge = WIDE * len(shown) + 10
    parts += [
        f'<text x="{edge}" y="{TOP + 12 + 20 * i}" fill="{colour}">{task}</text>'
        for i, (colour, task) in enumerate(zip(COLOURS, arithmetic.TASKS, strict=True))
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{edge + 50}" height="{TOP + HIGH + 36}" '
        'font-family="sans-serif" '
        'font-size="12" fill="#374151"><rect width="100%" height="100%" '
        f'fill="white"/>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a folder, as benchmarks.smollm2 writes it")
    parser.add_argument("--own", help="a run of recipes/gpt_arithmetic.py")
    parser.add_argument("--shots", type=int, nargs="+", default=[0, 1, 4, 16])
    parser.add_argument("--count", type=int, default=60, help="questions per task")
    parser.add_argument("--same", type=int, default=24, help="prompts to compare with transformers")
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--output", type=Path, default=Path("runs/incontext"))
    parser.add_argument("--receipt", metavar="FILE")
    given = parser.parse_args()
    began = time.perf_counter()
    found: dict[str, Any] = {
        "shots": given.shots,
        "questions": given.count,
        "priming": priming(TextGenerator(open_model(given.model))),
    }
    print(json.dumps(found["priming"], indent=1), flush=True)
    if given.same:
        found["transformers"] = same(given.model, given.same, given.batch_size)
        print(json.dumps(found["transformers"]), flush=True)
    if given.own:
        found["own"] = measure(given.own, given, torch.float32)
    found["model"] = measure(given.model, given, getattr(torch, given.dtype))
    found["GPT-3 175B at 0, 1, 50 examples"] = arithmetic.GPT3
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
        Path(given.receipt).with_suffix(".svg").write_text(picture(found), encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
