"""Sources: every format returns its rows in order; pieces and parts neither lose nor repeat
rows.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from weft import recipe as R
from weft.data.images.boxes import BoxSamples
from weft.data.images.images import encode_pixels
from weft.data.preparing.prepare import prepare
from weft.data.reading import files, source
from weft.data.reading.formats import base, hub, image_folder, named_images, parallel
from weft.data.reading.formats import text as text_module
from weft.data.reading.formats.delimited import QUOTES
from weft.data.reading.formats.sniff import detect_format
from weft.data.reading.rows import check_rows, load_source
from weft.data.reading.sentences import last_word_boundary, sentence_starts, split_sentences
from weft.data.shards.in_memory import InMemoryStore
from weft.data.shards.store import open_store
from weft.recipe.data.formats import BadRow, SourceRow


def rows(given: R.Source, row: R.RowSchema = R.Documents()) -> list[Any]:
    """The fields of all rows, or Bad ones, over all pieces."""
    given = source.resolve_source(given, row)
    items = [
        item
        for piece in source.split_source(given)
        for item in source.read_piece(given, piece, ("text", "label", "image"))
    ]
    return [item.fields if isinstance(item, SourceRow) else item for item in items]


def texts(path: Path, **more: Any) -> list[str]:
    return [fields["text"] for fields in rows(R.Source(paths=(str(path),), format="text", **more))]


WIKI = (
    "\n = First = \n\n One line . \n = = Part = = \n\n More . \n\n = Second = \n\n a = b \n "
    "Last . \n"
)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("file", [WIKI]),
        (
            "line",
            [
                " = First = ",
                " One line . ",
                " = = Part = = ",
                " More . ",
                " = Second = ",
                " a = b ",
                " Last . ",
            ],
        ),
        (
            "blank",
            [
                " = First = ",
                " One line . \n = = Part = = ",
                " More . ",
                " = Second = ",
                " a = b \n Last . ",
            ],
        ),
        (
            "heading",
            [
                " = First = \n\n One line . \n = = Part = = \n\n More . \n",
                " = Second = \n\n a = b \n Last . ",
            ],
        ),
    ],
)
def test_text_is_cut_into_documents(tmp_path: Path, document: str, expected: list[str]) -> None:
    (tmp_path / "a.txt").write_text(WIKI)
    found = texts(tmp_path / "a.txt", document_boundary=document)
    assert [text.rstrip("\n") for text in found] == [text.rstrip("\n") for text in expected]
    assert document != "file" or found == [WIKI]


def test_windows_line_ends_and_a_byte_order_mark_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree\r\n")
    assert texts(tmp_path / "a.txt") == ["one\ntwo", "three"]


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
@pytest.mark.parametrize("document", ["line", "blank", "heading"])
def test_pieces_of_any_size_give_the_same_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, size: int
) -> None:
    text = "".join(
        f" = T{i} = \n\n" + f"word {i} ü\n" * (i % 4) + "\n" * (i % 3) for i in range(30)
    )
    (tmp_path / "a.txt").write_text(text)
    whole = texts(tmp_path / "a.txt", document_boundary=document)
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    given = R.Source(paths=(str(tmp_path / "a.txt"),), format="text", document_boundary=document)
    assert len(source.split_source(given)) > (1 if size < 1000 else 0)
    assert texts(tmp_path / "a.txt", document_boundary=document) == whole


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("document", ["file", "line", "blank"])
def test_two_parts_are_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, packed: bool, share: float
) -> None:
    monkeypatch.setattr(files, "BLOCK", 100)
    text = "".join(f"{i} ö\n" + "\n" * (i % 2) for i in range(100))
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    whole = texts(path, document_boundary=document)
    if share == 0.0:
        assert texts(path, document_boundary=document, fraction=(0.0, 1.0)) == whole
        return
    first = texts(path, document_boundary=document, fraction=(0.0, share))
    second = texts(path, document_boundary=document, fraction=(share, 1.0))
    assert first
    assert second
    if document == "file":
        assert (first[0], second[0]) == (
            text[: int(len(text) * share)],
            text[int(len(text) * share) :],
        )
    else:
        assert first + second == whole


def test_a_long_file_comes_in_blocks_that_make_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK", 64)
    monkeypatch.setattr(text_module, "BLOCK", 64)
    for text in ("word ü\n\n  " * 100, "x" * 1000, "x" * 200 + " " * 200, " " * 300 + "end\n"):
        (tmp_path / "a.txt").write_text(text)
        found = list(text_module.read_whole_file(str(tmp_path / "a.txt"), (0.0, 1.0)))
        assert all(isinstance(item, SourceRow) for item in found)
        assert "".join(item.fields["text"] for item in found if isinstance(item, SourceRow)) == text
        assert [item.continues for item in found if isinstance(item, SourceRow)] == [True] * (
            len(found) - 1
        ) + [False]
        assert isinstance(found[-1], SourceRow)
        assert found[-1].fields["text"].strip()


def test_packed_files_and_globs_are_read_like_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("a\n\nb")
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress(b"c\n\nd"))
    with pa.output_stream(str(tmp_path / "3.txt.zst"), compression="zstd") as out:
        out.write(b"e\n\nf")
    assert texts(tmp_path / "*.txt*") == list("abcdef")


def test_an_address_is_read_through_fsspec() -> None:
    import fsspec

    with fsspec.open("memory://weft/a.txt.gz", "wb") as out:
        out.write(gzip.compress(b"a\n\nb"))
    given = R.Source(paths=("memory://weft/*.gz",), format="text")
    assert [fields["text"] for fields in rows(given)] == ["a", "b"]
    assert source.split_source(given)[0].identity


def test_local_paths_do_not_need_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert texts(tmp_path / "a.txt") == ["a"]
    with pytest.raises(ValueError, match="pip install fsspec"):
        files.find("memory://weft/a.txt")


def test_a_relative_path_is_looked_up_here_then_under_weft_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "there"))
    (tmp_path / "there" / "a.txt").write_text("there")
    assert texts(Path("a.txt")) == ["there"]
    (tmp_path / "here" / "a.txt").write_text("here")
    assert texts(Path("a.txt")) == ["here"]
    with pytest.raises(
        ValueError,
        match=rf"b\.txt does not exist in {tmp_path}/here or under \$WEFT_DATA "
        rf"\({tmp_path}/there\)",
    ):
        texts(Path("b.txt"))


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(os.urandom(1000))[:500])
    (bad,) = rows(R.Source(paths=(str(tmp_path / "a.txt.gz"),), format="text"))
    assert isinstance(bad, BadRow)
    assert re.search(r"a\.txt\.gz cannot be unpacked", bad.reason)


@pytest.mark.parametrize("part", [(0.0, 1.0), (0.0, 0.3), (0.3, 1.0)])
@pytest.mark.parametrize("size", [1 << 20, 40])
def test_aligned_files_stay_aligned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, part: tuple[float, float]
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    (tmp_path / "a.en").write_text("".join(f"{'x' * (i % 7)}{i}\n" for i in range(50)))
    (tmp_path / "a.de").write_text("\n".join(f"{i}{'ü' * (i % 5)}" for i in range(50)))
    given = R.Source(
        paths=(str(tmp_path / "a.en"), str(tmp_path / "a.de")), fraction=part, format="parallel"
    )
    assert (len(source.split_source(given)) > 1) == (size == 40)
    found = rows(given)
    wanted = range(int(50 * part[0]), int(50 * part[1]))
    assert [(f["source"].lstrip("x"), f["target"].rstrip("ü")) for f in found] == [
        (str(i), str(i)) for i in wanted
    ]


@pytest.mark.parametrize("size", [1 << 20, 4])
def test_aligned_files_of_unequal_length_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n")
    with pytest.raises(ValueError, match="lines"):
        rows(R.Source(paths=(str(tmp_path / "a"), str(tmp_path / "b"))), R.SourceTargetPairs())


@pytest.mark.parametrize("size", [1 << 20, 30])
def test_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"text": f"t{i}", "label": i}) for i in range(9)) + "\n\n"
    )
    assert rows(R.Source(paths=(str(tmp_path / "a.jsonl"),))) == [
        {"text": f"t{i}", "label": i} for i in range(9)
    ]


@pytest.mark.parametrize("size", [1 << 20, 10])
def test_tsv_has_no_quotes_and_names_from_its_header_or_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    (tmp_path / "a.tsv").write_text('label\ttext\n1\t"half a quote\n0\tother\n')
    path = (str(tmp_path / "a.tsv"),)
    assert rows(R.Source(paths=path)) == [
        {"label": "1", "text": '"half a quote'},
        {"label": "0", "text": "other"},
    ]
    assert rows(R.Source(paths=path, column_names=("y", "x")))[0] == {
        "y": "1",
        "x": '"half a quote',
    }
    assert rows(R.Source(paths=path, has_header=False))[0] == {"0": "label", "1": "text"}
    assert rows(R.Source(paths=path, has_header=False, column_names=("y",)))[1] == {"y": "1"}


def test_csv_has_quotes_that_may_hold_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\n"one\n""two"", three",1\nfour,0\nfive,1\nsix,0\n')
    found = rows(R.Source(paths=(str(tmp_path / "a.csv"),)))
    assert found == [
        {"text": 'one\n"two", three', "label": "1"},
        {"text": "four", "label": "0"},
        {"text": "five", "label": "1"},
        {"text": "six", "label": "0"},
    ]
    halves = [
        rows(R.Source(paths=(str(tmp_path / "a.csv"),), fraction=part))
        for part in ((0.0, 0.5), (0.5, 1.0))
    ]
    assert halves == [found[:2], found[2:]]


def test_utf_16_is_read_in_pieces_and_parts_and_refused_where_it_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK", 64)
    monkeypatch.setattr(source, "PIECE_BYTES", 100)
    text = "".join(f"{i} ü😀\n\n" for i in range(60))
    for encoding in ("utf-8", "utf-16"):
        (tmp_path / encoding).write_text(text, encoding=encoding)
    for part in ((0.0, 1.0), (0.0, 0.4), (0.4, 1.0)):
        assert texts(tmp_path / "utf-16", fraction=part) == texts(tmp_path / "utf-8", fraction=part)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode("utf-16")))
    with pytest.raises(
        ValueError, match=r"a\.txt\.gz is UTF-16; convert it: iconv -f utf-16 -t utf-8"
    ):
        texts(tmp_path / "a.txt.gz")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00\xd8\x00\x00")
    (bad,) = rows(R.Source(paths=(str(tmp_path / "b.txt"),), format="text"))
    assert "b.txt starts like UTF-16, but is not" in bad.reason


@pytest.mark.parametrize("cut", [",", ";", "\t"])
def test_a_header_that_names_a_column_twice_is_refused(tmp_path: Path, cut: str) -> None:
    (tmp_path / "a.csv").write_text(f"text{cut}label{cut}text\n" + f"a{cut}b{cut}c\n" * 3)
    with pytest.raises(
        ValueError,
        match=r"a\.csv: more than one column is named 'text'; rename them in the file, or give "
        r"names",
    ):
        rows(R.Source(paths=(str(tmp_path / "a.csv"),)), R.LabelledTexts())
    assert (
        rows(
            R.Source(paths=(str(tmp_path / "a.csv"),), column_names=("x", "y", "z")),
            R.LabelledTexts(),
        )
        == [{"x": "a", "y": "b", "z": "c"}] * 3
    )


def test_a_row_of_the_wrong_width_is_bad_at_its_place(tmp_path: Path) -> None:
    for name, cut in (("a.csv", ","), ("a.tsv", "\t")):
        (tmp_path / name).write_text(f"a{cut}b\n1{cut}2\n3\n4{cut}5{cut}6\n")
        found = rows(R.Source(paths=(str(tmp_path / name),)))
        assert found[1:] == [
            BadRow(8, "1 columns instead of 2"),
            BadRow(10, f"3 columns instead of 2; {QUOTES}"),
        ]


@pytest.mark.parametrize("part", [(0.0, 1.0), (0.0, 0.5), (0.5, 1.0)])
@pytest.mark.parametrize("size", [1 << 20, 1])
def test_parquet_is_cut_at_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, part: tuple[float, float]
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    table = pa.table(
        {"text": [f"t{i}" for i in range(10)], "label": list(range(10)), "other": [b"x"] * 10}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    found = rows(R.Source(paths=(str(tmp_path / "a.parquet"),), fraction=part))
    assert found == [
        {"text": f"t{i}", "label": i} for i in range(int(10 * part[0]), int(10 * part[1]))
    ]


class Features(dict[str, Any]):
    def to_dict(self) -> dict[str, Any]:
        return {"text": {"_type": "Value"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}


class Hub:
    """As much of a `datasets.Dataset` as is used."""

    _fingerprint = "abc"
    features = Features(text=None)
    data = types.SimpleNamespace(nbytes=100)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, wanted: slice) -> dict[str, list[Any]]:
        places = range(10)[wanted]
        return {"text": [f"t{i}" for i in places], "label": [i % 2 for i in places]}


def test_a_data_set_of_the_hub_is_read_by_name_config_and_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    fake = types.ModuleType("datasets")
    fake.load_dataset = lambda *given, **more: asked.append((given, more)) or Hub()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setattr(source, "PIECE_BYTES", 30)
    hub.load_hub_dataset.cache_clear()
    data = R.Source(paths=("some/set:en:test",), format="hub")
    assert rows(data) == [{"text": f"t{i}", "label": "ab"[i % 2]} for i in range(10)]
    assert hub.HUB.class_names(data, [], "label") == ["a", "b"]
    assert hub.HUB.class_names(data, [], "text") is None
    assert asked == [(("some/set", "en"), {"split": "test"})]
    hub.load_hub_dataset.cache_clear()


def test_the_hub_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    hub.load_hub_dataset.cache_clear()
    with pytest.raises(ValueError, match=r"pip install '\.\[hub\]'"):
        rows(R.Source(paths=("some/set",), format="hub"))


@pytest.mark.parametrize("size", [1 << 20, 5])
def test_conll_sentences_are_never_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    (tmp_path / "a.conll").write_text(
        "-DOCSTART- -X- O\n\nEU B-ORG 0\nrejects O 0\n\n\nPeter B-PER 0\n"
    )
    assert rows(R.Source(paths=(str(tmp_path / "a.conll"),)), R.TaggedWords()) == [
        {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"words": ["Peter"], "tags": ["B-PER"]},
    ]


def test_squad_has_a_row_a_question_and_parts_by_article(tmp_path: Path) -> None:
    def article(name: str) -> dict[str, Any]:
        return {
            "title": name,
            "paragraphs": [
                {
                    "context": f"{name} was here",
                    "qas": [
                        {
                            "id": f"{name}1",
                            "question": "who?",
                            "answers": [{"text": name, "answer_start": 0}],
                        },
                        {
                            "id": f"{name}2",
                            "question": "when?",
                            "answers": [],
                            "is_impossible": True,
                        },
                    ],
                }
            ],
        }

    (tmp_path / "a.json").write_text(
        json.dumps({"version": "v2.0", "data": [article("Ann"), article("Bob")]})
    )
    path = (str(tmp_path / "a.json"),)
    found = rows(R.Source(paths=path), R.ContextQuestions())
    assert [(f["id"], f["answer_start"], f["answer_end"]) for f in found] == [
        ("Ann1", 0, 3),
        ("Ann2", -1, -1),
        ("Bob1", 0, 3),
        ("Bob2", -1, -1),
    ]
    assert rows(R.Source(paths=path, fraction=(0.5, 1.0)), R.ContextQuestions()) == found[2:]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([{}], "there is no list 'paragraphs' in article 0, at question 0"),
        ([3], "not an object"),
        ([{"paragraphs": ["text"]}], "'text' is not an object"),
        ([{"paragraphs": [{"qas": [{}]}]}], "there is no 'context'"),
        ([{"paragraphs": [{"context": "a", "qas": [{"id": 1}]}]}], "there is no 'question'"),
    ],
)
def test_what_is_no_question_of_squad_is_set_aside(tmp_path: Path, data: Any, words: str) -> None:
    good = {
        "paragraphs": [{"context": "b", "qas": [{"id": "good", "question": "?", "answers": []}]}]
    }
    (tmp_path / "a.json").write_text(json.dumps({"data": [*data, good]}))
    *_, bad, last = rows(R.Source(paths=(str(tmp_path / "a.json"),)), R.ContextQuestions())
    assert words in bad.reason
    assert last["id"] == "good"


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"data": 3}',
        '{"data": [',
        '{"data": []} x',
        "",
        '{"data": [{"a" 3}]}',
        '{"data": [tru]}',
        '{"data": [' + "[" * 100_000,
        b'{"data": ["\xff"]}',
    ],
)
def test_what_is_not_squad_at_all_is_one_line(tmp_path: Path, text: str | bytes) -> None:
    (tmp_path / "a.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"a\.json is not (JSON|UTF-8|in SQuAD's)") as error:
        rows(R.Source(paths=(str(tmp_path / "a.json"),)), R.ContextQuestions())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"images": [{"id": 1}]}, "image 0: there is no 'file_name'"),
        ({"images": [{"id": 1, "file_name": 3}]}, "file_name is int"),
        ({"images": [{"id": [1], "file_name": "1.png"}]}, "id is list"),
        ({"images": [7]}, "not an object"),
        ({"images": [{"id": 1, "file_name": "a\0b"}]}, "null"),
        ({"images": [{"id": 1, "file_name": "x" * 5000}]}, "missing"),
        ({"annotations": [{"image_id": 1, "category_id": 7}]}, "annotation 0: there is no 'bbox'"),
        (
            {"annotations": [{"image_id": {}, "bbox": [0, 1, 2, 3], "category_id": 7}]},
            "image_id is dict",
        ),
        (
            {"annotations": [{"image_id": 1, "bbox": [0, 1, 2, 3], "category_id": 8}]},
            "annotation 0: no category 8",
        ),
        (
            {
                "categories": [
                    {"id": 7, "name": None},
                    {"id": "b", "name": "cat"},
                    {"id": 1, "name": "bird"},
                ],
                "annotations": [{"image_id": 1, "bbox": [0, 1, 2, 3], "category_id": 7}],
            },
            "no category 7",
        ),
    ],
)
def test_ids_and_names_of_coco_of_a_wrong_kind_are_set_aside(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    whole = {
        "images": [{"id": 1, "file_name": "1.png"}],
        "categories": [{"id": 7, "name": "dog"}],
        "annotations": [],
    }
    picture(tmp_path / "1.png", 1)
    (tmp_path / "a.json").write_text(json.dumps(whole | change))
    found = rows(R.Source(paths=(str(tmp_path / "a.json"), str(tmp_path))), R.ImagesWithBoxes())
    assert words in next(item.reason for item in found if isinstance(item, BadRow))


@pytest.mark.parametrize(
    ("change", "words"), [({"annotations": None}, "'annotations'"), ({"images": 3}, "'images'")]
)
def test_coco_without_its_lists_is_one_line(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    whole = {
        "images": [{"id": 1, "file_name": "1.png"}],
        "categories": [{"id": 7, "name": "dog"}],
        "annotations": [],
    }
    (tmp_path / "a.json").write_text(json.dumps(whole | change))
    with pytest.raises(
        ValueError, match=rf"a\.json is not in COCO's format: it has no list {words}"
    ):
        rows(R.Source(paths=(str(tmp_path / "a.json"), str(tmp_path))), R.ImagesWithBoxes())


def coco_rows(folder: Path, **lists: Any) -> list[Any]:
    """The rows of a table of COCO, of which the folder holds the images."""
    whole = {"categories": [{"id": 7, "name": "dog"}], "annotations": []} | lists
    (folder / "a.json").write_text(json.dumps(whole))
    return rows(R.Source(paths=(str(folder / "a.json"), str(folder))), R.ImagesWithBoxes())


def annotation(image_id: str | int, x: int = 0) -> dict[str, Any]:
    return {"image_id": image_id, "bbox": [x, 1, 2, 3], "category_id": 7}


@pytest.mark.parametrize("crowd", [0, 1])
def test_annotations_of_which_none_belongs_to_an_image_are_one_line(
    tmp_path: Path, crowd: int
) -> None:
    picture(tmp_path / "1.png", 1)
    images = [{"id": 1, "file_name": "1.png"}, {"id": 2, "file_name": "2.png"}]
    lost = [annotation("1") | {"iscrowd": crowd}, annotation("2")]
    words = (
        r"a\.json: no annotation belongs to an image: annotations name image_id '1' \(str\), "
        r"images have id 1 \(int\); write the ids alike"
    )
    with pytest.raises(ValueError, match=words):
        coco_rows(tmp_path, images=images, annotations=lost)


def test_annotations_of_images_that_were_left_out_are_passed_over(tmp_path: Path) -> None:
    picture(tmp_path / "1.png", 1)
    images = [{"id": 1, "file_name": "1.png"}]
    (row,) = coco_rows(tmp_path, images=images, annotations=[annotation(8), annotation(1)])
    assert row["boxes"] == [[0, 1, 2, 3]]
    assert coco_rows(tmp_path, images=[], annotations=[annotation(8)]) == []
    (bad,) = coco_rows(tmp_path, images=[{"id": 1}], annotations=[annotation(8)])
    assert "there is no 'file_name'" in bad.reason


def test_images_of_one_id_do_not_share_their_boxes(tmp_path: Path) -> None:
    """Of a file that is listed twice the first is read; whose the boxes of two files are nobody
    knows.
    """
    for number in range(4):
        picture(tmp_path / f"{number}.png", number)
    names = {1: "0.png", "1": "1.png", 5: "2.png"}
    images = [{"id": id, "file_name": name} for id, name in names.items()]
    images += [{"id": 1, "file_name": "0.png"}, {"id": 5, "file_name": "3.png"}]
    notes = [annotation(1, 4), annotation("1", 5), annotation(5)]
    first, other, *bad = coco_rows(tmp_path, images=images, annotations=notes)
    assert (first["boxes"], other["boxes"]) == ([[4, 1, 2, 3]], [[5, 1, 2, 3]])
    assert [(row.offset, row.reason) for row in bad] == [
        (2, "image 2: several images have the id 5"),
        (3, "image 3: the image of id 1 is listed again"),
        (4, "image 4: several images have the id 5"),
    ]


@pytest.mark.parametrize(
    ("said", "good"),
    [
        ({}, True),
        ({"width": 20, "height": 40}, True),
        ({"width": "20", "height": 40.0}, True),
        ({"width": 0, "height": 0}, True),
        ({"width": None, "height": 40}, True),
        ({"width": 40, "height": 20}, False),
        ({"width": 20, "height": 41}, False),
    ],
)
def test_boxes_are_of_the_image_as_it_is_displayed(
    tmp_path: Path, said: dict[str, Any], good: bool
) -> None:
    """A photograph that lies on its side, and boxes that were drawn on it upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "1.jpg", exif=exif)
    table = {
        "images": [{"id": 1, "file_name": "1.jpg"} | said],
        "categories": [{"id": 7, "name": "dog"}],
        "annotations": [annotation(1) | {"bbox": [2, 28, 10, 10]}],
    }
    (tmp_path / "a.json").write_text(json.dumps(table))
    source = R.Source(paths=(str(tmp_path / "a.json"), str(tmp_path)), format="coco")
    found, bad = check_rows(load_source(source)[0], R.ImagesWithBoxes(), ["dog"], "coco")
    assert len(found) == good
    words = "the image has 20×40 pixels as displayed, but its row says"
    assert all(words in entry["reason"] for entry in bad)
    if good:
        store = InMemoryStore(found, R.ImagesWithBoxes(), None, ("dog",))
        assert BoxSamples(store, classes=1).store.row(0)["boxes"].tolist() == [2, 28, 10, 10]


