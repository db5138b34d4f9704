"""Train recipes from scratch on real data and compare the loss with a unigram baseline.

    python -m benchmarks.learn recipes/gpt_char.py recipes/bert.py [--seeds 3] [--output runs]
        [--receipt FILE]

For each recipe: the validation loss over the whole of the validation data, its terms, the seconds
of the training steps, and the unigram loss: the cross entropy of the same labels under their
frequencies in training; for next sentence, what the lengths of both segments alone give. With
`--receipt`, each curve is written next to it. The last line is JSON.
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
from weft.data.batches.batching import build_planner
from weft.data.batches.loader import Loader
from weft.data.shards.store import Store
from weft.recipe.recipe import sample_unit
from weft.runs.checkpoints import restore_run
from weft.runs.directory import RunDirectory
from weft.runs.logs.log import read_log
from weft.runs.run import Run
from weft.support.order import sample_generator
from weft.support.ranks import Ranks

from . import command, receipt
from .trials import build_run, train_steps


def unigram(made: Run, batches: int = 200) -> float:
    """The cross entropy of the validation labels under their frequencies in the first training
    batches, one added to each.
    """
    recipe = made.recipe
    corruption = made.preprocess
    seen = np.ones(made.prepared.train.meta.vocab_size or 1)
    assert isinstance(made.prepared.train, Store)
    samples = corruption.open_samples(made.prepared.train, recipe.batch.length)
    works = Loader(
        build_planner(recipe.batch, samples, recipe.seed), samples, corruption, recipe.seed
    ).from_position(0)
    for _, work in zip(range(batches), works, strict=False):
        for batch in work.batches:
            seen += np.bincount(
                batch["labels"].flatten()[batch["labels_at"]].numpy(), minlength=len(seen)
            )
    surprise = -np.log(seen / seen.sum())
    total = 0.0
    count = 0
    assert isinstance(made.prepared.valid, Store)
    held = corruption.open_samples(made.prepared.valid, recipe.batch.length, include_partial=True)
    for work in Loader(
        build_planner(recipe.batch, held, recipe.seed), held, corruption, recipe.seed
    ).one_epoch(32):
        for batch in work.batches:
            labels = batch["labels"].flatten()[batch["labels_at"]].numpy()
            total = total + float(surprise[labels].sum())
            count = count + len(labels)
    return total / count


def lengths_alone(made: Run, most: int = 20_000, bins: int = 8) -> float:
    """The cross entropy of the validation's next-sentence labels under their frequencies in
    training rows with similar lengths of A and of B, one added to each: what can be known without
    reading a word.
    """
    corruption = made.preprocess
    length = made.recipe.batch.length
    end = made.prepared.train.meta.special_tokens["eos"]

    def counted(store: Store, tail: bool) -> np.ndarray:
        samples = corruption.open_samples(store, length, tail)
        seen = np.zeros((bins, bins, 2))
        for i in range(min(most, len(samples))):
            row = corruption(samples, i, sample_generator(made.recipe.seed, 0, i))
            a = int(np.flatnonzero(row["tokens"] == end)[0])
            seen[
                a * bins // length,
                (len(row["tokens"]) - a - 1) * bins // length,
                row["labels_next"][0],
            ] += 1
        return seen

    assert isinstance(made.prepared.train, Store)
    assert isinstance(made.prepared.valid, Store)
    seen = counted(made.prepared.train, False) + 1
    asked = counted(made.prepared.valid, True)
    return float(-(asked * np.log(seen / seen.sum(-1, keepdims=True))).sum() / asked.sum())


def learn(recipe: R.Recipe, out: Path) -> dict[str, Any]:
    held: list[Run] = []
    for event in train_steps(recipe, out, on_start=lambda made, *_: held.append(made)):
        if event.step % max(1, recipe.steps // 10) == 0:
            print(
                f"  {recipe.name} step {event.step:,}/{recipe.steps:,} loss {event.loss:.4f}, "
                f"{event.seconds * 1e3:.0f} ms",
                flush=True,
            )
    made = held[0] if held else build_run(recipe)
    lines = read_log(out / "log.jsonl")
    if not held:  # it was finished before
        directory = RunDirectory(out)
        latest = directory.latest_checkpoint(print, Ranks())
        assert latest
        restore_run(made, latest, directory, print)
    steps = [line for line in lines if "loss" in line]
    valid = [line for line in lines if "valid" in line][-1]["valid"]
    averaged = next((line["averaged"] for line in lines if "averaged" in line), None)
    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in made.loss.model.parameters()),
        sample_unit(recipe.model): sum(line[sample_unit(recipe.model)] for line in steps),
        "seconds": round(sum(line["seconds"] for line in steps), 1),
        "valid": valid,
        "digest": made.trainer.digest(),
    }
    found |= {"averaged": averaged} if averaged else {}
    if "token" in made.preprocess.terms and made.prepared.train.meta.vocab_size:
        found["unigram"] = unigram(made)
    if "next" in made.preprocess.terms:
        found["lengths_alone"] = lengths_alone(made)
    if isinstance(recipe.task, R.ReplacedTokenDetection):
        share = recipe.task.mask_rate  # the surprise of one who knows only how many are hidden
        found["base_rate"] = -share * log(share) - (1 - share) * log(1 - share)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument(
        "--receipt",
        metavar="FILE",
        help="also write the result with its receipt, the curves beside it",
    )
    given = parser.parse_args()
    began = time.perf_counter()
    found: dict[str, Any] = {}
    for name in given.recipes:
        recipe = R.apply_overrides(R.load_recipe(name), given.set)
        rows = []
        for seed in range(given.seeds):
            folder = given.output / f"{recipe.name}-{seed}"
            rows.append(
                {"seed": seed, **learn(R.apply_overrides(recipe, [f"seed={seed}"]), folder)}
            )
            if given.receipt and seed == 0:
                Path(given.receipt).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(
                    folder / "curve.svg", Path(given.receipt).with_name(f"{recipe.name}.svg")
                )
        losses = [row["valid"]["loss"] for row in rows]
        found[name] = {
            "name": recipe.name,
            "steps": recipe.steps,
            "runs": rows,
            "mean": statistics.mean(losses),
            "worst": max(losses),
        }
        alone = ", ".join(
            f"{kind} {rows[0][kind]:.4f}"
            for kind in ("unigram", "lengths_alone", "base_rate")
            if kind in rows[0]
        )
        print(
            f"{name}: validation {', '.join(f'{loss:.4f}' for loss in losses)}; counting alone: "
            f"{alone or 'not known'}; "
            f"{rows[0]['seconds']:.0f} s",
            flush=True,
        )
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began, given.seeds - 1)
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
