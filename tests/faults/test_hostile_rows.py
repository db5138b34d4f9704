"""Invalid rows of every kind are quarantined with file and position, and valid rows are kept."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.tuned_data import examples_of
from weft import recipe as R
from weft.cli import main
from weft.data.preparing.prepare import prepare
from weft.data.reading.formats.json_cursor import JSONCursor
from weft.data.reading.inputs import open_input
from weft.data.reading.rows import load_source
from weft.data.reading.source import resolve_source

GOOD: dict[str, tuple[R.RowSchema, dict[str, Any]]] = {
    "documents": (R.Documents(), {"text": "good"}),
    "pairs": (R.SourceTargetPairs(), {"source": "good", "target": "gut"}),
    "templated": (
        R.TemplatedPairs(template="{text}", labels=("no", "yes")),
        {"text": "good", "target": "no"},
    ),
    "classes": (R.LabelledTexts(), {"text": "good", "label": "no"}),
    "numbers": (R.LabelledTexts(numeric_label=True), {"text": "good", "label": 1.5}),
    "choices": (
        R.ChoiceQuestions(endings=("a", "b")),
        {"context": "good", "a": "x", "b": "y", "label": 1},
    ),
    "list of choices": (
        R.ChoiceQuestions(endings=("endings",)),
        {"context": "good", "endings": ["x", "y"], "label": 1},
    ),
    "tagged": (R.TaggedWords(), {"words": ["good", "word"], "tags": ["O", "B"]}),
}
HOSTILE = [
    None,
    True,
    -1,
    3,
    1.5,
    10**400,
    1e300,
    -1e300,
    float("inf"),
    float("nan"),
    "",
    "  ",
    "\0",
    "nan",
    "1" * 5000,
    "\ud800",
    [],
    {},
    [None],
    [1, 2],
    [[]],
    [{}],
    ["x", None],
    ["x", ""],
    ["x", 10**400],
    {"bytes": None},
    [float("inf")] * 2,
]
FINE = 40  # good rows around each


def prepared(
    folder: Path, row: R.RowSchema, lines: list[dict[str, Any]], ending: str
) -> tuple[Path, R.Data]:
    path = folder / f"a.{ending}"
    path.write_text("\n".join(map(json.dumps, lines)) if ending == "jsonl" else json.dumps(lines))
    data = R.Data(
        rows=row,
        train=R.Source(paths=(str(path),)),
        tokenizer=R.ByteTokenizer(),
        max_bad_row_fraction=0.9,
    )
    return prepare(data, folder / "out", workers=1).folder, data


@pytest.mark.parametrize("ending", ["jsonl", "json"])
@pytest.mark.parametrize("kind", GOOD)
def test_a_hostile_value_is_a_row_or_is_set_aside(tmp_path: Path, kind: str, ending: str) -> None:
    row, good = GOOD[kind]
    bad = [good | {name: value} for name in good for value in HOSTILE]
    folder, _ = prepared(tmp_path, row, [*[good] * FINE, *bad, good], ending)
    rows = json.loads((folder / "train" / "index.json").read_text())["rows"]
    aside = [
        json.loads(line)
        for line in (folder / "train" / "quarantine.jsonl").read_text().splitlines()
    ]
    assert rows + len(aside) == FINE + len(bad) + 1
    assert len(aside) >= len(bad) // 2
    assert all(
        entry["file"] == str(tmp_path / f"a.{ending}")
        and entry["offset"]
        and "\n" not in entry["reason"]
        for entry in aside
    )
    table = pa.ipc.open_file(str(folder / "train" / "00000.arrow")).read_all()
    for name in table.column_names:
        if pa.types.is_floating(table[name].type):
            assert np.isfinite(table[name].to_numpy()).all()


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value)[:20])
def test_fine_tuning_reads_a_hostile_label_by_the_same_rule(tmp_path: Path, value: Any) -> None:
    rows = [{"text": f"some words of row {i}", "label": ("no", "yes")[i % 2]} for i in range(FINE)]
    tags = [{"words": ["two", "words"], "tags": ["O", ("B", "I")[i % 2]]} for i in range(FINE)]
    for name, lines, change in (
        ("label", rows, {"label": value}),
        ("tags", tags, {"tags": value}),
        ("words", tags, {"words": value}),
    ):
        path = tmp_path / f"{name}.jsonl"
        # the first row tells what columns hold
        for order in (
            [*lines, lines[0] | change],
            [lines[0] | change, *lines],
        ):
            path.write_text("\n".join(map(json.dumps, order)))
            found = examples_of(
                [str(path)], task="tag" if name != "label" else "classify", max_bad_rows=0.1
            )
            assert len(found.rows) + len(found.notes) == FINE + 1


def test_a_time_that_python_does_not_have_is_a_bad_row_of_parquet(tmp_path: Path) -> None:
    times = pa.array([0, 2**62, 5], pa.timestamp("us"))
    pq.write_table(pa.table({"text": ["a", "b", "c"], "time": times}), tmp_path / "a.parquet")
    found, bad = load_source(
        resolve_source(R.Source(paths=(str(tmp_path / "a.parquet"),)), R.Documents())
    )
    assert [item.fields["text"] for item in found] == ["a", "c"]
    (entry,) = bad
    assert (entry["file"], entry["offset"], entry["unit"]) == (
        str(tmp_path / "a.parquet"),
        1,
        "row",
    )


def flipped(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95, "checksum"])
def test_no_row_of_a_damaged_archive_is_used_and_other_files_are(
    tmp_path: Path,
    share: float | str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Damage may only show at the end, in the checksum: what was unpacked before it may be wrong
    already.
    """
    monkeypatch.setattr("weft.data.reading.files.STEP", 256)
    good = "".join(json.dumps({"text": f"good {i}"}) + "\n" for i in range(3000))
    packed = gzip.compress(
        "".join(json.dumps({"text": f"row {i} {i * i % 97}"}) + "\n" for i in range(200)).encode()
    )
    (tmp_path / "a.jsonl").write_text(good)
    (tmp_path / "b.jsonl.gz").write_bytes(
        flipped(packed, len(packed) - 6 if isinstance(share, str) else int(len(packed) * share))
    )
    data = R.Data(
        rows=R.Documents(),
        train=R.Source(paths=(str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl.gz"))),
        tokenizer=R.ByteTokenizer(),
    )
    folder = prepare(replace(data, max_bad_row_fraction=0.5), tmp_path / "out", workers=1).folder
    aside = [
        json.loads(line)
        for line in (folder / "train" / "quarantine.jsonl").read_text().splitlines()
    ]
    assert json.loads((folder / "train" / "index.json").read_text())["rows"] == 3000
    assert 1 <= len(aside) <= 200
    assert len(aside) > 150 or share != "checksum"
    assert (
        main(
            [
                "prepare",
                str(tmp_path / "b.jsonl.gz"),
                str(tmp_path / "a.jsonl"),
                "--tokenizer",
                "bytes",
                "--max-bad-row-fraction",
                "0.5",
                "--output",
                str(tmp_path / "again"),
            ]
        )
        == 0
    )
    assert (
        f"{len(aside):,} of {3000 + len(aside):,} train rows set aside" in capsys.readouterr().err
    )
    assert all(
        entry["file"].endswith("b.jsonl.gz") and "cannot be unpacked" in entry["reason"]
        for entry in aside
    )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "device", "dangling", "circle"])
