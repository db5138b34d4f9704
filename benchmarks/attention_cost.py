"""Measure time and memory of one layer against input length: full attention, windowed attention,
Linformer, a convolution and a recurrent layer of the same width.

    python -m benchmarks.attention_cost [--lengths 512 ... 32768] [--width 256] [--budget 300]
        [--receipt FILE]

Forward and backward of one layer on one sequence, fp32, one thread. Each layer and length runs in a
process of its own. Memory is the peak of the first pass above what the process held before it. Time
is processor time, which a busy machine changes little: the best of all passes. A pass that would
take longer than `--budget` seconds, or more memory than is free, as the shorter lengths predict, is
skipped and named. The exponents are the slopes of log time and log memory over log length, from
4,096 tokens on. The theory (Vaswani et al. 2017, table 1) has n² for full attention and n for all
others.

The last line is JSON. Exit code 1 where at 16,384 tokens the window is less than five times as fast
as full attention, or at 32,768 tokens needs more than 2 GB. With `--receipt`, the picture lands
beside it.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weft import spec as S
from weft.nn.layers.sequence import HiddenStates
from weft.nn.stack import StackLayer

from . import command, receipt

HEADS = 4
WINDOW = 256
RANK = 256
KERNEL = 3
LENGTHS = [512 << i for i in range(7)]
LAYERS = {
    "full": "full attention",
    "window": f"window of {WINDOW}",
    "linformer": f"Linformer, rank {RANK}",
    "convolution": f"convolution, kernel {KERNEL}",
    "recurrent": "recurrent (GRU)",
}
POWER = {"full": 2}  # time grows with this power of the length; else 1
FASTER = 5.0
MEGABYTES = 2000.0
FIT_FROM = 4096
Cell = dict[str, float]
Found = dict[str, Any]


# One measurement, in a process of its own


def attention(pattern: Any, width: int) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """The attention of one block, told what it may see as in a model; that is part of the cost."""
    look = S.Attention(heads=HEADS, pattern=pattern)
    block = S.Block(attention=S.Branch(inner=look), feedforward=S.Branch(inner=S.MLP(hidden=1)))
    stack = StackLayer(S.Stack(blocks=(block,)), width)
    layer: Any = stack.blocks[0].attention.inner

    def run(x_BLD: Tensor) -> Tensor:
        y_BLD: Tensor = layer(
            x_BLD, None, stack.build_contexts(HiddenStates(x_BLD), None, split=True)[0]
        )
        return y_BLD

    return layer, run


def layer_of(name: str, length: int, width: int) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    if name == "convolution":
        convolution = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)
        return convolution, lambda x_BLD: convolution(x_BLD.transpose(1, 2)).transpose(1, 2)
    if name == "recurrent":
        recurrent = nn.GRU(width, width, batch_first=True)
        return recurrent, lambda x_BLD: recurrent(x_BLD)[0]
    patterns = {
        "full": S.FullAttention(),
        "window": S.SlidingWindow(before=WINDOW // 2, after=WINDOW // 2 - 1),
        "linformer": S.Linformer(length=length, rank=RANK),
    }
    return attention(patterns[name], width)


def memory(field: str) -> float:
    """VmRSS (now) or VmHWM (peak) of this process in megabytes."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(field)
    )
    return int(line.split()[1]) / 1e3


def measure(name: str, length: int, width: int) -> Cell:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    began = time.perf_counter()
    layer, run = layer_of(name, length, width)
    for p in layer.parameters():
        nn.init.normal_(p, std=width**-0.5)

    def step(tokens: int) -> float:
        x_BLD = torch.randn(1, tokens, width, requires_grad=True)
        begin = time.process_time()
        run(x_BLD).square().mean().backward()
        return time.process_time() - begin

    step(64)  # what torch makes once
    layer.zero_grad()
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    first = step(length)
    peak = memory("VmHWM") - before
    times = [first] + [step(length) for _ in range(min(int(4 / first), 10))]
    return {
        "seconds": round(min(times), 5),
        "megabytes": round(peak, 1),
        "elapsed": time.perf_counter() - began,
    }


# All of them


def predict(name: str, length: int, known: dict[int, Cell]) -> Cell | None:
    """From the longest length measured. Memory may grow as fast as time does."""
    if not known:
        return None
    last = max(known)
    growth = (length / last) ** POWER.get(name, 1)
    return {
        "seconds": known[last]["seconds"] * growth,
        "megabytes": known[last]["megabytes"] * growth,
    }


