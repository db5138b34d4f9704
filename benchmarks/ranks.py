"""What ranks cost on one machine: `python -m benchmarks.ranks [--out docs/results/ranks.json]`.

Two ranks with one thread each beside one process with two threads, at the same global batch: copies
(DDP), sharded weights (FSDP), shared layers (tensor parallelism), and copies whose gradients have
the same bits on any number of ranks (`exact=True`). The settings take turns. The machine may have
other work, from which threads that wait for each other suffer most: a speed is the best of all
rounds, a ratio the median over rounds of neighbours.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft.data.preparing.prepare import prepare

from . import command, receipt

STEPS = 4
ROUNDS = 5
ONE = "one process, two threads"
SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    ONE: (1, {}),
    "one process, two threads, exact": (1, {"exact": True}),
    "two ranks, copies": (2, {}),
    "two ranks, copies, exact": (2, {"exact": True}),
    "two ranks, sharded weights": (2, {"parallel": R.Parallel(shard=2)}),
    "two ranks, shared layers": (2, {"parallel": R.Parallel(tensor=2)}),
}


def recipe(folder: Path, quick: bool) -> R.Recipe:
    """GPT-2 of 6 blocks and 384 channels on random bytes; in a quick run of 1 and 32."""
    size: dict[str, int] = {"depth": 6, "width": 384, "heads": 6}
    if quick:
        size = {"depth": 1, "width": 32, "heads": 2}
    text = folder / "text.txt"
    text.write_text("".join(chr(97 + (7 * i * i + i // 11) % 26) for i in range(200_000)))
    return R.Recipe(
        name="ranks",
        model=weft.gpt2(
            depth=size["depth"],
            width=size["width"],
            heads=size["heads"],
            vocab_size=261,
            positions=256,
        ),
        task=R.CausalLM(),
        data=R.Data(
            rows=R.Documents(),
            train=R.Source(paths=(str(text),)),
            tokenizer=R.ByteTokenizer(),
            prepared_folder=str(folder / "prepared"),
        ),
        batch=R.FixedBatch(size=32, length=128),
        micro_batch_size=8,
        steps=STEPS,
        optimiser=R.AdamW(lr=1e-3),
    )


def measure(files: list[str], world: int) -> list[float]:
    """Return the median seconds of a step of each recipe, the first step left out, in new
    processes.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ranks", "--ranks-of", *files],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "OMP_NUM_THREADS": str(2 // world),
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
            },
        )
        for rank in range(world)
    ]
    lines = [process.communicate(timeout=600)[0] for process in processes]
    seconds: list[float] = json.loads(lines[0].splitlines()[-1])
    return seconds


def run_ranks(files: list[str]) -> None:
    from weft.data.preparing.prepare import prepare_for_run
    from weft.runs.run import Run
    from weft.runs.start import decide_precision
    from weft.training.parallel.ranks import init_ranks

    seconds = []
    with init_ranks(device="cpu") as ranks:
        for file in files:
            recipe = R.load_recipe(file)
            on_grid = ranks.arrange(recipe.parallel)
            recipe = replace(recipe, precision=decide_precision(recipe.precision, on_grid))
            built = Run(recipe, prepare_for_run(recipe.data), on_grid)
            seconds.append(statistics.median([event.seconds for event in built.trainer][1:]))
            built.trainer.drop_ddp()
    print(json.dumps(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true", help="one round of a small model")
    parser.add_argument("--ranks-of", nargs="+")
    options = parser.parse_args()
    if options.ranks_of:
        run_ranks(options.ranks_of)
        return
    begin = time.perf_counter()
    rounds: list[dict[str, float]] = []
    count = 1 if options.quick else ROUNDS
    with tempfile.TemporaryDirectory() as temporary:
        whole = recipe(Path(temporary), options.quick)
        prepare(whole.data)
        files: dict[int, dict[str, str]] = {1: {}, 2: {}}
        for number, (name, (world, changes)) in enumerate(SETTINGS.items()):
            file = Path(temporary) / f"recipe-{number}.json"
            file.write_text(replace(whole, **changes).to_json())
            files[world][name] = str(file)
        for number in range(1, count + 1):
            seconds: dict[str, float] = {}
            for world, named in files.items():
                seconds |= zip(named, measure(list(named.values()), world), strict=True)
            rounds.append(seconds)
            left = (time.perf_counter() - begin) / number * (count - number)
            print(f"  round {number} of {count}; about {left:.0f} s left", file=sys.stderr)
    tokens = whole.batch.rows_per_step() * whole.batch.length
    ratios = {name: [each[ONE] / each[name] for each in rounds] for name in SETTINGS}
    result = {
        "tokens_per_second": {
            name: round(tokens / min(each[name] for each in rounds)) for name in SETTINGS
        },
        "of_one_process": {name: round(statistics.median(ratios[name]), 3) for name in SETTINGS},
        "of_one_process_by_round": {
            name: [round(ratio, 3) for ratio in ratios[name]] for name in SETTINGS
        },
    }
    if options.out:
        receipt.write(options.out, result, time.perf_counter() - begin)
    print(json.dumps(result))


if __name__ == "__main__":
    command.run(main)