def picture(path: Path, shade: int) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(path)
    return path.read_bytes()


@pytest.mark.parametrize("size", [1 << 20, 1])
def test_a_folder_of_images_has_a_class_a_sub_folder_and_parts_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    made = [
        (name, picture(tmp_path / name / f"{i}.png", i))
        for name in ("cat", "dog")
        for i in range(4)
    ]
    found = rows(R.Source(paths=(str(tmp_path),)), R.LabelledImages())
    assert [(f["label"], f["image"]) for f in found] == made
    half = rows(R.Source(paths=(str(tmp_path),), fraction=(0.0, 0.5)), R.LabelledImages())
    assert [f["label"] for f in half] == ["cat", "cat", "dog", "dog"]


@pytest.mark.parametrize("suffix", [".ppm", ".pgm", ".pbm", ".pnm", ".PGM"])
def test_a_folder_of_images_may_hold_those_of_netpbm(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "cat").mkdir()
    data = encode_pixels(np.arange(63, dtype=np.uint8).reshape(9, 7))
    (tmp_path / "cat" / f"1{suffix}").write_bytes(data)
    (found,) = rows(R.Source(paths=(str(tmp_path),)), R.LabelledImages())
    assert (found["label"], found["image"]) == ("cat", data)


@pytest.mark.parametrize("size", [1 << 20, 1])
def test_coco_has_boxes_without_crowds_and_stays_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    made = picture(tmp_path / "images" / "1.png", 1)
    picture(tmp_path / "secret.png", 2)
    (tmp_path / "a.json").write_text(
        json.dumps(
            {
                "images": [
                    {"id": 1, "file_name": "1.png"},
                    {"id": 2, "file_name": "../secret.png"},
                    {"id": 3, "file_name": "gone.png"},
                ],
                "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}],
                "annotations": [
                    {"image_id": 1, "bbox": [0, 1, 2, 3], "category_id": 7},
                    {"image_id": 1, "bbox": [0, 0, 8, 8], "category_id": 3, "iscrowd": 1},
                ],
            }
        )
    )
    one, outside, gone = rows(
        R.Source(paths=(str(tmp_path / "a.json"), str(tmp_path / "images"))), R.ImagesWithBoxes()
    )
    assert (one["image"], one["boxes"], one["labels"]) == (made, [[0, 1, 2, 3]], ["dog"])
    assert "outside" in outside.reason
    assert "missing" in gone.reason


