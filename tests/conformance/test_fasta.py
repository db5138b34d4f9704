"""A user-defined data format: FASTA from `examples/extend/fasta.py`."""

import gzip
import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from weft import recipe as R
from weft.data.reading.formats.sniff import detect_format
from weft.data.reading.inputs import open_input
from weft.data.reading.rows import load_source
from weft.data.reading.source import resolve_source
from weft.recipe.data.formats import Format
from weft.support.registry import NAMED
from weft.support.values import from_json
from weft.testing import check_format

EXAMPLE = Path(__file__).parents[2] / "examples" / "extend" / "fasta.py"


@pytest.fixture(autouse=True)
def fasta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMED, Format, dict(NAMED[Format]))
    found = spec_from_file_location("fasta_example", EXAMPLE)
    module = module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, module)
    found.loader.exec_module(module)


@pytest.fixture
def proteins(tmp_path: Path) -> Path:
    draw = random.Random(0)
    records = [
        f">p{i} protein number {i}\n"
        + "".join(
            "".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=30)) + "\n" for _ in range(i % 4 + 1)
        )
        + ("\n" if i % 5 == 0 else "")
        for i in range(120)
    ]
    (tmp_path / "proteins.fasta").write_text("".join(records))
    return tmp_path / "proteins.fasta"


def data(path: Path) -> R.Data:
    return R.Data(
        rows=R.Documents(text="sequence"),
        train=R.Source(paths=(str(path),)),
        tokenizer=R.CharacterTokenizer(),
    )


def test_it_keeps_the_contract_of_a_format(proteins: Path) -> None:
    check_format("fasta", proteins)


def test_it_is_recognised_read_and_written_to_json(proteins: Path) -> None:
    plain = proteins.with_suffix("")
    plain.write_bytes(proteins.read_bytes())
    assert detect_format(str(plain)) == "fasta"
    given = resolve_source(R.Source(paths=(str(proteins),)), R.Documents(text="sequence"))
    assert from_json(R.to_json(given)) == given
    assert len(load_source(given)[0]) == 120
    # what `weft fill --input proteins.fasta` reads
    assert open_input(str(proteins)).rows[3].fields["id"] == "p3"


def test_a_compressed_file_is_divided_by_the_users_own_rule(
    proteins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(proteins.parent / "cache"))
    monkeypatch.setattr("weft.data.reading.formats.base.BLOCK", 100)
    packed = proteins.with_suffix(".fasta.gz")
    packed.write_bytes(gzip.compress(proteins.read_bytes()))
    sides = [
        load_source(R.Source(paths=(str(packed),), format="fasta", fraction=part))
        for part in ((0.0, 0.5), (0.5, 1.0))
    ]
    assert [row.fields["id"] for rows, _ in sides for row in rows] == [f"p{i}" for i in range(120)]
    assert not any(bad for _, bad in sides)


def test_a_bad_record_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.fa").write_text("; no name\nACGT\n>one\nACGT\n>two\n12 34\n>three\nTTGA\n")
    rows, bad = load_source(R.Source(paths=(str(tmp_path / "a.fa"),), format="fasta"))
    assert [row.fields["id"] for row in rows] == ["one", "three"]
    assert [(entry["offset"], entry["unit"]) for entry in bad] == [(0, "byte"), (25, "byte")]
