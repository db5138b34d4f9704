"""The store returns rows, streams and starts as written, from any shard, and reports damage in one
line.
"""

import hashlib
import os
import pickle
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft import recipe as R
from weft.data.reading import files
from weft.data.reading.formats.base import MAX_PIECES
from weft.data.reading.formats.text import TEXT
from weft.data.shards import store as store_module
from weft.data.shards.store import Store, open_store
from weft.support.order import Order
from weft.support.storage import seal_json, unseal_json

from ..made import bits, counted, documents, write_data, write_split

SIZES = [[3, 5, 2], [7], [1, 1, 4, 6]]  # documents by shard
TOTAL = 29


def test_meta_says_what_data_json_says(tmp_path: Path) -> None:
    flags = [i % 3 == 1 for i in range(1000)]
    write_data(
        tmp_path,
        R.LabelledTexts(labels=("no", "yes")),
        1000,
        labels=["no", "yes"],
        sentinels=[999, 998],
        is_continuation=bits(flags),
        tokenizer="tokenizer.json",
    )
    write_split(tmp_path / "valid", [{"tokens": [[1, 2]]}])
    meta = open_store(tmp_path, "valid").meta
    assert (meta.rows, meta.vocab_size, meta.labels) == (
        R.LabelledTexts(labels=("no", "yes")),
        1000,
        ("no", "yes"),
    )
    assert (meta.special_tokens["mask"], meta.sentinels, meta.tokenizer) == (
        4,
        (999, 998),
        "tokenizer.json",
    )
    assert meta.is_continuation is not None
    assert meta.is_continuation.tolist() == flags