def image_table(folder: Path, text: str, images: str = "images") -> R.Source:
    (folder / "a.csv").write_text(text)
    return R.Source(paths=(str(folder / "a.csv"), str(folder / images)))


@pytest.mark.parametrize("size", [1 << 20, 1])
def test_a_table_names_images_of_a_folder_and_stays_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", size)
    made = [picture(tmp_path / "images" / "dogs" / f"{i}.png", i) for i in range(2)]
    picture(tmp_path / "secret.png", 2)
    names = ["dogs/0.png", "../secret.png", "gone.png", "", "dogs/1.png"]
    given = image_table(tmp_path, "label,name\n" + "".join(f"dog,{name}\n" for name in names))
    first, outside, gone, unnamed, last = rows(given, R.LabelledImages())
    assert [row["image"] for row in (first, last)] == made
    assert (first["label"], first["name"]) == ("dog", made[0])
    root = tmp_path / "images"
    assert outside.reason == f"../secret.png is outside of {root}; put the file itself there"
    assert gone.reason == f"{root / 'gone.png'}: missing"
    assert unnamed.reason == "empty name, which names the image"


def read_with(given: R.Source, *columns: str) -> list[SourceRow]:
    given = source.resolve_source(given, R.LabelledImages())
    pieces = source.split_source(given)
    items = [item for piece in pieces for item in source.read_piece(given, piece, columns)]
    assert all(isinstance(item, SourceRow) for item in items)
    return [item for item in items if isinstance(item, SourceRow)]


