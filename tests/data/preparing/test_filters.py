"""Filters: thresholds, duplicate detection, and identical bytes after interruptions and with any
number of parts or processes.
"""

import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import weft
from weft import recipe as R
from weft.cli import main
from weft.data.preparing import filtering, match, scan
from weft.data.preparing.deduplicate import MinHashKeys, ngram_hashes
from weft.data.preparing.drop_table import load_drop_table, table_path
from weft.data.preparing.filters import ngram_fractions
from weft.data.preparing.prepare import prepare
from weft.data.reading import source
from weft.data.shards.store import open_store
from weft.support import storage
from weft.support.registry import CHOICES, IMPLEMENTATIONS, implementation, members
from weft.support.values import from_plain, to_plain
from weft.tasks.task import EvaluationData
from weft.testing import check_part

from .test_prepare import contents, read


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", 1500)


def lines_file(path: Path, lines: list[str]) -> R.Source:
    path.write_text("".join(f"{line}\n" for line in lines))
    return R.Source(paths=(str(path),), document_boundary="line")


def data_of(given: R.Source, *filters: R.Filter, **more: Any) -> R.Data:
    values = {"rows": R.Documents(), "tokenizer": R.ByteTokenizer()} | more
    plain = to_plain(given) | {"filters": to_plain(filters)}
    return R.Data(train=from_plain(plain), **values)


def texts(folder: Path, split: str = "train") -> list[str]:
    """The stored documents, by the byte tokenizer."""
    return [
        bytes(token - 5 for token in row["tokens"][:-1]).decode() for row in read(folder, split)
    ]


def words(count: int, seed: int = 0) -> str:
    draw = np.random.default_rng(seed)
    return " ".join("".join(map(chr, draw.integers(97, 123, 5))) for _ in range(count))


def test_a_refused_change_of_filters_has_removed_nothing(tmp_path: Path) -> None:
    """The report and the tables of the folder are still there."""
    given = lines_file(tmp_path / "a.txt", [words(9, seed) for seed in range(20)])
    more = {"prepared_folder": str(tmp_path / "out")}
    filtered = from_plain(to_plain(given) | {"filters": to_plain((R.ExactDeduplication(),))})
    prepare(data_of(given, valid=filtered, **more))
    before = contents(tmp_path / "out")
    with pytest.raises(ValueError, match="contains prepared data of other files or settings"):
        prepare(data_of(given, valid=given, **more))
    assert contents(tmp_path / "out") == before


# One row alone

FORTY = words(40)
CASES: list[tuple[R.Filter, str, str | None]] = [
    (R.LengthFilter(min_words=40), FORTY, None),
    (R.LengthFilter(min_words=41), FORTY, "too short"),
    (R.LengthFilter(min_words=1, max_words=39), FORTY, "too long"),
    (R.LengthFilter(min_words=0, min_characters=5), "你好世界", "too short"),
    (R.LengthFilter(min_words=0, min_characters=4), "你好世界", None),
    (R.LengthFilter(min_words=0, max_words=None, max_characters=3), "你好世界", "too long"),
    (R.CharacterFilter(), FORTY, None),
    (R.CharacterFilter(), "", "no words"),
    (R.CharacterFilter(), "a bc de " * 9, "mean word length"),
    (R.CharacterFilter(), "abcdefghijk " * 9, "mean word length"),
    (R.CharacterFilter(), "word # other " * 9, "symbols"),
    (R.CharacterFilter(), "more words to come here now and then for all of us…\n" * 9, None),
    (R.CharacterFilter(max_symbols_per_word=0.1), "more words to come…\n" * 9, "symbols"),
    (R.CharacterFilter(), "word 1234 5678 " * 9, "words without letters"),
    (R.CharacterFilter(min_words_with_letters=0.3), "word 1234 5678 " * 9, None),
    (R.CharacterFilter(min_letter_fraction=0.9), "word w0rd9 " * 9, "few letters"),
    (R.LineFilter(), "a line.\nanother line.", None),
    (R.LineFilter(), "• one\n- two\n* three", "bullets"),
    (R.LineFilter(max_bullet_fraction=1.0), "• one\n- two\n* three", None),
    (R.LineFilter(), "read more…\nand more...\nthe end.", "ellipses"),
    (
        R.LineFilter(min_terminal_fraction=0.5),
        "menu\nhome\nThis is a line.",
        "lines without an end",
    ),
    (R.LineFilter(min_terminal_fraction=0.3), "menu\nhome\nThis is a line.", None),
    (R.ForbiddenTextFilter(), "Here is Lorem IPSUM dolor", "forbidden text"),
    (R.ForbiddenTextFilter(texts=("{",)), "Here is Lorem IPSUM dolor", None),
    (R.RepetitionFilter(), FORTY, None),
    (R.RepetitionFilter(), "\n".join([words(9), words(9)]), "repeated lines"),
    (R.RepetitionFilter(max_line_fraction=0.6), "\n".join([words(9), words(9)]), "repeated lines"),
    (
        R.RepetitionFilter(max_line_fraction=1.0, max_line_characters=1.0),
        "\n\n".join([words(9), words(9)]),
        "repeated paragraphs",
    ),
    (R.RepetitionFilter(), "big tree " * 4 + words(10), "frequent 2-gram"),
    (
        R.RepetitionFilter(max_top_ngram_characters=(0.9, 0.9, 0.9)),
        " ".join([words(6, 1), words(20, 2), words(6, 1)]),
        "repeated 5-grams",
    ),
    (
        R.RepetitionFilter(max_top_ngram_characters=(), max_ngram_characters=(1.0, 0.1)),
        " ".join([words(6, 1), words(20, 2), words(6, 1)]),
        "repeated 6-grams",
    ),
    (
        R.RepetitionFilter(max_top_ngram_characters=(0.9, 0.9, 0.9), max_ngram_characters=()),
        " ".join([words(6, 1), words(20, 2), words(6, 1)]),
        None,
    ),
]