def test_reading_rows_imports_no_pandas(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_data(data, R.Documents(), 100)
    write_split(data / "train", [{"tokens": [[1, 2], [3]], "label": [0, 1]}])
    (tmp_path / "pandas.py").write_text("__version__ = '0'\n")
    read = (
        "import sys, numpy as np, weft.data.shards.store as s\n"
        "store = s.open_store(sys.argv[1])\n"
        "assert [*store.row(1)['tokens']] == [3] and store.row(1)['label'] == 1\n"
        "assert [*store.lengths(np.arange(2), 'tokens')] == [2, 1]\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", read, str(data)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_rows_come_back_as_they_were_written_whatever_their_columns_hold(tmp_path: Path) -> None:
    rows = [
        {
            "context": [5, 6, 7],
            "endings": [[1], [2, 3], []],
            "image": b"\x00\xff",
            "boxes": [0.5, 1.5],
            "labels": [-100, 3],
            "id": "é1",
            "label": 2,
            "number": 0.25,
        },
        {
            "context": [],
            "endings": [[9, 9]],
            "image": b"",
            "boxes": [],
            "labels": [],
            "id": "",
            "label": -1,
            "number": -1.0,
        },
        {
            "context": [65535],
            "endings": [],
            "image": b"z",
            "boxes": [2.0],
            "labels": [7],
            "id": "x",
            "label": 0,
            "number": 3.0,
        },
    ]
    write_data(tmp_path, R.ChoiceQuestions())
    write_split(
        tmp_path / "train",
        [{name: [row[name] for row in part] for name in part[0]} for part in (rows[:2], rows[2:])],
    )
    store = open_store(tmp_path)
    assert len(store) == 3
    for i, row in enumerate(rows):
        found = store.row(i)
        for name in ("context", "boxes", "labels"):
            assert isinstance(found[name], np.ndarray)
            assert found[name].tolist() == row[name]
        assert [ending.tolist() for ending in found["endings"]] == row["endings"]
        assert {name: found[name] for name in ("image", "id", "label", "number")} == {
            n: row[n] for n in ("image", "id", "label", "number")
        }
        assert (type(found["label"]), type(found["number"])) == (int, float)
    assert store.lengths(np.array([2, 0, 1, 0]), "context").tolist() == [1, 3, 0, 3]
    # the longest ending
    assert store.lengths(np.array([2, 0, 1]), "endings").tolist() == [
        0,
        2,
        2,
    ]
    assert store.lengths(np.array([], np.int64), "context").tolist() == []
    with pytest.raises(IndexError, match="row 3 of 3"):
        store.row(3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return counted(tmp_path_factory.mktemp("corpus"), SIZES)


@given(st.integers(0, TOTAL), st.integers(0, TOTAL + 5))
def test_the_stream_and_the_documents_do_not_show_where_shards_meet(
    corpus: Store, start: int, size: int
) -> None:
    stop = min(start + size, TOTAL)
    starts = np.cumsum([0, *chain(*SIZES)])[:-1]
    assert corpus.tokens == TOTAL
    assert corpus.stream(start, start + size).tolist() == list(range(start, stop))
    assert corpus.documents(start, start + size).tolist() == [
        s for s in starts if start <= s < stop
    ]


def test_inside_one_shard_the_stream_is_a_view_of_the_mapped_file(corpus: Store) -> None:
    view = corpus.stream(2, 8)
    assert not view.flags.owndata
    assert not view.flags.writeable
    assert np.shares_memory(view, corpus.stream(3, 5))


def test_empty_documents_start_nowhere_twice(tmp_path: Path) -> None:
    store = documents(tmp_path, [[[], [1, 2], [], [], [3]], [[], [4]], [[]], [[5], []]])
    assert store.stream(0, 9).tolist() == [1, 2, 3, 4, 5]
    assert store.documents(0, 9).tolist() == [0, 2, 3, 4]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(st.data())
def test_sentences_start_where_they_were_said_to(tmp_path: Path, data: st.DataObject) -> None:
    shards = []
    sentences = []
    truth = []
    at = 0
    for _ in range(data.draw(st.integers(1, 3))):
        sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
        starts = [
            [
                0,
                *sorted(
                    data.draw(
                        st.sets(st.integers(1, 11).filter(lambda i, s=size: i < s))
                        if size > 1
                        else st.just(set())
                    )
                ),
            ]
            for size in sizes
        ]
        for size, inside in zip(sizes, starts, strict=True):
            truth += [at + i for i in inside]
            at += size
        shards.append([[1] * size for size in sizes])
        sentences.append(starts)
    store = documents(tmp_path, shards, sentences)
    for start in range(at + 1):
        for stop in range(start, at + 2):
            assert store.sentences(start, stop).tolist() == [s for s in truth if start <= s < stop]


def test_sentences_that_were_not_kept_are_asked_for_in_vain(corpus: Store) -> None:
    with pytest.raises(
        ValueError,
        match=r"has no sentence boundaries; prepare the data with "
        r"Documents\(sentence_boundaries=True\)",
    ):
        corpus.sentences(0, 5)


def test_few_shards_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "OPEN", 2)
    store = counted(tmp_path, [[2]] * 9)
    for i in (0, 8, 4, 0, 7, 0, 3):
        assert store.row(i)["tokens"].tolist() == [2 * i, 2 * i + 1]
        assert len(store.opened) <= 2
    assert list(store.opened) == [0, 3]  # 7 was not read for longest


def test_a_store_goes_to_another_process_without_its_open_files(corpus: store_module.Store) -> None:
    corpus.row(0)
    other = pickle.loads(pickle.dumps(corpus))  # noqa: S301
    assert not other.opened
    assert other.row(4)["tokens"].tolist() == corpus.row(4)["tokens"].tolist()


def test_data_that_is_not_prepared_completely_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"index.json is missing: the data is not completely prepared; run weft prepare again",
    ):
        open_store(tmp_path)
    write_split(tmp_path / "train", [{"tokens": [[1]]}])
    with pytest.raises(
        ValueError, match=r"data.json is missing: the data is not completely prepared"
    ):
        open_store(tmp_path)


def test_a_missing_or_damaged_shard_is_named(tmp_path: Path) -> None:
    counted(tmp_path, SIZES)
    first, second, third = (tmp_path / "train" / f"0000{i}.arrow" for i in range(3))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-3])
    whole = bytearray(third.read_bytes())
    whole[-400] ^= 1  # opens all the same: only its hash tells
    third.write_bytes(whole)
    store = open_store(tmp_path)
    with pytest.raises(ValueError, match=r"00000.arrow is missing; run weft prepare again$"):
        store.row(0)
    with pytest.raises(
        ValueError, match=r"00001.arrow is damaged \(.*\); run weft prepare again$"
    ) as caught:
        store.row(3)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"00002.arrow is damaged \(its SHA-256"):
        store.row(7)  # before a token of it is used


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"rows": 99}, "says 99 rows, but its shards have 8"),
        (
            {"shards": [{"file": "00000.arrow", "rows": 8, "tokens": 10}]},
            "is damaged .3 rows, not 8",
        ),
        (
            {"rows": 3, "shards": [{"file": "00000.arrow", "rows": 3, "tokens": 11}]},
            "is damaged .10 tokens, not 11",
        ),
    ],
)
def test_an_index_that_does_not_fit_its_shards_is_refused(
    tmp_path: Path, change: dict[str, object], what: str
) -> None:
    counted(tmp_path, SIZES)
    path = tmp_path / "train" / "index.json"
    index = unseal_json(path.read_text()) | change
    for shard in index["shards"]:
        shard.setdefault(
            "sha256", hashlib.sha256((tmp_path / "train" / shard["file"]).read_bytes()).hexdigest()
        )
    path.write_bytes(seal_json(index))
    with pytest.raises(ValueError, match=what):
        open_store(tmp_path).row(0)


@pytest.mark.parametrize("name", ["data.json", "train/index.json", "train/00001.arrow"])
def test_a_flipped_bit_anywhere_is_noticed_before_a_row_is_read(tmp_path: Path, name: str) -> None:
    """Hashes were written and never compared."""
    counted(tmp_path, SIZES)
    path = tmp_path / name
    whole = path.read_bytes()
    for bit in np.random.default_rng(0).choice(8 * len(whole), 60, replace=False).tolist():
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"is damaged|is missing"):
            list(map(open_store(tmp_path).row, range(8)))
    path.write_bytes(whole)
    assert len(list(map(open_store(tmp_path).row, range(8)))) == 8