def test_a_column_of_a_table_that_is_called_file_holds_the_images(tmp_path: Path) -> None:
    """It is read as any other, and its row is known by the path."""
    made = [picture(tmp_path / "images" / f"{i}.png", i) for i in range(2)]
    given = image_table(tmp_path, "file,label\n0.png,dog\n1.png,cat\n")
    for columns in ((), ("file", "label")):
        found = read_with(given, *columns)
        assert [item.fields for item in found] == [
            {"file": made[0], "label": "dog"},
            {"file": made[1], "label": "cat"},
        ]
        assert found[1].path == str(tmp_path / "images" / "1.png")


@pytest.mark.parametrize("suffix", [".png", ""])
def test_all_columns_of_a_table_that_name_images_hold_them(tmp_path: Path, suffix: str) -> None:
    made = [picture(tmp_path / "images" / f"{i}.png", i) for i in range(6)]
    lines = [f"{i}{suffix},{i + 3}{suffix},{i % 2}\n" for i in range(3)]
    given = image_table(tmp_path, "before,after,label\n" + "".join(lines))
    for i, item in enumerate(read_with(given)):
        assert item.fields == {"before": made[i], "after": made[i + 3], "label": f"{i % 2}"}
    for i, item in enumerate(read_with(given, "after", "label")):
        assert item.fields["after"] == made[i + 3]
        assert item.path == str(tmp_path / "images" / f"{i + 3}.png")


