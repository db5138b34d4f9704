"""F11: corrupt samples are put aside with their file and place, the others keep their order, and
too many stop the work.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tests import whole_runs
from tests.commands.tuned_data import recipe as tuned
from tests.faults.hostile import flipped
from weft import recipe as R
from weft.data.images.images import decode
from weft.data.preparing.prepare import prepare
from weft.data.reading import source
from weft.data.reading.files import MAX_LINE_BYTES
from weft.data.reading.quarantine import MAX_BAD_ROWS, check_row, write_quarantine
from weft.data.tokenizing.tokenizer import load_tokenizer
from weft.recipe.data.formats import SourceRow

ROWS = 1200  # ten bad rows are borne, eleven are too many
HUGE = b"x" * 10_000_000


def row(i: int) -> bytes:
    return b'{"text": "row %d"}' % i


CORRUPT: dict[str, tuple[bytes, str]] = {
    "bad UTF-8": (b'{"text": "caf\xe9"}', "not UTF-8: byte 0xe9"),
    "bad JSON": (b'{"text": "half', "bad JSON"),
    "not an object": (b'["text"]', "not an object"),
    "half a character": (rb'{"text": "\ud800"}', "surrogates not allowed"),
    "empty": (b'{"text": "  "}', "empty text"),
    "no column": (b'{"txt": "a"}', "no column 'text'; available: 'txt'"),
    "wrong kind": (b'{"text": 3}', "text is int"),
    "a line of 10 MB": (b'{"text": "' + HUGE + b'"}', f"more than {MAX_LINE_BYTES} bytes"),
}


def made(path: Path, lines: list[bytes]) -> R.Data:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return R.Data(
        rows=R.Documents(), train=R.Source(paths=(str(path),)), tokenizer=R.ByteTokenizer()
    )


def texts(folder: Path) -> list[str]:
    tokenizer = load_tokenizer(folder)
    shards = json.loads((folder / "train" / "index.json").read_text())["shards"]
    tables = [
        pa.ipc.open_file(str(folder / "train" / shard["file"])).read_all() for shard in shards
    ]
    return [tokenizer.decode(tokens) for table in tables for tokens in table["tokens"].to_pylist()]


def quarantine(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "train" / "quarantine.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("kind", CORRUPT)
def test_a_corrupt_line_is_put_aside_with_place_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, pieces: int
) -> None:
    bad, reason = CORRUPT[kind]
    lines = [row(i) for i in range(ROWS)]
    lines.insert(700, bad)
    monkeypatch.setattr(
        source, "PIECE_BYTES", 1 << 30 if pieces == 1 else sum(map(len, lines)) // 3
    )
    folder = prepare(made(tmp_path / "a.jsonl", lines), tmp_path / "out", workers=1).folder
    assert texts(folder) == [f"row {i}" for i in range(ROWS)]
    (entry,) = quarantine(folder)
    assert entry["file"] == str(tmp_path / "a.jsonl")
    assert entry["offset"] == sum(len(line) + 1 for line in lines[:700])
    assert reason in entry["reason"]


@pytest.mark.parametrize("kind", CORRUPT)
def test_above_a_handful_and_a_thousandth_it_stops_with_one_line_and_no_index(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # eleven lines of 10 MB would take their time
    monkeypatch.setattr("weft.data.reading.quarantine.SMALL_FILE_BAD_ROWS", 1)
    lines = [row(i) for i in range(ROWS)]
    lines[10:10] = [CORRUPT[kind][0]] * 2
    data = made(tmp_path / "a.jsonl", lines)
    with pytest.raises(ValueError, match=r"2 of 1,202 rows .* at most 1 may be skipped") as error:
        prepare(data, tmp_path / "out", workers=1)
    assert "\n" not in str(error.value)
    assert "a.jsonl, lines 11, 12: " in str(error.value)
    assert "or allow more with --max-bad-row-fraction 0.002 (weft prepare and tune)" in str(
        error.value
    )
    assert "or --set data.max_bad_row_fraction=0.002 (weft train)" in str(error.value)
    assert len(quarantine(tmp_path / "out")) == 2
    assert not (tmp_path / "out" / "train" / "index.json").exists()
    prepare(replace(data, max_bad_row_fraction=0.01), tmp_path / "out", workers=1)
    assert len(texts(tmp_path / "out")) == ROWS


@pytest.mark.parametrize(
    ("rows", "bad", "stops"),
    [
        (1, 1, False),
        (0, 1, True),
        (18, 2, True),
        (38, 2, False),
        (60, 15, True),
        (90, 10, True),
        (190, 10, False),
        (209, 11, True),
        (10_988, 11, True),
        (10_989, 11, False),
        (99_900, 100, False),
        (99_899, 101, True),
    ],
)
def test_one_bad_row_in_twenty_at_most_ten_or_a_thousandth_is_borne(
    tmp_path: Path, rows: int, bad: int, stops: bool
) -> None:
    entries = [{"file": "a.txt", "offset": i, "reason": "bad"} for i in range(bad)]
    if not stops:
        write_quarantine(tmp_path, rows, entries, MAX_BAD_ROWS)
        return
    with pytest.raises(
        ValueError, match=rf"{bad} of {rows + bad:,} rows .*\(a\.txt, lines? .*: bad\)"
    ):
        write_quarantine(tmp_path, rows, entries, MAX_BAD_ROWS)


def test_an_empty_file_is_no_row_and_no_corruption(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", "fine"), ("c", " \n\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    data = R.Data(
        rows=R.Documents(),
        train=R.Source(paths=(str(tmp_path / "*.txt"),), document_boundary="file"),
        tokenizer=R.ByteTokenizer(),
    )
    folder = prepare(replace(data, max_bad_row_fraction=0.0), tmp_path / "out", workers=1).folder
    assert texts(folder) == ["fine"]
    assert not (folder / "train" / "quarantine.jsonl").exists()


def test_a_bad_row_among_small_files_names_its_own(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"{i}.jsonl").write_bytes(
            row(0) + b"\n" + (b"[]" if i == 3 else row(1)) + (b"\n{}" if i == 4 else b"") + b"\n"
        )
    data = R.Data(
        rows=R.Documents(),
        train=R.Source(paths=(str(tmp_path / "*.jsonl"),)),
        tokenizer=R.ByteTokenizer(),
    )
    folder = prepare(replace(data, max_bad_row_fraction=0.2), tmp_path / "out", workers=1).folder
    assert [(Path(entry["file"]).name, entry["offset"]) for entry in quarantine(folder)] == [
        ("3.jsonl", 18),
        ("4.jsonl", 36),
    ]


def jpeg() -> bytes:
    held = BytesIO()
    Image.radial_gradient("L").save(held, "JPEG")
    return held.getvalue()


@pytest.mark.parametrize(
    "spoil",
    [lambda whole: whole[: len(whole) // 2], lambda whole: b"", lambda whole: b"not an image" * 9],
    ids=["truncated", "empty", "no image"],
)
def test_a_spoilt_image_is_put_aside_with_its_file(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "set" / "a").mkdir(parents=True)
    for i in range(30):
        (tmp_path / "set" / "a" / f"{i:02d}.jpg").write_bytes(spoil(jpeg()) if i == 7 else jpeg())
    data = R.Data(rows=R.LabelledImages(), train=R.Source(paths=(str(tmp_path / "set"),)))
    with pytest.raises(ValueError, match="1 of 30 rows"):
        prepare(replace(data, max_bad_row_fraction=0.0), tmp_path / "out", workers=1)
    folder = prepare(data, tmp_path / "out", workers=1).folder
    assert json.loads((folder / "train" / "index.json").read_text())["rows"] == 29
    (entry,) = quarantine(folder)
    assert entry["file"].endswith("07.jpg")
    assert entry["reason"]


def test_an_image_with_too_many_pixels_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.data.images.images.MAX_PIXELS", 100)
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "1.jpg").write_bytes(jpeg())
    with pytest.raises(ValueError, match="256 × 256 pixels"):
        prepare(
            R.Data(rows=R.LabelledImages(), train=R.Source(paths=(str(tmp_path / "set"),))),
            tmp_path / "out",
            workers=1,
        )


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is enormous; its pixels are missing."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(canary) (w) file "
    b"closefile\nshowpage\n%%EOF\n"
)


def test_bombs_other_plugins_and_files_that_are_no_files_are_put_aside_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `DecompressionBombError` is no ValueError, so it ended the job; an EPS named .png started
    Ghostscript; a FIFO never ended.
    """
    started: list[Any] = []
    monkeypatch.setattr("subprocess.Popen", lambda *given, **more: started.append(given))
    there = tmp_path / "set" / "a"
    there.mkdir(parents=True)
    for i in range(4):
        (there / f"{i}.png").write_bytes(jpeg())
    (there / "bomb.png").write_bytes(bomb(100_000, 100_000))
    (there / "script.png").write_bytes(EPS)
    (there / "null.png").symlink_to("/dev/zero")
    (there / "gone.png").symlink_to(there / "nothing")
    os.mkfifo(there / "fifo.png")
    (there / "folder.png").mkdir()
    data = R.Data(
        rows=R.LabelledImages(),
        train=R.Source(paths=(str(tmp_path / "set"),)),
        max_bad_row_fraction=0.9,
    )
    folder = prepare(data, tmp_path / "out", workers=1).folder
    reasons = {Path(entry["file"]).name: entry["reason"] for entry in quarantine(folder)}
    assert set(reasons) == {
        "bomb.png",
        "script.png",
        "null.png",
        "gone.png",
        "fifo.png",
        "folder.png",
    }
    assert "pixels" in reasons["bomb.png"]
    assert reasons["gone.png"] == "a dangling link"
    assert not started
    assert json.loads((folder / "train" / "index.json").read_text())["rows"] == 4