@pytest.mark.parametrize(("value", "text", "reason"), CASES, ids=lambda part: repr(part)[:50])
def test_a_threshold_decides(value: R.Filter, text: str, reason: str | None) -> None:
    assert implementation(value)(value)(text) == reason


def test_every_filter_is_tried_and_goes_to_json_and_back() -> None:
    ours = {cls for cls in members(R.Filter) if cls.__module__.startswith("weft.recipe")}
    tried = [value for value, _, _ in CASES] + [R.ExactDeduplication(), R.NearDeduplication()]
    assert {type(value) for value in tried} == ours
    assert len({cls.name for cls in ours}) == len(ours)
    for value in tried:
        assert from_plain(json.loads(json.dumps(to_plain(value)))) == value


@given(st.lists(st.sampled_from(["a", "bb", "ccc", "dddd"]), min_size=1, max_size=40))
def test_fractions_of_ngrams_are_those_counted_word_by_word(some: list[str]) -> None:
    total = sum(map(len, some))
    by_n = {n: (top, every) for n, top, every in ngram_fractions(some, 6)}
    for n in range(2, 7):
        grams = [tuple(some[i : i + n]) for i in range(len(some) - n + 1)]
        counts = Counter(grams)
        covered = {i + k for i, g in enumerate(grams) if counts[g] > 1 for k in range(n)}
        assert (n in by_n) == bool(covered)
        if covered:
            top, every = by_n[n]
            assert every == pytest.approx(sum(len(some[i]) for i in covered) / total)
            candidates = [
                sum(
                    len(some[i])
                    for i in {i + k for i, g in enumerate(grams) if g == gram for k in range(n)}
                )
                for gram, count in counts.items()
                if count == max(counts.values())
            ]
            assert any(top == pytest.approx(c / total) for c in candidates)


# Earlier rows


def test_of_equal_rows_the_first_is_kept_wherever_the_others_lie(tmp_path: Path) -> None:
    lines = [f"document {i % 90}remove the empty text" for i in range(300)]
    folder = prepare(
        data_of(lines_file(tmp_path / "a.txt", lines), R.ExactDeduplication()),
        tmp_path / "out",
        workers=1,
    ).folder
    assert len(list((folder / "train").glob("*.arrow"))) > 4
    assert texts(folder) == lines[:90]
    report = filtering.read_report(folder / "train")
    assert report
    assert (report["rows"], report["kept"]) == (300, 90)
    assert report["dropped"] == [
        {"filter": "ExactDeduplication", "reason": "duplicate", "rows": 210}
    ]


def test_normalized_rows_are_equal_but_for_case_and_space(tmp_path: Path) -> None:
    lines = ["A  tree", "a tree", "a\ttree ", "a trees"]
    for value, kept in ((R.ExactDeduplication(), 4), (R.ExactDeduplication(normalize=True), 2)):
        name = "yes" if value.normalize else "no"
        folder = prepare(
            data_of(lines_file(tmp_path / "a.txt", lines), value), tmp_path / name, workers=1
        ).folder
        assert len(texts(folder)) == kept


