"""Preparation: identical bytes with any parts, processes and interruptions; changed inputs are
prepared again; contents of rows.
"""

import base64
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from weft import recipe as R
from weft.cli import main
from weft.commands.prepare import data_from_options
from weft.commands.train_options import PrepareOptions
from weft.data.preparing import plan as prepare_plan
from weft.data.preparing.drop_table import PieceReader
from weft.data.preparing.ownership import check_no_foreign_files
from weft.data.preparing.prepare import PrepareProgress, fingerprint, prepare
from weft.data.reading import source
from weft.data.reading.quarantine import quarantine_notes
from weft.data.tokenizing import train_tokenizer
from weft.data.tokenizing.tokenizer import load_tokenizer
from weft.data.tokenizing.train_tokenizer import fit_tokenizer


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", 2000)


def write(path: Path, count: int = 300) -> Path:
    path.write_text(
        "".join(
            f"Document {i} says: hello number {i * i}. It has {i % 7} friends!\n" + "\n" * (i % 2)
            for i in range(count)
        )
    )
    return path


def documents(root: Path, **more: Any) -> R.Data:
    given = {
        "rows": R.Documents(sentence_boundaries=True),
        "tokenizer": R.ByteBPE(vocab_size=300),
    } | more
    text = str(write(root / "a.txt"))
    return R.Data(
        train=R.Source(paths=(text,), fraction=(0.0, 0.9)),
        valid=R.Source(paths=(text,), fraction=(0.9, 1.0)),
        **given,
    )


def read(folder: Path, split: str = "train") -> Iterator[dict[str, Any]]:
    index = json.loads((folder / split / "index.json").read_text())
    for shard in index["shards"]:
        assert (
            hashlib.sha256((folder / split / shard["file"]).read_bytes()).hexdigest()
            == shard["sha256"]
        )
        table = pa.ipc.open_file(str(folder / split / shard["file"])).read_all()
        assert table.num_rows == shard["rows"]
        yield from table.to_pylist()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows(
    folder: Path,
    row: R.RowSchema,
    given: R.Source,
    tokenizer: R.TokenizerSpec | None = R.ByteTokenizer(),
    overwrite: bool = False,
) -> tuple[list[dict[str, Any]], Any]:
    made = prepare(
        R.Data(rows=row, train=given, tokenizer=tokenizer, max_bad_row_fraction=0.0),
        folder / "out",
        workers=1,
        overwrite=overwrite,
    ).folder
    return list(read(made)), json.loads((made / "data.json").read_text())


# The same bytes


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[R.Data, dict[str, bytes]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "PIECE_BYTES", 2000)
        folder = tmp_path_factory.mktemp("one")
        data = documents(folder)
        yield data, contents(prepare(data, folder / "out", workers=1).folder)


def test_a_run_leaves_shards_an_index_and_nothing_temporary(
    one_run: tuple[R.Data, dict[str, bytes]],
) -> None:
    names = set(one_run[1])
    assert {
        "data.json",
        "tokenizer.json",
        "train/index.json",
        "valid/index.json",
        "train/00000.arrow",
        "train/00007.arrow",
    } <= names
    assert not [name for name in names if "tmp" in name]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_parts_in_any_order_give_the_bytes_of_one_run(
    tmp_path: Path, one_run: tuple[R.Data, dict[str, bytes]], count: int
) -> None:
    data, expected = one_run
    for index in reversed(range(count)):
        assert not (tmp_path / "train" / "index.json").exists()
        prepare(data, tmp_path, shard=(index, count), workers=1)
    assert contents(tmp_path) == expected


def test_processes_give_the_bytes_of_one_run(
    tmp_path: Path, one_run: tuple[R.Data, dict[str, bytes]]
) -> None:
    data, expected = one_run
    assert contents(prepare(data, tmp_path, workers=2).folder) == expected


def test_killed_in_the_middle_and_run_again_gives_the_same_bytes(
    tmp_path: Path, one_run: tuple[R.Data, dict[str, bytes]]
) -> None:
    data, expected = one_run
    code = (
        "import sys\nfrom weft.data.preparing import prepare as P\n"
        "from weft.data.reading import source\nfrom weft.support.values import from_json\n"
        "source.PIECE_BYTES = 2000; P.prepare(from_json(sys.argv[1]), sys.argv[2], workers=1)"
    )
    killed = 0
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-c", code, R.to_json(data), str(tmp_path)])
        before = len(list(tmp_path.rglob("*.arrow")))
        while process.poll() is None and len(list(tmp_path.rglob("*.arrow"))) < before + 3:
            time.sleep(0.001)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
        if (tmp_path / "valid" / "index.json").exists() or killed == 2:
            break
    assert killed
    prepare(data, tmp_path, workers=1)
    assert {
        name: held for name, held in contents(tmp_path).items() if not name.endswith(".tmp")
    } == expected


