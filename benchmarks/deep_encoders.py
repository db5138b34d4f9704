"""Compare the training of deep encoders of 6, 12 and 30 blocks on masked bytes of WikiText-2:
post-norm, pre-norm, DeepNorm, and DLCL.

    WEFT_DATA=… python -m benchmarks.deep_encoders [--depths 6 12 30] [--steps 150] [--seeds 3]
        [--output runs] [--plot FILE.svg]
                                                   [--receipt FILE] [--quick]

Everything else is the same: data, width, schedule, steps and seeds; the learning rate was not tuned
per row. Reported is the loss on held-out text after the last step, in nats per masked byte. A run
"failed" if it learned no more than how often each byte occurs: its loss is not below the entropy of
single bytes by a tenth of a nat, or not finite. Finished runs are reused. The last line is JSON.
"""

import argparse
import gzip
import json
import math
import os
import statistics
import time
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft import spec as S
from weft.runs.logs.log import read_log

from . import command, receipt
from .trials import train_steps

WIDTH = 32
MARGIN = 0.1
TEXT = "wikitext-2/wiki.{}.tokens.gz"
NORM = weft.LayerNorm()


def encoder_block(kind: str, depth: int) -> weft.Block:
    attention = weft.Attention(heads=2)
    feed = weft.MLP(hidden=4 * WIDTH, activation="relu")
    if kind == "post-norm":
        return weft.Block(
            attention=weft.post_norm(NORM, attention), feedforward=weft.post_norm(NORM, feed)
        )
    if kind == "DeepNorm":
        scales = weft.deepnorm_scales("encoder", depth)
        return weft.Block(
            attention=weft.deepnorm_branch(NORM, attention, scales),
            feedforward=weft.deepnorm_branch(NORM, feed, scales),
        )
    return weft.Block(
        attention=weft.pre_norm(NORM, attention), feedforward=weft.pre_norm(NORM, feed)
    )


def model(kind: str, depth: int) -> weft.Spec:
    """An encoder of bytes; all kinds have the same table, positions, head and initialisation."""
    return S.Spec(
        width=WIDTH,
        source=weft.Tokens(
            vocab_size=261, positions=weft.SinusoidalPositions(), embedding_scale=WIDTH**0.5
        ),
        encoder=weft.Stack(
            blocks=(encoder_block(kind, depth),) * depth,
            norm=NORM if kind in ("pre-norm", "DLCL") else None,
            layer_combination=S.DLCL() if kind == "DLCL" else None,
        ),
        head=weft.LMHead(bias="trained"),
        init=weft.XavierInit(),
    )


KINDS = ("post-norm", "pre-norm", "DeepNorm", "DLCL")


def recipe_of(kind: str, depth: int, seed: int, steps: int) -> R.Recipe:
    warmup = steps // 5
    return R.Recipe(
        name=f"deep-{kind.lower()}-{depth}-{steps}-{seed}",
        model=model(kind, depth),
        task=R.MaskedLM(mask_rate=0.3),
        data=R.Data(
            rows=R.Documents(sentence_boundaries=True),
            tokenizer=R.ByteTokenizer(),
            train=R.Source(paths=(TEXT.format("train"),), document_boundary="file"),
            valid=R.Source(
                paths=(TEXT.format("valid"),), document_boundary="file", fraction=(0.0, 0.02)
            ),
        ),
        batch=R.FixedBatch(size=8, length=64),
        seed=seed,
        steps=steps,
        optimiser=R.Adam(lr=3e-3),
        schedule=R.InverseSqrt(warmup_steps=warmup),
        checkpoints=R.Checkpoints(every_steps=steps, keep=1),
        guard=R.LossGuard(max_skipped_steps=steps),
    )


def byte_entropy() -> float:
    """Of single bytes of the training text, in nats."""
    path = Path(os.environ["WEFT_DATA"]) / TEXT.format("train")
    counts = Counter(gzip.decompress(path.read_bytes()))
    return -sum(n / counts.total() * math.log(n / counts.total()) for n in counts.values())


