"""`weft prepare`: sources to shards, once. Any number of parts on any machines make the same bytes; a run that was stopped goes on."""
import base64
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import recipe as R
from ..values import from_plain, suggest, to_plain
from . import records
from .files import Missing, digest, find, identity, old, seal, stamp, update, write
from .lines import Found
from .ownership import held_basis, refuse_changed, refuse_foreign, refuse_other, shard_facts
from .quarantine import class_names, judge, label_column, sorted_classes, text_columns
from .source import Piece, pieces, read, reading, settled
from .tokenizer import Tokenizer
from .vocabulary import sample, train
from .work import Job, Task, Tick, facts, run

VERSION = 1                                # of the layout on disk
SAMPLE = 200_000_000                       # characters that a tokenizer learns from, spread over the pieces
SOON = 0.02                                # done before the time left can be told


class Progress(NamedTuple):
    """Where the work is: characters so far, and the tokenizer's own speed beside ours."""
    stage: str                             # classes, tokenizer, train, valid
    done: float                            # the share, about
    text: int                              # characters
    seconds: float
    busy: float                            # the tokenizer's own seconds, over all workers
    workers: int

    @property
    def left(self) -> float:
        return self.seconds * (1 / self.done - 1) if self.done >= SOON else float("inf")

    @property
    def speed(self) -> float:
        """Millions of characters a second."""
        return self.text / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def bare(self) -> float:
        """What the tokenizer alone would do on as many workers."""
        return self.text * self.workers / self.busy / 1e6 if self.busy else 0.0


Say = Callable[[Progress], None]


def prepare(data: R.Data, folder: str | Path | None = None, *, part: tuple[int, int] | None = None, workers: int | None = None,
            say: Say | None = None, verify: bool = False, overwrite: bool = False) -> Path:
    """The folder with both splits. `part` = (i, n) does every n-th piece from the i-th; whoever finds all done writes the index.
    The recipe's own folder serves without its sources, if it is finished. `verify` compares the SHA-256 of finished shards and makes
    damaged ones again. A finished folder of other data is replaced only with `overwrite`: a run may be reading it."""
    index, count = part or (0, 1)
    if not 0 <= index < count:
        raise ValueError(f"part = {index} of {count}: parts are counted from 0 to {count - 1}")
    try:
        splits = plan(data)
    except Missing:
        if data.folder and Path(folder or data.folder) == Path(data.folder) and whole(data, Path(data.folder)):
            return Path(data.folder)
        raise
    root = Path(folder or data.folder or Path("prepared") / fingerprint(data, splits))
    refuse_foreign(root)
    if not overwrite:
        refuse_other(root, basis_key(data, *splits["train"]))
    root.mkdir(parents=True, exist_ok=True)
    workers = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    tokenizer, labels = basis(data, *splits["train"], root, say)
    for name, (source, work) in splits.items():
        split = root / name
        split.mkdir(exist_ok=True)
        common = [VERSION, to_plain(data.row), reading(source), tokenizer.sha256 if tokenizer else None, labels]
        tasks = [Task(i, piece, digest(common, piece.identity, piece.spans)) for i, piece in enumerate(work)]
        stale = (split / "index.json").exists()                  # asked first: one that comes later is another process's, of all shards
        if stale and not overwrite:
            refuse_changed(split, tasks)
        todo = [task for task in tasks if task.number % count == index and facts(split, task, verify) is None]
        if todo:
            if stale:
                (split / "index.json").unlink(missing_ok=True)
            file = str(root / "tokenizer.json") if tokenizer else None
            job = Job(str(split), to_plain(source), to_plain(data.row), labels, file, data.max_bad_rows)
            clock = Clock(name, todo, min(workers, len(todo)), say)
            run(job, todo, workers, clock.tick)
            clock.tell(1.0)
        finish(split, tasks, common, data.max_bad_rows)
    return root


def plan(data: R.Data) -> dict[str, tuple[R.Source, list[Piece]]]:
    sources = {"train": data.train, "valid": data.valid}
    found = {name: settled(source, data.row) for name, source in sources.items() if source}
    return {name: (source, pieces(source)) for name, source in found.items()}


def whole(data: R.Data, root: Path) -> bool:
    """Is all there that a run on these data reads?"""
    held = held_basis(root)
    return held is not None and digest(held["row"]) == digest(to_plain(data.row)) and all(
        (root / name / "index.json").exists() for name in (["train", "valid"] if data.valid else ["train"]))


