"""Does it learn? Recipes trained from nothing on real data, beside what counting words alone would reach.

    python -m benchmarks.learn recipes/gpt_char.py recipes/bert.py [--seeds 3] [--out runs] [--receipt FILE]

For each recipe: the validation loss over the whole of the validation data, its terms, the seconds of the training steps, and the
unigram loss: the cross entropy of the same labels under their frequencies in training; for next sentence, what the lengths of both
segments alone give. With `--receipt`, each curve lands beside it.
The last line is JSON.
"""
import argparse
import json
import shutil
import statistics
import time
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from weft import recipe as R
from weft import run
from weft.cost import units
from weft.data.loader import Loader
from weft.data.order import draw
from weft.data.plan import planner
from weft.data.store import Store
from weft.train.log import read

from . import receipt


def unigram(made: run.Made, batches: int = 200) -> float:
    """The cross entropy of the validation labels under their frequencies in the first training batches, one added to each."""
    recipe, corruption = made.recipe, made.corruption
    seen = np.ones(made.store.meta.vocabulary or 1)
    samples = corruption.samples(made.store, recipe.batch.length)
    works = Loader(planner(recipe.batch, samples, recipe.seed), samples, corruption, recipe.seed).start(0)
    for _, work in zip(range(batches), works, strict=False):
        for batch in work.batches:
            seen += np.bincount(batch["labels"].flatten()[batch["labels_at"]].numpy(), minlength=len(seen))
    surprise, total, count = -np.log(seen / seen.sum()), 0.0, 0
    assert made.valid is not None
    held = corruption.samples(made.valid, recipe.batch.length, tail=True)
    for work in Loader(planner(recipe.batch, held, recipe.seed), held, corruption, recipe.seed).once(32):
        for batch in work.batches:
            labels = batch["labels"].flatten()[batch["labels_at"]].numpy()
            total, count = total + float(surprise[labels].sum()), count + len(labels)
    return total / count


def lengths_alone(made: run.Made, most: int = 20_000, bins: int = 8) -> float:
    """The cross entropy of the validation's next-sentence labels under their frequencies in training rows with similar lengths of A and
    of B, one added to each: what can be known without reading a word."""
    corruption, length, end = made.corruption, made.recipe.batch.length, made.store.meta.special["end"]

    def counted(store: Store, tail: bool) -> np.ndarray:
        samples, seen = corruption.samples(store, length, tail), np.zeros((bins, bins, 2))
        for i in range(min(most, len(samples))):
            row = corruption(samples, i, draw(made.recipe.seed, 0, i))
            a = int(np.flatnonzero(row["tokens"] == end)[0])
            seen[a * bins // length, (len(row["tokens"]) - a - 1) * bins // length, row["labels_next"][0]] += 1
        return seen

    assert made.valid is not None
    seen, asked = counted(made.store, False) + 1, counted(made.valid, True)
    return float(-(asked * np.log(seen / seen.sum(-1, keepdims=True))).sum() / asked.sum())


def learn(recipe: R.Recipe, out: Path) -> dict[str, Any]:
    held: list[run.Made] = []
    for event in run.train(recipe, out, begun=lambda made, *_: held.append(made)):
        if event.step % max(1, recipe.steps // 10) == 0:
            print(f"  {recipe.name} step {event.step:,}/{recipe.steps:,} loss {event.loss:.4f}, {event.seconds * 1e3:.0f} ms", flush=True)
    made, lines = held[0] if held else run.make(recipe), read(out / "log.jsonl")
    if not held:                           # it was finished before
        found = run.newest(out / "checkpoints", run.silent)
        assert found
        run.restore(made, found, out, run.silent)
    steps = [line for line in lines if "loss" in line]
    valid = [line for line in lines if "valid" in line][-1]["valid"]
    averaged = next((line["averaged"] for line in lines if "averaged" in line), None)
    found = {"parameters": sum(p.numel() for p in made.objective.model.parameters()),
             units(recipe): sum(line[units(recipe)] for line in steps),
             "seconds": round(sum(line["seconds"] for line in steps), 1), "valid": valid, "digest": made.trainer.digest()}
    found |= {"averaged": averaged} if averaged else {}
    if "token" in made.corruption.terms and made.store.meta.vocabulary:
        found["unigram"] = unigram(made)
    if "next" in made.corruption.terms:
        found["lengths_alone"] = lengths_alone(made)
    if isinstance(recipe.objective, R.ReplacedTokens):
        share = recipe.objective.share     # the surprise of one who knows only how many are hidden
        found["base_rate"] = -share * log(share) - (1 - share) * log(1 - share)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt, the curves beside it")
    given, began = parser.parse_args(), time.perf_counter()
    found: dict[str, Any] = {}
    for name in given.recipes:
        recipe = R.change(R.read(name), given.set)
        rows = []
        for seed in range(given.seeds):
            folder = given.out / f"{recipe.name}-{seed}"
            rows.append({"seed": seed, **learn(R.change(recipe, [f"seed={seed}"]), folder)})
            if given.receipt and seed == 0:
                Path(given.receipt).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / "curve.svg", Path(given.receipt).with_name(f"{recipe.name}.svg"))
        losses = [row["valid"]["loss"] for row in rows]
        found[name] = {"name": recipe.name, "steps": recipe.steps, "runs": rows, "mean": statistics.mean(losses), "worst": max(losses)}
        alone = ", ".join(f"{kind} {rows[0][kind]:.4f}" for kind in ("unigram", "lengths_alone", "base_rate") if kind in rows[0])
        print(f"{name}: validation {', '.join(f'{loss:.4f}' for loss in losses)}; counting alone: {alone or 'not known'}; "
              f"{rows[0]['seconds']:.0f} s", flush=True)
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began, given.seeds - 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
