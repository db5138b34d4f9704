"""`weft quickstart`: build, train, sample, look and export on text that ships with Weft, each step as the command that does it."""

import gzip
import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ..console import print_result
from ..interop.hub import PACKAGED
from ..options.declare import Option
from ..options.shared import VerbOptions
from . import EXIT_STOPPED

TEXT, RECIPE, STEPS = "shakespeare.txt", "recipe.py", 400
RECIPE_TEXT = '''"""A language model of Shakespeare's characters, from `weft quickstart`; every line is yours to change.

    weft train {folder}/recipe.py --output {folder}/run

Cost:   400 steps of 2,048 characters take about two minutes on two cores.
Data:   {folder}/shakespeare.txt (300,000 characters, public domain).
"""

import weft
from weft.recipe import (
    AdamW,
    CausalLM,
    CharacterTokenizer,
    Checkpoints,
    Data,
    Documents,
    FixedBatch,
    LinearSchedule,
    Muon,
    Recipe,
    Source,
)

TEXT = ({text},)

quickstart = Recipe(
    name="quickstart",
    # Llama's architecture, made small: weft show prints its parts
    model=weft.llama(depth=3, width=96, heads=3, kv_heads=3, hidden=256, vocab_size=65, tied=True),
    task=CausalLM(),
    # one token per character; the last tenth is for validation
    data=Data(
        rows=Documents(),
        tokenizer=CharacterTokenizer(special_tokens=False),
        train=Source(paths=TEXT, document_boundary="file", fraction=(0.0, 0.9)),
        valid=Source(paths=TEXT, document_boundary="file", fraction=(0.9, 1.0)),
        prepared_folder={prepared},
    ),
    batch=FixedBatch(size=16, length=128),
    steps={steps},
    # Muon for matrices, AdamW for the rest
    optimiser=Muon(lr=0.02, other=AdamW(lr=6e-3, betas=(0.9, 0.95), weight_decay=0.0)),
    schedule=LinearSchedule(warmup_steps=10),
    checkpoints=Checkpoints(every_steps=50),
    eval_every=100,
)
'''


class Step(NamedTuple):
    """A command of the walk."""

    title: str
    arguments: tuple[str, ...]
    next: str  # what to try with it


def steps_of(folder: Path) -> list[Step]:
    run = f"{folder}/run"
    return [
        Step(
            "Build: a recipe is a model, data and a plan as one value",
            ("show", f"{folder}/{RECIPE}"),
            f"weft show {folder}/{RECIPE} --set model.decoder.depth=6; weft families lists what else can be built",
        ),
        Step(
            "Train: press Ctrl-C and run it again, it resumes bit for bit",
            ("train", f"{folder}/{RECIPE}", "--output", run),
            f"weft resume {run} --verify trains the last interval again and compares every bit",
        ),
        Step(
            "Sample: what the model writes",
            ("generate", run, "ROMEO:", "--temperature", "0.7", "--max-new-tokens", "200"),
            f"more --steps write better; weft generate demo is a larger model of the same kind, trained longer; weft evaluate {run}",
        ),
        Step(
            "Look: what every head attends to, as one page that works offline",
            ("look", run, "To be, or not to be", "-o", f"{folder}/look.html"),
            f"open {folder}/look.html in a browser, or give --open",
        ),
        Step(
            "Export: a folder that transformers opens",
            ("export", run, f"{folder}/hf", "--to", "hf"),
            f'AutoModelForCausalLM.from_pretrained("{folder}/hf"); weft verify {folder}/hf compares both',
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class QuickstartOptions(VerbOptions):
    """The options of `weft quickstart`."""

    output: Annotated[
        str,
        Option("folder of everything that is written", metavar="FOLDER", short="-o"),
    ] = "quickstart"
    steps: Annotated[int, Option("number of training steps", metavar="N", least=1)] = STEPS


def quickstart(options: QuickstartOptions) -> int:
    """Walk through building, training, sampling, looking and exporting.

    About two minutes on two cores, offline, on text that ships with Weft. Prints every command that it runs and what to try next. Run
    it again to resume.
    """
    folder = Path(options.output)
    write_files(folder, options.steps)
    times: list[dict[str, Any]] = []
    steps = steps_of(folder)
    for number, step in enumerate(steps, 1):
        command = shlex.join(("weft", *step.arguments))
        if step.arguments[0] == "export" and (folder / "hf" / "config.json").is_file():
            times.append({"command": command, "seconds": 0.0})
            continue  # as an earlier walk left it
        print(f"\n[{number}/{len(steps)}] {step.title}\n$ {command}", file=sys.stderr, flush=True)
        begin = time.monotonic()
        out = sys.stderr if options.json else None
        code = subprocess.run(
            [sys.executable, "-m", "weft", *step.arguments], stdout=out
        ).returncode
        if code != 0:
            again = f"; to continue: weft quickstart -o {folder}"
            print(f"weft: {command} ended with code {code}{again}", file=sys.stderr)
            return EXIT_STOPPED if code == EXIT_STOPPED else 1
        times.append({"command": command, "seconds": round(time.monotonic() - begin, 1)})
        print(f"next: {step.next}", file=sys.stderr, flush=True)
    summary = {"folder": str(folder), "steps": times}
    print_result(options.json, summary, lambda width: page(folder, times))
    return 0


def write_files(folder: Path, steps: int) -> None:
    """Write the text and the recipe, unless an earlier walk did; what the user changed stays."""
    if folder.exists() and not (folder / RECIPE).is_file() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds other files; give another folder with --output")
    folder.mkdir(parents=True, exist_ok=True)
    text = recipe_text(folder, steps)
    if not (folder / TEXT).exists():
        with gzip.open(PACKAGED["demo"] / f"{TEXT}.gz") as packed:
            (folder / TEXT).write_bytes(packed.read())
    if not (folder / RECIPE).exists():
        (folder / RECIPE).write_text(text)
    elif (folder / RECIPE).read_text() != text:
        print(
            f"weft: {folder / RECIPE} stays as it is, with its own steps; for a new walk give another --output",
            file=sys.stderr,
        )


def recipe_text(folder: Path, steps: int) -> str:
    """Return the recipe, with names as strings of Python."""
    text, prepared = (
        json.dumps((folder / name).as_posix(), ensure_ascii=False) for name in (TEXT, "prepared")
    )
    return RECIPE_TEXT.format(
        folder=printable(folder.as_posix()), text=text, prepared=prepared, steps=steps
    )


def printable(text: str) -> str:
    """Return a name as it may stand in a docstring."""
    return "".join(c for c in text if c.isprintable() and c not in '"\\\\')


def page(folder: Path, times: list[dict[str, Any]]) -> str:
    seconds = "\n".join(f"{one['seconds']:6.1f} s  {one['command']}" for one in times)
    return (
        f"\n{seconds}\n\nEverything is in {folder}. With your own data: weft new pretrain FILE, or weft new classify FILE.csv; "
        "with your own parts: examples/extend."
    )