def picture(kind: str) -> bytes:
    out = BytesIO()
    Image.effect_noise((40, 30), 80).convert("RGB").save(out, kind)
    return out.getvalue()


def test_a_mutated_image_is_either_read_or_put_aside(long: bool) -> None:
    draw = np.random.default_rng(0)
    wholes = [picture(kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")]
    refused = 0
    for i in range(12_000 if long else 1_200):
        data = flipped(wholes[i % len(wholes)], draw)
        found = check_row(R.LabelledImages(), SourceRow(0, {"image": data, "label": "a"}), ("a",))
        refused += found is not None
        if found is None:
            assert decode(data).mode == "RGB"
    assert refused > 100


@pytest.mark.parametrize("document", ["line", "blank", "heading", "file"])
def test_blank_lines_of_text_are_not_corruption_but_bad_bytes_are(
    tmp_path: Path, document: str
) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n\n = One = \n\n \t\nfine\n\n\n")
    (tmp_path / "b.txt").write_bytes(b"\n = Two = \nb\xc3\x28d\n")
    good = R.Data(
        rows=R.Documents(),
        train=R.Source(paths=(str(tmp_path / "a.txt"),), document_boundary=document),
        tokenizer=R.ByteTokenizer(),
    )
    folder = prepare(good, tmp_path / "good", workers=1).folder
    assert not (folder / "train" / "quarantine.jsonl").exists()
    both = R.Data(
        rows=R.Documents(),
        train=R.Source(paths=(str(tmp_path / "*.txt"),), document_boundary=document),
        tokenizer=R.ByteTokenizer(),
    )
    folder = prepare(replace(both, max_bad_row_fraction=0.9), tmp_path / "both", workers=1).folder
    (entry,) = quarantine(folder)
    assert entry["file"].endswith("b.txt")
    assert "0xc3" in entry["reason"]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (b"one\n\nthree\n", b"eins\nzwei\ndrei\n", "empty source"),
        (b"one\ntwo\nthree\n", b"eins\n\xff\ndrei\n", "not UTF-8"),
    ],
)
def test_a_bad_side_takes_its_pair_along_and_the_rest_stays_aligned(
    tmp_path: Path, first: bytes, second: bytes, reason: str
) -> None:
    (tmp_path / "a").write_bytes(first)
    (tmp_path / "b").write_bytes(second)
    data = R.Data(
        rows=R.SourceTargetPairs(),
        train=R.Source(paths=(str(tmp_path / "a"), str(tmp_path / "b"))),
        tokenizer=R.ByteTokenizer(),
    )
    folder = prepare(replace(data, max_bad_row_fraction=0.5), tmp_path / "out", workers=1).folder
    tokenizer = load_tokenizer(folder)
    table = pa.ipc.open_file(str(folder / "train" / "00000.arrow")).read_all().to_pylist()
    assert [(tokenizer.decode(r["source"]), tokenizer.decode(r["target"])) for r in table] == [
        ("one", "eins"),
        ("three", "drei"),
    ]
    (entry,) = quarantine(folder)
    assert (entry["offset"], reason in entry["reason"]) == (4, True)


