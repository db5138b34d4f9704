"""Compare one T5 for several tasks with one T5 per task, at equal FLOPs (T5, arXiv:1910.10683,
section 3.5.2).

    python -m benchmarks.mixtures [--steps 450] [--seeds 1] [--output runs] [--receipt FILE]

The tasks are those of recipes/t5_tasks.py: translation, reviews, similarity. The mixed model takes
as many steps as the three models of one task together, of as many rows of the same length; each of
those takes a third. Reported are the loss per token of the validation target, the accuracy of
reviews by the likelihood of their two words, and how many targets greedy decoding writes exactly.
"fixed" mixes in equal shares, "proportional" by the number of examples up to the recipe's limit. A
finished run is not run again. --quick takes three steps of each run. The last line is JSON.
"""

import json
import shutil
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft.data.preparing.prepare import prepare
from weft.generate.text_generator import TextGenerator
from weft.plan.cost import run_flops
from weft.runs.logs.log import read_log
from weft.tasks.task import EvaluationData
from weft.tasks.text_to_text import class_probabilities

from . import command, receipt
from .trials import parse, train, trial_parser

ROOT = Path(__file__).parents[1]


def variants(recipe: R.Recipe, steps: int) -> dict[str, R.Recipe]:
    """The mixed models and those of one task, by name."""
    train = recipe.data.train
    valid = recipe.data.valid
    assert isinstance(train, R.Mixture)
    assert isinstance(valid, R.Mixture)
    third = steps // len(train.sources)

    def one(mixture: R.Mixture, number: int) -> R.Mixture:
        return replace(mixture, sources=(mixture.sources[number],))

    equal = replace(train, rates=R.FixedRates(rates=(1.0,) * len(train.sources)))
    mixed = {"proportional": train, "fixed": equal}
    named = {
        name: replace(recipe, data=replace(recipe.data, train=mixture), steps=steps)
        for name, mixture in mixed.items()
    }
    for number, part in enumerate(train.sources):
        data = replace(recipe.data, train=one(train, number), valid=one(valid, number))
        named[f"{part.name} alone"] = replace(recipe, data=data, steps=third)
    return named


def accuracy(folder: Path) -> float:
    """Of reviews: the more likely of the two words."""
    opened = weft.open(folder, device="cpu")
    assert opened.recipe is not None
    store = prepare(opened.recipe.data).valid
    valid = opened.recipe.data.valid
    assert isinstance(valid, R.Mixture)
    part = next(part for part in valid.sources if part.name == "reviews")
    rows = part.rows
    assert isinstance(rows, R.TemplatedPairs)
    assert rows.labels is not None
    fields = EvaluationData(store.parts["reviews"], part.source).rows()  # type: ignore[union-attr]
    texts = [rows.source_text(each) for each in fields]
    rates = class_probabilities(opened, TextGenerator(opened), rows, texts)
    right = [
        rows.labels[max(range(len(row)), key=row.__getitem__)] == str(each["label"])
        for row, each in zip(rates, fields, strict=True)
    ]
    return statistics.mean(right)


def measure(recipe: R.Recipe, folder: Path) -> dict[str, Any]:
    valid = [line["valid"] for line in read_log(folder / "log.jsonl") if "valid" in line][-1]
    train = recipe.data.train
    assert isinstance(train, R.Mixture)
    names = [part.name for part in train.sources]
    keys = {name: f"{name} " if len(names) > 1 else "" for name in names}
    scores: dict[str, Any] = {
        name: {
            "loss": round(valid[f"{key}loss"], 4),
            "exact_match": round(valid[f"{key}exact_match"], 4),
        }
        for name, key in keys.items()
    }
    if "reviews" in scores:
        scores["reviews"]["accuracy"] = round(accuracy(folder), 4)
    return scores


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = trial_parser(__doc__)
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--seeds", type=int, default=1)
    options = parse(parser, arguments)
    start_time = time.perf_counter()
    base = replace(
        R.load_recipe(str(ROOT / "recipes" / "t5_tasks.py")), precision="fp32", eval_every=None
    )
    table: dict[str, Any] = {}
    tokenizer = options.output / "mixture-tokenizer.json"
    for name, recipe in variants(base, options.steps).items():
        # one for all, or their losses per token would not compare
        if tokenizer.exists() and name != "proportional":
            file = R.TokenizerFile(path=str(tokenizer))
            recipe = replace(recipe, data=replace(recipe.data, tokenizer=file))
        runs = []
        for seed in range(options.seeds):
            slug = f"mixture-{name.replace(' ', '-')}-{seed}"
            seeded = replace(recipe, name=slug, seed=seed)
            runs.append(measure(seeded, train(seeded, options.output, options.quick)))
            if not tokenizer.exists():
                shutil.copy(options.output / slug / "model" / "tokenizer.json", tokenizer)
        table[name] = {"steps": recipe.steps, "flops": run_flops(recipe), "runs": runs}
        print(f"{name}: {runs}; {time.perf_counter() - start_time:.0f} s so far", flush=True)
    if options.receipt:
        receipt.write(options.receipt, table, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(table))
    return table


if __name__ == "__main__":
    command.run(main)
