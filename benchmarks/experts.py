"""Measure the load balance of experts: the same small language model with and without the router
losses.

    python -m benchmarks.experts [--steps 300] [--seeds 3] [--output runs] [--receipt FILE]

Characters of Shakespeare, eight experts per layer, one or two of them per token. For each: the
entropy of the load in the last tenth of the training steps (1: every expert gets as many tokens; 0:
one gets all), the largest share of an expert (0.125 when even), and the validation loss of the
characters without the routers' terms. The last line is JSON.
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
from weft.runs.logs.log import read_log

from . import command, receipt
from .trials import train_steps

TINY = R.load_recipe("recipes/gpt_char.py")
WEIGHTS = {"with": (0.01, 1e-3), "without": (0.0, 0.0)}  # of balance and z-loss


def recipe(top_k: int, weights: tuple[float, float], steps: int, seed: int) -> R.Recipe:
    balance, z_loss = weights
    experts = weft.MixtureOfExperts(
        experts=8,
        top_k=top_k,
        expert=weft.MLP(hidden=128),
        softmax_over="all",
        load_balance_weight=balance,
        router_z_weight=z_loss,
    )
    norm = weft.LayerNorm()
    attention = weft.Attention(heads=2, pattern=weft.CausalAttention(), rope=weft.RoPE())
    block = weft.Block(
        attention=weft.pre_norm(norm, attention), feedforward=weft.pre_norm(norm, experts)
    )
    model = weft.spec.Spec(
        width=64,
        source=weft.Tokens(vocab_size=65),
        decoder=weft.Stack(blocks=(block,) * 2, norm=norm),
        head=weft.LMHead(),
    )
    return replace(
        TINY,
        name="experts",
        model=model,
        batch=R.FixedBatch(size=16, length=64),
        steps=steps,
        seed=seed,
        precision="fp32",
        eval_every=steps,
    )


def trained(asked: R.Recipe, out: Path) -> dict[str, float]:
    for _ in train_steps(asked, out):
        pass
    lines = read_log(out / "log.jsonl")
    last = [line["expert_load"] for line in lines if "expert_load" in line][
        -max(1, asked.steps // 10) :
    ]
    valid = [line["valid"] for line in lines if "valid" in line][-1]
    return {
        "entropy": statistics.mean(line["entropy"] for line in last),
        "max_share": statistics.mean(line["max_share"] for line in last),
        "valid": valid["token"],
        "balance": valid["balance"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=300, help="training steps of each run (default: 300)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/experts"),
        help="folder of the runs (default: runs/experts)",
    )
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    given = parser.parse_args()
    began = time.perf_counter()
    found: list[dict[str, Any]] = []
    print(
        f"{'top-k':>5} {'losses':>8}   entropy of the load     largest share           validation, "
        "nats"
    )
    for top_k in (1, 2):
        for name, weights in WEIGHTS.items():
            rows = [
                trained(
                    recipe(top_k, weights, given.steps, seed),
                    given.output / f"top{top_k}-{name}-{seed}",
                )
                for seed in range(given.seeds)
            ]
            found.append(
                {
                    "top_k": top_k,
                    "losses": name,
                    "runs": rows,
                    "mean": {key: statistics.mean(row[key] for row in rows) for key in rows[0]},
                }
            )
            cells = [
                "  ".join(f"{row[key]:.3f}" for row in rows)
                for key in ("entropy", "max_share", "valid")
            ]
            print(
                f"{top_k:>5} {name:>8}   {'     '.join(f'{cell:<19}' for cell in cells)}",
                flush=True,
            )
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began, given.seeds - 1)
    print(json.dumps(found))


if __name__ == "__main__":
    command.run(main)
