"""Hostile inputs, made by mutating good ones:
`python -m tests.faults.hostile KIND FIRST LAST FOLDER` opens each in this process.

It says each case's number before it opens it, and what escaped; `escapes` starts it, and ends it
where a case hangs or takes memory.
"""

import gzip
import io
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

# of one case
SECONDS = 10
MEMORY = 1 << 30
NUMBERS = [
    0,
    -1,
    1,
    2,
    3,
    10**4,
    10**7,
    10**8,
    10**12,
    10**18,
    2**63,
    2**64,
    10**400,
    0.5,
    1e300,
    float("inf"),
    float("nan"),
]
OTHERS: list[Any] = [
    None,
    True,
    False,
    "",
    "a",
    "\0",
    "é" * 50,
    "x" * 5000,
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    [1, "a"],
    [10**8] * 3,
    "10000000",
]
Open = Callable[[Path, np.random.Generator], None]  # makes a case in a folder and opens it


def flipped(whole: bytes, draw: np.random.Generator, still: bool = False) -> bytes:
    """A few bytes flipped, removed, repeated or cut off; `still`: all others stay where they
    are.
    """
    held = bytearray(whole)
    for _ in range(int(draw.integers(1, 6))):
        at = int(draw.integers(max(1, len(held) - 1)))
        kind = int(draw.integers(2 if still else 5))
        held = held or bytearray(b"\0" * 8)
        if kind == 0:
            held[at] ^= 1 << int(draw.integers(8))
        elif kind == 1:
            held[at : at + 4] = draw.bytes(4)[: len(held) - at]
        elif kind == 2:
            del held[at : at + int(draw.integers(1, 64))]
        elif kind == 3:
            held[at:at] = held[at : at + 32]
        else:
            held = held[: max(at, 8)]
    return bytes(held)


def changed(plain: Any, draw: np.random.Generator) -> Any:
    """A JSON value in which one part, or up to three, are others, are gone, or stand twice."""
    held = json.loads(json.dumps(plain))
    for _ in range(1 if draw.random() < 0.7 else int(draw.integers(2, 4))):
        place = held
        key = None
        while isinstance(place, dict | list) and place and (key is None or draw.random() < 0.85):
            inner = place
            key = (
                list(place)[int(draw.integers(len(place)))]
                if isinstance(place, dict)
                else int(draw.integers(len(place)))
            )
            place = place[key]
        if key is None:
            return held
        kind = int(draw.integers(10))
        if kind == 0:
            del inner[key]
        elif kind == 1 and isinstance(inner, dict):
            inner[f"{key}_"] = inner.pop(key)
        elif kind == 2 and isinstance(inner, list):
            inner.insert(key, inner[key])
        else:
            alike = (
                NUMBERS
                if isinstance(place, int | float) and kind < 8
                else [v for v in OTHERS if type(v) is type(place)]
            )
            values = alike if alike and kind < 8 else NUMBERS + OTHERS
            inner[key] = values[int(draw.integers(len(values)))]
    return held


def text_of(plain: Any, draw: np.random.Generator) -> bytes:
    """A changed JSON value, or its text with flipped bytes."""
    if draw.random() < 0.8:
        return json.dumps(changed(plain, draw)).encode()
    return flipped(json.dumps(plain).encode(), draw)


# What is opened


def parquet(folder: Path, draw: np.random.Generator) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from weft import recipe as R
    from weft.data.reading.rows import load_source
    from weft.data.reading.source import resolve_source

    kinds = ["NONE", "SNAPPY", "ZSTD", "GZIP", "LZ4", "BROTLI"]
    rows = int(draw.integers(1, 300))
    table = pa.table(
        {
            "text": [f"row {i} " * int(draw.integers(1, 9)) for i in range(rows)],
            "label": [i % 3 for i in range(rows)],
            "words": [["a", "b"] * (i % 4) for i in range(rows)],
            "time": pa.array(range(rows), pa.timestamp("us")),
        }
    )
    path = folder / "a.parquet"
    pq.write_table(
        table,
        path,
        compression=kinds[int(draw.integers(len(kinds)))],
        use_dictionary=bool(draw.integers(2)),
        row_group_size=int(draw.integers(20, 200)),
        data_page_version=("1.0", "2.0")[int(draw.integers(2))],
    )
    path.write_bytes(flipped(path.read_bytes(), draw, still=bool(draw.random() < 0.7)))
    load_source(resolve_source(R.Source(paths=(str(path),)), R.LabelledTexts()))


