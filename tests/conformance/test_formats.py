"""Every data format passes the public conformance check."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from weft.cli import parse_arguments
from weft.data.reading.formats.lines import LineFormat, decoded_lines
from weft.recipe import Source
from weft.recipe.data.formats import Format, Piece, SourceItem, SourceRow
from weft.support.registry import NAMED, names, register
from weft.testing import check_format

ROWS = [{"text": f"row {i} ü", "label": i % 3} for i in range(40)]
LINES = "".join(f"line {i} ü\n" + ("\n" if i % 3 == 2 else "") for i in range(40))


def picture() -> bytes:
    held = BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(held, "PNG")
    return held.getvalue()


def write_idx(path: Path, values: np.ndarray) -> None:
    sides = np.array(values.shape, ">u4").tobytes()
    path.write_bytes(bytes((0, 0, 8, values.ndim)) + sides + values.astype(np.uint8).tobytes())


def squad() -> str:
    articles = [
        {
            "title": f"t{i}",
            "paragraphs": [
                {
                    "context": f"loom {i} and warp",
                    "qas": [
                        {
                            "id": f"{i}",
                            "question": "which loom?",
                            "answers": [{"text": f"loom {i}", "answer_start": 0}],
                        }
                    ],
                }
            ],
        }
        for i in range(20)
    ]
    return json.dumps({"version": "1.1", "data": articles})


def write_example(name: str, folder: Path) -> Source:
    """A few rows in each of our formats."""
    given: dict[str, Any] = {"format": name}
    if name == "folder":
        for i in range(8):
            (folder / f"class{i % 2}").mkdir(exist_ok=True)
            (folder / f"class{i % 2}" / f"{i}.png").write_bytes(picture())
        return Source(paths=(str(folder),), **given)
    if name == "idx":
        write_idx(folder / "a-images-idx3-ubyte", np.arange(8 * 4 * 4).reshape(8, 4, 4))
        write_idx(folder / "a-labels-idx1-ubyte", np.arange(8) % 3)
        return Source(paths=(str(folder / "a-*"),), **given)
    if name == "npz":
        images = np.arange(40 * 4 * 4, dtype=np.uint32).astype(np.uint8).reshape(40, 4, 4)
        np.savez(folder / "a.npz", images=images, labels=np.arange(40) % 3)
        return Source(paths=(str(folder / "a.npz"),), **given)
    if name == "coco":
        for i in range(8):
            (folder / f"{i}.png").write_bytes(picture())
        table = {
            "images": [{"id": i, "file_name": f"{i}.png"} for i in range(8)],
            "categories": [{"id": 1, "name": "loom"}],
            "annotations": [
                {"image_id": i, "category_id": 1, "bbox": [0, 0, 2, 2]} for i in range(8)
            ],
        }
        (folder / "a.json").write_text(json.dumps(table))
        return Source(paths=(str(folder / "a.json"), str(folder)), **given)
    if name == "image_table":
        for i in range(8):
            (folder / f"{i}.png").write_bytes(picture())
        lines = "".join(f"{i % 2},{i}\n" for i in range(8))
        (folder / "a.csv").write_text("label,number\n" + lines)
        return Source(paths=(str(folder / "a.csv"), str(folder)), **given)
    if name == "parallel":
        for side in ("en", "de"):
            (folder / f"a.{side}").write_text("".join(f"{side} {i} ü\n" for i in range(40)))
        return Source(paths=(str(folder / "a.en"), str(folder / "a.de")), **given)
    path = folder / f"a.{ {'squad': 'json', 'text': 'txt'}.get(name, name) }"
    if name == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7)
    else:
        path.write_text(
            {
                "text": LINES,
                "jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
                "json": json.dumps(ROWS),
                "csv": "text,label\n" + "".join(f'"{r["text"]},\n",{r["label"]}\n' for r in ROWS),
                "tsv": "text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in ROWS),
                "conll": "".join(f"w{i} O\nx B-LOC\n\n" for i in range(30)),
                "squad": squad(),
            }[name]
        )
    return Source(paths=(str(path),), **given)


@pytest.mark.parametrize("name", [name for name in names(Format) if name != "hub"])
def test_a_format_of_ours_keeps_the_contract(name: str, tmp_path: Path) -> None:
    check_format(name, write_example(name, tmp_path))


def test_the_help_of_prepare_names_every_format_of_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["prepare", "--help"])
    page = capsys.readouterr().out
    assert ", ".join(names(Format)) in " ".join(page.split())


@pytest.mark.parametrize("document", ["file", "line", "heading"])
def test_text_keeps_the_contract_wherever_a_document_ends(document: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES.replace("line 7 ü\n", " = Loom = \n"))
    source = Source(paths=(str(tmp_path / "a.txt"),), document_boundary=document)  # type: ignore[arg-type]
    check_format("text", source)


@pytest.mark.parametrize("name", ["jsonl", "tsv", "csv", "json", "conll"])
def test_a_compressed_file_keeps_the_contract(name: str, tmp_path: Path) -> None:
    source = write_example(name, tmp_path)
    packed = tmp_path / f"b.{name}.gz"
    packed.write_bytes(gzip.compress(Path(source.paths[0]).read_bytes()))
    check_format(name, replace(source, paths=(str(packed),)))


class Stranger(LineFormat):
    """One word per line, as it should be."""

    name = "stranger"

    def rows(
        self, path: str, span: Any, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        for offset, line in decoded_lines(path, span):
            yield SourceRow(offset, {"word": line}) if isinstance(line, str) else line


class Greedy(Stranger):
    """Claims every file."""

    def sniff(self, head: bytes, path: str) -> float:
        return 1.0


class Lost(Stranger):
    """Counts lines where it says bytes."""

    def read(
        self, piece: Piece, source: Source, columns: tuple[str, ...] = ()
    ) -> Iterator[SourceItem]:
        for item in super().read(piece, source, columns):
            yield item._replace(offset=item.offset + 1)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Greedy, "stranger claims a file of jsonl"),
        (Lost, "no line of .* starts at byte 1"),
    ],
)
def test_what_breaks_the_contract_is_named(
    kind: type[Format], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NAMED, Format, dict(NAMED[Format]))
    (tmp_path / "a.words").write_text("loom\nwarp\nweft\nshuttle\n")
    with pytest.raises(AssertionError, match="stranger is not registered"):
        check_format("stranger", tmp_path / "a.words")
    register(kind)
    with pytest.raises(AssertionError, match=complaint):
        check_format("stranger", tmp_path / "a.words")
