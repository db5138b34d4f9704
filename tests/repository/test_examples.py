"""The files of examples/extend: each conforms, trains, is killed and resumes bit for bit,
evaluates, goes to JSON and back.

Every step is a process of its own: what a user's file registers must not be seen by other tests.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from .. import interpreter

ROOT = Path(__file__).parents[2]
EXTEND = ROOT / "examples" / "extend"
RECIPE = """
import weft
from weft import recipe as R

recipe = R.Recipe(
    name="own",
    model=weft.llama(depth=2, width=16, heads=2, kv_heads=2, hidden=32, vocab_size=261),
    task=R.CausalLM(),
    data=R.Data(
        rows=R.Documents(),
        train=R.Source(paths=("train.txt",)),
        valid=R.Source(paths=("valid.txt",)),
        tokenizer=R.ByteTokenizer(),
    ),
    batch=R.FixedBatch(size=4, length=32),
    steps=40,
    optimiser=R.AdamW(lr=1e-3),
    checkpoints=R.Checkpoints(every_steps=4),
    threads=1,
)
"""
BLOCKS = "model.decoder.blocks.*"


class Example(NamedTuple):
    kind: str
    check: str  # a call of weft.testing
    change: str  # --set


EXAMPLES = {
    "scale_norm": Example(
        "ScaleNorm", "check_part(own.ScaleNorm())", f"{BLOCKS}.attention.before=ScaleNorm"
    ),
    "squared_relu": Example(
        "SquaredReLU",
        "check_part(own.SquaredReLU(hidden=24))",
        BLOCKS + '.feedforward.inner={"kind": "SquaredReLU", "hidden": 24}',
    ),
    "learned_relative_bias": Example(
        "ClippedBias",
        "check_part(own.ClippedBias(reach=5))",
        'model.decoder.position_bias={"kind": "ClippedBias", "reach": 5}',
    ),
    "dilated_window": Example(
        "DilatedWindow",
        "check_part(own.DilatedWindow(keys=3, dilation=4))",
        BLOCKS + '.attention.inner.pattern={"kind": "DilatedWindow", "keys": 3, "dilation": 4}',
    ),
    "lion": Example(
        "Lion",
        "check_optimiser(own.Lion(lr=1e-3, weight_decay=0.1))",
        'optimiser={"kind": "Lion", "lr": 1e-3, "weight_decay": 0.1}',
    ),
    "sqrt_cooldown": Example(
        "SqrtCooldown",
        "check_schedule(own.SqrtCooldown(warmup=3))",
        'schedule={"kind": "SqrtCooldown", "warmup": 3, "cooldown": 0.5}',
    ),
}
# a task, a data format and a family, which have tests of their own
ELSEWHERE = {
    "contrastive_embeddings": "tests/conformance/test_examples.py",
    "fasta": "tests/conformance/test_fasta.py",
    "opt": "tests/repository/test_family.py",
}


def environment() -> dict[str, str]:
    kept = {name: word for name, word in os.environ.items() if name != "WEFT_CODE"}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return interpreter.run(folder, environment(), *words)


def weft(folder: Path, *words: str) -> str:
    """Run the command; what it prints."""
    done = python(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(folder: Path, *words: str) -> str:
    """Run the command, which must refuse in one line; the line."""
    done = python(folder, *words)
    assert done.returncode == 2, done.stderr
    return done.stderr.strip().splitlines()[-1]


def digest(run: Path) -> str:
    (weights,) = (run / "model").glob("*.safetensors")
    return hashlib.sha256(weights.read_bytes()).hexdigest()


def train_and_kill(folder: Path, out: str, *words: str) -> None:
    """Train until the first checkpoint lies there, then SIGKILL."""
    process = interpreter.start(
        folder, environment(), "train", "recipe.py", "--output", out, *words
    )
    while not list((folder / out).glob("checkpoints/step-*/manifest.json")):
        assert process.is_alive(), "training ended before the first checkpoint"
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "recipe.py").write_text(RECIPE)
    (tmp_path / "train.txt").write_text("The loom holds the warp while the shuttle goes. " * 120)
    (tmp_path / "valid.txt").write_text("A shuttle carries one thread through the warp. " * 20)
    for path in EXTEND.glob("*.py"):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_every_example_is_tried_and_short() -> None:
    assert {path.stem for path in EXTEND.glob("*.py")} == {*EXAMPLES, *ELSEWHERE}
    for name, test in ELSEWHERE.items():
        assert f"{name}.py" in (ROOT / test).read_text(), test
    for path in EXTEND.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 65, path.name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_conforms(folder: Path, name: str) -> None:
    check = f"""
