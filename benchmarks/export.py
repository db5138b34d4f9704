"""Check export parity for every shipped recipe: train a few steps on generated data, export, and
open the model with transformers or sentence-transformers.

    python -m benchmarks.export [--only bert] [--receipt FILE]

The columns: which class opens the folder; how many comparisons of token ids, pixels, generated
tokens, vectors and class probabilities were made and how many differ (`weft.evaluate.compare`); the
largest difference of the model's outputs. Exit code 1 where anything differs. The last line is
JSON: recipe -> class and comparisons.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import weft
from weft import recipe as R
from weft.evaluation.compare import LIMIT, compare_with_transformers
from weft.inference.open_model import open_model
from weft.interop.huggingface import verify
from weft.interop.huggingface.equivalent_specs import find_family
from weft.interop.huggingface.sentence_transformers import read_modules
from weft.interop.loading import load
from weft.interop.saving import save

from . import command, receipt
from .generated import make_clone, make_data, small
from .trials import train_steps

RECIPES = Path(__file__).parents[1] / "recipes"
LARGE = 2e7  # parameters; `paper` recipes have more


def recipes() -> dict[str, R.Recipe]:
    """All that train on a laptop, by file and name."""
    found: dict[str, R.Recipe] = {}
    for path in sorted(RECIPES.glob("*.py")):
        made = spec_from_file_location(path.stem, path)
        assert made is not None
        assert made.loader is not None
        module = module_from_spec(made)
        made.loader.exec_module(module)
        found |= {
            f"{path.stem}:{name}": thing
            for name, thing in vars(module).items()
            if isinstance(thing, R.Recipe)
        }
    return {
        name: recipe
        for name, recipe in found.items()
        if not name.endswith(":paper") and recipe.model.parameter_count() < LARGE
    }


def has_family(spec: weft.Spec) -> bool:
    """Whether transformers has a class for it: of a convolutional stem it has none."""
    try:
        find_family(spec)
    except ValueError:
        return False
    return True


def leave(recipe: R.Recipe, home: Path, all_recipes: dict[str, R.Recipe]) -> Path:
    """Train in `home`, the current folder; -> the folder in Hugging Face's layout."""
    make_data(home / "data", recipe.data)
    for earlier in earlier_runs(recipe, all_recipes):
        list(train_steps(short(all_recipes[earlier])))
    list(train_steps(short(recipe)))
    return save(load(Path("runs") / recipe.name / "model"), home / "out" / recipe.name)


def earlier_runs(recipe: R.Recipe, all_recipes: dict[str, R.Recipe]) -> list[str]:
    """The recipes whose models this one starts from or learns from."""
    needed = {recipe.init_from, getattr(recipe.task, "teacher", None)}
    return [name for name, other in all_recipes.items() if f"runs/{other.name}/model" in needed]


def short(recipe: R.Recipe) -> R.Recipe:
    """In full precision and one process."""
    return replace(small(recipe), precision="fp32", workers=0)


def opened_by(folder: Path) -> str:
    modules = read_modules(folder)
    config = json.loads((folder / "config.json").read_text())
    return str(config["architectures"][0]) + (
        " in CrossEncoder" if modules and modules.dense else ""
    )


def row(recipe: R.Recipe, home: Path, all_recipes: dict[str, R.Recipe]) -> dict[str, Any]:
    folder = leave(recipe, home, all_recipes)
    outputs = max(verify.verify(folder).values())
    # A reward is that of an answer after its prompt, and `classify` reads a text alone
    which = ("tokens", "embeddings") if isinstance(recipe.task, R.RewardModelling) else ()
    checks = compare_with_transformers(open_model(folder), folder, which)
    return {
        "class": opened_by(folder),
        "outputs": outputs,
        "checks": {c.name: dict(zip(c._fields[1:], c[1:], strict=True)) for c in checks},
        "same": outputs <= LIMIT and not any(c.differ for c in checks),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only recipes whose name holds this")
    parser.add_argument("--receipt", metavar="FILE", help="also write the result with its receipt")
    given = parser.parse_args()
    began = time.perf_counter()
    path = given.receipt and Path(given.receipt).resolve()
    logging.disable(logging.WARNING)
    every = recipes()
    found: dict[str, dict[str, Any]] = {}
    print(
        f"{'recipe':26} {'opened by':44} {'outputs':>8}  tokens, images, generation, embeddings, "
        "classes: compared, differ",
        flush=True,
    )
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"WEFT_DATA": f"{folder}/data", "XDG_CACHE_HOME": f"{folder}/cache"}
        make_clone(Path(folder))
        for name, recipe in every.items():
            if given.only in name and has_family(recipe.model):
                own = found[name] = row(recipe, Path(folder), every)
                said = ", ".join(
                    f"{check} {c['compared']} {c['differ']}" for check, c in own["checks"].items()
                )
                print(
                    f"{name:26} {own['class']:44} {own['outputs']:8.0e}  "
                    f"{said}{'' if own['same'] else '  NOT THE SAME'}",
                    flush=True,
                )
        os.chdir(here)
    if path:
        receipt.write(str(path), found, time.perf_counter() - began)
    print(json.dumps(found))
    sys.exit(not all(own["same"] for own in found.values()))


if __name__ == "__main__":
    command.run(main)
