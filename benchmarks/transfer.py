"""Does pre-training pay? BERT, ELECTRA and T5 as wide as BERT-mini, each pre-trained on wikitext-2 for the same FLOPs, then fine-tuned on
a tenth of SST-2, beside the same models from nothing: the same steps, rates and seeds.

    python -m benchmarks.transfer [--seeds 3] [--out runs] [--receipt FILE]

FLOPs are those of the matrix products of whole steps, counted by torch. Accuracy is on the whole dev set; T5 answers in words. From
nothing, each model has its own better rate: the dev set chooses among several, on the first seed, for both. The last line is JSON.
"""
import argparse
import json
import statistics
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import weft
from weft import recipe as R
from weft import run
from weft.generate.sample import generate
from weft.ready import ready

from . import receipt

NAMES = ("label", "sentence")
TRAIN = R.Source(paths=("glue/SST-2/train.tsv.gz",), names=NAMES, part=(0.0, 0.1))
VALID = R.Source(paths=("glue/SST-2/dev.tsv.gz",), names=NAMES)
RATES = (1e-4, 3e-4, 1e-3)


def flops(recipe: R.Recipe) -> float:
    """Of one training step, its optimiser's included."""
    steps = iter(run.make(recipe).trainer)
    next(steps)
    with FlopCounterMode(display=False) as counter:
        for _ in islice(steps, 2):
            pass
    return counter.get_total_flops() / 2


def downstream(pretrained: R.Recipe, folder: Path, start: bool, rate: float, seed: int) -> R.Recipe:
    """Three epochs on SST-2; T5 writes the label."""
    words = pretrained.model.decoder is not None
    model = weft.with_dropout(pretrained.model, 0.1)
    if not words:
        model = replace(model, head=weft.Classes(outputs=2, pool="mean", dropout=0.1))
    rows: Any = R.Pairs(source="sentence", target="label") if words else R.Examples(first="sentence", labels=("0", "1"))
    data = R.Data(row=rows, tokenizer=R.TokenizerFile(path=str(folder / "model" / "tokenizer.json")), train=TRAIN, valid=VALID)
    return R.Recipe(
        name=f"{pretrained.name}-{'pretrained' if start else 'scratch'}-{rate:g}-{seed}", model=model, data=data,
        objective=R.Translation(smoothing=0.0) if words else R.Classification(), batch=R.Rows(count=32, length=64), steps=630,
        optimiser=R.AdamW(rate=rate), schedule=R.Linear(warmup=63), precision="bf16", seed=seed,
        start=str(folder / "model") if start else None)


@torch.no_grad()
def accuracy(recipe: R.Recipe, folder: Path) -> float:
    """On the whole dev set, from the run's exported model."""
    opened, made = ready(folder), run.make(recipe)
    assert made.valid is not None
    samples = [made.valid.row(i) for i in range(len(made.valid))]
    if isinstance(recipe.objective, R.Translation):
        end, start = opened.text.special["end"], opened.model.spec.special.start
        said = generate(opened.model, [[*s["source"].tolist(), end] for s in samples], most=3, ends=[end],
                        starts=[[opened.text.special["begin"] if start is None else start]] * len(samples))
        right = [one.tokens[:len(s["target"])] == s["target"].tolist() for one, s in zip(said, samples, strict=True)]
        return sum(right) / len(right)
    reader, count = made.corruption.samples(made.valid, recipe.batch.length, tail=True), 0
    from weft.data.loader import Loader
    from weft.data.plan import planner
    made.objective.model.load_state_dict(opened.model.state_dict())
    made.objective.eval()
    for work in Loader(planner(recipe.batch, reader, 0), reader, made.corruption, 0).once(64):
        for batch in work.batches:
            count += int((made.objective.answer(batch).argmax(-1) == batch["labels"]).sum())
    return count / len(samples)


def tune(pretrained: R.Recipe, folder: Path, out: Path, start: bool, rate: float, seed: int) -> float:
    recipe = downstream(pretrained, folder, start, rate, seed)
    where = out / recipe.name
    done = where / "accuracy.json"
    if not done.exists():
        for _ in run.train(recipe, where):
            pass
        done.write_text(json.dumps(accuracy(recipe, where)))
    found: float = json.loads(done.read_text())
    print(f"  {recipe.name}: {found:.4f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--models", nargs="+", default=["bert", "electra", "t5"])
    parser.add_argument("--receipt", metavar="FILE")
    given, began = parser.parse_args(), time.perf_counter()
    found: dict[str, Any] = {}
    for name in given.models:
        pretrained = R.read(f"recipes/{name}.py:mini")
        folder = given.out / pretrained.name
        for event in run.train(pretrained, folder):
            if event.step % 200 == 0:
                print(f"  {pretrained.name} step {event.step:,} loss {event.loss:.3f}, {event.seconds * 1e3:.0f} ms", flush=True)
        found[name] = {"flops": flops(pretrained) * pretrained.steps, "parameters": pretrained.model.parameters()}
        for kind, start in (("scratch", False), ("pretrained", True)):
            first = {rate: tune(pretrained, folder, given.out, start, rate, 0) for rate in RATES}
            rate = max(first, key=lambda r: first[r])
            each = [tune(pretrained, folder, given.out, start, rate, seed) for seed in range(given.seeds)]
            found[name][kind] = {"rate": rate, "accuracy": each, "mean": statistics.mean(each),
                                 "stdev": statistics.stdev(each) if len(each) > 1 else 0.0}
        print(f"{name}: from nothing {found[name]['scratch']['mean']:.3f}, pre-trained {found[name]['pretrained']['mean']:.3f} "
              f"({found[name]['flops']:.2e} FLOP of pre-training)", flush=True)
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began, given.seeds - 1)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
