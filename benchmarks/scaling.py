"""Loss against compute, data and parameters: a ladder of five GPTs on the bytes of WikiText-2
(Kaplan et al. 2020, arXiv:2001.08361).

    WEFT_DATA=… python -m benchmarks.scaling [--steps 256] [--output runs] [--plot FILE.svg]
        [--receipt FILE] [--quick]

One run a size with a constant rate; at an eighth, a quarter, half and the whole of its steps a
branch decays the rate to zero over the last quarter (WSD, arXiv:2404.06395), each resumed exactly
from a checkpoint of that run. No byte is read twice. The losses, in nats per byte of held-out text,
are fitted by L = E + A / N^a + B / D^b (Hoffmann et al. 2022, arXiv:2203.15556, equation 2, with
its Huber loss of log L), N without the embeddings, D in bytes; the best loss at each compute by L =
c / C^g. Compute is the counted FLOPs of all matrix products, three forward passes a step.
Intervals: 90 % of bootstrap samples of the points. The rate follows one rule, tuned at no size.
Restartable: a finished run is not run again. The last line is JSON.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import recipe as R
from weft.plan.cost import run_flops
from weft.runs.logs.log import read_log

from . import command, receipt
from .trials import train_steps

SIZES = ((2, 32), (3, 48), (4, 64), (5, 80), (6, 96))  # depth, width
SHARES = (1 / 8, 1 / 4, 1 / 2, 1)
DECAY = 0.25
TEXT = "wikitext-2/wiki.{}.tokens.gz"
SAMPLES = 200  # of the bootstrap


def ladder_recipe(depth: int, width: int, steps: int, trunk_steps: int) -> R.Recipe:
    model = weft.gpt2(depth=depth, width=width, heads=width // 16, vocab_size=261, positions=64)
    return R.Recipe(
        name=f"scaling-{depth}x{width}-{trunk_steps}",
        model=weft.with_dropout(model, 0.0),
        task=R.CausalLM(),
        data=R.Data(
            rows=R.Documents(),
            tokenizer=R.ByteTokenizer(),
            train=R.Source(paths=(TEXT.format("train"),), document_boundary="file"),
            valid=R.Source(
                paths=(TEXT.format("valid"),), document_boundary="file", fraction=(0.0, 0.05)
            ),
        ),
        batch=R.FixedBatch(size=16, length=64),
        steps=steps,
        optimiser=R.AdamW(lr=4e-3 * (64 / width) ** 0.5, betas=(0.9, 0.98), weight_decay=0.0),
        schedule=R.WarmupStableDecay(warmup_steps=trunk_steps // 32, decay_fraction=DECAY),
        checkpoints=R.Checkpoints(
            every_steps=round(trunk_steps * SHARES[0] * (1 - DECAY)), keep=12
        ),
    )


def branch(trunk: Path, recipe: R.Recipe, folder: Path) -> None:
    """Give the folder of a shorter run the last state that it shares with the long one."""
    step = round(recipe.steps * (1 - DECAY))
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    name = f"step-{step:09d}"
    if not (folder / "checkpoints" / name).exists():
        shutil.copytree(trunk / "checkpoints" / name, folder / "checkpoints" / name)


def valid_loss(recipe: R.Recipe, folder: Path) -> float:
    for _ in train_steps(recipe, folder):
        pass
    lines = read_log(folder / "log.jsonl")
    return float(next(line["valid"]["loss"] for line in reversed(lines) if "valid" in line))


def points_of_size(depth: int, width: int, steps: int, output: Path) -> list[dict[str, Any]]:
    """The losses of one size after each share of the steps; the long run comes first, since the
    others leave it.
    """
    points = []
    trunk = output / ladder_recipe(depth, width, steps, steps).name
    for share in reversed(SHARES):
        recipe = ladder_recipe(depth, width, round(share * steps), steps)
        folder = trunk if share == 1 else trunk.with_name(f"{trunk.name}-{recipe.steps}")
        if share < 1:
            branch(trunk, recipe, folder)
        model = recipe.model
        table = model.vocab_size * model.width + 64 * model.width
        points.append(
            {
                "parameters": model.parameter_count() - table,
                "bytes": recipe.steps * recipe.batch.rows_per_step() * recipe.batch.length,
                "flops": run_flops(recipe),
                "loss": round(valid_loss(recipe, folder), 4),
            }
        )
    return points


def parametric(theta: np.ndarray, n: np.ndarray, d: np.ndarray) -> np.ndarray:
    """log of E + A / N^a + B / D^b for theta = (log E, log A, a, log B, b)."""
    terms = (np.full_like(n, theta[0]), theta[1] - theta[2] * n, theta[3] - theta[4] * d)
    fitted: np.ndarray = np.logaddexp.reduce(terms)
    return fitted


def fit_parametric(
    n: np.ndarray, d: np.ndarray, loss: np.ndarray, starts: list[np.ndarray]
) -> np.ndarray:
    """The best of a few starts; n and d are logarithms."""
    from scipy.optimize import least_squares

    def residuals(theta: np.ndarray) -> np.ndarray:
        difference: np.ndarray = parametric(theta, n, d) - np.log(loss)
        return difference

    low = np.array([-5, -5, 0.01, -5, 0.01])
    high = np.array([1.5, 25, 2, 25, 2])
    fits = [
        least_squares(
            residuals,
            start.clip(low, high),
            bounds=(low, high),
            x_scale="jac",
            loss="huber",
            f_scale=1e-2,
            max_nfev=60,
        )
        for start in starts
    ]
    best: np.ndarray = min(fits, key=lambda fit: float(fit.cost)).x
    return best


def grid_of_starts(n: np.ndarray, d: np.ndarray) -> list[np.ndarray]:
    return [
        np.array([e, a * n.mean(), a, b * d.mean(), b])
        for e in (-1.0, 0.3)
        for a in (0.2, 0.6)
        for b in (0.2, 0.6)
    ]


def envelope(flops: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """The points that no point of less or equal compute reaches."""
    order = np.argsort(flops)
    best = np.minimum.accumulate(loss[order])
    first = np.concatenate([[True], best[1:] < best[:-1]])
    front: np.ndarray = order[first]
    return front


def fit_compute(flops: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """(log c, -g) of L = c / C^g through the envelope."""
    front = envelope(flops, loss)
    if len(front) < 2:
        return np.array([np.nan, np.nan])
    slope, start = np.polyfit(np.log(flops[front]), np.log(loss[front]), 1)
    return np.array([start, slope])


def fit(points: list[dict[str, Any]], samples: int = SAMPLES) -> dict[str, Any]:
    """Both laws with their bootstrap intervals. A point is drawn with all it is: size, data,
    compute and loss.
    """
    n, d = (np.log([p[name] for p in points]) for name in ("parameters", "bytes"))
    flops, loss = (np.array([p[name] for p in points]) for name in ("flops", "loss"))
    rng = np.random.default_rng(0)
    drawn = []
    theta = fit_parametric(n, d, loss, grid_of_starts(n, d))
    compute = fit_compute(flops, loss)
    for _ in range(samples):
        at = rng.integers(0, len(points), len(points))
        if len(set(n[at])) > 2 and len(set(d[at])) > 2:
            drawn_theta = fit_parametric(n[at], d[at], loss[at], [theta])
            both = drawn_theta, fit_compute(flops[at], loss[at])
            drawn.append(np.concatenate(both))
    low, high = np.nanpercentile(drawn, (5, 95), axis=0)
    names = ("log_E", "log_A", "a", "log_B", "b", "log_c", "minus_g")
    values = np.concatenate([theta, compute])
    table = {
        name: [round(float(v), 4) for v in row]
        for name, *row in zip(names, values, low, high, strict=True)
    }
    errors = np.abs(np.exp(parametric(theta, n, d)) - loss)
    return {"value, low, high": table, "largest_error": round(float(errors.max()), 4)}


def plot(points: list[dict[str, Any]], laws: dict[str, Any], file: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    from .plots import INK, STYLE

    value = {name: row[0] for name, row in laws["value, low, high"].items()}
    theta = np.array([value[name] for name in ("log_E", "log_A", "a", "log_B", "b")])
    sizes = sorted({p["parameters"] for p in points})
    data = sorted({p["bytes"] for p in points})
    colour = {size: plt.get_cmap("viridis")(i / len(sizes)) for i, size in enumerate(sizes)}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True)
        for size in sizes:
            row = sorted((p for p in points if p["parameters"] == size), key=lambda p: p["bytes"])
            losses = [p["loss"] for p in row]
            style = {"color": colour[size], "marker": "o"}
            axes[0].plot([p["flops"] for p in row], losses, label=f"{size / 1e3:,.0f}k", **style)
            axes[2].plot(data, losses, linestyle="", **style)
            fine = np.geomspace(data[0], data[-1], 50)
            law = parametric(theta, np.full(50, np.log(size)), np.log(fine))
            axes[2].plot(fine, np.exp(law), color=colour[size], linewidth=1)
        for i, count in enumerate(data):
            losses = [
                p["loss"]
                for p in sorted(points, key=lambda p: p["parameters"])
                if p["bytes"] == count
            ]
            fine = np.geomspace(sizes[0], sizes[-1], 50)
            law = parametric(theta, np.log(fine), np.full(50, np.log(count)))
            grey = str(0.7 - 0.7 * i / len(data))
            axes[1].plot(sizes, losses, "o", color=grey, label=f"{count / 1e3:,.0f}k")
            axes[1].plot(fine, np.exp(law), color=grey, linewidth=1)
        flops = np.array(sorted(p["flops"] for p in points))
        power = np.exp(value["log_c"] + value["minus_g"] * np.log(flops))
        axes[0].plot(flops, power, "--", color=INK, label=f"C^{value['minus_g']:.3f}")
        axes[0].set(xscale="log", yscale="log", xlabel="compute, FLOPs", ylabel="nats per byte")
        ticks = np.arange(1.4, 3.3, 0.2)
        axes[0].set_yticks(ticks, [f"{tick:.1f}" for tick in ticks])
        losses = [p["loss"] for p in points]
        axes[0].set_ylim(min(losses) / 1.03, max(losses) * 1.03)
        axes[0].minorticks_off()
        for axis, numbers, label in (
            (axes[1], sizes, "parameters without embeddings"),
            (axes[2], data, "bytes read"),
        ):
            axis.set(xscale="log", xlabel=label)
            axis.set_xticks(numbers, [f"{number / 1e3:,.0f}k" for number in numbers])
            axis.minorticks_off()
        for axis, title, columns in ((axes[0], "parameters", 3), (axes[1], "bytes read", 4)):
            axis.legend(
                frameon=False,
                fontsize=7.5,
                title=title,
                title_fontsize=7.5,
                ncols=columns,
                loc="lower center",
                bbox_to_anchor=(0.5, 1.0),
            )
        figure.tight_layout()
        figure.savefig(file, facecolor="white", metadata={"Date": None})
        plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=256, help="of 1,024 bytes, of the long run")
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--receipt", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="three sizes, 32 steps, few samples")
    options = parser.parse_args(arguments)
    start_time = time.perf_counter()
    sizes, steps = (((1, 16), (1, 32), (2, 32)), 32) if options.quick else (SIZES, options.steps)
    points: list[dict[str, Any]] = []
    work = [run_flops(ladder_recipe(*size, steps, steps)) for size in sizes]
    for i, (depth, width) in enumerate(sizes):
        points += points_of_size(depth, width, steps, options.output)
        spent = time.perf_counter() - start_time
        left = spent / sum(work[: i + 1]) * sum(work[i + 1 :])
        losses = " ".join(f"{p['loss']:.4f}" for p in points[-len(SHARES) :])
        print(f"{depth}x{width}: {losses}; {spent:.0f} s, about {left:.0f} s left", flush=True)
    laws = fit(points, samples=5 if options.quick else SAMPLES)
    result = {"points": points, "fit": laws}
    if options.plot:
        plot(points, laws, options.plot)
    if options.receipt:
        receipt.write(options.receipt, result, time.perf_counter() - start_time)
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    command.run(main)