def test_a_row_of_a_table_has_its_image_and_its_path_for_who_asks(tmp_path: Path) -> None:
    """Not otherwise, so that no refusal lists columns that the table lacks."""
    made = picture(tmp_path / "images" / "0.png", 0)
    given = image_table(tmp_path, "name,label\n0.png,dog\n")
    (row,) = read_with(given)
    assert row.fields.keys() == {"name", "label"}
    (row,) = read_with(given, "image", "file")
    assert row.fields["image"] == made
    assert row.fields["file"] == str(tmp_path / "images" / "0.png")


@pytest.mark.parametrize("format", ["image_table", "folder"])
def test_reading_labels_opens_no_image(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i, name in enumerate(("dog", "cat")):
        picture(tmp_path / "images" / name / f"{i}.png", i)
    table = image_table(tmp_path, "name,label\ndog/0.png,dog\ncat/1.png,cat\n")
    folder = R.Source(paths=(str(tmp_path / "images"),))
    opened: list[Any] = []
    for module in (image_folder, named_images):
        monkeypatch.setattr(module, "read_bounded", opened.append)
    found = read_with(table if format == "image_table" else folder, "label")
    assert {item.fields["label"] for item in found} == {"dog", "cat"}
    assert not opened


@pytest.mark.parametrize("format", ["image_table", "coco"])
def test_a_link_out_of_the_folder_of_a_tables_images_is_read_in_a_cache_of_the_hub_alone(
    tmp_path: Path, format: str
) -> None:
    """snapshots/<revision>/images/0.png -> ../../../blobs/<hash>, as huggingface_hub lays it
    out.
    """
    snapshot = tmp_path / "snapshots" / "0123abcd"
    made = picture(tmp_path / "blobs" / "b0.png", 0)
    secret = tmp_path / "secret.png"
    secret.write_bytes(made)
    (snapshot / "images").mkdir(parents=True)
    (snapshot / "images" / "0.png").symlink_to("../../../blobs/b0.png")
    (snapshot / "images" / "1.png").symlink_to(secret)
    given = image_table(snapshot, "name,label\n0.png,dog\n1.png,dog\n")
    if format == "coco":
        images = [{"id": i, "file_name": f"{i}.png"} for i in range(2)]
        lists = {"images": images, "categories": [], "annotations": []}
        (snapshot / "a.json").write_text(json.dumps(lists))
        given = R.Source(paths=(str(snapshot / "a.json"), given.paths[1]), format="coco")
    first, outside = rows(given, R.LabelledImages())
    assert first["image"] == made
    folder = snapshot / "images"
    assert outside.reason == (
        f"1.png is a link to {secret}, outside of {folder}; put the file itself there"
    )


def test_the_classes_of_a_table_of_images_keep_the_order_that_its_file_gives(
    tmp_path: Path,
) -> None:
    names = ["zebra", "ape"]
    features = {"label": {"_type": "ClassLabel", "names": names}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for i in range(2):
        picture(tmp_path / "images" / f"{i}.png", i)
    table = pa.table({"name": ["0.png", "1.png"], "label": [0, 1]})
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    paths = (str(tmp_path / "a.parquet"), str(tmp_path / "images"))
    data = R.Data(rows=R.LabelledImages(), train=R.Source(paths=paths))
    assert open_store(prepare(data, tmp_path / "out", workers=1).folder).meta.labels == tuple(names)


def test_the_column_that_names_most_images_is_read_with_or_without_their_suffix(
    tmp_path: Path,
) -> None:
    made = [picture(tmp_path / "images" / f"{i}.jpg", i) for i in range(6)]
    numbers = "label,fold,id\n" + "".join(f"{i % 2},{i % 3},{i}\n" for i in range(6))
    found = rows(image_table(tmp_path, numbers), R.LabelledImages())
    assert [row["image"] for row in found] == made
    assert [row["label"] for row in found] == ["0", "1"] * 3
    cells = [{"image": {"bytes": None, "path": f"{i}.jpg"}, "label": i} for i in range(6)]
    pq.write_table(pa.Table.from_pylist(cells), tmp_path / "a.parquet")
    paths = (str(tmp_path / "a.parquet"), str(tmp_path / "images"))
    found = rows(R.Source(paths=paths), R.LabelledImages())
    assert [row["image"] for row in found] == made


def test_a_table_whose_images_are_elsewhere_is_one_line(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "1.png", 1)
    with pytest.raises(
        ValueError, match=r"a\.csv: no column of its first rows names a file in .*images"
    ):
        rows(image_table(tmp_path, "label,name\ndog,2.png\n"), R.LabelledImages())


def test_a_changed_image_of_a_table_changes_its_piece_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", 1)
    for i in range(3):
        picture(tmp_path / "images" / f"{i}.png", i)
    text = "label,name\n" + "".join(f"dog,{i}.png\n" for i in range(3))
    given = source.resolve_source(image_table(tmp_path, text), R.LabelledImages())
    before = [piece.identity for piece in source.split_source(given)]
    os.utime(tmp_path / "images" / "1.png", ns=(1, 1))
    after = [piece.identity for piece in source.split_source(given)]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_a_changed_file_has_another_identity_even_with_its_old_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * (2 << 20))
    before = files.file_identity(str(path))
    stat = os.stat(path)
    assert files.file_identity(str(path)) == before
    assert list((tmp_path / "cache" / "weft" / "digests").iterdir())
    path.write_bytes(b"b" * (2 << 20))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = files.file_identity(str(path))
    assert after != before
    path.write_bytes(b"a" * (2 << 20))
    assert files.file_identity(str(path)) == before  # content counts, not time


@pytest.mark.parametrize("packed", [True, False])
def test_large_files_are_read_once_to_be_cut_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(base, "BLOCK", 100)
    reads: list[str] = []
    for module in (parallel, files):
        monkeypatch.setattr(
            module,
            "read_blocks",
            lambda path, skip=0, inner=files.read_blocks: reads.append(path) or inner(path, skip),
        )

    def write(count: int) -> None:
        for name in ("a", "b"):
            text = "".join(f"{name} {i}\n" for i in range(count)).encode()
            (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(
                gzip.compress(text) if packed else text
            )

    names = ("a.gz",) if packed else ("a", "b")
    given = R.Source(
        paths=tuple(str(tmp_path / name) for name in names),
        fraction=(0.0, 0.5),
        format="text" if packed else "parallel",
    )
    write(200)
    first = source.split_source(given)
    assert reads
    reads.clear()
    assert source.split_source(given) == first
    assert not reads
    write(300)
    assert source.split_source(given)[0].spans[0][1] > first[0].spans[0][1]  # type: ignore[operator]


def test_a_format_that_cannot_be_told_names_both_ways_to_give_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Once upon a time.\nThere was a loom.\n")
    with pytest.raises(
        ValueError,
        match=r"a\.txt .*neither a table .* name its format \(weft prepare --format, in a recipe "
        r"Source\.format\)",
    ):
        source.resolve_source(R.Source(paths=(str(tmp_path / "a.txt"),)), R.LabelledTexts())


# Sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? “Four”", 4),
        ("in 2000 . This was", 2),
        ("Mr. Smith met J. R. Jones. He left.", 2),
        ("a line\nanother", 2),
        ("about 3.5 of it. but not this", 1),
        ('He said "Go." Then left', 2),
        ("ends here .\n\n  Next one", 2),
        ("", 1),
        ("Что? Да.", 2),
    ],
)
def test_sentences_end_at_marks_before_capitals_and_at_lines(text: str, expected: int) -> None:
    assert len(split_sentences(text)) == expected
    assert "".join(split_sentences(text)) == text
    # the gap goes along, so that tokens are those of the whole
    assert all(part[0].isspace() for part in split_sentences(text)[1:])
    assert sentence_starts(text)[0] == 0


