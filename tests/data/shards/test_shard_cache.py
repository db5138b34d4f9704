"""Prepared data on a real object storage server: the same bytes as on disk, lazy downloads,
verification, atomic files.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from weft import recipe as R
from weft.cli import main
from weft.data.preparing.prepare import prepare
from weft.data.reading import source
from weft.data.shards.store import open_store
from weft.support.addresses import ObjectPath, locate
from weft.support.storage import publish, read_range, write_atomically, write_if_changed
from weft.support.values import from_plain, to_plain

from ...object_server import server  # noqa: F401 a fixture
from ..preparing.test_prepare import contents, documents

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture
def root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> ObjectPath:
    monkeypatch.setattr(source, "PIECE_BYTES", 9000)
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "digests"))
    return ObjectPath(f"s3://weft/{abs(hash(request.node.name))}")


def objects(root: ObjectPath) -> dict[str, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*")}


def filtered(data: R.Data) -> R.Data:
    filters = (R.LengthFilter(min_words=2), R.ExactDeduplication())
    train = from_plain(to_plain(data.train) | {"filters": to_plain(filters)})
    plain = to_plain(data) | {"train": to_plain(train)}
    value: R.Data = from_plain(plain)
    return value


def test_an_object_is_a_path(root: ObjectPath) -> None:
    path = root / "a" / "b.json"
    assert not path.exists()
    write_atomically(path, b"0123456789")
    write_if_changed(path, b"0123456789")
    assert (path.name, path.stem, path.suffix, path.parent.name) == ("b.json", "b", ".json", "a")
    assert path.with_suffix(".txt") == root / "a" / "b.txt"
    assert (path.exists(), path.parent.exists(), path.stat().st_size) == (True, False, 10)
    assert (path.read_text(), read_range(path, 2, 5), read_range(path, 5, 5)) == (
        "0123456789",
        b"234",
        b"",
    )
    assert list(root.glob("*/*.json")) == [path] == list(root.rglob("*"))
    assert list(root.glob("*.json")) == []
    path.unlink()
    path.unlink(missing_ok=True)
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        path.read_bytes()
    assert locate("file:///data/x") == Path("/data/x")


def test_a_published_file_moves(root: ObjectPath, tmp_path: Path) -> None:
    local = tmp_path / "file"
    local.write_bytes(bytes(1000))
    publish(local, root / "file")
    assert not local.exists()
    assert (root / "file").read_bytes() == bytes(1000)


def test_the_bytes_are_those_of_a_local_folder(root: ObjectPath, tmp_path: Path) -> None:
    data = filtered(documents(tmp_path))
    expected = contents(Path(str(prepare(data, tmp_path / "out", workers=1).folder)))
    before = set(tmp_path.rglob("*.tmp"))
    assert prepare(data, str(root), workers=1).folder == root
    assert objects(root) == expected
    assert set(tmp_path.rglob("*.tmp")) == before


def test_stopped_after_every_few_writes_it_continues_to_the_same_bytes(
    root: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index comes last, and what it names is there."""
    data = filtered(documents(tmp_path))
    expected = contents(Path(str(prepare(data, tmp_path / "out", workers=1).folder)))
    real = {name: getattr(ObjectPath, name) for name in ("write_bytes", "upload")}
    left = 0
    indexed = []

    def limited(name: str) -> Any:
        def write(path: ObjectPath, content: Any) -> None:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            real[name](path, content)
            if path.name == "index.json":
                files = [shard["file"] for shard in json.loads(path.read_bytes())["shards"]]
                indexed.extend((path.parent / file).exists() for file in files)

        return write

    for name in real:
        monkeypatch.setattr(ObjectPath, name, limited(name))
    for stops in range(40):
        left = 6 + stops % 2
        try:
            prepare(data, str(root), workers=1)
            break
        except KeyboardInterrupt:
            continue
    assert 1 < stops < 39
    assert indexed
    assert all(indexed)
    assert objects(root) == expected