@pytest.mark.parametrize(
    ("value", "line", "reason"),
    [
        (
            R.LabelledTexts(labels=("0", "1")),
            '{"text": "a", "label": 2}',
            "label '2' is not one of 0, 1",
        ),
        (
            R.LabelledTexts(labels=tuple("0123456789")),
            '{"text": "a", "label": "x"}',
            r"label 'x' is not one of 0, 1, 2, 3, 4, 5, 6, 7, … \(10 classes\)",
        ),
        (R.LabelledTexts(numeric_label=True), '{"text": "a", "label": "nan"}', "not a number"),
        (
            R.LabelledTexts(numeric_label=True),
            '{"text": "a", "label": "many"}',
            "label is 'many', not a number",
        ),
        (R.LabelledTexts(numeric_label=True), '{"text": "a", "label": null}', "empty label"),
        (
            R.ChoiceQuestions(endings=("a", "b")),
            '{"context": "c", "a": "x", "b": "y", "label": 2}',
            "label is 2; .* one of 2 endings",
        ),
        (
            R.TaggedWords(labels=("O",)),
            '{"words": ["a", "b"], "tags": ["O"]}',
            "2 words but 1 tags",
        ),
        (R.TaggedWords(labels=("O",)), '{"words": [], "tags": []}', "empty words"),
        (
            R.TaggedWords(labels=("O",)),
            r'{"words": ["\ud800"], "tags": ["O"]}',
            "surrogates not allowed",
        ),
    ],
)
def test_a_row_that_cannot_be_one_says_why(
    tmp_path: Path, value: R.RowSchema, line: str, reason: str
) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=reason):
        prepare(
            R.Data(
                rows=value,
                train=R.Source(paths=(str(tmp_path / "a.jsonl"),)),
                tokenizer=R.ByteTokenizer(),
            ),
            tmp_path / "out",
            workers=1,
        )


