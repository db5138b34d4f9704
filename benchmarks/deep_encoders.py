"""Which deep encoders train? Translation of Multi30k with encoders of 6, 12 and 30 blocks: post-norm, pre-norm, DeepNorm, and DLCL.

    python -m benchmarks.deep_encoders [--depths 6 12 30] [--steps 300] [--seeds 3] [--output runs] [--plot FILE.svg] [--receipt FILE]

Everything else is the same: data, two decoder blocks, width, schedule, steps and seeds; no rate was chosen for one of them. Reported is
the loss on the validation pairs after the last step, in nats a token; "failed" is a run that ended above the loss of the first hundred
steps' best, or not finite. A finished run is not run again. The last line is JSON.
"""

import argparse
import json
import math
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft import spec as S
from weft.runs import run
from weft.runs.log import read_log

from . import receipt

WIDTH, DECODER = 64, 2
NORM = weft.LayerNorm()


def encoder_block(kind: str, depth: int) -> weft.Block:
    attention, feed = weft.Attention(heads=4), weft.MLP(hidden=4 * WIDTH, activation="relu")
    if kind == "post-norm":
        return weft.Block(
            attention=weft.post_norm(NORM, attention), feedforward=weft.post_norm(NORM, feed)
        )
    if kind == "DeepNorm":
        scales = weft.deepnorm_scales("encoder", depth, DECODER)
        return weft.Block(
            attention=weft.deepnorm_branch(NORM, attention, scales),
            feedforward=weft.deepnorm_branch(NORM, feed, scales),
        )
    return weft.Block(
        attention=weft.pre_norm(NORM, attention), feedforward=weft.pre_norm(NORM, feed)
    )


def model(kind: str, depth: int) -> weft.Spec:
    """The Transformer with another encoder."""
    base = weft.transformer(
        depth=DECODER, width=WIDTH, heads=4, hidden=4 * WIDTH, vocab_size=8000, dropout=0.1
    )
    encoder = weft.Stack(
        blocks=(encoder_block(kind, depth),) * depth,
        norm=NORM if kind in ("pre-norm", "DLCL") else None,
        layer_combination=S.DLCL() if kind == "DLCL" else None,
    )
    spec: weft.Spec = weft.with_dropout(replace(base, encoder=encoder), 0.1)
    return spec


KINDS = ("post-norm", "pre-norm", "DeepNorm", "DLCL")


def one(kind: str, depth: int, seed: int, steps: int, output: Path) -> dict[str, Any]:
    base = weft.load_recipe("recipes/translate_multi30k.py")
    recipe = replace(
        base,
        name=f"deep-{kind.lower()}-{depth}-{seed}",
        model=model(kind, depth),
        seed=seed,
        steps=steps,
        optimiser=R.Adam(lr=R.noam_lr(WIDTH, 100) / 4),
        schedule=R.InverseSqrt(warmup_steps=100),
        average=None,
        checkpoints=R.Checkpoints(every_steps=steps, keep=1),
        eval_every=steps,
        guard=R.LossGuard(max_skipped_steps=steps),
    )
    folder = output / recipe.name
    try:
        for _ in run.train(recipe, folder):
            pass
    except ValueError as error:  # the guard ends a run whose updates are not finite
        return {"loss": None, "failed": True, "why": str(error)[:120], "curve": []}
    lines = read_log(folder / "log.jsonl")
    curve = [round(line["loss"], 4) for line in lines if "loss" in line]
    loss = next(line["valid"]["loss"] for line in reversed(lines) if "valid" in line)
    failed = not math.isfinite(loss) or loss > min(curve[:100])
    return {"loss": loss, "failed": failed, "curve": curve[:: max(1, steps // 60)]}


def plot(table: dict[str, Any], depths: list[int], file: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "weft"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(depths), figsize=(4 * len(depths), 3.2), sharey=True)
    for axis, depth in zip(axes, depths, strict=True):
        for kind in KINDS:
            curves = [run["curve"] for run in table[kind][str(depth)]["runs"] if run["curve"]]
            if curves:
                mean = [statistics.mean(points) for points in zip(*curves, strict=False)]
                axis.plot([i / max(1, len(mean) - 1) for i in range(len(mean))], mean, label=kind)
        axis.set_title(f"{depth} blocks")
        axis.set_xlabel("share of the steps")
    axes[0].set_ylabel("training loss")
    axes[-1].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12, 30])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--receipt", metavar="FILE")
    options, start_time = parser.parse_args(), time.perf_counter()
    table: dict[str, Any] = {kind: {} for kind in KINDS}
    for depth in options.depths:
        for kind in KINDS:
            runs = [
                one(kind, depth, seed, options.steps, options.output)
                for seed in range(options.seeds)
            ]
            losses = [each["loss"] for each in runs if each["loss"] is not None]
            row = table[kind][str(depth)] = {
                "mean": round(statistics.mean(losses), 4) if losses else None,
                "stdev": round(statistics.stdev(losses), 4) if len(losses) > 1 else None,
                "failed": sum(each["failed"] for each in runs),
                "runs": runs,
            }
            print(
                f"{depth:3} blocks  {kind:9}  loss {row['mean']}  failed {row['failed']} of {len(runs)}",
                flush=True,
            )
    if options.plot:
        plot(table, options.depths, options.plot)
    if options.receipt:
        receipt.write(options.receipt, table, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