def archive(folder: Path, draw: np.random.Generator) -> None:
    """A damaged archive, or a bomb."""
    import pyarrow as pa

    from weft import recipe as R
    from weft.data.reading.rows import load_source
    from weft.data.reading.source import resolve_source

    ending = ("gz", "zst")[int(draw.integers(2))]
    if draw.random() < 0.1:
        whole = (b"", b'{"text": "')[int(draw.integers(2))] + b"\0" * (100 << 20)
    else:
        texts = [f"row {i} {draw.integers(1 << 30)}" for i in range(int(draw.integers(1, 400)))]
        whole = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    packed = gzip.compress(whole, 1) if ending == "gz" else pa.compress(whole, "zstd", asbytes=True)
    path = folder / f"a.jsonl.{ending}"
    path.write_bytes(packed if len(whole) > 1 << 20 else flipped(packed, draw))
    found, bad = load_source(resolve_source(R.Source(paths=(str(path),)), R.Documents()))
    assert bad or not found or packed == path.read_bytes() or ending == "zst", (
        "a damaged archive was read"
    )


def rows(folder: Path, draw: np.random.Generator) -> None:
    """Any format, flipped or changed."""
    from weft import recipe as R
    from weft.data.preparing.prepare import prepare

    kind = int(draw.integers(6))
    answers = [{"text": "b", "answer_start": 2}]
    squad = {
        "version": "2",
        "data": [
            {
                "title": "t",
                "paragraphs": [
                    {
                        "context": "a b c",
                        "qas": [
                            {"id": str(i), "question": "what?", "answers": answers}
                            for i in range(3)
                        ],
                    }
                ],
            }
        ]
        * 3,
    }
    examples = [{"text": f"row {i}", "label": i % 2, "a": "x", "b": "y"} for i in range(8)]
    table = "\n".join(["text,label", *(f'"row {i}",{i % 2}' for i in range(9))]).encode()
    lines = "\n".join(
        json.dumps(changed(e, draw) if draw.random() < 0.3 else e) for e in examples
    ).encode()
    name, text, row = [
        ("a.json", text_of(squad, draw), R.ContextQuestions()),
        ("a.json", text_of(examples, draw), R.LabelledTexts(numeric_label=True)),
        ("a.csv", flipped(table, draw), R.LabelledTexts()),
        ("a.jsonl", lines, R.LabelledTexts()),
        ("a.jsonl", lines, R.ChoiceQuestions(context="text", endings=("a", "b"))),
        ("a.tsv", flipped(table.replace(b",", b"\t"), draw), R.LabelledTexts(numeric_label=True)),
    ][kind]
    (folder / name).write_bytes(text)
    data = R.Data(
        rows=row,
        train=R.Source(paths=(str(folder / name),)),
        tokenizer=R.ByteTokenizer(),
        max_bad_row_fraction=1.0,
    )
    prepare(data, folder / "out", workers=1)


def made_tokenizer(kind: int) -> dict[str, Any]:
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    texts = [
        "some words of a text, with a few more words",
        "another text has other words",
        "Wörter und 你好 😀",
    ] * 9
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if kind == 0:
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(
            vocab_size=120, special_tokens=marks, show_progress=False
        )
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
    elif kind == 1:
        made = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=marks, show_progress=False)
        made.pre_tokenizer = pre_tokenizers.ByteLevel()
        made.decoder = decoders.ByteLevel()
    elif kind == 2:
        made = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(
            vocab_size=90, special_tokens=marks, unk_token="[UNK]", show_progress=False
        )
        made.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Replace("a", "b"), normalizers.Prepend("▁")]
        )
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
    else:
        made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        trainer = trainers.WordLevelTrainer(special_tokens=marks, show_progress=False)
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.Digits()]
        )
    made.train_from_iterator(texts, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))],
    )
    made.enable_truncation(16)
    made.enable_padding(length=16)
    plain: dict[str, Any] = json.loads(made.to_str())
    return plain


