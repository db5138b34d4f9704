"""Measure GPT's auxiliary loss: fine-tune a small GPT, pre-trained on wikitext-2, with and without
next-token prediction on the task's rows (Radford et al. 2018, section 3.2: L3 = L2 + λ · L1, λ =
.5; their table 5 takes it away).

    python -m benchmarks.auxiliary_lm [--weights 0 0.5] [--seeds 3] [--pretraining-steps 200]
        [--output runs] [--receipt FILE]

Everything else is the same: pre-trained weights, the first 2,000 sentences of SST-2 and the first
1,600 pairs of SICK, steps, rate and seeds. Accuracy is on SST-2's dev set and on the last fifth of
SICK. The difference has the standard error of its mean over seeds. Finished runs are reused.
--quick takes three steps of each run. The last line is JSON.
"""

import json
import math
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft.runs.logs.log import read_log

from . import command, receipt
from .generated import small
from .trials import parse, train, trial_parser

ROOT = Path(__file__).parents[1]
TASKS = {"reviews": ("classify_sst2", 0.03, 2), "entailment": ("entail_sick", 0.16, 3)}
STEPS = 120


def load(name: str) -> R.Recipe:
    return R.load_recipe(str(ROOT / "recipes" / f"{name}.py"))


def pretraining(steps: int) -> R.Recipe:
    base = load("gpt_bpe")
    return replace(
        base,
        name=f"auxiliary-gpt-{steps}",
        model=weft.with_dropout(
            weft.gpt2(depth=2, width=128, heads=4, vocab_size=4096, positions=128), 0.0
        ),
        data=replace(base.data, tokenizer=R.ByteBPE(vocab_size=4096), valid=None),
        batch=R.FixedBatch(size=16, length=128),
        steps=steps,
        schedule=R.CosineSchedule(warmup_steps=steps // 10, final_fraction=0.1),
        checkpoints=R.Checkpoints(every_steps=steps, keep=1),
        precision="fp32",
        eval_every=None,
    )


def tuning(task: str, weight: float, seed: int, pretrained: R.Recipe, folder: Path) -> R.Recipe:
    file, fraction, classes = TASKS[task]
    base = load(file)
    assert isinstance(base.data.train, R.Source)
    train = replace(base.data.train, fraction=(0.0, fraction))
    return replace(
        base,
        name=f"auxiliary-{task}-{weight:g}-{seed}",
        model=replace(
            weft.with_dropout(pretrained.model, 0.1),
            head=weft.ClassifierHead(num_labels=classes, pooling="last", dropout=0.1),
        ),
        task=R.Classification(input_format="gpt", lm_weight=weight),
        data=replace(
            base.data,
            train=train,
            tokenizer=R.TokenizerFile(path=str(folder / "model" / "tokenizer.json")),
        ),
        batch=R.FixedBatch(size=32, length=96),
        steps=STEPS,
        optimiser=R.AdamW(lr=5e-4, weight_decay=0.01),
        schedule=R.LinearSchedule(warmup_steps=STEPS // 10),
        checkpoints=R.Checkpoints(every_steps=STEPS, keep=1),
        precision="fp32",
        eval_every=None,
        seed=seed,
        init_from=str(folder / "model"),
    )


def summary(scores: dict[str, list[float]]) -> dict[str, Any]:
    """Per weight the mean and deviation; against the first weight the mean difference of seeds and
    its standard error.
    """
    result: dict[str, Any] = {}
    first = next(iter(scores.values()))
    for weight, values in scores.items():
        differences = [a - b for a, b in zip(values, first, strict=True)]
        many = len(values) > 1
        result[weight] = {
            "accuracy": [round(value, 4) for value in values],
            "mean": round(statistics.mean(values), 4),
            "stdev": round(statistics.stdev(values), 4) if many else None,
            "difference": round(statistics.mean(differences), 4),
            "standard error": round(statistics.stdev(differences) / math.sqrt(len(values)), 4)
            if many
            else None,
        }
    return result


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = trial_parser(__doc__)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pretraining-steps", type=int, default=200)
    options = parse(parser, arguments)
    start_time = time.perf_counter()
    pretrained = pretraining(options.pretraining_steps)
    pretrained = small(pretrained) if options.quick else pretrained
    folder = train(pretrained, options.output)
    scores = {task: {f"{w:g}": list[float]() for w in options.weights} for task in TASKS}
    work = [(s, task, w) for s in range(options.seeds) for task in TASKS for w in options.weights]
    for done, (seed, task, weight) in enumerate(work, 1):
        recipe = tuning(task, weight, seed, pretrained, folder)
        log = read_log(train(recipe, options.output, options.quick) / "log.jsonl")
        accuracy = [line["valid"]["accuracy"] for line in log if "valid" in line][-1]
        scores[task][f"{weight:g}"].append(accuracy)
        left = (time.perf_counter() - start_time) / done * (len(work) - done)
        print(f"  {recipe.name}: accuracy {accuracy:.4f}; about {left:.0f} s left", flush=True)
    table = {
        "pretraining_steps": pretrained.steps,
        "tuning_steps": STEPS,
        "tasks": {task: summary(values) for task, values in scores.items()},
    }
    if options.receipt:
        receipt.write(options.receipt, table, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(table))
    return table


if __name__ == "__main__":
    command.run(main)