def corrupted(text: str, seed: int, changes: int) -> str:
    draw = np.random.default_rng(seed)
    parts = text.split()
    for place in draw.integers(0, len(parts), changes):
        parts[place] = words(1, seed + 1)
    return " ".join(parts)


def near_lines(count: int = 60) -> list[str]:
    """Texts, of which every third is an earlier one with a few words changed, or many."""
    lines = [words(60, i) for i in range(count)]
    for i in range(2, count, 3):
        lines[i] = corrupted(lines[i - 2], i, (0, 1, 2, 6, 20)[i % 5])
    return lines


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_near_duplicates_are_those_of_datasketchs_index(tmp_path: Path, threshold: float) -> None:
    from datasketch import MinHash, MinHashLSH

    value = R.NearDeduplication(threshold=threshold)
    lines = near_lines()
    data = data_of(lines_file(tmp_path / "a.txt", lines), value)
    folder = prepare(data, tmp_path / "out", workers=1).folder
    lsh = MinHashLSH(threshold=threshold, num_perm=128)
    kept = []
    for i, line in enumerate(lines):
        one = MinHash(num_perm=128, seed=1, hashfunc=int)
        one.update_batch(ngram_hashes(line, value).tolist())
        if not lsh.query(one):
            kept.append(line)
        lsh.insert(str(i), one)
    assert texts(folder) == kept
    assert 40 <= len(kept) < 60