def test_two_processes_at_once_on_one_folder_both_succeed_with_the_same_bytes(
    tmp_path: Path, one_run: tuple[R.Data, dict[str, bytes]]
) -> None:
    data, expected = one_run
    code = (
        "import sys, time\nfrom weft.data.preparing import prepare as P\n"
        "from weft.data.reading import source\nfrom weft.support import storage\n"
        "from weft.support.values import from_json\n"
        "source.PIECE_BYTES = 2000\nreal = storage.rename\n"
        "storage.rename = lambda *given: [time.sleep(float(sys.argv[3])), real(*given)]\n"
        "print('ready', flush=True); sys.stdin.readline(); P.prepare(from_json(sys.argv[1]), "
        "sys.argv[2], workers=1)\n"
        "assert all((P.Path(sys.argv[2]) / name / 'index.json').exists() for name in ('train', "
        "'valid'))"
    )
    # one is done before the other
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, R.to_json(data), str(tmp_path), delay],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for delay in ("0", "0.03")
    ]
    for process in both:
        assert process.stdout
        process.stdout.readline()
    for process in both:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert contents(tmp_path) == expected


def test_a_folder_that_another_process_begins_to_prepare_during_the_check_is_ours(
    tmp_path: Path, one_run: tuple[R.Data, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rglob

    def begun_by_another(folder: Path, pattern: str) -> Iterator[Path]:
        (folder / "data.json").write_bytes(one_run[1]["data.json"])
        return iter(list(real(folder, pattern)))

    monkeypatch.setattr(Path, "rglob", begun_by_another)
    check_no_foreign_files(tmp_path, ())
    (tmp_path / "data.json").unlink()
    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr(Path, "rglob", real)
    with pytest.raises(ValueError, match="did not write"):
        check_no_foreign_files(tmp_path, ())


def test_only_a_temporary_file_that_nobody_writes_any_more_is_removed(tmp_path: Path) -> None:
    data = documents(tmp_path)
    made = prepare(data, tmp_path / "out", workers=1).folder
    young = made / "train" / ".00001.arrow.1.tmp"
    gone = made / "train" / ".00002.arrow.1.tmp"
    young.write_bytes(b"half")
    gone.write_bytes(b"half")
    os.utime(gone, (time.time() - 100_000,) * 2)
    prepare(data, tmp_path / "out", workers=1)
    assert (young.exists(), gone.exists()) == (True, False)


def test_nothing_is_written_where_nothing_is_to_do(tmp_path: Path) -> None:
    data = documents(tmp_path)
    with open(tmp_path / "a.txt", "ab") as out:
        out.write(b"\n\nb\xc3\x28d\n")  # a quarantine is not written again either
    made = prepare(data, tmp_path / "out", workers=1).folder
    assert (made / "valid" / "quarantine.jsonl").exists()
    before = {
        path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (made, *made.rglob("*"))
    }
    prepare(data, tmp_path / "out", workers=1)
    assert {
        path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (made, *made.rglob("*"))
    } == before


def test_a_finished_folder_of_the_recipe_serves_without_its_sources(tmp_path: Path) -> None:
    data = documents(tmp_path, prepared_folder=str(tmp_path / "out"))
    made = prepare(data, workers=1).folder
    (tmp_path / "a.txt").unlink()
    assert prepare(data, workers=1).folder == made
    for other, folder in (
        (data, tmp_path / "else"),
        (R.Data(rows=R.Documents(), train=data.train, prepared_folder=data.prepared_folder), None),
    ):
        with pytest.raises(ValueError, match="does not exist"):  # another folder, another row
            prepare(other, folder, workers=1)
    (made / "valid" / "index.json").unlink()
    with pytest.raises(ValueError, match="does not exist"):
        prepare(data, workers=1)


def test_the_files_are_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[R.Source] = []
    monkeypatch.setattr(
        prepare_plan,
        "split_source",
        lambda given: asked.append(given) or source.split_source(given),
    )
    prepare(documents(tmp_path), workers=1)
    assert len(asked) == 2


def test_many_small_files_make_few_shards_in_their_order(tmp_path: Path) -> None:
    for i in range(150):
        (tmp_path / f"{i:03d}.txt").write_text(f"text {i}\n" * (500 if i == 75 else 5))
    given = R.Source(paths=(str(tmp_path / "*.txt"),), document_boundary="file")
    found, _ = rows(tmp_path, R.Documents(), given, R.ByteTokenizer(special_tokens=False))
    assert 2 < len(list((tmp_path / "out" / "train").glob("*.arrow"))) < 10
    assert [bytes(row["tokens"]).decode().split("\n")[0] for row in found] == [
        f"text {i}" for i in range(150)
    ]
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "train").glob("*.arrow")
    }
    (tmp_path / "149.txt").write_text("other\n")
    rows(tmp_path, R.Documents(), given, R.ByteTokenizer(special_tokens=False), overwrite=True)
    assert [
        path.name for path, when in sorted(before.items()) if path.stat().st_mtime_ns != when
    ] == [max(before).name]