def test_a_long_text_is_cut_before_a_gap_followed_by_a_word() -> None:
    assert last_word_boundary("one two  three  ") == 7
    assert last_word_boundary("word") == 3
    assert last_word_boundary("   ") == 0


def test_a_format_is_checked_by_name_without_importing_one() -> None:
    code = (
        "import sys; from weft import recipe as R; R.Source(paths=('a',), format='parquet')\n"
        "assert not [name for name in sys.modules if name.startswith(('weft.data', 'pyarrow', "
        "'torch'))]\n"
        "R.Source(paths=('a',), format='jsnl')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Source.format = 'jsnl'; did you mean 'jsonl'?" in done.stderr


def test_the_surest_format_is_taken_and_a_missing_file_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "b").write_bytes(b"PAR1 and so on")
    assert [detect_format(str(tmp_path / name)) for name in ("a.csv", "b", "gone.tsv.gz")] == [
        "jsonl",
        "parquet",
        "tsv",
    ]
    with pytest.raises(files.MissingFile, match=r"gone\.json"):
        detect_format(str(tmp_path / "gone.json"))  # of an array, SQuAD or COCO


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("text", ["[1, 2, 3]", "[\n1,\n2\n]", '["a, b", "c, d"]', "[[1,2],[3,4]]"])
def test_a_json_array_without_objects_is_refused_in_one_line(
    text: str, name: str, tmp_path: Path
) -> None:
    raw = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    with pytest.raises(ValueError, match=rf"{name} is a JSON array .* \[{{\"text\"") as error:
        detect_format(str(tmp_path / name))
    assert "\n" not in str(error.value)


