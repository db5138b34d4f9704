"""Preparing on a Ray cluster: one cluster of two workers for all tests, which need ray:
`scripts/rotation on_ray`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.data.preparing.prepare import PrepareProgress, prepare
from weft.data.reading import source
from weft.support.values import from_plain, to_plain

from .test_filters import near_lines, words
from .test_prepare import contents

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed (pip install -e '.[ray]')")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def data_of(folder: Path, *filters: R.Filter, **more: Any) -> R.Data:
    lines = [*near_lines(30), *(f"short {i % 5}" for i in range(30)), words(60, 0)]
    (folder / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    given = R.Source(paths=(str(folder / "a.txt"),), document_boundary="line", filters=filters)
    return R.Data(
        rows=R.Documents(), train=given, valid=given, tokenizer=R.ByteBPE(vocab_size=300), **more
    )


def test_two_workers_of_ray_give_the_bytes_of_one_process(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", 1500)
    filters = (R.LengthFilter(min_words=2), R.ExactDeduplication(), R.NearDeduplication())
    data = data_of(tmp_path, *filters)
    expected = contents(Path(str(prepare(data, tmp_path / "one", workers=1).folder)))
    assert sum(name.endswith(".arrow") for name in expected) > 8
    reports: list[PrepareProgress] = []
    folder = prepare(data, tmp_path / "two", on="ray", report=reports.append).folder
    assert contents(Path(str(folder))) == expected
    stages = {p.stage for p in reports if p.done == 1}
    assert {"train (rows to keep)", "train (duplicates)", "train", "valid"} <= stages
    assert [p.speed for p in reports if p.stage == "train"][-1] > 0


def test_work_is_done_in_other_processes_and_their_errors_are_one_line(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PIECE_BYTES", 1500)
    # of this process
    monkeypatch.setattr("weft.data.shards.shard_builder.ShardBuilder.build", None)
    folder = prepare(data_of(tmp_path), tmp_path / "out", on="ray").folder
    assert (folder / "train" / "index.json").exists()
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"other": i}) + "\n" for i in range(12_000)))
    given = R.Source(paths=(str(path),), format="jsonl")
    bad = from_plain(to_plain(data_of(tmp_path)) | {"train": to_plain(given)})
    with pytest.raises(ValueError, match="rows cannot be read") as error:
        prepare(bad, tmp_path / "bad", on="ray")
    assert "\n" not in str(error.value)


def test_a_part_of_ones_own_is_imported_there(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.cli import main

    monkeypatch.chdir(tmp_path)
    code = """import weft
from weft import recipe as R

@weft.register
class VowelFilter(R.QualityFilter):
    name = "vowels"

@weft.implements(VowelFilter)
class VowelRule:
    def __init__(self, value): ...
    def __call__(self, text):
        return "vowel" if text[0] in "aeiou" else None
"""
    (tmp_path / "vowels.py").write_text(code)
    (tmp_path / "a.txt").write_text("apple\n\ntree\n\nelm\n\nbush\n")
    command = ["prepare", "a.txt", "--output", "out", "--tokenizer", "bytes", "--on", "ray"]
    assert main([*command, "--filters", "vowels", "--code", "vowels.py"]) == 0
    report = json.loads((tmp_path / "out" / "train" / "filters.json").read_text())
    assert (report["rows"], report["kept"]) == (4, 2)