from weft.support.user_code import load_code
load_code([{name + ".py"!r}])
import weft.support.user_code.{name} as own
from weft.testing import check_optimiser, check_part, check_schedule
{EXAMPLES[name].check}
"""
    done = python(folder, "-c", check)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_resumes_bit_for_bit_and_evaluates(folder: Path, name: str) -> None:
    own = ("--code", f"{name}.py")
    change = ("--set", EXAMPLES[name].change)
    weft(folder, "train", "recipe.py", "--output", "whole", *own, *change)
    plain = (folder / "whole" / "recipe.json").read_text()
    assert f'"kind": "{EXAMPLES[name].kind}"' in plain
    train_and_kill(folder, "killed", *own, *change)
    weft(folder, "resume", "killed")  # by itself: the file is as it was
    assert digest(folder / "whole") == digest(folder / "killed")
    assert "--code FILE" in refused(folder, "evaluate", "whole")
    assert "perplexity" in weft(folder, "evaluate", "whole", *own, "--json")


PARTS = ("scale_norm", "squared_relu", "learned_relative_bias", "dilated_window")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("scale_norm", "model.decoder.norm=ScaleNorm"),
        *((name, EXAMPLES[name].change) for name in PARTS),
    ],
)
def test_a_model_with_a_part_of_ones_own_reads_packed_documents(
    folder: Path, name: str, change: str
) -> None:
    check = f"""
import torch
import weft
from recipe import recipe
from weft.recipe.overrides import apply_overrides
from weft.support.user_code import load_code
load_code([{name + ".py"!r}])
model = weft.build(apply_overrides(recipe, [{change!r}]).model).eval()
ids = torch.randint(0, 261, (1, 12))
with torch.inference_mode():
    packed = model(ids, document_ids=torch.tensor([[1] * 5 + [2] * 7]))
    for at in (slice(0, 5), slice(5, 12)):
        assert torch.allclose(packed[:, at], model(ids[:, at]), atol=1e-5)
"""
    done = python(folder, "-c", check)
    assert done.returncode == 0, done.stderr


def test_a_changed_or_missing_file_raises_an_error_unless_allowed(folder: Path) -> None:
    own = ("--code", "scale_norm.py", "--set", EXAMPLES["scale_norm"].change)
    train_and_kill(folder, "run", *own)
    file = folder / "scale_norm.py"
    text = file.read_text()
    file.write_text(text + "\n# another line\n")
    for words in (("resume", "run"), ("resume", "run", "--code", "scale_norm.py")):
        line = refused(folder, *words)
        assert "scale_norm.py changed since" in line
        assert "--code-changed" in line
    assert "changed since" in refused(folder, "train", "recipe.py", "--output", "run", *own)
    file.rename(folder / "elsewhere.py")
    assert "is missing; give it with --code FILE" in refused(folder, "resume", "run")
    (folder / "elsewhere.py").rename(file)
    weft(folder, "resume", "run", "--code", "scale_norm.py", "--code-changed")
    file.write_text(text)
    assert "changed since" in refused(folder, "resume", "run")  # the run goes on with the new file


def test_a_file_that_cannot_be_imported_is_a_one_line_error(folder: Path) -> None:
    (folder / "broken.py").write_text("import weft\nweft.Norn\n")
    line = refused(folder, "show", "gpt2", "--code", "broken.py")
    assert "broken.py: AttributeError: weft has no 'Norn'; did you mean 'Norm'?" in line
    assert "No such file" in refused(folder, "show", "gpt2", "--code", "missing.py")


def test_a_name_that_is_taken_is_refused(folder: Path) -> None:
    (folder / "taken.py").write_text(
        "import weft\n\n@weft.register\nclass LayerNorm(weft.Norm):\n    pass\n"
    )
    line = refused(folder, "show", "gpt2", "--code", "taken.py")
    assert "a choice named 'LayerNorm' is already registered by weft.spec.norms" in line