def tokenizer(folder: Path, draw: np.random.Generator) -> None:
    from weft.data.tokenizing.tokenizer import Tokenizer

    (folder / "tokenizer.json").write_bytes(text_of(made_tokenizer(int(draw.integers(4))), draw))
    found = Tokenizer.load(folder)
    for text in ("some words", "", "unseen 你好 \0 😀", "x" * 2000):
        found.decode(found.encode(text))
        found.encode_spans(text)
    assert len(found.is_continuation) == found.size
    found.special_frame()


TINY = {
    "depth": 2,
    "decoder_depth": 2,
    "width": 16,
    "heads": 2,
    "kv_heads": 2,
    "hidden": 16,
    "vocab_size": 20,
    "positions": 8,
    "head_dim": 8,
    "experts": 2,
    "top_k": 1,
    "image_size": 16,
    "patch_size": 8,
    "decoder_width": 16,
    "decoder_heads": 2,
    "decoder_hidden": 16,
}


def tiny(folder: Path, draw: np.random.Generator, to: str = "hf") -> Path:
    """A folder with a small model of some family."""
    there = sorted(folder.parent.glob(f"tiny-{to}-*"))
    return there[int(draw.integers(len(there)))]


def make_tiny(folder: Path) -> None:
    import weft
    from weft.families import families

    for family in families():
        names = {*next(iter(family.sizes.values())), *(field.argument for field in family.fields)}
        for to in ("hf", "weft"):
            there = folder / f"tiny-{to}-{family.name}"
            if (
                family.model_type
                and family.name not in ("swin", "detr", "dab_detr")
                and not there.exists()
            ):
                weft.save(
                    weft.build(
                        family(**{name: value for name, value in TINY.items() if name in names})
                    ).eval(),
                    there,
                    to=to,
                )


def copied(there: Path, folder: Path, name: str, content: bytes) -> None:
    for file in there.iterdir():
        (folder / file.name).write_bytes(content if file.name == name else file.read_bytes())


def config(folder: Path, draw: np.random.Generator) -> None:
    import weft

    to, name = ("weft", "weft.json") if draw.random() < 0.2 else ("hf", "config.json")
    there = tiny(folder, draw, to)
    copied(there, folder, name, text_of(json.loads((there / name).read_text()), draw))
    weft.save(weft.load(folder), folder / "out")


def header(folder: Path, draw: np.random.Generator) -> None:
    import weft

    there = tiny(folder, draw)
    whole = (there / "model.safetensors").read_bytes()
    size = int.from_bytes(whole[:8], "little")
    kind = int(draw.integers(6))
    tensors = whole[8 + size :]
    if kind == 0:
        content = flipped(whole, draw)
    elif kind == 1:  # many tensors
        many = range(int(draw.choice([10**3, 10**4, 10**6])))
        text = (
            b"{"
            + b",".join(b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in many)
            + b"}"
        )
        content = len(text).to_bytes(8, "little") + text
    elif kind == 2:  # a length that is no length
        content = int(draw.choice([0, 1, 2**31, 2**40, 2**62])).to_bytes(8, "little") + whole[8:]
    else:
        text = json.dumps(changed(json.loads(whole[8 : 8 + size]), draw)).encode()
        content = len(text).to_bytes(8, "little") + text + tensors
    copied(there, folder, "model.safetensors", content)
    weft.load(folder)


CHAT = (
    "{% for message in messages %}{{ bos_token }}{{ message['role'] }}: {{ message['content'] | "
    "trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}{% set ns = namespace(n=0) %}{% for "
    "i in range(3) %}"
    "{% set ns.n = ns.n + i * 2 %}{% endfor %}{{ ns.n }}{{ messages | length | string | upper }}{{ "
    "messages | tojson }}"
)
PARTS = [
    "{{ 1/0 }}",
    "{% include 'a' %}",
    "{% import 'a' as b %}",
    "{% extends 'a' %}",
    "{{ 9**9**9**9 }}",
    "{{ 'a' * 10**9 }}",
    "{{ x.y.z }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ ''.__class__ }}",
    "{{ [0] * 10**12 }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ raise_exception('no') }}",
    "{{ '%999999999d' % 1 }}",
    "{{ messages.pop() }}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{{ 'x'.center(10**9) }}",
    "{{ strftime_now('%Y' * 10**6) }}",
    "{{ cycler }}",
    "{% set x = [1] %}{% for i in range(90) %}{% set _ = x.extend(x) %}{% endfor %}",
    "{{ lipsum(n=10**6) }}",
    "{{ self.__init__ }}",
]


