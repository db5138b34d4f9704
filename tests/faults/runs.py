"""Small runs to hurt: text of their own, recipes that mix objectives with everything a checkpoint
must carry, and children to run them in.

A child is a fork: it trains as a fresh process would, without another second of imports. A `Plot`
decides what happens to it.
"""

import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import weft
from tests import whole_runs
from weft import recipe as R
from weft import spec as S
from weft.data.preparing.prepare import prepare
from weft.families.electra import generator
from weft.runs import checkpoints, run
from weft.runs.directory import RunDirectory
from weft.runs.logs.log import read_log
from weft.training.checkpoints import checkpoint

VOCABULARY = 5 + 256 + 8  # specials, bytes, sentinels
STEPS = 24
SHAPE: dict[str, Any] = {
    "depth": 1,
    "width": 16,
    "heads": 2,
    "hidden": 32,
    "vocab_size": VOCABULARY,
    "dropout": 0.1,
}
BERT: dict[str, Any] = {**SHAPE, "positions": 32, "attention_dropout": 0.1}
IMAGE: dict[str, Any] = {
    "depth": 1,
    "width": 16,
    "heads": 2,
    "hidden": 32,
    "image_size": 8,
    "patch_size": 2,
    "dropout": 0.1,
}
AUGMENTED: tuple[R.Transform, ...] = (
    R.Resize(size=(8, 8)),
    R.RandomCrop(size=8, padding=1),
    R.RandomHorizontalFlip(),
    R.RandAugment(),
    R.Normalize(),
    R.RandomErasing(),
    R.RandomChoice(transforms=(R.MixUp(alpha=0.8), R.CutMix())),
)
WORDS = (
    "the",
    "loom",
    "holds",
    "warp",
    "and",
    "weft",
    "while",
    "a",
    "shuttle",
    "carries",
    "one",
    "thread",
    "through",
    "all",
    "again",
)


# Data


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(2, 9))).capitalize() + "."


def write_text(path: Path, sentences: int, seed: int = 0) -> None:
    draw = random.Random(seed)
    path.write_text(
        "".join(sentence(draw) + draw.choice([" ", " ", " ", "\n\n"]) for _ in range(sentences))
    )


def write_pairs(path: Path, rows: int, seed: int = 0) -> None:
    draw = random.Random(seed)
    path.write_text(
        "".join(
            json.dumps({"source": sentence(draw)[:28], "target": sentence(draw)[:28]}) + "\n"
            for _ in range(rows)
        )
    )


def documents(folder: Path, sentences: int = 40) -> R.Data:
    write_text(folder / "train.txt", sentences)
    write_text(folder / "valid.txt", 9, seed=1)
    return R.Data(
        rows=R.Documents(sentence_boundaries=True),
        train=R.Source(paths=(str(folder / "train.txt"),)),
        tokenizer=R.ByteTokenizer(sentinels=8),
        valid=R.Source(paths=(str(folder / "valid.txt"),)),
        prepared_folder=str(folder / "documents"),
    )


def pairs(folder: Path, rows: int = 53) -> R.Data:
    write_pairs(folder / "train.jsonl", rows)
    return R.Data(
        rows=R.SourceTargetPairs(),
        train=R.Source(paths=(str(folder / "train.jsonl"),)),
        tokenizer=R.ByteTokenizer(sentinels=8),
        prepared_folder=str(folder / "pairs"),
    )


def talks(folder: Path, rows: int = 31) -> R.Data:
    draw = random.Random(2)
    lines = [
        {
            "messages": [
                {"role": role, "content": str(draw.randrange(10 ** draw.randint(1, 9)))}
                for role in ("user", "assistant") * draw.randint(1, 2)
            ]
        }
        for _ in range(rows)
    ]
    (folder / "talks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return R.Data(
        rows=R.Conversations(template=R.ChatTemplate(start="{role}:", end=".")),
        train=R.Source(paths=(str(folder / "talks.jsonl"),)),
        tokenizer=R.ByteTokenizer(),
        prepared_folder=str(folder / "prepared-talks"),
    )


