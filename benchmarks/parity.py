"""How near Weft is to transformers, and how sharp that proof is: `python -m benchmarks.parity`.

The last line is JSON: family -> largest difference, changes tried on its spec, changes noticed.
"""

import argparse
import json
import sys
import time
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from tests.parity.cases import CASES, FP32, MAIN, ORIGINAL, ROUGH, Case, differences, saved
from tests.parity.flips import verdicts
from tests.parity.trips import byte_problems, opening_problems

from . import receipt

COLUMNS = (
    "family",
    "case",
    "fp32 difference",
    "fp64 difference",
    "changed",
    "noticed",
    "round trip",
)


class Line(NamedTuple):
    case: Case
    single: float
    double: float
    flipped: int
    caught: int
    trip: str


def measure(c: Case) -> Line:
    """All fields of the family's main case are changed, of the others those of the head."""
    print(c.name, file=sys.stderr, flush=True)
    said = verdicts(c, "" if c is MAIN[c.family] else "head")
    for flip, how in said:
        if not how:
            print(f"  not noticed: {flip}", file=sys.stderr, flush=True)
    problems = [] if c is ORIGINAL else [*byte_problems(c), *opening_problems(c, saved(c))]
    trip = "no file" if c is ORIGINAL else "; ".join(problems) or "same bytes"
    return Line(
        c,
        max(differences(c).values()),
        max(differences(c, dtype=torch.float64).values()),
        len(said),
        sum(bool(how) for _, how in said),
        trip,
    )


def show(lines: list[Line]) -> None:
    table = Table(*COLUMNS)
    for line in lines:
        why = ROUGH.get(line.case.family, (0, ""))[1]
        table.add_row(
            line.case.family,
            line.case.name.removeprefix(f"{line.case.family}-"),
            f"{line.single:.1e}",
            f"{line.double:.1e}" + (f": {why}" if why else ""),
            str(line.flipped),
            str(line.caught),
            line.trip,
        )
    Console(width=160).print(table)


def summary(lines: list[Line]) -> dict[str, dict[str, float]]:
    found = {}
    for name in MAIN:
        own = [line for line in lines if line.case.family == name]
        found[name] = {
            "difference": max(line.single for line in own),
            "flipped": sum(line.flipped for line in own),
            "caught": sum(line.caught for line in own),
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    given = parser.parse_args()
    start = time.perf_counter()
    torch.set_num_threads(1)
    lines = [measure(c) for c in (ORIGINAL, *CASES.values())]
    show(lines)
    found = summary(lines)
    if given.receipt:
        receipt.write(given.receipt, found, time.perf_counter() - start)
    print(json.dumps(found))
    good = all(
        row["difference"] <= FP32 and row["caught"] == row["flipped"] for row in found.values()
    )
    return 0 if good and all(line.trip in ("same bytes", "no file") for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