def template(folder: Path, draw: np.random.Generator) -> None:
    """A hostile part in a good template, or a good one with flipped bytes."""
    from weft.generate.chat_template import SANDBOX, read_chat_template

    at = int(draw.integers(len(CHAT)))
    part = PARTS[int(draw.integers(len(PARTS)))]
    if draw.random() < 0.3:
        text = CHAT + part
    elif draw.random() < 0.6:
        text = CHAT[:at] + CHAT[at + int(draw.integers(5)) :]
    else:
        text = flipped(CHAT.encode(), draw).decode("utf-8", "replace")
    plain = {"chat_template": text, "bos_token": "<s>", "eos_token": {"content": "</s>"}}
    (folder / "tokenizer_config.json").write_bytes(text_of(plain, draw))
    source, marks = read_chat_template(folder)
    SANDBOX.render(
        source,
        {"messages": [{"role": "user", "content": "hello"}], "add_generation_prompt": True} | marks,
    )


# Command lines

WORDS = [
    "",
    "-",
    "--",
    "a",
    "a b",
    "0",
    "-1",
    "1",
    "2",
    "3",
    "1e-3",
    "0.5",
    "nan",
    "inf",
    "1e400",
    "9" * 30,
    "text",
    "label",
    "words",
    "tags",
    "nothing",
    "steps=1",
    "seed=1",
    "nothing=1",
    "=",
    "é",
    "{}",
    "[1]",
    "../..",
    "/dev/null",
    "classify",
    "tag",
    "bf16",
    "3/2",
    "\\",
    "%s",
    "bert-base",
    "gpt2-small",
    "http://localhost:9/a",
    "s3://a/b",
    "hub:a",
    "x" * 300,
]
# so that what does work is soon over
BRIEF = {
    "tune": ["--epochs", "1", "--learning-rates", "1e-3", "--seeds", "1"],
    "evaluate": ["--num-questions", "2", "--shots", "1"],
    "generate": ["--max-new-tokens", "3"],
}


def make_world(folder: Path) -> None:
    """What command lines can name: rows of several kinds, models, a recipe, a run."""
    import transformers  # noqa: F401

    import weft
    from tests import whole_runs
    from tests.commands.tuned_data import checkpoint, recipe, write_examples
    from weft import spec as S

    there = folder / "world"
    if (folder / "pristine").exists():
        return
    own = recipe(there / "own", steps=2)
    (there / "recipe.json").write_text(own.to_json())
    for _ in whole_runs.train(own, there / "run"):
        pass
    plain = made_tokenizer(0)
    shape = {
        "depth": 1,
        "width": 16,
        "heads": 2,
        "vocab_size": len(plain["model"]["vocab"]),
        "positions": 64,
    }
    for name, spec in (
        ("bert", weft.bert(**shape, hidden=16)),
        ("features", weft.bert(**shape, hidden=16, head=S.NoHead())),
        ("gpt", weft.gpt2(**shape)),
        (
            "tags",
            weft.bert(**shape, hidden=16, head=S.TokenClassifierHead(num_labels=2, dropout=0.1)),
        ),
    ):
        weft.save(weft.build(spec).eval(), there / name)
        (there / name / "tokenizer.json").write_text(json.dumps(plain))
    checkpoint(there / "checkpoint")
    (there / "checkpoint" / "tokenizer.json").write_text(
        (there / "own" / "prepared" / "tokenizer.json").read_text()
    )
    write_examples(there / "rows.jsonl", 60)
    (there / "rows.csv").write_text(
        "text,label\n" + "".join(f"row {i} of many,{i % 2}\n" for i in range(60))
    )
    (there / "tags.jsonl").write_text(
        "".join(json.dumps({"words": ["a", "b"], "tags": ["O", "B"]}) + "\n" for _ in range(40))
    )
    (there / "wrong.jsonl").write_text(
        "".join(json.dumps({"words": "a b", "tags": i}) + "\n" for i in range(40))
    )
    (there / "text.txt").write_text("one line\nanother line\n" * 30)
    (there / "bytes.bin").write_bytes(bytes(range(256)) * 9)
    (there / "empty").write_text("")
    (there / "gone.csv").symlink_to(there / "nothing")
    shutil.copytree(there, folder / "pristine", symlinks=True)
    os.mkfifo(there / "pipe.csv")