@given(
    st.lists(st.sampled_from("abcdefg"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30)
)
def test_hashes_of_ngrams_overlap_as_the_ngrams_do(first: list[str], second: list[str]) -> None:
    for unit, gap in (("word", " "), ("character", "")):
        value = R.NearDeduplication(ngram=3, unit=unit)
        sets = []
        for some in (first, second):
            count = max(1, len(some) - 2)
            grams = {tuple(some[i : i + 3]) for i in range(count)}
            hashes = set(ngram_hashes(gap.join(some), value).tolist())
            assert len(hashes) == len(grams)
            sets.append((grams, hashes))
        assert len(sets[0][0] & sets[1][0]) == len(sets[0][1] & sets[1][1])


def test_a_text_shorter_than_an_ngram_is_one_and_long_texts_are_hashed_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = R.NearDeduplication()
    assert len(ngram_hashes("Two words", value)) == len(ngram_hashes("", value)) == 1
    assert ngram_hashes("Two words", value) == ngram_hashes("two  WORDS!", value)
    assert ngram_hashes("two words", value) != ngram_hashes("words two", value)
    text = words(500)
    whole = MinHashKeys(value)(text)
    monkeypatch.setattr("weft.data.preparing.deduplicate.TOGETHER", 7)
    assert MinHashKeys(value)(text) == whole
    assert MinHashKeys(R.NearDeduplication(seed=2))(text) != whole


def test_ranges_of_hashes_give_the_same_duplicates_however_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = lines_file(tmp_path / "a.txt", near_lines())
    data = data_of(given, R.ExactDeduplication(), R.NearDeduplication())
    expected = contents(prepare(data, tmp_path / "one", workers=1).folder)
    assert len(match.ranges(600)) == 1
    # ranges of four buckets: one that lost its last bucket would lose a quarter of the hashes
    monkeypatch.setattr(match, "MATCH_BYTES", 250)
    assert len(match.ranges(600)) == scan.BUCKETS // 4
    assert match.ranges(10**15)[-1] == (scan.BUCKETS - 1, scan.BUCKETS)
    assert contents(prepare(data, tmp_path / "many", workers=1).folder) == expected


def test_comparing_takes_the_memory_that_it_plans_with() -> None:
    count = 200_000
    keys = np.zeros(count, scan.KEY)
    keys["high"] = np.random.default_rng(0).integers(0, count // 2, count)
    keys["row"] = np.arange(count)
    tracemalloc.start()
    try:
        duplicates = match.find_duplicates(np.split(keys, 100))
        peak = tracemalloc.get_traced_memory()[1] + keys.nbytes
    finally:
        tracemalloc.stop()
    assert len(duplicates) == count - len(np.unique(keys["high"]))
    assert peak < match.MEMORY_PER_KEY * count


def test_keys_of_two_filters_are_never_equal() -> None:
    result = scan.ScanResult()
    result.add_keys(0, 0, [b"key"])
    result.add_keys(1, 1, [b"key"])
    result.add_keys(2, 1, [b"key"])
    keys = np.frombuffer(result.sorted_keys()[match.OFFSET :], scan.KEY)
    assert match.find_duplicates([keys[keys["row"].argsort()]]).tolist() == [(0, 2, 1)]


def test_a_row_with_the_same_key_twice_is_no_duplicate_of_itself() -> None:
    keys = np.array([(7, 7, 0, 0), (7, 7, 0, 0), (7, 8, 1, 0), (7, 8, 2, 1)], scan.KEY)
    assert match.find_duplicates([keys]).tolist() == [(0, 2, 1)]
    assert match.find_duplicates([keys[:1], keys[:1]]).tolist() == [(1, 0, 0)]
    assert len(match.find_duplicates([])) == 0


def test_the_first_filter_that_drops_a_row_is_its_reason(tmp_path: Path) -> None:
    lines = ["one two three", "short", "short", "one two three", "lorem ipsum x"]
    given = lines_file(tmp_path / "a.txt", lines)
    length = R.LengthFilter(min_words=2)
    exact = R.ExactDeduplication()
    expected = {
        (length, exact): [["LengthFilter", "too short", 2], ["ExactDeduplication", "duplicate", 1]],
        (exact, length): [["ExactDeduplication", "duplicate", 2], ["LengthFilter", "too short", 1]],
    }
    for i, (filters, dropped) in enumerate(expected.items()):
        folder = prepare(data_of(given, *filters), tmp_path / str(i), workers=1).folder
        report = filtering.read_report(folder / "train")
        assert report
        assert [list(entry.values()) for entry in report["dropped"]] == dropped
        assert texts(folder) == ["one two three", "lorem ipsum x"]


def test_a_document_in_several_rows_is_filtered_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.data.reading.formats.text.BLOCK", 200)
    monkeypatch.setattr("weft.data.reading.files.BLOCK", 100)
    long = ". ".join(words(12, i) for i in range(9)) + "."
    for name, text in (("a", long), ("b", "short"), ("c", long), ("d", long + " More.")):
        (tmp_path / f"{name}.txt").write_text(text)
    given = R.Source(paths=(str(tmp_path / "*.txt"),), document_boundary="file")
    filters = (R.LengthFilter(min_words=100), R.ExactDeduplication())
    folder = prepare(data_of(given, *filters), tmp_path / "out", workers=1).folder
    assert texts(folder) == [long, long + " More."]


def test_images_are_equal_by_their_bytes_and_have_no_words(tmp_path: Path) -> None:
    for i in range(6):
        path = tmp_path / "images" / f"class{i % 2}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), 40 * (i // 3)).save(path)
    given = R.Source(paths=(str(tmp_path / "images"),), format="folder")
    images: dict[str, Any] = {"rows": R.LabelledImages(), "tokenizer": None}
    folder = prepare(
        data_of(given, R.ExactDeduplication(), **images), tmp_path / "out", workers=1
    ).folder
    assert len(list(read(folder))) == 2
    with pytest.raises(ValueError, match=r"Source\.filters: LengthFilter .*LabelledImages.*remove"):
        prepare(data_of(given, R.LengthFilter(), **images), tmp_path / "other", workers=1)


def test_a_row_that_cannot_be_read_is_set_aside_not_filtered(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": f"row number {i}"} for i in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"other": 1}, *rows]))
    data = data_of(R.Source(paths=(str(path),), format="jsonl"), R.ExactDeduplication())
    folder = prepare(data, tmp_path / "out", workers=1).folder
    assert len(texts(folder)) == 40
    assert "text" in (folder / "train" / "quarantine.jsonl").read_text()


def test_a_tokenizer_learns_from_what_is_kept(tmp_path: Path) -> None:
    lines = [f"plain words number {i}" for i in range(50)] + ["žžž lorem ipsum"] * 50
    given = lines_file(tmp_path / "a.txt", lines)
    more: dict[str, Any] = {"tokenizer": R.CharacterTokenizer()}
    for filters, known in ((), True), ((R.ForbiddenTextFilter(),), False):
        folder = prepare(data_of(given, *filters, **more), tmp_path / str(known), workers=1).folder
        assert ("ž" in (folder / "tokenizer.json").read_text()) is known


# The same bytes


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[R.Data, dict[str, bytes]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "PIECE_BYTES", 1500)
        folder = tmp_path_factory.mktemp("one")
        lines = [*near_lines(18), *(f"short {i % 5}" for i in range(30)), words(60, 0)]
        given = lines_file(folder / "a.txt", lines)
        filters = (R.LengthFilter(min_words=2), R.ExactDeduplication(), R.NearDeduplication())
        data = R.Data(
            rows=R.Documents(),
            train=from_plain(to_plain(given) | {"filters": to_plain(filters)}),
            valid=from_plain(to_plain(given) | {"filters": to_plain(filters[:1])}),
            tokenizer=R.ByteBPE(vocab_size=300),
        )
        yield data, contents(prepare(data, folder / "out", workers=1).folder)


def test_nothing_but_tables_and_the_report_is_left(one_run: Any) -> None:
    names = {Path(name).suffix for name in one_run[1] if "filter/" in name}
    assert names == {".json"}
    assert "train/filters.json" in one_run[1]


def test_processes_give_the_same_bytes(tmp_path: Path) -> None:
    lines = [f"document {i % 90}remove the empty text" for i in range(120)]
    data = data_of(lines_file(tmp_path / "a.txt", lines), R.ExactDeduplication())
    expected = contents(prepare(data, tmp_path / "one", workers=1).folder)
    assert contents(prepare(data, tmp_path / "two", workers=2).folder) == expected


def test_parts_give_the_same_bytes_when_each_is_run_twice(tmp_path: Path, one_run: Any) -> None:
    data, expected = one_run
    for _ in range(2):
        assert not (tmp_path / "train" / "index.json").exists()
        for index in (2, 0, 1):
            prepare(data, tmp_path, shard=(index, 3), workers=1)
    assert contents(tmp_path) == expected


def test_stopped_after_every_few_writes_and_run_again_gives_the_same_bytes(
    tmp_path: Path, one_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is stopped again and again, in every stage; data.json and the tokenizer are
    written together.
    """
    data, expected = one_run
    real = storage.rename
    left = 0

    def rename_few(path: Path, to: Path) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        real(path, to)

    monkeypatch.setattr(storage, "rename", rename_few)
    for stops in range(100):
        left = 3 + stops % 2
        try:
            prepare(data, tmp_path, workers=1)
            break
        except KeyboardInterrupt:
            continue
    assert 10 < stops < 99
    files = {name: part for name, part in contents(tmp_path).items() if not name.endswith(".tmp")}
    assert files == expected


def test_an_earlier_file_that_changes_gives_back_what_it_had_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run was stopped between the tables of two pieces."""
    lines_file(tmp_path / "a.txt", ["same text", "own text"] * 200)
    lines_file(tmp_path / "b.txt", ["same text", "more text"] * 200)
    paths = (str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    data = data_of(R.Source(paths=paths, document_boundary="line"), R.ExactDeduplication())
    folder = prepare(data, tmp_path / "out", workers=1).folder
    assert texts(folder) == ["same text", "own text", "more text"]
    lines_file(tmp_path / "a.txt", ["diff text", "own text"] * 200)
    with pytest.raises(ValueError, match="contains prepared data of other files or settings"):
        prepare(data, tmp_path / "out", workers=1)
    real = filtering.write_drop_table

    def stop_in_b(path: Path, table: Any) -> None:
        if path.name == "00003.json":
            raise KeyboardInterrupt
        real(path, table)

    monkeypatch.setattr(filtering, "write_drop_table", stop_in_b)
    with pytest.raises(KeyboardInterrupt):
        prepare(data, tmp_path / "out", workers=1, overwrite=True)
    monkeypatch.setattr(filtering, "write_drop_table", real)
    prepare(data, tmp_path / "out", workers=1, overwrite=True)
    assert texts(folder) == ["diff text", "own text", "same text", "more text"]


def test_other_filters_are_refused_and_none_leave_nothing(tmp_path: Path) -> None:
    given = lines_file(tmp_path / "a.txt", ["one text", "one text", "two texts"])
    folder = prepare(data_of(given, R.ExactDeduplication()), tmp_path / "out", workers=1).folder
    with pytest.raises(ValueError, match="contains prepared data of other files or settings"):
        prepare(data_of(given, R.ExactDeduplication(normalize=True)), folder, workers=1)
    prepare(data_of(given), folder, workers=1, overwrite=True)
    assert contents(folder) == contents(
        prepare(data_of(given), tmp_path / "plain", workers=1).folder
    )


def test_a_damaged_table_is_made_again(tmp_path: Path, one_run: Any) -> None:
    data, expected = one_run
    prepare(data, tmp_path, workers=1)
    path = table_path(tmp_path / "train", 1)
    path.write_text(path.read_text().replace('"dropped": "A', '"dropped": "B'))
    assert load_drop_table(path) is None
    prepare(data, tmp_path, workers=1)
    assert contents(tmp_path) == expected


def test_data_without_filters_have_the_fingerprints_that_they_had() -> None:
    plain = R.Source(paths=("a",), format="text")
    assert "filters" not in source.reading_settings(plain)
    assert "filters" in source.reading_settings(
        R.Source(paths=("a",), format="text", filters=(R.ExactDeduplication(),))
    )


# What others read


def test_rows_of_an_evaluation_are_those_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"source": f"text {i % 30}", "target": f"Text {i % 30}"} for i in range(50)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = R.Source(paths=(str(path),), format="jsonl")
    data = data_of(given, R.ExactDeduplication(), rows=R.SourceTargetPairs())
    store = open_store(str(prepare(data, tmp_path / "out", workers=1).folder))
    assert EvaluationData(store, data.train).rows() == rows[:30]
    assert len(store) == 30


def test_a_filter_and_a_deduplication_of_ones_own(tmp_path: Path) -> None:
    @weft.register
    class EvenNumbers(weft.QualityFilter):
        name = "even"

    @weft.implements(EvenNumbers)
    class EvenRule:
        def __init__(self, value: EvenNumbers) -> None: ...

        def __call__(self, text: str) -> str | None:
            first = text.partition(" ")[0]
            return "odd" if first and first[-1] in "13579" else None

    @weft.register
    class SameAddress(weft.Deduplication):
        name = "address"

    @weft.implements(SameAddress)
    class AddressKeys:
        def __init__(self, value: SameAddress) -> None: ...

        def __call__(self, text: str) -> list[bytes]:
            return [word.encode() for word in text.split()[1:2]]

    try:
        lines = [f"{i} http://{i % 7} text {i}" for i in range(40)]
        given = lines_file(tmp_path / "a.txt", lines)
        data = data_of(given, EvenNumbers(), SameAddress())
        folder = prepare(data, tmp_path / "out", workers=1).folder
        for value in (EvenNumbers(), SameAddress()):
            check_part(value)
        assert texts(folder) == [lines[i] for i in (0, 2, 4, 6, 8, 10, 12)]
        assert list(filtering.report_lines(folder)) == [
            "33 of 40 train rows dropped by filters: EvenNumbers (odd) 20, SameAddress (duplicate) "
            "13"
        ]
    finally:
        for cls in (EvenNumbers, SameAddress):
            del CHOICES[cls.__name__], IMPLEMENTATIONS[cls]


def test_a_filter_that_remembers_is_found() -> None:
    @weft.register
    class SeenBefore(weft.QualityFilter):
        name = "seen"

    @weft.implements(SeenBefore)
    class SeenRule:
        def __init__(self, value: SeenBefore) -> None:
            self.before = 0

        def __call__(self, text: str) -> str | None:
            before = self.before
            self.before = len(text)
            return "longer before" if before > len(text) else None

    try:
        with pytest.raises(AssertionError, match="SeenBefore depends on the order of its calls"):
            check_part(SeenBefore())
    finally:
        del CHOICES["SeenBefore"], IMPLEMENTATIONS[SeenBefore]


def test_too_many_reasons_are_one_line() -> None:
    result = scan.ScanResult()
    assert [result.code((0, f"word {i % 250}")) for i in range(500)][-1] == 250
    with pytest.raises(ValueError, match=r"more than 250 reasons.*; return one of a few fixed"):
        result.code((0, "one more"))


def test_the_command_drops_and_says_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines_file(tmp_path / "a.txt", [words(60, i % 4) for i in range(9)] + ["short"])
    options = ["--document-boundary", "line", "--tokenizer", "bytes", "--workers", "1"]
    words_given = ["prepare", "a.txt", "--output", "out", *options, "--filters", "length", "near"]
    assert main(words_given) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 rows" in shown
    assert "1 row dropped: LengthFilter, too short" in shown
    assert "5 rows dropped: NearDeduplication, duplicate" in shown
    assert main([*words_given[:-2], "lenght"]) == 2
    assert "unknown filter 'lenght'; did you mean 'length'" in capsys.readouterr().err


def test_near_duplicates_without_the_package_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasketch", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[data\]'"):
        MinHashKeys(R.NearDeduplication())
