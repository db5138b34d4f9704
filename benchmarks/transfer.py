"""Does pre-training pay? BERT, ELECTRA and T5 as wide as BERT-mini, each pre-trained on wikitext-2 for the same FLOPs, then fine-tuned on
three tenths of CoNLL-2003, beside the same models from nothing: the same steps, rates and seeds.

    python -m benchmarks.transfer [--models bert t5] [--seeds 3] [--out runs] [--receipt FILE]

FLOPs are those of the matrix products of whole steps, counted by torch. F1 of whole entities is on the whole dev set; of T5 the encoder
reads, as in transformers' T5ForTokenClassification. From nothing, each model has its own best rate: the dev set chooses, on the first
seed, for both. The last line is JSON.
"""
import argparse
import json
import statistics
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

import weft
from weft import recipe as R
from weft import run
from weft.train.log import read

from . import receipt

MODELS, RATES, STEPS = ["bert", "electra", "t5"], (3e-4, 1e-3, 3e-3), 400


def flops(recipe: R.Recipe) -> float:
    """Of one training step, its optimiser's included."""
    steps = iter(run.make(recipe).trainer)
    next(steps)
    with FlopCounterMode(display=False) as counter:
        for _ in islice(steps, 2):
            pass
    return counter.get_total_flops() / 2


def downstream(pretrained: R.Recipe, folder: Path, start: bool, rate: float, seed: int) -> R.Recipe:
    """Three epochs of names."""
    names = R.read("recipes/tag_conll2003.py")
    model = replace(weft.with_dropout(pretrained.model, 0.1), decoder=None, target=None, head=names.model.head)
    data = replace(names.data, train=replace(names.data.train, part=(0.0, 0.3)),
                   tokenizer=R.TokenizerFile(path=str(folder / "model" / "tokenizer.json")))
    return R.Recipe(
        name=f"{pretrained.name}-{'pretrained' if start else 'scratch'}-{rate:g}-{seed}", model=model, data=data, objective=names.objective,
        batch=R.Rows(count=32, length=128), steps=STEPS, optimiser=R.AdamW(rate=rate), schedule=R.Linear(warmup=STEPS // 10),
        precision="bf16", seed=seed, average=R.Best(metric="f1"), evaluate=STEPS, start=str(folder / "model") if start else None)


def train(recipe: R.Recipe, folder: Path) -> None:
    for event in run.train(recipe, folder):
        if event.step % 100 == 0:
            print(f"  {recipe.name} step {event.step:,}/{recipe.steps:,} loss {event.loss:.3f}, {event.seconds * 1e3:.0f} ms", flush=True)


def tune(pretrained: R.Recipe, folder: Path, out: Path, start: bool, rate: float, seed: int) -> float:
    recipe = downstream(pretrained, folder, start, rate, seed)
    train(recipe, out / recipe.name)
    found: float = [line["valid"]["f1"] for line in read(out / recipe.name / "log.jsonl") if "valid" in line][-1]
    print(f"  {recipe.name}: {found:.4f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--receipt", metavar="FILE")
    given, began = parser.parse_args(), time.perf_counter()
    found: dict[str, Any] = {}
    for name in given.models:
        pretrained = R.read(f"recipes/{name}.py:mini")
        folder = given.out / pretrained.name
        train(pretrained, folder)
        found[name] = {"flops": flops(pretrained) * pretrained.steps, "parameters": pretrained.model.parameters()}
        for kind, start in (("scratch", False), ("pretrained", True)):
            first = {rate: tune(pretrained, folder, given.out, start, rate, 0) for rate in RATES}
            rate = max(first, key=lambda r: first[r])
            each = [tune(pretrained, folder, given.out, start, rate, seed) for seed in range(given.seeds)]
            found[name][kind] = {"rate": rate, "f1": each, "mean": statistics.mean(each),
                                 "stdev": statistics.stdev(each) if len(each) > 1 else 0.0}
        print(f"{name}: from nothing {found[name]['scratch']['mean']:.3f}, pre-trained {found[name]['pretrained']['mean']:.3f} "
              f"({found[name]['flops']:.2e} FLOP of pre-training)", flush=True)
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began, given.seeds - 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