def restore_world(folder: Path) -> None:
    """As it was before a command wrote into it: each case stands for itself."""

    def state_of(root: Path) -> dict[str, tuple[int, int]]:
        return {
            str(path.relative_to(root)): (path.lstat().st_size, path.lstat().st_mtime_ns)
            for path in root.rglob("*")
            if not path.is_dir() and path.name != "pipe.csv"
        }

    if state_of(folder / "world") != state_of(folder / "pristine"):
        shutil.rmtree(folder / "world")
        shutil.copytree(folder / "pristine", folder / "world", symlinks=True)
        os.mkfifo(folder / "world" / "pipe.csv")


MODELS = ("bert", "features", "gpt", "tags", "checkpoint", "run")
FITTING = {
    "classify": "run",
    "tag": "tags",
    "generate": "gpt",
    "fill": "bert",
    "embed": "features",
    "tune": "checkpoint",
}
FILES = ("rows.jsonl", "rows.csv", "tags.jsonl", "wrong.jsonl", "text.txt")


def plausible(verb: str, action: Any, folder: Path) -> list[Any]:
    """Words that an argument may well take."""
    world = folder.parent / "world"
    if action.choices:
        return list(action.choices)
    if action.dest in ("name", "folder", "checkpoint", "draft_model", "older"):
        return [world / name for name in (*MODELS, *[FITTING.get(verb, "run")] * 8)]
    if action.dest in ("recipe", "run_folder", "run_folders"):
        return [world / "recipe.json", world / "run", world / "run"]
    if action.dest in ("paths", "data", "input", "valid", "few_shot", "examples"):
        return [world / name for name in FILES]
    if action.dest == "output":
        return [
            folder / name for name in ("out", "out", "out.jsonl", "out.csv", "out.json", "a/b/c")
        ]
    if action.dest in ("columns", "column_names", "label", "label_texts"):
        return ["text", "label", "words", "tags"]
    if action.dest == "set":
        return [
            "steps=3",
            "seed=1",
            "batch.size=4",
            "optimiser.lr=1e-4",
            "nothing=1",
            "steps=-1",
            "seed=x",
            "batch=3",
            "workers=-1",
            "steps.x=1",
            "guard.spike_deviations.=64",
            "=",
            "a=b=c",
        ]
    if action.type is not None:
        return ["1", "1", "2", "2", "3", "0.5", "-1"]
    return ["a", "some text", "text"]


def command_line(folder: Path, draw: np.random.Generator) -> list[str]:
    """A random line: a verb, its positional words and a few of its options, most of them
    plausible.
    """
    from weft.commands.verbs import parser

    verbs: Any = next(action.choices for action in parser()._actions if action.choices)

    def one(values: Any) -> Any:
        values = list(values)
        return values[int(draw.integers(len(values)))]

    def some_word(action: Any) -> str:
        if draw.random() < 0.92:
            return str(one(plausible(name, action, folder)))
        return str(one(there)) if draw.random() < 0.5 else str(one(WORDS))

    there = sorted((folder.parent / "world").iterdir())
    name = one(list(verbs))
    actions = [action for action in verbs[name]._actions if action.dest != "help"]
    line: list[str] = []
    for action in [action for action in actions if not action.option_strings]:
        line += [
            some_word(action)
            for _ in range(int(draw.integers(0, 3)) if action.nargs in ("*", "+") else 1)
        ]
    options = [action for action in actions if action.option_strings]
    wanted = [
        action
        for action in options
        if action.required or action.dest in ("data", "to") or draw.random() < 1.5 / len(options)
    ]
    for action in wanted:
        if action.nargs in ("*", "+"):
            many = int(draw.integers(1, 4))
        else:
            many = 1 if action.nargs is None else action.nargs
        line += [one(action.option_strings), *(some_word(action) for _ in range(many))]
    if draw.random() < 0.1:
        line.insert(
            int(draw.integers(len(line) + 1)),
            str(one([*WORDS, "--help", "--nothing", "--json", "-x", "--version"])),
        )
    return [name if draw.random() < 0.97 else name[:-1], *line, *BRIEF.get(name, [])]