def test_a_table_whose_first_cell_has_brackets_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("[note],text\n[1],a\n")
    (tmp_path / "b.json").write_text("[]\n")
    (tmp_path / "c.json").write_text('[\n {"text": "a"}]\n')
    names = [detect_format(str(tmp_path / name)) for name in ("a.csv", "b.json", "c.json")]
    assert names == ["csv", "json", "json"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.parquet"])
def test_a_random_split_gives_each_row_to_one_side_whatever_the_pieces(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = [{"text": f"row {i}", "label": str(i % 2)} for i in range(2000)]
    path = tmp_path / name
    lines = [f"{row['text']},{row['label']}\n" for row in table]
    texts_by_suffix = {
        ".csv": "text,label\n" + "".join(lines),
        ".tsv": "text\tlabel\n" + "".join(line.replace(",", "\t") for line in lines),
        ".jsonl": "".join(json.dumps(row) + "\n" for row in table),
        ".json": json.dumps(table),
    }
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path, row_group_size=300)
    else:
        path.write_text(texts_by_suffix[path.suffix])

    def part(begin: float, end: float, seed: int = 0) -> list[Any]:
        given = R.Source(paths=(str(path),), fraction=(begin, end), split_seed=seed)
        return rows(given, R.LabelledTexts())

    train = part(0.0, 0.9)
    valid = part(0.9, 1.0)
    assert sorted(row["text"] for row in train + valid) == sorted(row["text"] for row in table)
    assert 150 < len(valid) < 250
    numbers = [int(row["text"].split()[1]) for row in valid]
    assert numbers == sorted(numbers)
    assert min(numbers) < 100
    assert part(0.9, 1.0, seed=1) != valid
    monkeypatch.setattr(source, "PIECE_BYTES", 5000)
    assert part(0.9, 1.0) == valid
