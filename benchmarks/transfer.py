"""Does pre-training pay? BERT, ELECTRA and T5 as wide as BERT-mini, each pre-trained on wikitext-2 for the same FLOPs, then fine-tuned on
three tenths of CoNLL-2003, beside the same models from nothing: the same steps, rates and seeds.

    python -m benchmarks.transfer [--models bert t5] [--seeds 3] [--out runs] [--receipt FILE]

FLOPs are those of the matrix products of whole steps, counted by torch. F1 of whole entities is on the whole dev set; of T5 the encoder
reads, as in transformers' T5ForTokenClassification. Pre-trained and from nothing, each model has its own best rate: the dev set chooses,
on the first seed, for both. The precision is bf16 where the machine multiplies it fast, else fp32. A run that is finished is not run again.
The last line is JSON.
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
from weft.tune.plan import best_precision

from . import receipt

MODELS, STEPS = ["bert", "electra", "t5"], 400
ABSOLUTE = tuple(R.AdamW(rate=rate) for rate in (3e-4, 1e-3, 3e-3, 1e-2))
RELATIVE = tuple(R.Adafactor(rate=rate) for rate in (3e-3, 1e-2, 3e-2))      # AdamW hardly moves T5's token table (docs/log.md)
OPTIMISERS: dict[str, tuple[R.AdamW | R.Adafactor, ...]] = {"bert": ABSOLUTE, "electra": ABSOLUTE, "t5": RELATIVE}


def flops(recipe: R.Recipe) -> float:
    """Of one training step, its optimiser's included."""
    steps = iter(run.make(recipe).trainer)
    next(steps)
    with FlopCounterMode(display=False) as counter:
        for _ in islice(steps, 2):
            pass
    return counter.get_total_flops() / 2


def downstream(pretrained: R.Recipe, folder: Path, start: bool, optimiser: R.AdamW | R.Adafactor, seed: int) -> R.Recipe:
    """Three epochs of names."""
    names = R.read("recipes/tag_conll2003.py")
    model = replace(weft.with_dropout(pretrained.model, 0.1), decoder=None, target=None, head=names.model.head)
    data = replace(names.data, train=replace(names.data.train, part=(0.0, 0.3)),
                   tokenizer=R.TokenizerFile(path=str(folder / "model" / "tokenizer.json")))
    kind = "pretrained" if start else "scratch"
    return R.Recipe(
        name=f"{pretrained.name}-{kind}-{optimiser.rate:g}-{seed}", model=model, data=data, objective=names.objective,
        batch=R.Rows(count=32, length=128, pool=1024), steps=STEPS, optimiser=optimiser, schedule=R.Linear(warmup=STEPS // 10),
        precision=pretrained.precision, seed=seed, average=R.Best(metric="f1"), evaluate=STEPS,
        start=str(folder / "model") if start else None)


def train(recipe: R.Recipe, folder: Path) -> None:
    for event in run.train(recipe, folder):
        if event.step % 100 == 0:
            print(f"  {recipe.name} step {event.step:,}/{recipe.steps:,} loss {event.loss:.3f}, {event.seconds * 1e3:.0f} ms", flush=True)


def tune(pretrained: R.Recipe, folder: Path, out: Path, start: bool, optimiser: R.AdamW | R.Adafactor, seed: int) -> float:
    recipe = downstream(pretrained, folder, start, optimiser, seed)
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
        pretrained = replace(R.read(f"recipes/{name}.py:mini"), precision=best_precision())  # type: ignore[arg-type]
        folder = given.out / pretrained.name
        train(pretrained, folder)
        found[name] = {"flops": flops(pretrained) * pretrained.steps, "parameters": pretrained.model.parameters()}
        for kind, start in (("scratch", False), ("pretrained", True)):
            first = {optimiser: tune(pretrained, folder, given.out, start, optimiser, 0) for optimiser in OPTIMISERS[name]}
            best = max(first, key=lambda one: first[one])
            each = [tune(pretrained, folder, given.out, start, best, seed) for seed in range(given.seeds)]
            found[name][kind] = {"rate": best.rate, "optimiser": type(best).__name__, "f1": each, "mean": statistics.mean(each),
                                 "stdev": statistics.stdev(each) if len(each) > 1 else 0.0}
        print(f"{name}: from nothing {found[name]['scratch']['mean']:.3f}, pre-trained {found[name]['pretrained']['mean']:.3f} "
              f"({found[name]['flops']:.2e} FLOP of pre-training)", flush=True)
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began, given.seeds - 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