def test_a_shard_is_hashed_once_and_again_when_its_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK", 1)  # small files are not cached otherwise
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    counted(tmp_path / "a", SIZES)
    hashed: list[str] = []
    real = hashlib.file_digest
    monkeypatch.setattr(
        hashlib,
        "file_digest",
        lambda file, kind: hashed.append(Path(file.name).name) or real(file, kind),
    )
    for _ in range(2):
        list(map(open_store(tmp_path / "a").row, range(8)))
        assert sorted(hashed) == ["00000.arrow", "00001.arrow", "00002.arrow"]
    os.utime(tmp_path / "a" / "train" / "00001.arrow")
    list(map(open_store(tmp_path / "a").row, range(8)))
    assert hashed[3:] == ["00001.arrow"]


def test_a_damaged_copy_of_a_shard_from_afar_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    counted(tmp_path / "here", SIZES)
    there = fsspec.filesystem("memory")
    there.put(str(tmp_path / "here"), "/afar", recursive=True)
    try:
        expected = open_store("memory://afar").row(3)["tokens"].tolist()
        copy = next((tmp_path / "cache").rglob("00001.arrow"))
        copy.write_bytes(copy.read_bytes()[:-1] + b"?")
        assert open_store("memory://afar").row(3)["tokens"].tolist() == expected
    finally:
        there.rm("/afar", recursive=True)


def test_remote_shards_are_downloaded_once_and_lazily(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    counted(tmp_path / "here", SIZES)
    there = fsspec.filesystem("memory")
    there.put(str(tmp_path / "here"), "/afar", recursive=True)
    try:
        store = open_store("memory://afar")
        assert store.row(3)["tokens"].tolist() == list(range(10, 17))
        fetched = sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())
        assert fetched == ["00001.arrow"]
        there.rm("/afar/train/00001.arrow")
        again = open_store("memory://afar")
        assert again.stream(10, 12).tolist() == [10, 11]
        there.rm("/afar/train/00002.arrow")
        with pytest.raises(
            ValueError, match=r"memory://afar/train/00002.arrow is missing; run weft prepare again"
        ):
            again.row(4)
        with pytest.raises(ValueError, match=r"memory://nowhere/train/index\.json is missing"):
            open_store("memory://nowhere")
    finally:
        there.rm("/afar", recursive=True)


def test_a_store_of_ten_billion_rows_opens_and_is_read_like_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many shards as a source may have; one file serves for all of them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = -(-(10**10) // MAX_PIECES)
    documents(tmp_path, [[[i % 50_000] for i in range(rows)]])
    path = tmp_path / "train" / "index.json"
    plain = unseal_json(path.read_text())
    many = {"rows": rows * MAX_PIECES, "shards": plain["shards"] * MAX_PIECES}
    small = open_store(tmp_path)
    path.write_bytes(seal_json(plain | many))
    start = time.process_time()
    store = open_store(tmp_path)
    assert time.process_time() - start < 2
    assert len(store) == store.tokens >= 10**10
    order = Order(len(store), 0)
    indices = np.concatenate([order.at(at, 40)[1] for at in (0, 5 * 10**9, len(store) - 40)])
    for i in indices.tolist():
        assert store.row(i)["tokens"].tolist() == [i % rows % 50_000]
        assert store.stream(i, i + 1).tolist() == [i % rows % 50_000]
    assert len(store.opened) <= store_module.OPEN

    def seconds(one: Store, positions: list[int]) -> float:
        """Of reading rows of shards that are open, the best of five."""
        times = []
        for _ in range(6):
            start = time.process_time()
            for i in positions:
                one.row(i)
            times.append(time.process_time() - start)
        return min(times[1:])

    near = [i % rows for i in range(2000)]
    far = [i + rows * (MAX_PIECES - 1) for i in near]
    assert seconds(store, far) < 3 * seconds(small, near)


def test_a_source_beyond_a_terabyte_has_larger_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(f"document {i}" for i in range(2000)))
    source = R.Source(paths=(str(tmp_path / "a.txt"),), format="text")
    assert len(TEXT.pieces(source, 500)) > 40
    monkeypatch.setattr("weft.data.reading.formats.base.MAX_PIECES", 5)
    pieces = TEXT.pieces(source, 500)
    assert 4 <= len(pieces) <= 6
    texts = [row.fields["text"].strip() for piece in pieces for row in TEXT.read(piece, source)]
    assert texts == [f"document {i}" for i in range(2000)]


def test_ten_thousand_shards_open_at_once(tmp_path: Path) -> None:
    counted(tmp_path, [[5, 5]])
    path = tmp_path / "train" / "index.json"
    plain = unseal_json(path.read_text())
    path.write_bytes(seal_json(plain | {"rows": 20_000, "shards": plain["shards"] * 10_000}))
    times = []
    for _ in range(3):
        start = time.process_time()
        store = open_store(tmp_path)
        times.append(time.process_time() - start)
    assert min(times) < 0.2
    assert store.row(19_999)["tokens"].tolist() == [5, 6, 7, 8, 9]
    assert store.stream(99_999, 100_000).tolist() == [9]
    assert (len(store), store.tokens, len(store.opened)) == (20_000, 100_000, 1)