def fingerprint(data: R.Data, splits: dict[str, tuple[R.Source, list[Piece]]] | None = None) -> str:
    """A short word for the data value and what its files hold."""
    held = {name: [reading(source), [[p.identity, p.spans] for p in work]] for name, (source, work) in (splits or plan(data)).items()}
    return digest(VERSION, to_plain(data.row), *tokenizer_identity(data), held)[:16]


def tokenizer_identity(data: R.Data) -> list[Any]:
    file = [identity(find(data.tokenizer.path)[0])] if isinstance(data.tokenizer, R.TokenizerFile) else []
    return [to_plain(data.tokenizer), file]


class Clock:
    """Ticks of all workers to progress, a few times a second."""

    def __init__(self, stage: str, tasks: list[Task], workers: int, say: Say | None) -> None:
        self.stage, self.workers, self.say, self.began, self.said = stage, workers, say, time.perf_counter(), 0.0
        self.total, self.text, self.busy, self.lock = sum(task.piece.size for task in tasks), 0, 0.0, threading.Lock()

    def tick(self, tick: Tick) -> None:
        with self.lock:
            self.text, self.busy = self.text + tick.text, self.busy + tick.busy
            if time.perf_counter() - self.said > 0.2:
                self.said = time.perf_counter()
                self.tell(min(0.99, self.text / max(1, self.total)))

    def tell(self, done: float) -> None:
        if self.say:
            self.say(Progress(self.stage, done, self.text, time.perf_counter() - self.began, self.busy, self.workers))


# What all pieces need: a tokenizer, and the names of classes

@contextmanager
def telling(stage: str, say: Say | None) -> Iterator[None]:
    """Says a few times a second that a stage goes on, while something reads or learns without a word."""
    if say is None:
        yield
        return
    began, over = time.perf_counter(), threading.Event()

    def tell(done: float) -> None:
        say(Progress(stage, done, 0, time.perf_counter() - began, 0.0, 1))

    def beat() -> None:
        tell(0.0)
        while not over.wait(0.2):
            tell(0.0)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    tell(1.0)


def basis_key(data: R.Data, source: R.Source, work: list[Piece]) -> str:
    return digest(VERSION, to_plain(data.row), *tokenizer_identity(data), reading(source), [[p.identity, p.spans] for p in work])


def basis(data: R.Data, source: R.Source, work: list[Piece], root: Path, say: Say | None) -> tuple[Tokenizer | None, list[str] | None]:
    key = basis_key(data, source, work)
    with suppress(OSError, ValueError):
        held = held_basis(root)
        tokenizer = Tokenizer.load(root) if held and held["tokenizer"] else None
        if held and held["key"] == key and held["sha256"] == (tokenizer.sha256 if tokenizer else None):
            return tokenizer, held["labels"]
    labels = classes(data.row, source, work, say)
    tokenizer = learn(data, source, work, say)
    mask = np.packbits(tokenizer.continues, bitorder="little").tobytes() if tokenizer else b""
    write(root / "data.json", seal({
        "row": to_plain(data.row), "vocabulary": tokenizer.size if tokenizer else None, "special": tokenizer.special if tokenizer else {},
        "sentinels": list(tokenizer.sentinels) if tokenizer else [], "labels": labels, "tokenizer": "tokenizer.json" if tokenizer else None,
        "continues": base64.b64encode(mask).decode() if tokenizer else None, "sha256": tokenizer.sha256 if tokenizer else None, "key": key,
    }))
    if tokenizer:                          # after data.json, by which the folder is known as ours
        write(root / "tokenizer.json", tokenizer.text.encode())
    return tokenizer, labels


def learn(data: R.Data, source: R.Source, work: list[Piece], say: Say | None) -> Tokenizer | None:
    columns = text_columns(data.row)
    if not columns:
        return None
    if data.tokenizer is None:
        raise ValueError(f"{type(data.row).__name__} are text; give Data(tokenizer=…)")
    if isinstance(data.tokenizer, R.TokenizerFile):
        return Tokenizer.load(find(data.tokenizer.path)[0])
    share = 1 << 62 if isinstance(data.tokenizer, R.Characters) else SAMPLE // max(1, len(work))
    with telling("tokenizer", say):
        return train(data.tokenizer, lambda: sample(source, work, columns, share))


def classes(row: R.Row, source: R.Source, work: list[Piece], say: Say | None) -> list[str] | None:
    """The names of classes, in order: given, or those of the training data, numbers by size."""
    column = label_column(row)
    if column is None:
        return None
    if given := getattr(row, "labels", None):
        return list(given)
    if source.format == "folder":
        return sorted({name for path in source.paths for folder in find(path) for name in records.classes(folder)})
    if source.format == "coco":
        table = work[0].paths[0]
        return list(dict.fromkeys(records.coco_table(table, stamp(table)).names.values()))
    seen: set[str] = set()
    with telling("classes", say):
        for item in (item for piece in work for item in read(source, piece, (column,))):
            seen.update(class_names(item.fields.get(column)) if isinstance(item, Found) else ())
    return sorted_classes(seen)