def test_training_data_are_fetched_shard_by_shard_and_verified(
    root: ObjectPath, tmp_path: Path
) -> None:
    data = documents(tmp_path)
    prepare(data, str(root), workers=1)
    local = open_store(str(prepare(data, tmp_path / "out", workers=1).folder))
    store = open_store(str(root))
    last = len(store) - 1
    assert store.row(last)["tokens"].tolist() == local.row(last)["tokens"].tolist()
    cached = list((tmp_path / "cache").rglob("*.arrow"))
    assert [path.name for path in cached] == [store.entries[-1].file]
    shard = root / "train" / store.entries[0].file
    whole = bytearray(shard.read_bytes())
    whole[len(whole) // 2] ^= 1
    shard.write_bytes(bytes(whole))
    with pytest.raises(ValueError, match=r"is damaged \(its SHA-256 .* run weft prepare again"):
        open_store(str(root)).row(0)
    prepare(data, str(root), workers=1, verify=True)
    assert open_store(str(root)).row(0)["tokens"].tolist() == local.row(0)["tokens"].tolist()


def test_what_is_finished_is_not_uploaded_again_and_a_foreign_folder_is_refused(
    root: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = documents(tmp_path)
    prepare(data, str(root), workers=1)
    monkeypatch.setattr(ObjectPath, "upload", None)
    monkeypatch.setattr(ObjectPath, "write_bytes", None)
    prepare(data, str(root), workers=1, verify=True)
    monkeypatch.undo()
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    (root / "other" / "notes.txt").write_bytes(b"theirs")
    with pytest.raises(ValueError, match=r"files that weft prepare did not write \(notes\.txt\)"):
        prepare(data, f"{root}/other", workers=1)


def test_the_command_writes_there_and_a_run_trains_from_there(
    root: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\n\n".join(f"some text number {i}" for i in range(400)))
    recipe = f"""
import weft
from weft import recipe as R
recipe = R.Recipe(
    name="far",
    model=weft.gpt2(depth=1, width=16, heads=2, hidden=32, vocab_size=261, context_length=32),
    task=R.CausalLM(),
    data=R.Data(rows=R.Documents(), train=R.Source(paths=("a.txt",)), tokenizer=R.ByteTokenizer(),
                prepared_folder="{root}"),
    batch=R.FixedBatch(size=2, length=16),
    optimiser=R.AdamW(lr=1e-3),
    schedule=R.ConstantSchedule(),
    steps=2,
)
"""
    (tmp_path / "far.py").write_text(recipe)
    assert main(["prepare", "far.py", "--workers", "1"]) == 0
    assert f"{root}" in capsys.readouterr().out
    assert main(["train", "far.py"]) == 0
    assert list((tmp_path / "cache").rglob("*.arrow"))
    (tmp_path / "a.txt").write_text("\n\n".join(f"another text number {i}" for i in range(400)))
    assert main(["train", "far.py", "--output", "other"]) == 2
    assert f"{root} contains prepared data of other files" in capsys.readouterr().err


def test_a_bucket_that_does_not_exist_is_one_line(
    root: ObjectPath, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "a.txt").write_text("some text\n\nmore text")
    words = ["prepare", str(tmp_path / "a.txt"), "--output", "s3://nowhere/x", "--workers", "1"]
    assert main([*words, "--tokenizer", "bytes"]) == 2
    error = capsys.readouterr().err
    assert "s3://nowhere/x" in error
    assert error.count("\n") == 1


def test_the_copies_stay_within_their_limit_and_the_data_is_still_read(
    root: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(documents(tmp_path), str(root), workers=1)
    largest = max(len(content) for name, content in objects(root).items() if "arrow" in name)

    def tokens() -> list[int]:
        store = open_store(root)
        return [t for s in range(len(store.entries)) for t in store.shard(s).stream.tolist()]

    whole = tokens()
    copies = [*(tmp_path / "cache").rglob("*.arrow")]
    assert sum(path.stat().st_size for path in copies) > 1.5 * largest
    monkeypatch.setenv("WEFT_CACHE_GB", str(1.5 * largest / 1e9))
    for path in copies:
        path.unlink()
    assert tokens() == whole
    assert sum(p.stat().st_size for p in (tmp_path / "cache").rglob("*.arrow")) <= 1.5 * largest
    for wrong, words in ((str(0.5 * largest / 1e9), "no space for a shard"), ("many", "gigabytes")):
        monkeypatch.setenv("WEFT_CACHE_GB", wrong)
        for path in (tmp_path / "cache").rglob("*.arrow"):
            path.unlink()
        with pytest.raises(ValueError, match=words):
            tokens()