def command(folder: Path, draw: np.random.Generator) -> None:
    """A line as it is typed: it works, or says in one line why it does not."""
    from weft.cli import main

    restore_world(folder.parent)
    words = command_line(folder, draw)
    os.chdir(folder)
    sys.stdin = io.StringIO("a text\n")
    out = io.StringIO()
    err = io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
    except SystemExit as ended:  # --help and --version
        code = int(ended.code or 0)
    except BaseException as error:
        raise RuntimeError(f"{words}: {type(error).__name__}: {error}") from error
    said = err.getvalue()
    if (
        code not in (0, 1, 2, 75)
        or "Traceback" in said
        or (code == 2 and not said.splitlines()[-1].startswith("weft: "))
    ):
        raise RuntimeError(f"{words}: code {code}: {said[-200:]}")


KINDS: dict[str, Open] = {
    "parquet": parquet,
    "archive": archive,
    "rows": rows,
    "tokenizer": tokenizer,
    "config": config,
    "header": header,
    "template": template,
    "command": command,
}


# The two processes


def peak() -> int:
    """The most bytes that this process ever held."""
    return 1024 * int(
        next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
    )


def main(kind: str, first: int, last: int, folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    if kind in ("config", "header"):
        make_tiny(folder)
    if kind == "command":
        make_world(folder)
    print("ready", peak(), flush=True)
    for number in range(first, last):
        case = folder / str(number)
        case.mkdir()
        print("case", number, peak(), flush=True)
        try:
            KINDS[kind](case, np.random.default_rng([number, len(kind)]))
            said = ""
        except ValueError as error:
            said = (
                ""
                if "\n" not in str(error) and str(error)
                else f"ValueError of several lines or none: {error!r}"
            )
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        if said:
            print("escape", number, " ".join(said.split())[:300], flush=True)
        subprocess.run(["rm", "-rf", str(case)], check=True)
    print("done", peak(), flush=True)


def escapes(kind: str, count: int, folder: Path, first: int = 0) -> list[str]:
    """What escaped of so many cases: errors of other kinds, hangs, memory."""
    found: list[str] = []
    while first < count:
        with subprocess.Popen(
            [sys.executable, "-m", __name__, kind, str(first), str(count), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        ) as process:
            first = watched(process, kind, first, count, found)
    return found


def watched(
    process: "subprocess.Popen[str]", kind: str, first: int, count: int, found: list[str]
) -> int:
    """Reads what it says until it is done or has to be ended; the case to go on with."""
    base = 0
    now = first
    begun = 0.0
    assert process.stdout
    while True:
        ready = select.select([process.stdout], [], [], SECONDS)[0]
        if not ready and base and not hangs(process.pid, begun):
            continue
        line = process.stdout.readline() if ready or not base else ""
        word, *rest = line.split(maxsplit=2) or [""]
        if word == "":
            process.kill()
            said = (
                f"more than {SECONDS} seconds"
                if base and not ready
                else f"ended with code {process.wait()}"
            )
            found.append(f"{kind} {now}: {said}")
            return now + 1
        if word == "ready":
            base = int(rest[0])
        elif word == "escape":
            found.append(f"{kind} {rest[0]}: {rest[1]}")
        elif int(rest[-1]) > base + MEMORY:
            process.kill()
            found.append(f"{kind} {now}: {(int(rest[-1]) - base) >> 20} MB")
            return now + 1
        if word == "done":
            return count
        if word == "case":
            now = int(rest[0])
            begun = state(process.pid)[1]


def state(process: int) -> tuple[str, float]:
    """Whether it runs or waits, and the processor's seconds it had; none pass while other work has
    the processor.
    """
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def hangs(process: int, begun: float) -> bool:
    """Has a case computed for too long, or does it wait for something that does not come?"""
    before = state(process)
    time.sleep(2)
    after = state(process)
    return after[1] - begun > SECONDS or (before == after and after[0] == "S")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