# The index, when all is there

def finish(split: Path, tasks: list[Task], common: list[Any], max_bad_rows: float) -> None:
    """The index, if every shard is there; the same bytes whoever writes it."""
    held = [facts(split, task) for task in tasks]
    shards = [fact for fact in held if fact]
    if len(shards) < len(tasks):
        return
    kept = {f"{task.number:05d}" for task in tasks}
    strays = [path for path in shard_facts(split) if path.stem not in kept]                                          # of longer data
    strays += [path.with_suffix(".arrow") for path in strays]
    for stray in strays + [path for path in split.glob(".*.tmp") if old(path)]:                                     # of a killed run
        stray.unlink(missing_ok=True)
    rows = sum(shard["rows"] for shard in shards)
    judge(split, rows, [entry for shard in shards for entry in shard["quarantine"]], max_bad_rows)
    named = [{name: shard[name] for name in ("file", "rows", "tokens", "sentences", "sha256") if name in shard} for shard in shards]
    index = {"fingerprint": digest(common[1], common[3:], [shard["sha256"] for shard in shards]), "rows": rows, "shards": named}
    update(split / "index.json", seal(index))


# A data value from words on a command line

ROWS = {"documents": R.Documents, "pairs": R.Pairs, "examples": R.Examples, "choices": R.Choices, "tagged": R.Tagged,
        "questions": R.Questions, "images": R.Images, "boxed": R.Boxed}
TOKENIZERS = {"byte-bpe": R.ByteBPE, "bpe": R.BPE, "wordpiece": R.WordPiece, "unigram": R.Unigram, "bytes": R.Bytes,
              "characters": R.Characters}


def command_data(paths: Sequence[str], *, kind: str = "documents", format: str | None = None, document: str = "blank",
                 tokenizer: str = "byte-bpe", vocabulary: int = 32_000, lowercase: bool | None = None, sentences: bool = False,
                 valid: Sequence[str] = (), names: Sequence[str] = (), columns: Sequence[str] = (), number: bool = False) -> R.Data:
    """`columns` are those that the row reads, in its order, the label last; without them, `names` are. `tokenizer` may be a file."""
    if kind not in ROWS:
        raise ValueError(f"{kind!r} is no kind of row; {suggest(kind, list(ROWS))}")
    row = row_value(kind, tuple(columns or (names if kind in ("pairs", "examples") else ())), sentences, number)
    cut = None
    if kind not in ("images", "boxed"):
        cut = tokenizer_value(tokenizer, vocabulary, lowercase)

    def source(given: Sequence[str]) -> R.Source:
        made: R.Source = from_plain({"kind": "Source", "paths": list(given), "format": format, "document": document, "names": list(names),
                                     "header": not names})
        return made

    return R.Data(row=row, train=source(paths), valid=source(valid) if valid else None, tokenizer=cut)


def row_value(kind: str, columns: tuple[str, ...], sentences: bool, number: bool) -> R.Row:
    given: dict[str, Any] = {"sentences": sentences} if kind == "documents" else {"number": number} if kind == "examples" else {}
    if columns:
        fields = {"documents": ["text"], "pairs": ["source", "target"], "tagged": ["words", "tags"],
                  "examples": ["first", "label"] if len(columns) == 2 else ["first", "second", "label"]}.get(kind)
        if fields is None or len(columns) < len(fields):
            raise ValueError(f"{kind} cannot read the columns {', '.join(columns)}" + (f"; give {', '.join(fields)}" if fields else ""))
        given |= dict(zip(fields, columns, strict=False))
    made: R.Row = ROWS[kind](**given)
    return made


def tokenizer_value(name: str, vocabulary: int, lowercase: bool | None) -> R.Tokenizer:
    if name.endswith(".json") or os.path.exists(name):
        return R.TokenizerFile(path=name)
    if name not in TOKENIZERS:
        raise ValueError(f"{name!r} is no tokenizer and no file; {suggest(name, list(TOKENIZERS))}")
    given: dict[str, Any] = {} if name in ("bytes", "characters") else {"vocabulary": vocabulary}
    if lowercase is not None and name not in ("bpe", "wordpiece"):
        raise ValueError(f"{name} keeps the case of text; bpe and wordpiece can lower it")
    made: R.Tokenizer = TOKENIZERS[name](**given, **({} if lowercase is None else {"lowercase": lowercase}))
    return made