def free_megabytes() -> float:
    line = next(
        line
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable")
    )
    return int(line.split()[1]) / 1e3


def reason_to_skip(expected: Cell | None, budget: float) -> str | None:
    if expected is None:
        return None
    if expected["seconds"] > budget:
        return f"about {expected['seconds']:.0f} s per pass, over the budget of {budget:.0f}"
    free = free_megabytes()
    return (
        f"about {expected['megabytes']:.0f} MB, and {free:.0f} are free"
        if expected["megabytes"] > 0.8 * free
        else None
    )


def one(name: str, length: int, given: argparse.Namespace) -> Cell:
    words = [
        sys.executable,
        "-m",
        "benchmarks.attention_cost",
        "--one",
        name,
        "--lengths",
        str(length),
        "--width",
        str(given.width),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{name} at {length:,} tokens failed: "
            f"{(done.stderr.strip() or 'no message').splitlines()[-1]}"
        )
    cell: Cell = json.loads(done.stdout.splitlines()[-1])
    return cell


def measure_all(given: argparse.Namespace) -> tuple[dict[str, dict[int, Cell]], dict[str, str]]:
    cells: dict[str, dict[int, Cell]] = {name: {} for name in LAYERS}
    skipped: dict[str, str] = {}
    # neighbours in time are compared
    order = [(name, length) for length in sorted(given.lengths) for name in LAYERS]
    elapsed: dict[
        str, tuple[int, float, float]
    ] = {}  # the newest process of each layer: tokens, seconds to start and to measure
    for i, (name, length) in enumerate(order):
        why = reason_to_skip(predict(name, length, cells[name]), given.budget)
        if why is not None:
            skipped[f"{name} {length}"] = why
            print(
                f"[{i + 1}/{len(order)}] {name:11} {length:6,} tokens: skipped, {why}", flush=True
            )
            continue
        begin = time.perf_counter()
        cell = cells[name][length] = one(name, length, given)
        passes = cell.pop("elapsed")
        elapsed[name] = length, time.perf_counter() - begin - passes, passes
        left = 0.0
        for later, n in order[i + 1 :]:
            if (
                later in elapsed
                and reason_to_skip(predict(later, n, cells[later]), given.budget) is None
            ):
                tokens, start, seconds = elapsed[later]
                left += start + seconds * (n / tokens) ** POWER.get(later, 1)
        print(
            f"[{i + 1}/{len(order)}] {name:11} {length:6,} tokens: {cell['seconds'] * 1e3:10,.1f} "
            f"ms {cell['megabytes']:8,.1f} MB; "
            f"about {left / 60:.0f} min left",
            flush=True,
        )
    return cells, skipped


def slope(points: list[tuple[float, float]]) -> float | None:
    """Least squares of log y over log x."""
    logs = [(math.log(x), math.log(y)) for x, y in points if y > 0]
    if len(logs) < 2:
        return None
    mean_x, mean_y = (sum(p[i] for p in logs) / len(logs) for i in (0, 1))
    return round(
        sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs),
        2,
    )


def summary(cells: dict[str, dict[int, Cell]]) -> Found:
    def at(name: str, length: int, what: str) -> float | None:
        return cells[name].get(length, {}).get(what)

    full = at("full", 16_384, "seconds")
    window = at("window", 16_384, "seconds")
    room = at("window", 32_768, "megabytes")
    return {
        "exponents": {
            name: {
                what: slope([(n, cell[what]) for n, cell in row.items() if n >= FIT_FROM])
                for what in ("seconds", "megabytes")
            }
            for name, row in cells.items()
        },
        "window times as fast at 16384": None
        if full is None or window is None
        else round(full / window, 1),
        "window megabytes at 32768": room,
    }


# The picture

COLOURS = ("#c2410c", "#1f5fa8", "#15803d", "#7e22ce", "#6b7280")
WIDE = 400
HIGH = 300
LEFT = 58
TOP = 60


