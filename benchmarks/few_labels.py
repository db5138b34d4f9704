"""Measure masked autoencoding with few labels: a ViT pre-trained on all images and fine-tuned on a
few per cent of the labels, compared with the same ViT from scratch, with least squares and a linear
head on frozen features, and with fine-tuning at twice the resolution.

    python -m benchmarks.few_labels [--labels 0.05] [--seeds 3] [--steps 2000] [--set steps=…]
        [--output runs] [--rows scratch fine-tuned …] [--draw FILE.png] [--receipt FILE] [--quick]

--set changes the pre-training recipe, recipes/mae.py:cifar10. The accuracy is on the whole test
set. Steps, batches, transforms and candidates of the learning rate are the same with and without
pre-training: each has the better of two on the first seed, judged on the last tenth of the training
images, whose labels nothing else uses. Finished runs are reused. The last line is JSON.
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
from weft.data.preparing.prepare import prepare
from weft.data.shards.store import open_store
from weft.evaluation.probe import probe

from . import command, receipt
from .generated import small
from .image_recipes import train
from .trials import positive_int, train_steps

RATES = (1e-2, 3e-3)
LARGER = "fine-tuned at 64 pixels"
LEAST_SQUARES = "least squares"
ROWS = ("scratch", "fine-tuned", "linear", LARGER, LEAST_SQUARES)
HELD_OUT = (0.9, 1.0)  # of the training images


def muon(rate: float) -> R.Muon:
    """Vectors, tables and the head are trained at a tenth of the rate of the matrices."""
    return R.Muon(lr=rate, weight_decay=0.05, other=R.AdamW(lr=rate / 10, weight_decay=0.05))


def classifier(pretrained: R.Recipe, name: str, labels: float, steps: int) -> R.Recipe:
    """The trunk of a masked autoencoder with a head for the classes, on the first `labels` of the
    training images.
    """
    model = replace(pretrained.model, head=weft.ClassifierHead(num_labels=10))
    base = weft.load_recipe("recipes/vit.py:cifar10")
    assert isinstance(pretrained.data.train, R.Source)
    train_source = replace(pretrained.data.train, fraction=(0.0, labels))
    return replace(
        base,
        name=name,
        model=weft.with_drop_path(model, 0.05),
        data=replace(pretrained.data, train=train_source),
        steps=steps,
        batch=pretrained.batch,
        optimiser=muon(RATES[0]),
        schedule=R.CosineSchedule(warmup_steps=steps // 10),
        eval_every=steps,
        average=None,
    )


def accuracies(recipe: R.Recipe, seeds: int, output: Path) -> dict[str, Any]:
    """The accuracy of each seed, at the rate that is best on the first."""

    def at_rate(recipe: R.Recipe, rate: float, seed: int) -> float:
        name = f"{recipe.name}-{rate:g}-{seed}"
        alone = isinstance(recipe.trainable, R.HeadOnly)  # where Muon would have no matrix
        optimiser = R.AdamW(lr=rate) if alone else muon(rate)
        named = replace(recipe, name=name, seed=seed, optimiser=optimiser)
        return train(named, output / name)

    assert isinstance(recipe.data.train, R.Source)
    data = replace(recipe.data, valid=replace(recipe.data.train, fraction=HELD_OUT))
    judged = replace(recipe, name=f"{recipe.name}-choose", data=data)
    best = max(RATES, key=lambda rate: at_rate(judged, rate, 0))
    scores = [at_rate(recipe, best, seed) for seed in range(seeds)]
    spread = statistics.stdev(scores) if seeds > 1 else None
    return {"lr": best, "accuracy": scores, "mean": statistics.mean(scores), "stdev": spread}


def twice_as_large(recipe: R.Recipe, start: str) -> R.Recipe:
    """Go on from a fine-tuned model with images of twice the side, a quarter of the steps: four
    times as many patches of the same size (Dosovitskiy et al. 2020, section 3.2).
    """
    source = recipe.model.source
    assert isinstance(source, weft.Patches)
    side = 2 * source.image_size
    model = weft.with_image_size(recipe.model, side)
    assert isinstance(recipe.task, R.Classification)
    assert isinstance(recipe.batch, R.FixedBatch)
    assert recipe.task.transforms is not None
    transforms = (R.Resize(size=(side, side)), *recipe.task.transforms[1:])
    return replace(
        recipe,
        name="few-larger",
        init_from=start,
        model=model,
        task=replace(recipe.task, transforms=transforms),
        batch=R.FixedBatch(
            size=recipe.batch.size // 2, length=model.grid_cells + model.extra_tokens
        ),
        steps=recipe.steps // 4,
        schedule=R.CosineSchedule(warmup_steps=recipe.steps // 40),
        eval_every=recipe.steps // 4,
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=float, default=0.05)
    parser.add_argument("--seeds", type=positive_int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", dest="overrides"
    )
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, help="default: all")
    parser.add_argument("--draw", metavar="FILE", type=Path, help="images, masked and rebuilt")
    parser.add_argument("--receipt", metavar="FILE")
    parser.add_argument(
        "--quick", action="store_true", help="one block, one seed, a few steps of each run"
    )
    options = parser.parse_args(arguments)
    start_time = time.perf_counter()
    if LARGER in options.rows and "fine-tuned" not in options.rows:
        raise ValueError(f"--rows {LARGER!r} goes on from 'fine-tuned'; give that row too")
    pretrained = weft.load_recipe("recipes/mae.py:cifar10", options.overrides)
    if options.quick:
        pretrained = small(pretrained)
        options.seeds = 1
        options.steps = 4
    folder = options.output / pretrained.name
    for event in train_steps(pretrained, folder):
        if event.step % 100 == 0:
            left = event.seconds * (pretrained.steps - event.step)
            done = f"step {event.step:,}/{pretrained.steps:,} loss {event.loss:.3f}"
            print(f"  {pretrained.name} {done}, about {left:.0f} s left", flush=True)
    scratch = classifier(pretrained, "few-scratch", options.labels, options.steps)
    start = str(folder / "model")
    tuned = replace(scratch, name="few-mae", init_from=start)
    linear = replace(
        tuned, name="few-linear", trainable=R.HeadOnly(), optimiser=R.AdamW(lr=RATES[0])
    )
    table: dict[str, Any] = {
        name: accuracies(recipe, options.seeds, options.output)
        for name, recipe in zip(ROWS, (scratch, tuned, linear), strict=False)
        if name in options.rows
    }
    if LARGER in options.rows:
        tuned_folder = options.output / f"few-mae-{table['fine-tuned']['lr']:g}-0"
        larger = twice_as_large(tuned, str(tuned_folder / "model"))
        table[LARGER] = accuracies(larger, 1, options.output)
    if LEAST_SQUARES in options.rows:
        prepared = prepare(scratch.data).folder
        stores = [open_store(prepared, split) for split in ("train", "valid")]
        scores = probe(weft.open(folder), stores[0], stores[1], (1, 5, 10, None), options.seeds)
        table[LEAST_SQUARES] = [score._asdict() for score in scores]
    for name, row in table.items():
        print(name, row if isinstance(row, list) else f"{row['mean']:.4f}", flush=True)
    found = {
        "labels": options.labels,
        "pretraining_steps": pretrained.steps,
        "steps": options.steps,
        "parameters": scratch.model.parameter_count(),
        "rows": table,
    }
    if options.draw:
        from .course import draw_reconstructions

        found["error"] = draw_reconstructions(str(folder), pretrained, options.draw)
        found["picture"] = options.draw.name
    if options.receipt:
        receipt.write(options.receipt, found, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(found))
    return found


if __name__ == "__main__":
    command.run(main)