def test_what_is_finished_is_not_made_again(tmp_path: Path) -> None:
    data = documents(tmp_path)
    made = prepare(data, tmp_path / "out", workers=1).folder
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*.arrow")}
    held = contents(made)
    (made / "train" / "00001.arrow").unlink()
    (made / "train" / "00002.json").unlink()
    (made / "train" / "00003.arrow").write_bytes(b"short")
    prepare(data, tmp_path / "out", workers=1, shard=(0, 2))
    assert not (
        made / "train" / "index.json"
    ).exists()  # it would speak of shards that are not there
    prepare(data, tmp_path / "out", workers=1)
    assert contents(made) == held
    changed = {path.name for path, when in before.items() if path.stat().st_mtime_ns != when}
    assert changed == {"00001.arrow", "00002.arrow", "00003.arrow"}


def test_a_changed_source_is_noticed(tmp_path: Path) -> None:
    data = documents(tmp_path, tokenizer=R.ByteTokenizer())
    first = prepare(data, tmp_path / "out", workers=1).folder
    index = json.loads((first / "train" / "index.json").read_text())
    word = fingerprint(data)
    text = (tmp_path / "a.txt").read_text()
    (tmp_path / "a.txt").write_text(text.replace("Document 5 ", "document 5 "))
    assert fingerprint(data) != word
    held = contents(first)
    with pytest.raises(
        ValueError,
        match=r"out.* contains prepared data of other files or settings.*; give another directory, "
        r"or "
        r"overwrite it",
    ):
        prepare(data, tmp_path / "out", workers=1)
    assert contents(first) == held  # a run may be reading it
    prepare(data, tmp_path / "out", workers=1, overwrite=True)
    again = json.loads((first / "train" / "index.json").read_text())
    assert again["fingerprint"] != index["fingerprint"]
    tokenizer = load_tokenizer(first)
    assert any("document 5 " in tokenizer.decode(row["tokens"]) for row in read(first))
    os.utime(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text(text)
    assert fingerprint(data) == word  # content, not time
    write(tmp_path / "a.txt", 30)
    prepare(data, tmp_path / "out", workers=1, overwrite=True)  # fewer shards: none stays behind
    kept = {
        shard["file"][:5]
        for shard in json.loads((first / "train" / "index.json").read_text())["shards"]
    }
    assert {path.stem for path in (first / "train").iterdir()} == kept | {"index"}


def test_a_folder_with_files_of_others_is_refused_and_nothing_in_it_changes(tmp_path: Path) -> None:
    """The folder of `datasets.save_to_disk` has Arrow files of its own, which were removed as
    shards of longer data.
    """
    data = documents(tmp_path)
    for name in (
        "dataset_info.json",
        "train/data-00000-of-00001.arrow",
        "train/00007.arrow",
        "train/00009.json",
        "tokenizer.json",
    ):
        theirs = tmp_path / "theirs" / name.replace("/", "-") / name
        theirs.parent.mkdir(parents=True)
        theirs.write_text("{}")
        root = tmp_path / "theirs" / name.replace("/", "-")
        with pytest.raises(
            ValueError,
            match=r"contains files that weft prepare did not write \(.*\); give a new or empty "
            r"directory",
        ):
            prepare(data, root, workers=1, overwrite=True)
        assert list(contents(root)) == [name]


@pytest.mark.parametrize(
    "text", ['{"rows": [1]}', "not JSON", "[]", '{"rows": 3, "shards": []}', None]
)
def test_an_index_of_another_program_in_a_sub_folder_is_no_split(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary was a KeyError, or `Expecting value: line 1 column 1`; a run on the data ended in
    the same way.
    """
    (tmp_path / "a.txt").write_text("hello there\n\nmore text\n")
    out = tmp_path / "out"
    words = ["prepare", str(tmp_path / "a.txt"), "--tokenizer", "bytes"]
    words += ["--output", str(out), "--json"]
    assert main(words) == 0
    before = json.loads(capsys.readouterr().out)
    index = out / "site" / "index.json"
    if text is None:
        index.mkdir(parents=True)
    else:
        index.parent.mkdir()
        index.write_text(text)
    index.with_name("quarantine.jsonl").write_text("theirs\n")
    assert main(words) == 0
    after = json.loads(capsys.readouterr().out)
    assert (after["splits"], after["quarantined"]) == (before["splits"], 0)
    assert list(after["splits"]) == ["train"]
    assert index.is_dir() if text is None else index.read_text() == text
    assert quarantine_notes(out) == []


def test_only_our_own_shards_are_removed_when_data_becomes_shorter(tmp_path: Path) -> None:
    data = documents(tmp_path)
    made = prepare(data, tmp_path / "out", workers=1).folder
    assert (made / "train" / "00007.arrow").exists()
    theirs = [
        made / "train" / name for name in ("mine.arrow", "90000.arrow", "90001.json", "notes.txt")
    ]
    for path in theirs:
        path.write_text("{}")
    write(tmp_path / "a.txt", 30)
    prepare(data, tmp_path / "out", workers=1, overwrite=True)
    assert all(path.exists() for path in theirs)
    assert not (made / "train" / "00007.arrow").exists()


def test_preparing_again_with_verify_makes_damaged_shards_anew(tmp_path: Path) -> None:
    data = documents(tmp_path)
    made = prepare(data, tmp_path / "out", workers=1).folder
    held = contents(made)
    for name in ("train/00002.arrow", "valid/00000.arrow", "tokenizer.json", "data.json"):
        whole = bytearray(held[name])
        whole[len(whole) // 2] ^= 4
        (made / name).write_bytes(whole)
    prepare(data, tmp_path / "out", workers=1, verify=True)
    assert contents(made) == held


def test_the_folder_is_named_after_the_content_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = documents(tmp_path, tokenizer=R.CharacterTokenizer())
    assert prepare(data, workers=1).folder == Path("prepared") / fingerprint(data)
    assert prepare(
        documents(tmp_path, tokenizer=R.CharacterTokenizer(), prepared_folder="mine"), workers=1
    ).folder == Path("mine")
    assert fingerprint(documents(tmp_path, tokenizer=R.ByteTokenizer())) != fingerprint(data)


# What rows hold


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize(
    "tokenizer",
    [R.ByteBPE(vocab_size=300), R.WordPiece(vocab_size=100), R.ByteTokenizer(special_tokens=False)],
)
def test_documents_are_their_tokens_an_end_and_the_starts_of_sentences(
    tmp_path: Path, tokenizer: R.TokenizerSpec, sentences: bool
) -> None:
    found, meta = rows(
        tmp_path,
        R.Documents(sentence_boundaries=sentences),
        R.Source(paths=(str(write(tmp_path / "a.txt", 40)),)),
        tokenizer,
    )
    made = load_tokenizer(tmp_path / "out")
    texts = [part.strip("\n") for part in (tmp_path / "a.txt").read_text().split("\n\n")]
    end = [3] if meta["special_tokens"] else []
    assert [row["tokens"] for row in found] == [
        made.encode(text).tolist() + end for text in texts if text
    ]
    if sentences:
        assert all(
            row["sentences"][0] == 0 and row["sentences"][-1] < len(row["tokens"]) for row in found
        )
        row = found[0]
        text = texts[0]
        assert len(row["sentences"]) == text.count(".") + text.count("!")
        pieces = [
            row["tokens"][a:b]
            for a, b in zip(row["sentences"], [*row["sentences"][1:], None], strict=True)
        ]
        assert made.decode(pieces[1]).strip().lower() == "it has 0 friends!"
        total = json.loads((tmp_path / "out" / "train" / "index.json").read_text())["shards"][0]
        assert total["sentences"] == sum(len(row["sentences"]) for row in found[: total["rows"]])


def test_a_sentence_of_which_nothing_is_left_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\u200b\ntwo")
    found, _ = rows(
        tmp_path,
        R.Documents(sentence_boundaries=True),
        R.Source(paths=(str(tmp_path / "a.txt"),)),
        R.WordPiece(vocab_size=20),
    )
    assert len(found[0]["sentences"]) == 2


@pytest.mark.parametrize("sentences", [False, True])
def test_a_file_is_one_document_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: bool
) -> None:
    monkeypatch.setattr("weft.data.reading.formats.text.BLOCK", 100)
    monkeypatch.setattr("weft.data.reading.files.BLOCK", 100)
    monkeypatch.setattr("weft.data.shards.shard_builder.BATCH", 250)
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(
            "".join(f"Line {i} of {name}. And more.\n\n" for i in range(60))
        )
    given = R.Source(paths=(str(tmp_path / "*.txt"),), document_boundary="file")
    found, _ = rows(
        tmp_path, R.Documents(sentence_boundaries=sentences), given, R.ByteBPE(vocab_size=300)
    )
    made = load_tokenizer(tmp_path / "out")
    whole = [(tmp_path / f"{name}.txt").read_text() for name in ("a", "b")]
    assert [row["tokens"] for row in found] == [[*made.encode(text).tolist(), 3] for text in whole]
    if sentences:
        assert [len(row["sentences"]) for row in found] == [120, 120]
        place = found[1]["sentences"][100]
        assert made.decode(found[1]["tokens"][place : place + 8]).strip().startswith("Line 50 of")


def test_pairs_have_no_marks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo words\n")
    (tmp_path / "b").write_text("eins\nzwei Wörter\n")
    found, _ = rows(
        tmp_path, R.SourceTargetPairs(), R.Source(paths=(str(tmp_path / "a"), str(tmp_path / "b")))
    )
    made = load_tokenizer(tmp_path / "out")
    assert [
        (
            made.decode(r["source"], skip_special_tokens=False),
            made.decode(r["target"], skip_special_tokens=False),
        )
        for r in found
    ] == [("one", "eins"), ("two words", "zwei Wörter")]


def test_examples_have_labels_in_order_numbers_by_size(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(
        "text\tother\tlabel\n" + "".join(f"t{i}\to\t{i}\n" for i in (10, 2, 1))
    )
    found, meta = rows(
        tmp_path, R.LabelledTexts(second_text="other"), R.Source(paths=(str(tmp_path / "a.tsv"),))
    )
    assert meta["labels"] == ["1", "2", "10"]
    assert [row["label"] for row in found] == [2, 1, 0]
    assert set(found[0]) == {"first", "second", "label"}


def test_examples_may_have_numbers_or_given_labels(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1.5}\n{"text": "b", "label": "2"}\n')
    found, meta = rows(
        tmp_path, R.LabelledTexts(numeric_label=True), R.Source(paths=(str(tmp_path / "a.jsonl"),))
    )
    assert [row["label"] for row in found] == [1.5, 2.0]
    assert meta["labels"] is None
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "no"}\n')
    found, meta = rows(
        tmp_path,
        R.LabelledTexts(labels=("yes", "no")),
        R.Source(paths=(str(tmp_path / "a.jsonl"),)),
        overwrite=True,
    )
    assert (found[0]["label"], meta["labels"]) == (1, ["yes", "no"])


@pytest.mark.parametrize("together", [False, True])
def test_choices_have_their_endings(tmp_path: Path, together: bool) -> None:
    fields = {"endings": ["x", "yy"]} if together else {"e0": "x", "e1": "yy"}
    (tmp_path / "a.jsonl").write_text(json.dumps({"context": "c", "label": 1, **fields}) + "\n")
    row = R.ChoiceQuestions(endings=("endings",) if together else ("e0", "e1"))
    found, _ = rows(tmp_path, row, R.Source(paths=(str(tmp_path / "a.jsonl"),)))
    made = load_tokenizer(tmp_path / "out")
    assert [made.decode(ending) for ending in found[0]["endings"]] == ["x", "yy"]
    assert found[0]["label"] == 1


@pytest.mark.parametrize("tokenizer", [R.WordPiece(vocab_size=40), R.ByteBPE(vocab_size=300)])
def test_the_first_piece_of_a_word_carries_its_tag(
    tmp_path: Path, tokenizer: R.TokenizerSpec
) -> None:
    (tmp_path / "a.conll").write_text("Zebras B-X\nrun O\n\n\u200b O\n. O\n")
    found, meta = rows(
        tmp_path, R.TaggedWords(), R.Source(paths=(str(tmp_path / "a.conll"),)), tokenizer
    )
    assert meta["labels"] == ["B-X", "O"]
    made = load_tokenizer(tmp_path / "out")
    assert [len(row["tokens"]) == len(row["tags"]) for row in found] == [True, True]
    firsts = [i for i, tag in enumerate(found[0]["tags"]) if tag != -100]
    assert [found[0]["tags"][i] for i in firsts] == [0, 1]
    assert made.decode(found[0]["tokens"][firsts[1] :]).strip() == "run"
    assert made.decode(found[0]["tokens"]).lower() == "zebras run"
    # a word of which nothing is left is still a word
    assert len([tag for tag in found[1]["tags"] if tag != -100]) == 2


def test_questions_are_windows_that_hold_the_answer_where_it_is_whole(tmp_path: Path) -> None:
    context = " ".join(f"w{i}" for i in range(100))
    answer = context.index("w50")
    (tmp_path / "a.json").write_text(
        json.dumps(
            {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": context,
                                "qas": [
                                    {
                                        "id": "q",
                                        "question": "which?",
                                        "answers": [{"text": "w50", "answer_start": answer}],
                                    },
                                    {"id": "n", "question": "none?", "answers": []},
                                ],
                            }
                        ]
                    }
                ]
            }
        )
    )
    row = R.ContextQuestions(max_length=64, stride=20, max_question_length=4)
    found, _ = rows(
        tmp_path, row, R.Source(paths=(str(tmp_path / "a.json"),)), R.CharacterTokenizer()
    )
    made = load_tokenizer(tmp_path / "out")
    asked = [r for r in found if r["id"] == "q"]
    assert all(len(r["question"]) == 4 and len(r["context"]) <= 64 - 3 - 4 for r in found)
    assert sorted({i for r in asked for i in range(r["offsets"][0], r["offsets"][-1])}) == list(
        range(len(context))
    )
    held = [r for r in asked if r["start"] >= 0]
    assert held
    for r in held:
        assert made.decode(r["context"][r["start"] : r["end"] + 1]) == "w50"
        assert context[r["offsets"][2 * r["start"]] : r["offsets"][2 * r["end"] + 1]] == "w50"
    assert all((r["start"], r["end"]) == (-1, -1) for r in found if r["id"] == "n")
    assert all(r["start"] >= 0 or (r["start"], r["end"]) == (-1, -1) for r in found)
    whole = [r["offsets"][0] <= answer and answer + 3 <= r["offsets"][-1] for r in asked]
    assert [r["start"] >= 0 for r in asked] == whole


def test_large_images_are_kept_as_they_are(tmp_path: Path) -> None:
    for name in ("dog", "cat"):
        (tmp_path / "set" / name).mkdir(parents=True)
        Image.new("RGB", (400, 4)).resize((400, 400)).save(tmp_path / "set" / name / "1.jpg")
    found, meta = rows(tmp_path, R.LabelledImages(), R.Source(paths=(str(tmp_path / "set"),)), None)
    assert (meta["labels"], meta["vocab_size"], meta["tokenizer"]) == (["cat", "dog"], None, None)
    assert [row["label"] for row in found] == [0, 1]
    assert found[0]["image"] == (tmp_path / "set" / "cat" / "1.jpg").read_bytes()


def test_boxes_have_four_numbers_and_a_class_each(tmp_path: Path) -> None:
    for i in (1, 2):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{i}.png")
    (tmp_path / "a.json").write_text(
        json.dumps(
            {
                "images": [{"id": i, "file_name": f"{i}.png"} for i in (1, 2)],
                "categories": [{"id": 9, "name": "b"}, {"id": 4, "name": "z"}],
                "annotations": [
                    {"image_id": 2, "bbox": [0, 1, 2, 3.5], "category_id": 9},
                    {"image_id": 2, "bbox": [1, 1, 1, 1], "category_id": 4},
                ],
            }
        )
    )
    found, meta = rows(
        tmp_path,
        R.ImagesWithBoxes(),
        R.Source(paths=(str(tmp_path / "a.json"), str(tmp_path))),
        None,
    )
    assert meta["labels"] == ["z", "b"]
    assert [(row["boxes"], row["labels"]) for row in found] == [
        ([], []),
        ([0, 1, 2, 3.5, 1, 1, 1, 1], [1, 0]),
    ]


def test_data_json_says_what_the_tokenizer_is(tmp_path: Path) -> None:
    value = R.WordPiece(vocab_size=80, sentinels=2)
    _, meta = rows(
        tmp_path, R.Documents(), R.Source(paths=(str(write(tmp_path / "a.txt")),)), value
    )
    made = load_tokenizer(tmp_path / "out")
    assert (meta["vocab_size"], meta["sentinels"], meta["special_tokens"]["mask"]) == (
        80,
        [79, 78],
        4,
    )
    bits = np.unpackbits(
        np.frombuffer(base64.b64decode(meta["is_continuation"]), np.uint8),
        count=80,
        bitorder="little",
    )
    assert (bits.astype(bool) == made.is_continuation).all()
    table = pa.ipc.open_file(str(tmp_path / "out" / "train" / "00000.arrow")).read_all()
    assert table.schema.field("tokens").type == pa.large_list(pa.uint16())


def test_large_vocabularies_are_kept_in_four_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "".join(map(chr, (*range(0x3400, 0x9400), *range(0x20000, 0x2A700))))
    )
    found, meta = rows(
        tmp_path, R.Documents(), R.Source(paths=(str(tmp_path / "a.txt"),)), R.CharacterTokenizer()
    )
    assert meta["vocab_size"] > 65536
    assert (
        load_tokenizer(tmp_path / "out").decode(found[0]["tokens"])
        == (tmp_path / "a.txt").read_text()
    )


# Words for the user


def test_progress_ends_at_one_with_the_speed_beside_the_tokenizers(tmp_path: Path) -> None:
    said: list[PrepareProgress] = []
    prepare(documents(tmp_path), tmp_path / "out", workers=1, report=said.append)
    assert {p.stage for p in said} == {"tokenizer", "train", "valid"}
    last = [p for p in said if p.stage == "train"][-1]
    assert (last.done, last.left) == (1, 0)
    assert 0 < last.speed <= last.tokenizer_speed


def test_a_tokenizer_that_is_read_from_a_file_is_not_reported_as_trained(tmp_path: Path) -> None:
    data = documents(tmp_path)
    first = prepare(data, tmp_path / "first", workers=1).folder
    given = R.TokenizerFile(path=str(first / "tokenizer.json"))
    said: list[PrepareProgress] = []
    prepare(replace(data, tokenizer=given), tmp_path / "out", workers=1, report=said.append)
    assert {p.stage for p in said} == {"train", "valid"}


def test_remaining_time_is_not_shown_at_the_start() -> None:
    assert PrepareProgress("train", 0.001, 10, 1.0, 0.0, 1).left == float("inf")
    assert PrepareProgress("train", 0.5, 10, 1.0, 0.0, 1).left == 1.0
    assert PrepareProgress("train", 0.5, 10, 1.0, 0.0, 1).tokenizer_speed == 0


def test_the_tokenizers_time_counts_that_of_contexts_too() -> None:
    made = fit_tokenizer(R.ByteBPE(vocab_size=300), lambda: ["some words"] * 9)
    made.encode_spans("some words")
    assert made.seconds > 0


@pytest.mark.parametrize(
    ("stage", "slow"),
    [
        ("tokenizer", "weft.data.preparing.prepare.fit_tokenizer"),
        ("classes", "weft.data.preparing.drop_table.read_piece"),
    ],
)
def test_a_long_stage_is_reported_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, slow: str
) -> None:
    inner = {"tokenizer": fit_tokenizer, "classes": source.read_piece}[stage]

    def slowed(*given: Any) -> Any:
        time.sleep(0.7)
        return inner(*given)

    monkeypatch.setattr(slow, slowed)
    (tmp_path / "a.tsv").write_text("text\tlabel\na\t1\n")
    said: list[PrepareProgress] = []
    data = R.Data(
        rows=R.LabelledTexts(),
        train=R.Source(paths=(str(tmp_path / "a.tsv"),)),
        tokenizer=R.ByteTokenizer(),
    )
    prepare(data, tmp_path / "out", workers=1, report=said.append)
    assert len([p for p in said if p.stage == stage]) >= 4
    assert [p.done for p in said if p.stage == stage][-1] == 1


def test_a_full_disk_is_named_with_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("weft.data.shards.shard.Column.extend", full)
    with pytest.raises(
        ValueError,
        match=rf"{tmp_path}/out/train is full: writing 00000\.arrow needs about \d+\.\d MB",
    ) as error:
        prepare(documents(tmp_path), tmp_path / "out", workers=1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_the_system_refuses_is_one_line(tmp_path: Path, workers: int) -> None:
    for i in range(20):
        (tmp_path / "out" / "train" / f"{i:05d}.arrow").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"\.arrow.*: Is a directory$"):
        prepare(documents(tmp_path, tokenizer=R.ByteTokenizer()), tmp_path / "out", workers=workers)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer": None}, "give Data"),
        ({"tokenizer": R.ByteBPE(vocab_size=10)}, "give vocab_size=261 or more"),
    ],
)
def test_what_cannot_be_prepared_is_one_line(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as error:
        prepare(documents(tmp_path, **change), tmp_path / "out", workers=1)
    assert "\n" not in str(error.value)


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n \n")
    with pytest.raises(ValueError, match="has no rows"):
        rows(tmp_path, R.Documents(), R.Source(paths=(str(tmp_path / "a.txt"),)))


def test_a_part_outside_its_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give an index from 0 to 2"):
        prepare(documents(tmp_path), tmp_path / "out", shard=(3, 3))


def test_an_error_in_a_worker_is_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("known\n\n" * 10)
    (tmp_path / "b.txt").write_text("☃\n\n" * 1000)
    data = R.Data(
        rows=R.Documents(),
        train=R.Source(paths=(str(tmp_path / "a.txt"),)),
        valid=R.Source(paths=(str(tmp_path / "b.txt"),)),
        tokenizer=R.CharacterTokenizer(special_tokens=False),
    )
    with pytest.raises(ValueError, match="character '☃' is not in the training text"):
        prepare(data, tmp_path / "out", workers=2)


def data_of(paths: list[str], **options: Any) -> R.Data:
    return data_from_options(PrepareOptions(paths=paths, **options))


def test_words_of_a_command_line_become_a_data_value() -> None:
    assert data_of(["a.txt"], vocab_size=500, sentence_boundaries=True, valid=["b.txt"]) == R.Data(
        rows=R.Documents(sentence_boundaries=True),
        train=R.Source(paths=("a.txt",)),
        valid=R.Source(paths=("b.txt",)),
        tokenizer=R.ByteBPE(vocab_size=500),
    )
    assert data_of(
        ["a.tsv"],
        rows="examples",
        column_names=["x", "y", "label"],
        tokenizer="wordpiece",
        lowercase=False,
    ) == R.Data(
        rows=R.LabelledTexts(text="x", second_text="y"),
        train=R.Source(paths=("a.tsv",), column_names=("x", "y", "label"), has_header=False),
        tokenizer=R.WordPiece(vocab_size=32_000, lowercase=False),
    )
    pairs = data_of(["a", "b"], rows="pairs", tokenizer="t.json")
    assert pairs.tokenizer == R.TokenizerFile(path="t.json")
    assert data_of(["a"], rows="images").tokenizer is None
    for wrong, words in (
        ({"rows": "pair"}, "did you mean 'pairs'"),
        ({"tokenizer": "bbpe"}, "did you mean 'bpe'"),
        ({"lowercase": True}, "does not support --lowercase"),
        ({"format": "txt"}, "format"),
        ({"rows": "pairs", "columns": ["one"]}, "source, target"),
    ):
        with pytest.raises(ValueError, match=words):
            data_of(["a"], **wrong)


def test_preparing_does_not_import_torch() -> None:
    code = (
        "import sys, weft.data.preparing.prepare, weft.data.preparing.workers; assert 'torch' "
        "not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sample_for_the_tokenizer_is_spread_over_the_pieces(tmp_path: Path) -> None:
    given = R.Source(paths=(str(write(tmp_path / "a.txt")),), format="text")
    work = source.split_source(given)
    read = PieceReader(given, R.Documents(), tmp_path)
    held = list(train_tokenizer.sample_texts(read, work, ("text",), 100))
    assert len(work) > 5
    assert len(work) <= len(held) <= 4 * len(work)
    assert "Document 0 " in held[0]
    assert "Document 28" in held[-1]
