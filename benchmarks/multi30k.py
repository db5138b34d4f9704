"""English to German on Multi30k, trained from nothing: BLEU as the best small system known reports
it (Wu et al. 2021, arXiv:2105.14462: lower-cased, Moses-tokenised), and beside it as others should
(cased, detokenised, with sacrebleu's signature).

    WEFT_DATA=… python -m benchmarks.multi30k [RECIPE] [--seeds 3] [--output runs] [--receipt FILE]

Beam 4 and length penalty 0.6, as in 2017 (arXiv:1706.03762, section 6.1). Restartable. The last
line is JSON.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from weft import recipe as R
from weft.generate.text_generator import TextGenerator
from weft.inference.open_model import open_model
from weft.metrics.translation import bleu as plain_bleu
from weft.metrics.translation import chrf, tokenised_bleu
from weft.runs.logs.log import read_log

from . import command, receipt
from .trials import train_steps

TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
BEAMS = 4
ALPHA = 0.6


def lines(name: str) -> list[str]:
    path = Path(os.environ["WEFT_DATA"]) / "multi30k" / f"{name}.gz"
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def translated(writer: TextGenerator, name: str, kept: Path) -> list[str]:
    file = kept / f"{name}.de"
    if not file.exists():
        with torch.no_grad():
            found = writer.translate(
                lines(f"{name}.en"), num_beams=BEAMS, length_penalty=ALPHA, batch_size=64
            )
        kept.mkdir(exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in found))
    return file.read_text().splitlines()


def scores(hypotheses: list[str], name: str) -> dict[str, Any]:
    wanted = lines(f"{name}.de")
    return {
        **dict(tokenised_bleu(hypotheses, wanted, "de")),
        **dict(plain_bleu(hypotheses, wanted)),
        **dict(chrf(hypotheses, wanted)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", default="recipes/translate_multi30k.py:good")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--receipt", metavar="FILE")
    given = parser.parse_args()
    began = time.perf_counter()
    recipe = R.load_recipe(given.recipe)
    rows = []
    for seed in range(given.seeds):
        folder = given.output / f"{recipe.name}-{seed}"
        for event in train_steps(R.apply_overrides(recipe, [f"seed={seed}"]), folder):
            if event.step % 100 == 0:
                print(
                    f"  seed {seed} step {event.step:,}/{recipe.steps:,} loss {event.loss:.4f}, "
                    f"{event.seconds * 1e3:.0f} ms",
                    flush=True,
                )
        writer = TextGenerator(open_model(folder))
        kept = folder / "translations"
        log = read_log(folder / "log.jsonl")
        name = "BLEU (lower-cased, Moses-tokenised)"
        found = {test: scores(translated(writer, test, kept), test) for test in ("val", *TESTS)}
        rows.append(
            {
                "seed": seed,
                "seconds": round(sum(line["seconds"] for line in log if "loss" in line)),
                "valid": [line for line in log if "valid" in line][-1]["valid"]["loss"],
                **found,
            }
        )
        said = "; ".join(
            f"{test} {found[test][name]:.2f}, cased {found[test]['BLEU']:.2f}" for test in found
        )
        print(f"seed {seed}: {said}", flush=True)
    mean = {
        test: {
            key: statistics.mean(row[test][key] for row in rows) for key in (name, "BLEU", "chrF")
        }
        for test in ("val", *TESTS)
    }
    result = {
        "recipe": given.recipe,
        "parameters": recipe.model.parameter_count(),
        "steps": recipe.steps,
        "beams": BEAMS,
        "alpha": ALPHA,
        "mean": mean,
        "runs": rows,
    }
    if given.receipt:
        receipt.write(given.receipt, result, time.perf_counter() - began, given.seeds - 1)
        shutil.copy(
            given.output / f"{recipe.name}-0" / "curve.svg", Path(given.receipt).with_suffix(".svg")
        )
    print(json.dumps(result))


if __name__ == "__main__":
    command.run(main)