def preferences(folder: Path, rows: int = 31) -> R.Data:
    lines = [{"prompt": f"{i} or", "chosen": str(i), "rejected": f"not {i}"} for i in range(rows)]
    (folder / "likes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = R.Source(paths=(str(folder / "likes.jsonl"),))
    return R.Data(
        rows=R.Preferences(),
        train=source,
        valid=source,
        tokenizer=R.ByteTokenizer(special_tokens=True),
        prepared_folder=str(folder / "prepared-likes"),
    )


def assistant_recipes(folder: Path) -> dict[str, R.Recipe]:
    said = talks(folder)
    liked = preferences(folder)
    weft.save(weft.build(gpt(), seed=5), folder / "reference", to="weft")
    return {
        "instruction": partial_recipe(
            gpt(),
            R.InstructionTuning(),
            batch=R.PackedBatch(size=5, length=32, pack_pool=9),
            micro_batch_size=2,
            average=R.EMA(decay=0.9),
            data=said,
        ),
        "preference": partial_recipe(
            gpt(),
            R.PreferenceTuning(reference=str(folder / "reference")),
            micro_batch_size=3,
            workers=1,
            eval_every=6,
            checkpoints=R.Checkpoints(every_steps=4),
            data=liked,
        ),
    }


def pictures(folder: Path, rows: int = 53) -> R.Data:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (rows, 10, 10, 3), np.uint8)
    np.savez(folder / "pictures.npz", images=images, labels=np.arange(rows) % 3)
    return R.Data(
        rows=R.LabelledImages(),
        train=R.Source(paths=(str(folder / "pictures.npz"),)),
        valid=R.Source(paths=(str(folder / "pictures.npz"),), fraction=(0.8, 1.0)),
        prepared_folder=str(folder / "pictures"),
    )


def image_recipes(folder: Path, data: R.Data) -> dict[str, R.Recipe]:
    """Images with every kind of chance: each sample's own, its partner's, and its repeats."""
    vit = weft.vit(**IMAGE, classes=3)
    weft.save(weft.build(weft.vit(**IMAGE, classes=3), seed=5), folder / "teacher", to="weft")
    batch = R.FixedBatch(size=7, length=17)
    return {
        "images": partial_recipe(
            vit,
            R.Classification(transforms=AUGMENTED, label_smoothing=0.1),
            batch=replace(batch, repeats=3),
            workers=1,
            micro_batch_size=3,
            average=R.EMA(decay=0.8),
            data=data,
        ),
        "autoencoding": partial_recipe(
            weft.mae(**IMAGE, decoder_depth=1, decoder_width=8, decoder_heads=2, decoder_hidden=16),
            R.MaskedAutoencoding(transforms=AUGMENTED[:-1]),
            batch=batch,
            workers=2,
            data=data,
        ),
        "distillation": partial_recipe(
            vit,
            R.Distillation(teacher=str(folder / "teacher"), hard_labels=True, transforms=AUGMENTED),
            batch=batch,
            eval_every=6,
            data=data,
        ),
    }


def scenes(folder: Path, images: int = 17) -> R.Data:
    """Images of two sizes with none to three boxes, in COCO's layout."""
    draw = random.Random(0)
    annotations = []
    (folder / "scenes").mkdir(parents=True, exist_ok=True)
    for number in range(images):
        size = (40, 32) if number % 2 else (32, 48)
        image = Image.frombytes("RGB", size, draw.randbytes(3 * size[0] * size[1]))
        image.save(folder / "scenes" / f"{number}.png")
        annotations += [
            {"image_id": number, "category_id": 1 + n % 2, "bbox": [3 * n, 2, 9, 7 + n]}
            for n in range(number % 4)
        ]
    table = {
        "images": [{"id": i, "file_name": f"{i}.png"} for i in range(images)],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    }
    (folder / "scenes.json").write_text(json.dumps(table))
    source = R.Source(paths=(str(folder / "scenes.json"), str(folder / "scenes")))
    return R.Data(
        rows=R.ImagesWithBoxes(),
        train=source,
        valid=source,
        prepared_folder=str(folder / "prepared-scenes"),
    )


def detector() -> S.Spec:
    spec = weft.dab_detr(
        depth=1,
        decoder_depth=2,
        width=16,
        heads=2,
        hidden=32,
        queries=5,
        depths=(1, 1),
        widths=(8, 16),
        stem=8,
        classes=2,
    )
    source = replace(spec.source, norm=S.GroupNorm(groups=2), padding="masked")  # type: ignore[type-var]
    return replace(spec, source=source)


def patience(seconds: float) -> float:
    """So many seconds of a processor's time as time passes here and now: a host may give most of it
    to others.
    """
    start = time.monotonic()
    before = time.process_time()
    while time.process_time() - before < 0.05:
        pass
    return seconds * max(1.0, (time.monotonic() - start) / 0.05)


def gpt(**more: Any) -> S.Spec:
    return weft.gpt2(**{**SHAPE, "positions": 32, "attention_dropout": 0.1, **more})


def electra() -> R.Recipe:
    shape = {**BERT, "embedding": 8}
    return partial_recipe(
        weft.electra(**shape),
        R.ReplacedTokenDetection(generator=generator("small", **{**shape, "width": 8, "heads": 1})),
    )


