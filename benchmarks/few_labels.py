"""Does masked autoencoding pay where labels are few? A ViT pre-trained on all images, then fine-tuned on a few per cent of the labels,
beside the same ViT from scratch; least squares and a linear head on its frozen features; and fine-tuning at twice the resolution.

    python -m benchmarks.few_labels [--labels 0.05] [--seeds 3] [--steps 2000] [--set steps=…] [--output runs] [--receipt FILE]

--set changes the pre-training recipe, recipes/mae.py:cifar10. The accuracy is on the whole test set. Steps, batches, transforms and
learning rates are the same with and without pre-training: each has the better of two rates on the first seed. A finished run is not run
again. The last line is JSON.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft.data.store import open_store
from weft.inference.probe import probe
from weft.runs import run

from . import receipt
from .image_recipes import train

RATES = (1e-3, 3e-4)


def classifier(pretrained: R.Recipe, name: str, labels: float, steps: int) -> R.Recipe:
    """The trunk of a masked autoencoder with a head for the classes, on the first `labels` of the training images."""
    model = replace(pretrained.model, head=weft.ClassifierHead(num_labels=10))
    base = weft.load_recipe("recipes/vit.py:cifar10")
    train_source = replace(pretrained.data.train, fraction=(0.0, labels))
    return replace(
        base,
        name=name,
        model=weft.with_drop_path(model, 0.05),
        data=replace(pretrained.data, train=train_source),
        steps=steps,
        schedule=R.CosineSchedule(warmup_steps=steps // 10),
        eval_every=steps,
        average=None,
    )


def accuracies(recipe: R.Recipe, seeds: int, output: Path) -> dict[str, Any]:
    """The accuracy of each seed, at the rate that is best on the first."""

    def once(rate: float, seed: int) -> float:
        name = f"{recipe.name}-{rate:g}-{seed}"
        optimiser = replace(recipe.optimiser, lr=rate)  # type: ignore[type-var]
        named = replace(recipe, name=name, seed=seed, optimiser=optimiser)
        return train(named, output / name)

    first = {rate: once(rate, 0) for rate in RATES}
    best = max(first, key=lambda rate: first[rate])
    found = [once(best, seed) for seed in range(seeds)]
    spread = statistics.stdev(found) if seeds > 1 else None
    return {"lr": best, "accuracy": found, "mean": statistics.mean(found), "stdev": spread}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", dest="overrides"
    )
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--receipt", metavar="FILE")
    options, start_time = parser.parse_args(), time.perf_counter()
    pretrained = weft.load_recipe("recipes/mae.py:cifar10", options.overrides)
    folder = options.output / pretrained.name
    for event in run.train(pretrained, folder):
        if event.step % 100 == 0:
            print(f"  {pretrained.name} step {event.step:,} loss {event.loss:.3f}", flush=True)
    scratch = classifier(pretrained, "few-scratch", options.labels, options.steps)
    start = str(folder / "model")
    tuned = replace(scratch, name="few-mae", init_from=start)
    linear = replace(tuned, name="few-linear", trainable=R.HeadOnly())
    table: dict[str, Any] = {
        name: accuracies(recipe, options.seeds, options.output)
        for name, recipe in (("scratch", scratch), ("fine-tuned", tuned), ("linear", linear))
    }
    stores = [open_store(run.prepared_folder(scratch.data), split) for split in ("train", "valid")]
    scores = probe(weft.open(folder), stores[0], stores[1], (1, 5, 10, None), options.seeds)
    table["least squares"] = [score._asdict() for score in scores]
    for name, row in table.items():
        print(name, row if isinstance(row, list) else f"{row['mean']:.4f}", flush=True)
    if options.receipt:
        receipt.write(options.receipt, table, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