def test_a_file_that_is_not_what_it_should_be_stops_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.data.shards.shard_builder.MANY", 100)
    monkeypatch.setattr("weft.data.shards.shard_builder.BATCH", 1000)
    data = made(tmp_path / "a.jsonl", [b"\xff"] * 5000)
    with pytest.raises(
        ValueError,
        match=r"1\d\d of 1\d\d rows cannot be read \(.*a\.jsonl, lines 1, 2, 3, 4, 5, …: not UTF-8",
    ):
        prepare(data, tmp_path / "out", workers=1)


def test_memory_stays_small_beside_an_endless_line(tmp_path: Path) -> None:
    import tracemalloc

    from weft.data.reading.formats.lines import read_lines

    (tmp_path / "a.txt").write_bytes(HUGE * 6 + b"\nnext\n")
    tracemalloc.start()
    found = list(read_lines(str(tmp_path / "a.txt")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [(0, None), (60_000_001, b"next")]
    assert peak < 4 * MAX_LINE_BYTES


def test_a_run_says_which_rows_were_set_aside_each_time_it_starts(tmp_path: Path) -> None:
    made_ = tuned(tmp_path, steps=2)
    made_ = replace(made_, data=replace(made_.data, prepared_folder=str(tmp_path / "once")))
    train = tmp_path / "train.jsonl"
    train.write_text('{"text": "half\n' + train.read_text())
    told: list[str] = []
    for _ in range(2):
        assert list(whole_runs.train(made_, tmp_path / "run", report=told.append)) or told
    said = [line for line in told if "set aside" in line]
    assert len(said) == 2
    assert said[0].startswith(f"1 of 61 train rows set aside ({train}, line 1: bad JSON")
    assert said[0].endswith("quarantine.jsonl")
    train.write_text(
        '{"text": "half\n' * 10 + "".join(train.read_text().splitlines(keepends=True)[1:])
    )
    # the first may still be read
    made_ = replace(made_, data=replace(made_.data, prepared_folder=str(tmp_path / "twice")))
    with pytest.raises(
        ValueError, match=r"10 of 70 rows cannot be read .*--set data\.max_bad_row_fraction=0\.143"
    ):
        list(whole_runs.train(made_, tmp_path / "other"))
    assert [
        *whole_runs.train(
            replace(made_, data=replace(made_.data, max_bad_row_fraction=0.143)), tmp_path / "other"
        )
    ]


def test_the_share_is_refused_where_it_is_none() -> None:
    with pytest.raises(ValueError, match="max_bad_row_fraction"):
        R.Data(rows=R.Documents(), train=R.Source(paths=("a",)), max_bad_row_fraction=1.5)


def test_data_of_other_classes_are_not_called_damaged(tmp_path: Path) -> None:
    row = R.LabelledTexts(labels=("cat", "dog"))
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a", "label": "bird"}\n')
    data = R.Data(rows=row, train=R.Source(paths=(str(path),)), tokenizer=R.ByteTokenizer())
    with pytest.raises(ValueError, match="no row has one of the expected classes") as raised:
        prepare(data, tmp_path / "out")
    assert "label 'bird' is not one of cat, dog" in str(raised.value)
    assert "weft tune" in str(raised.value)