def panel(found: Found, what: str, title: str, left: float) -> str:
    rows = {
        name: [(int(n), cell[what]) for n, cell in row.items() if cell[what] > 0]
        for name, row in found["layers"].items()
    }
    lengths = sorted({n for row in rows.values() for n, _ in row})
    values = [v for row in rows.values() for _, v in row]
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))

    def x(n: float) -> float:
        return (
            left
            + LEFT
            + (WIDE - LEFT - 20)
            * math.log(n / lengths[0])
            / max(math.log(lengths[-1] / lengths[0]), 1e-9)
        )

    def y(v: float) -> float:
        return TOP + HIGH * (high - math.log10(v)) / max(high - low, 1)

    parts = [f'<text x="{left + LEFT}" y="{TOP - 14}">{escape(title)}</text>']
    parts += [
        f'<path d="M{x(lengths[0])} {y(10**p):.1f}H{x(lengths[-1])}" stroke="#e5e7eb"/>'
        f'<text x="{x(lengths[0]) - 8}" y="{y(10**p) + 4:.1f}" '
        f'text-anchor="end">{10.0**p:,g}</text>'
        for p in range(low, high + 1)
    ]
    parts += [
        f'<text x="{x(n):.1f}" y="{TOP + HIGH + 20}" '
        f'text-anchor="middle">{n if n < 1024 else f"{n // 1024}k"}</text>'
        for n in lengths
    ]
    parts.append(
        f'<text x="{left + (LEFT + WIDE) / 2}" y="{TOP + HIGH + 40}" '
        'text-anchor="middle">tokens</text>'
    )
    for colour, row in zip(COLOURS, rows.values(), strict=True):
        points = " ".join(f"{x(n):.1f},{y(v):.1f}" for n, v in row)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts += [
            f'<circle cx="{x(n):.1f}" cy="{y(v):.1f}" r="3" fill="{colour}"/>' for n, v in row
        ]
    return "".join(parts)


def picture(found: Found) -> str:
    """Time and memory over the length, both axes logarithmic."""
    parts = [
        f'<text x="{LEFT}" y="22" font-weight="600">One layer, width {found["width"]}: forward and '
        "backward of one sequence</text>",
        panel(found, "seconds", "seconds", 0),
        panel(found, "megabytes", "peak memory, MB", WIDE),
    ]
    edge = 2 * WIDE + 6
    for i, (colour, (name, title)) in enumerate(zip(COLOURS, LAYERS.items(), strict=True)):
        power = found["exponents"][name]["seconds"]
        parts.append(
            f'<text x="{edge}" y="{TOP + 12 + 40 * i}" fill="{colour}">{escape(title)}</text>'
        )
        if power is not None:
            parts.append(
                f'<text x="{edge}" y="{TOP + 28 + 40 * i}">time grows as n^{power:.2f}</text>'
            )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{edge + 160}" height="{TOP + HIGH + 56}" '
        'font-family="sans-serif" '
        'font-size="12" fill="#374151"><rect width="100%" height="100%" '
        f'fill="white"/>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=LENGTHS,
        help="numbers of tokens (default: 512 to 32768)",
    )
    parser.add_argument(
        "--width", type=int, default=256, help="width of every layer (default: 256)"
    )
    parser.add_argument(
        "--budget", type=float, default=300, help="seconds that one pass may take (default: 300)"
    )
    parser.add_argument(
        "--one", choices=LAYERS, help="measure one layer at one length, in this process"
    )
    parser.add_argument(
        "--receipt",
        metavar="FILE",
        help="write the result with its receipt, and the picture beside it",
    )
    given = parser.parse_args()
    began = time.perf_counter()
    if given.one:
        print(json.dumps(measure(given.one, given.lengths[0], given.width)))
        return
    cells, skipped = measure_all(given)
    found: Found = {
        "width": given.width,
        "heads": HEADS,
        "layers": {name: {str(n): cell for n, cell in row.items()} for name, row in cells.items()},
        "skipped": skipped,
        **summary(cells),
    }
    for name, powers in found["exponents"].items():
        print(f"{LAYERS[name]:22} time n^{powers['seconds']}, memory n^{powers['megabytes']}")
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - began)
        Path(given.receipt).with_suffix(".svg").write_text(picture(found), encoding="utf-8")
    print(json.dumps(found))
    faster = found["window times as fast at 16384"]
    room = found["window megabytes at 32768"]
    sys.exit((faster is not None and faster < FASTER) or (room is not None and room > MEGABYTES))


if __name__ == "__main__":
    command.run(main)