def partial_recipe(model: S.Spec, objective: R.Task, **more: Any) -> R.Recipe:
    given: dict[str, Any] = {
        "name": "small",
        "data": NOTHING,
        "batch": R.FixedBatch(size=7, length=32),
        "steps": STEPS,
        "optimiser": R.AdamW(lr=3e-3),
        "schedule": R.LinearSchedule(warmup_steps=3),
        "checkpoints": R.Checkpoints(every_steps=5, keep=2),
        **more,
    }
    return R.Recipe(model=model, task=objective, **given)


NOTHING = R.Data(rows=R.Documents(), train=R.Source(paths=()))
SPIKE = R.LossGuard(spike_deviations=4.0, window=4, max_skipped_steps=99)


def recipes(folder: Path) -> dict[str, R.Recipe]:
    """By name: each objective, and between them every optimiser, batch and average that a
    checkpoint must carry.
    """
    text = documents(folder)
    table = pairs(folder)
    images = pictures(folder)
    boxes = scenes(folder)
    t5 = weft.t5(**{**SHAPE, "head_dim": 8})
    transformer = weft.transformer(**SHAPE)
    made = {
        "causal": partial_recipe(
            gpt(),
            R.CausalLM(),
            average=R.EMA(decay=0.8),
            micro_batch_size=3,
            eval_every=6,
            data=text,
        ),
        "causal, lengths": partial_recipe(
            gpt(),
            R.CausalLM(isolate_documents=True),
            length_schedule=((0.4, 12), (1.0, 32)),
            guard=SPIKE,
            data=text,
            optimiser=R.Muon(lr=3e-3, other=R.AdamW(lr=3e-3)),
            checkpoints=R.Checkpoints(every_steps=4),
        ),
        "causal, bf16": partial_recipe(
            gpt(depth=2),
            R.CausalLM(),
            precision="bf16",
            activation_checkpointing=True,
            data=text,
            average=R.AverageLast(checkpoints=3),
        ),
        "masked": partial_recipe(
            weft.bert(**BERT),
            R.MaskedLM(input_format="segment-pair", next_sentence=True),
            workers=2,
            micro_batch_size=2,
            schedule=R.CosineSchedule(warmup_steps=4, final_fraction=0.1),
            checkpoints=R.Checkpoints(every_steps=7),
            data=text,
        ),
        "replaced": replace(
            electra(),
            optimiser=R.Adafactor(lr=3e-3),
            average=R.EMA(decay=0.9),
            checkpoints=R.Checkpoints(every_steps=6),
            data=text,
        ),
        "spans": partial_recipe(
            t5,
            R.SpanCorruption(),
            optimiser=R.SGD(lr=0.1),
            batch=R.PackedBatch(size=4, length=32, pack_pool=11),
            data=text,
            schedule=R.WarmupStableDecay(warmup_steps=3),
        ),
        "translation": partial_recipe(
            transformer,
            R.Translation(),
            optimiser=R.Adam(lr=3e-3),
            schedule=R.InverseSqrt(warmup_steps=5),
            batch=R.TokenBudget(tokens=256, length=32, sort_pool=29),
            micro_batch_size=5,
            checkpoints=R.Checkpoints(every_steps=6),
            data=table,
        ),
        "translation, packed": partial_recipe(
            transformer,
            R.Translation(),
            batch=R.PackedBatch(size=5, length=64, pack_pool=23),
            workers=1,
            average=R.EMA(decay=0.5),
            guard=SPIKE,
            checkpoints=R.Checkpoints(every_steps=4),
            data=table,
        ),
    }
    made["detection"] = partial_recipe(
        detector(),
        R.Detection(
            denoising=R.DenoisingQueries(groups=2),
            transforms=(
                R.RandomHorizontalFlip(),
                R.RandomShortestSize(min_size=(24, 32)),
                R.Normalize(),
            ),
        ),
        micro_batch_size=3,
        workers=1,
        eval_every=8,
        average=R.EMA(decay=0.9),
        checkpoints=R.Checkpoints(every_steps=6),
        data=boxes,
    )
    made |= assistant_recipes(folder)
    for data in (text, table, images, boxes, *(recipe.data for recipe in made.values())):
        prepare(data)
    return made | image_recipes(folder, images)


# Children

# what happens to a child: called after each step, and once with no event when all is built
Plot = Callable[[run.Run, Any], None]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_step(step: int) -> Plot:
    """Die once a step is taken, before anyone hears of it."""

    def plot(made: run.Run, event: Any) -> None:
        if event and event.step >= step:
            die()

    return plot


