"""Readers of samples return every token, sentence and row in order."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft import recipe as R
from weft.data.batches.samples import RowSamples, SentenceSamples, TokenWindows
from weft.data.shards.store import Store, open_store

from ..made import counted, documents, write_data, write_split

SIZES = [[3, 5, 2], [7], [1, 1, 4, 6]]
TOTAL = 29


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return counted(tmp_path_factory.mktemp("corpus"), SIZES)


@given(st.integers(1, TOTAL), st.data())
def test_windows_are_slices_of_the_stream_with_their_documents(
    corpus: Store, size: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, size))
    windows = TokenWindows(corpus, size, stride)
    starts = np.cumsum([0, *chain(*SIZES)])[:-1]
    assert (len(windows) - 1) * stride + size <= TOTAL < len(windows) * stride + size
    for i in range(len(windows)):
        assert windows[i]["tokens"].tolist() == list(range(i * stride, i * stride + size))
        assert windows[i]["documents"].tolist() == [
            s - i * stride for s in starts if 0 <= s - i * stride < size
        ]
    assert windows.lengths(np.arange(len(windows))).tolist() == [size] * len(windows)


@given(st.integers(1, TOTAL + 10), st.data())
def test_with_a_tail_every_token_is_in_a_window_and_no_window_is_only_overlap(
    corpus: Store, size: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, size))
    windows = TokenWindows(corpus, size, stride, include_partial=True)
    found = [windows[i]["tokens"] for i in range(len(windows))]
    assert set(np.concatenate(found).tolist()) == set(range(TOTAL))
    assert len(windows) == 1 or len(found[-1]) > size - stride
    assert [len(tokens) for tokens in found] == windows.lengths(np.arange(len(windows))).tolist()


def test_text_shorter_than_a_window_is_refused_and_with_a_tail_read(corpus: Store) -> None:
    with pytest.raises(
        ValueError,
        match="the data has 29 tokens, less than one window of 30; give more text or a shorter "
        "length",
    ):
        TokenWindows(corpus, 30, 30)
    assert TokenWindows(corpus, 30, 30, include_partial=True)[0]["tokens"].tolist() == list(
        range(29)
    )


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(
    st.integers(1, 9),
    st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=5), min_size=1, max_size=5),
)
def test_each_sentence_starts_in_one_run_and_runs_hold_whole_sentences_up_to_their_size(
    tmp_path: Path, size: int, sizes: list[list[int]]
) -> None:
    """Documents of sentences of these sizes, two shards."""
    starts = [np.cumsum([0, *document[:-1]]).tolist() for document in sizes]
    tokens = []
    at = 0
    for document in sizes:
        tokens.append(list(range(at, at + sum(document))))
        at += sum(document)
    half = len(sizes) // 2 if len(sizes) > 1 else 1
    parts = [slice(0, half), slice(half, None)] if half < len(sizes) else [slice(0, None)]
    runs = SentenceSamples(
        documents(tmp_path, [tokens[p] for p in parts], [starts[p] for p in parts]), size
    )
    sentence_starts = [
        document[i] for document, inside in zip(tokens, starts, strict=True) for i in inside
    ]
    document_starts = [document[0] for document in tokens]
    ends = [*sentence_starts[1:], at]
    found = []
    assert len(runs) == -(-at // size)
    for i in range(len(runs)):
        sample = runs[i]
        first = int(sample["tokens"][0])
        count = len(sample["tokens"])
        assert sample["tokens"].tolist() == list(range(first, first + count))
        assert count <= size
        assert sample["sentences"][0] == 0
        assert (sample["documents"] + first).tolist() == [
            d for d in document_starts if first <= d < first + count
        ]
        own = [s for s in sentence_starts if i * size <= s < (i + 1) * size]
        if own:
            found += (sample["sentences"] + first).tolist()
            assert (sample["sentences"] + first).tolist() == own
            assert first + count == min(own[0] + size, ends[sentence_starts.index(own[-1])])
        else:
            assert (first, first + count) == (i * size, min((i + 1) * size, at))
    assert found == sentence_starts


def test_a_run_can_take_the_sentence_after_it_along(tmp_path: Path) -> None:
    store = documents(tmp_path, [[list(range(9)), list(range(9, 30))]], [[[0, 6], [0, 3, 6]]])
    found = [SentenceSamples(store, 5, follow=True)[i] for i in range(6)]
    assert [(s["tokens"][0], s["tokens"][-1] + 1, s["sentences"].tolist()) for s in found] == [
        (0, 9, [0, 6]),
        (6, 15, [0, 3, 6]),
        (12, 22, [0, 3]),
        (15, 25, [0]),
        (20, 30, [0]),
        (25, 30, [0]),
    ]


def test_a_table_gives_rows_and_the_length_of_its_streams(tmp_path: Path) -> None:
    write_data(tmp_path, R.SourceTargetPairs())
    write_split(
        tmp_path / "train",
        [{"source": [[1, 2], [3]], "target": [[4], [5, 6, 7]]}, {"source": [[]], "target": [[8]]}],
    )
    store = open_store(tmp_path)
    rows = np.array([2, 0, 1])
    table = RowSamples(store, ("source", "target"))
    assert len(table) == 3
    assert table[1]["target"].tolist() == [5, 6, 7]
    assert table.lengths(rows).tolist() == [1, 3, 4]
    assert RowSamples(store, ("source", "target"), longest_column=True, extra_tokens=2).lengths(
        rows
    ).tolist() == [
        3,
        4,
        5,
    ]
    assert RowSamples(store).lengths(rows).tolist() == [1, 1, 1]


def test_data_without_rows_is_refused(tmp_path: Path) -> None:
    write_data(tmp_path, R.SourceTargetPairs())
    write_split(tmp_path / "train", [])
    with pytest.raises(ValueError, match="no rows"):
        RowSamples(open_store(tmp_path))
    with pytest.raises(ValueError, match="no tokens"):
        SentenceSamples(open_store(tmp_path), 5)