@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.parquet", "a.jsonl.gz", "a"])
def test_what_is_no_file_is_one_line_and_never_blocks(
    tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(
            {"device": "/dev/zero", "dangling": tmp_path / "nothing", "circle": path}[kind]
        )
    for words in (
        ["prepare", str(path), "--output", str(tmp_path / "out")],
        ["tune", str(tmp_path), "--data", str(path)],
        ["prepare", str(path), str(path), "--rows", "pairs", "--output", str(tmp_path / "out")],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.startswith("weft: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(60)
def test_a_device_is_not_read_for_questions(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="not a regular file"):
        open_input(str(tmp_path / "a")).readable()


# Large JSON


@pytest.mark.parametrize("block", [1, 3, 64, 1 << 20])
def test_a_cursor_reads_what_json_reads_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("weft.data.reading.files.BLOCK", block)
    draw = np.random.default_rng(0)
    path = tmp_path / "a.json"

    def some(depth: int) -> Any:
        kind = int(draw.integers(9 if depth else 7))
        if kind > 6:
            return (
                [some(depth - 1) for _ in range(draw.integers(4))]
                if kind == 7
                else {f'k{i}é"': some(depth - 1) for i in range(draw.integers(4))}
            )
        return [
            None,
            True,
            False,
            int(draw.integers(-9, 10**9)),
            float(draw.random()),
            'é😀\\"\n' * int(draw.integers(4)),
            -0.5e-7,
        ][kind]

    for indent in (None, 1):
        for ascii_ in (True, False):
            held = [some(3) for _ in range(20)]
            path.write_text(json.dumps(held, indent=indent, ensure_ascii=ascii_))
            cursor = JSONCursor(str(path))
            assert [cursor.value() for _ in cursor.elements()] == held
            cursor.end()


def test_a_value_without_end_is_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.data.reading.formats.json_cursor.MAX_VALUE_CHARACTERS", 1 << 16)
    monkeypatch.setattr("weft.data.reading.files.BLOCK", 1 << 12)
    (tmp_path / "a.json").write_text('["' + "x" * (1 << 20))
    cursor = JSONCursor(str(tmp_path / "a.json"))
    with pytest.raises(
        ValueError, match=r"a\.json is not JSON: a value of more than 65,536 characters"
    ):
        [cursor.value() for _ in cursor.elements()]
    assert len(cursor.text) <= 1 << 18


SQUAD = """
import sys
from weft.data.reading.formats.squad import read_squad
def peak():                                # getrusage would tell the parent's, where that is larger
    lines = open("/proc/self/status")
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
before = peak()
rows = sum(1 for _ in read_squad(sys.argv[1], (0.0, 1.0)))
print(rows, peak() - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc"
)
def test_squad_is_read_in_bounded_memory(tmp_path: Path, long: bool) -> None:
    """Of 336 MB with `--long`. Read whole, it took more than twice its size."""
    articles = 8000 if long else 400
    context = "word " * 2000
    with open(tmp_path / "a.json", "w") as out:
        out.write('{"version": "v2.0", "data": [')
        for i in range(articles):
            asked = [
                {
                    "id": f"{i}-{j}",
                    "question": "which word?",
                    "answers": [{"text": "word", "answer_start": 0}],
                }
                for j in range(5)
            ]
            article = {"title": str(i), "paragraphs": [{"context": context, "qas": asked}] * 4}
            out.write("," if i else "")
            out.write(json.dumps(article))
        out.write("]}")
    said = subprocess.run(
        [sys.executable, "-c", SQUAD, str(tmp_path / "a.json")],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rows, kilobytes = map(int, said.split())
    assert rows == articles * 20
    assert kilobytes < 16 << 10, (
        f"{kilobytes} kB for {(tmp_path / 'a.json').stat().st_size / 1e6:.0f} MB"
    )