def after_save(out: Path, saved: int, step: int) -> Plot:
    """Die at a step once the checkpoint before it is on the disk."""

    def plot(made: run.Run, event: Any) -> None:
        if event and event.step >= step:
            while not (out / "checkpoints" / f"step-{saved:09d}").exists():
                time.sleep(0.001)
            die()

    return plot


def train(
    recipe: R.Recipe, out: Path, plot: Plot | None = None, say: Callable[[str], None] = print
) -> str:
    """All of a run, in this process: its digest after the last step, before averages take the
    weights' place.
    """
    held: list[run.Run] = []
    digest = ""

    def begun(made: run.Run, seconds: float, tokens: int) -> None:
        held.append(made)
        seen(None)

    def seen(event: Any) -> None:
        nonlocal digest
        if held[0].trainer.step == recipe.steps:
            digest = held[0].trainer.digest()
        if plot:
            plot(held[0], event)

    for event in whole_runs.train(recipe, out, on_start=begun, report=say):
        seen(event)
    if not held:  # it was finished already
        held.append(whole_runs.build_run(recipe))
        found = checkpoint.latest_checkpoint(out / "checkpoints", say)
        assert found
        checkpoints.restore_run(held[0], found, RunDirectory(out), say)
    return digest or held[0].trainer.digest()


def fork(work: Callable[[], Any], note: Path, **environment: str) -> int:
    """A child that does `work` and writes what it returns, or its error, as JSON to `note`; its
    standard streams go beside it.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.environ.update(environment)
        streams = os.open(note.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(streams, 1)
        os.dup2(streams, 2)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
        note.write_text(json.dumps(work()))
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException as error:
        note.write_text(json.dumps({"error": type(error).__name__, "line": str(error)}))
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def wait(pid: int, seconds: float = 60.0) -> int:
    """Its exit code, or minus the signal that ended it."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"a child still ran after {seconds} s")


def child(recipe: R.Recipe, out: Path, plot: Plot | None = None) -> Any:
    """The digest of a run in a child; None where it was killed. An error is {"error", "line"}."""
    note = out.with_suffix(".json")
    note.unlink(missing_ok=True)
    wait(fork(lambda: train(recipe, out, plot), note))
    return json.loads(note.read_text()) if note.exists() and note.read_text() else None


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def ranks(recipe: R.Recipe, out: Path, world: int, work: Callable[[], Any]) -> list[Any]:
    """What each of several ranks returns."""
    port = free_port()
    notes = [out.with_name(f"{out.name}-{rank}.json") for rank in range(world)]
    for note in notes:
        note.unlink(missing_ok=True)
    started = [
        fork(
            work,
            note,
            RANK=str(rank),
            WORLD_SIZE=str(world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            GLOO_SOCKET_IFNAME="lo",
        )
        for rank, note in enumerate(notes)
    ]
    for pid in started:
        wait(pid)
    return [json.loads(note.read_text()) if note.exists() else None for note in notes]


def warm(recipe: R.Recipe, out: Path) -> None:
    """What torch imports late, imported once, so that children need not."""
    train(replace(recipe, steps=1), out)


# What a run leaves


def steps_of(out: Path) -> list[int]:
    """The steps in the log, in order; validation lines left out."""
    return [line["step"] for line in read_log(out / "log.jsonl") if "loss" in line]


def told(out: Path) -> list[dict[str, Any]]:
    """The log without its times."""
    return [
        {key: value for key, value in line.items() if not key.endswith("seconds")}
        for line in read_log(out / "log.jsonl")
    ]


def model_bytes(out: Path) -> bytes:
    return (out / "model" / "model.safetensors").read_bytes()


class Whole:
    """Runs that nothing happened to: the digest, the log and the model of each, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipes = recipes(folder)
        warm(self.recipes["causal"], folder / "warm")
        self.found: dict[str, tuple[str, list[dict[str, Any]], bytes, float]] = {}

    def __getitem__(self, name: str) -> tuple[str, list[dict[str, Any]], bytes, float]:
        """Digest, log, model, seconds."""
        if name not in self.found:
            out = self.folder / f"whole-{len(self.found)}"
            began = time.monotonic()
            digest = child(self.recipes[name], out)
            assert isinstance(digest, str), digest
            self.found[name] = digest, told(out), model_bytes(out), time.monotonic() - began
        return self.found[name]

    def same(self, name: str, digest: Any, out: Path) -> None:
        """All that a run leaves is what it leaves when nothing happens."""
        whole = self[name]
        assert digest == whole[0], f"{name}: {digest}"
        assert told(out) == whole[1]
        assert model_bytes(out) == whole[2]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))
