"""Train image recipes with several seeds; record accuracy, cost and curves in one receipt.

    python -m benchmarks.image_recipes vit:fashion_mnist swin:tiny [--seeds 3 1] [--set steps=9380]
        [--output runs] [--plot FILE.svg] [--receipt FILE]

The accuracy is that of `weft evaluate` on the validation images, of the weights that the recipe
selects. Finished runs are reused. The last line is JSON: recipe -> parameters, FLOP, accuracy of
each seed, and the validation curve of each.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

import weft
from weft import recipe as R
from weft.plan.cost import run_flops
from weft.runs.logs.log import read_log

from . import command, receipt
from .trials import positive_int, train_steps


def train(recipe: R.Recipe, folder: Path) -> float:
    """Train or go on; -> the accuracy of the model that is kept."""
    for event in train_steps(recipe, folder):
        if event.validation is not None:
            print(
                f"  {recipe.name} step {event.step:,}/{recipe.steps:,} accuracy "
                f"{event.validation['accuracy']:.4f}",
                flush=True,
            )
    return float(weft.evaluate(str(folder))["accuracy"])


def curve(folder: Path) -> list[tuple[int, float]]:
    lines = read_log(folder / "log.jsonl")
    return [(line["step"], line["valid"]["accuracy"]) for line in lines if "valid" in line]


def training_seconds(folder: Path) -> float:
    """Of all steps, in whichever session they were made."""
    return sum(float(line.get("seconds", 0.0)) for line in read_log(folder / "log.jsonl"))


def row(recipe: R.Recipe, seeds: int, output: Path) -> dict[str, Any]:
    accuracy = []
    curves = []
    seconds = 0.0
    for seed in range(seeds):
        named = replace(recipe, name=f"{recipe.name}-{seed}", seed=seed)
        accuracy.append(train(named, output / named.name))
        curves.append(curve(output / named.name))
        seconds += training_seconds(output / named.name)
    return {
        "parameters": recipe.model.parameter_count(),
        "flops": run_flops(recipe),
        "seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
        "average": None if recipe.average is None else type(recipe.average).__name__,
        "accuracy": accuracy,
        "mean": statistics.mean(accuracy),
        "stdev": statistics.stdev(accuracy) if seeds > 1 else None,
        "curves": curves,
    }


def plot(table: dict[str, Any], path: str) -> None:
    """Draw the validation accuracy of every seed against the step."""
    from matplotlib import pyplot

    from .plots import OTHER, STYLE, WEFT

    pyplot.rcParams.update(STYLE)
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    colours = (WEFT, "#d97706", "#4338ca", OTHER)
    for (name, found), colour in zip(table.items(), cycle(colours), strict=False):
        for i, points in enumerate(curve for curve in found["curves"] if curve):
            steps, accuracy = zip(*points, strict=True)
            axes.plot(
                steps, [100 * a for a in accuracy], color=colour, label=name if i == 0 else None
            )
    axes.set(xlabel="step", ylabel="accuracy on test images, %")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="+", metavar="FILE:NAME", help="such as vit:fashion_mnist")
    parser.add_argument(
        "--seeds",
        type=positive_int,
        nargs="+",
        default=[3],
        help="of every recipe, or a number for each",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", dest="overrides"
    )
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--receipt", metavar="FILE")
    options = parser.parse_args()
    start_time = time.perf_counter()
    seeds = options.seeds * (len(options.recipes) if len(options.seeds) == 1 else 1)
    if len(seeds) != len(options.recipes):
        parser.error("--seeds takes one number, or one for each recipe")
    table = {}
    for name, count in zip(options.recipes, seeds, strict=True):
        file, _, variable = name.partition(":")
        recipe = weft.load_recipe(f"recipes/{file}.py:{variable or 'tiny'}", options.overrides)
        table[name] = row(recipe, count, options.output)
        print(f"{name}: accuracy {table[name]['mean']:.4f} over {count} seeds", flush=True)
    if options.plot:
        plot(table, options.plot)
    if options.receipt:
        receipt.write(options.receipt, table, time.perf_counter() - start_time, max(seeds) - 1)
    print(json.dumps(table))


if __name__ == "__main__":
    command.run(main)