def one(recipe: R.Recipe, output: Path, entropy: float) -> dict[str, Any]:
    folder = output / recipe.name
    try:
        for _ in train_steps(recipe, folder):
            pass
    except RuntimeError as error:  # the guard ends a run whose updates are not finite
        return {"loss": None, "failed": True, "why": str(error)[:120], "curve": []}
    lines = read_log(folder / "log.jsonl")
    curve = [line["loss"] for line in lines if "loss" in line]
    loss = next(line["valid"]["loss"] for line in reversed(lines) if "valid" in line)
    window = max(1, recipe.steps // 30)
    means = [statistics.mean(curve[i : i + window]) for i in range(0, len(curve), window)]
    return {
        "loss": round(loss, 4),
        "failed": not loss < entropy - MARGIN,
        "curve": [round(mean, 4) for mean in means],
    }


def plot(table: dict[str, Any], depths: list[int], entropy: float, file: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    from .plots import OTHER, STYLE

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(depths), figsize=(3.6 * len(depths), 3.2), sharey=True, squeeze=False
        )
        for axis, depth in zip(axes[0], depths, strict=True):
            for i, kind in enumerate(KINDS):
                curves = [run["curve"] for run in table[kind][str(depth)]["runs"] if run["curve"]]
                colour = f"C{i}"
                for curve in curves:
                    share = [(j + 1) / len(curve) for j in range(len(curve))]
                    axis.plot(share, curve, color=colour, linewidth=0.5, alpha=0.5)
                if curves:
                    mean = [statistics.mean(points) for points in zip(*curves, strict=True)]
                    axis.plot(share, mean, color=colour, label=kind)
            axis.axhline(entropy, color=OTHER, linestyle="--", linewidth=1)
            axis.set(title=f"{depth} blocks", xlabel="share of the steps")
        axes[0][0].text(0.58, entropy + 0.015, "entropy of single bytes", fontsize=7, color=OTHER)
        axes[0][0].set(ylabel="training loss, nats per masked byte", ylim=(2.8, 3.8))
        axes[0][-1].legend(frameon=False)
        figure.tight_layout()
        figure.savefig(file, facecolor="white", metadata={"Date": None})
        plt.close(figure)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    losses = [each["loss"] for each in runs if each["loss"] is not None]
    return {
        "mean": round(statistics.mean(losses), 4) if losses else None,
        "stdev": round(statistics.stdev(losses), 4) if len(losses) > 1 else None,
        "failed": sum(each["failed"] for each in runs),
        "runs": runs,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[6, 12, 30])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--receipt", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="depths 1 and 2, one seed, 10 steps")
    options = parser.parse_args(arguments)
    start_time = time.perf_counter()
    if options.quick:
        options.depths = [1, 2]
        options.seeds = 1
        options.steps = 10
    entropy = byte_entropy()
    work = len(KINDS) * sum(options.depths) * options.seeds
    done = 0
    runs: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    # all of a seed before the next one, so that a run that is cut short compares what it has
    for seed, depth, kind in product(range(options.seeds), options.depths, KINDS):
        recipe = recipe_of(kind, depth, seed, options.steps)
        runs[kind, depth].append(last := one(recipe, options.output, entropy))
        done = done + depth
        spent = time.perf_counter() - start_time
        left = f"{spent:.0f} s, about {spent / done * (work - done):.0f} s left"
        print(f"seed {seed} {depth:3} blocks  {kind:9}  loss {last['loss']}; {left}", flush=True)
    table = {kind: {str(d): summary(runs[kind, d]) for d in options.depths} for kind in KINDS}
    result = {"entropy": round(entropy, 4), "steps": options.steps, "kinds": table}
    if options.plot:
        plot(table, options.depths, entropy, options.plot)
    if options.receipt:
        receipt.write(options.receipt, result, time.perf_counter() - start_time, options.seeds - 1)
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    command.run(main)
