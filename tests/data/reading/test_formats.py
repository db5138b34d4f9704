"""Image formats idx, npz and Parquet: published files, limits, and errors that name damaged
files.
"""

import gzip
import json
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from weft import recipe as R
from weft.commands.prepare import data_from_options
from weft.commands.train_options import PrepareOptions
from weft.data.images import images as images_module
from weft.data.images.images import decode, encode_pixels, raw_image, stored_image
from weft.data.preparing.prepare import prepare
from weft.data.reading.formats import idx as idx_module
from weft.data.reading.formats import npz as npz_module
from weft.data.reading.source import resolve_source, split_source
from weft.data.shards.store import Store, open_store
from weft.testing import check_format

DRAW = np.random.default_rng(0)
PIXELS = DRAW.integers(0, 256, (30, 9, 7), np.uint8)
LABELS = np.arange(30) % 4


def idx(values: np.ndarray) -> bytes:
    sides = np.array(values.shape, ">u4").tobytes()
    return bytes((0, 0, 8, values.ndim)) + sides + values.astype(np.uint8).tobytes()


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    out = BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def write_pair(folder: Path, name: str, packed: bool = False) -> None:
    for part, values in (("images-idx3", PIXELS), ("labels-idx1", LABELS)):
        data = idx(values)
        path = folder / f"{name}-{part}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(data) if packed else data)


def prepared(tmp_path: Path, *paths: Any, **more: Any) -> Store:
    source = R.Source(paths=tuple(map(str, paths)))
    data = R.Data(rows=R.LabelledImages(), train=source, **more)
    return open_store(prepare(data, tmp_path / "prepared", workers=1).folder)


def grey(store: Store, i: int) -> np.ndarray:
    return np.asarray(decode(store.row(i)["image"], channels=1))


# idx


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("how", ["two files", "glob", "folder"])
def test_idx_is_read_pixel_by_pixel_from_two_files_a_glob_or_a_folder(
    tmp_path: Path, packed: bool, how: str
) -> None:
    write_pair(tmp_path, "train", packed)
    end = ".gz" if packed else ""
    names = [f"train-{part}-ubyte{end}" for part in ("images-idx3", "labels-idx1")]
    paths = {"two files": names, "glob": ["train-*"], "folder": ["."]}[how]
    store = prepared(tmp_path, *(tmp_path / name for name in paths))
    assert len(store) == 30
    assert store.meta.labels == ("0", "1", "2", "3")
    for i in range(30):
        assert store.row(i)["label"] == LABELS[i]
        assert np.array_equal(grey(store, i), PIXELS[i])


def test_a_folder_with_training_and_test_files_asks_which(tmp_path: Path) -> None:
    write_pair(tmp_path, "train")
    write_pair(tmp_path, "t10k")
    with pytest.raises(ValueError, match=r"2 pairs of idx files; give .*t10k-\* or .*train-\*"):
        prepared(tmp_path, tmp_path)
    assert len(prepared(tmp_path, tmp_path / "t10k-*")) == 30


def test_packed_idx_keeps_the_contract(tmp_path: Path) -> None:
    write_pair(tmp_path, "a", packed=True)
    check_format("idx", R.Source(paths=(str(tmp_path / "a-*"),)))


def test_idx_files_that_do_not_belong_together_or_claim_too_much_are_named(tmp_path: Path) -> None:
    write_pair(tmp_path, "a")
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(idx(LABELS[:20]))
    with pytest.raises(ValueError, match=r"30 images, .* 20 labels"):
        prepared(tmp_path, tmp_path / "a-*")
    with pytest.raises(ValueError, match="not 1 and 0; give both"):
        prepared(tmp_path, tmp_path / "a-images-idx3-ubyte")
    bomb = bytes((0, 0, 8, 3)) + np.array((60_000, 28, 28), ">u4").tobytes() + b"x"
    (tmp_path / "a-images-idx3-ubyte").write_bytes(bomb)
    with pytest.raises(ValueError, match=r"idx3-ubyte .* 47,040,016 bytes.* 17;"):
        prepared(tmp_path, tmp_path / "a-*")


def test_rows_of_a_cut_off_archive_are_set_aside(tmp_path: Path) -> None:
    write_pair(tmp_path, "a", packed=True)
    path = tmp_path / "a-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"30 of 30 rows cannot be read .*cannot be unpacked"):
        prepared(tmp_path, path, tmp_path / "a-labels-idx1-ubyte.gz")


def test_an_archive_that_cannot_be_unpacked_is_one_line(tmp_path: Path) -> None:
    """zlib has an error of its own."""
    write_pair(tmp_path, "a", packed=True)
    path = tmp_path / "a-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:10] + b"\xff" + whole[11:])
    with pytest.raises(ValueError, match=r"ubyte\.gz cannot be unpacked: .*; download it again"):
        prepared(tmp_path, path, tmp_path / "a-labels-idx1-ubyte.gz")


def test_damage_before_the_rows_that_are_read_is_one_line(tmp_path: Path) -> None:
    """As of an address, whose archive is not read twice."""
    path = tmp_path / "a-images-idx3-ubyte.gz"
    whole = idx(np.random.default_rng(0).integers(0, 256, (1000, 28, 28), np.uint8))
    packer = zlib.compressobj(wbits=31)
    start = packer.compress(whole[:400_000]) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(start + b"\xff" * 9)  # no kind of block
    assert len(list(idx_module.iterate_rows(str(path), 0, 9))) == 9
    with pytest.raises(ValueError, match=r"cannot be unpacked: .*; download it again"):
        list(idx_module.iterate_rows(str(path), 900, 1000))


# npz


@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 1), (9, 7, 3)])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_of_arrays_is_read_pixel_by_pixel(
    tmp_path: Path, shape: tuple[int, ...], save: Any
) -> None:
    pixels = DRAW.integers(0, 256, (30, *shape), np.uint8)
    save(tmp_path / "a.npz", images=pixels, labels=LABELS)
    store = prepared(tmp_path, tmp_path / "a.npz")
    for i in range(30):
        image = decode(store.row(i)["image"], 3 if shape[2:] == (3,) else 1)
        assert np.array_equal(np.asarray(image), pixels[i].squeeze())
        assert store.row(i)["label"] == LABELS[i]


def test_labels_may_be_a_column(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS[:, None])
    store = prepared(tmp_path, tmp_path / "a.npz")
    assert [store.row(i)["label"] for i in range(30)] == LABELS.tolist()


def jpeg_archive(path: Path, **change: Any) -> list[bytes]:
    draw = np.random.default_rng(1)
    files = [encoded(draw.integers(0, 256, (8, 8, 3), np.uint8), "JPEG") for _ in range(30)]
    arrays = {
        "jpeg": np.frombuffer(b"".join(files), np.uint8),
        "offsets": np.cumsum([0, *map(len, files)]),
        "labels": LABELS.astype(np.uint8),
        "classes": np.array(["warp", "weft", "loom", "reed"]),
    }
    np.savez(path, **(arrays | change))
    return files


def test_npz_of_encoded_files_end_to_end_has_their_pixels_and_names_of_classes(
    tmp_path: Path,
) -> None:
    files = jpeg_archive(tmp_path / "a.npz")
    store = prepared(tmp_path, tmp_path / "a.npz")
    assert store.meta.labels == ("loom", "reed", "warp", "weft")
    for i, file in enumerate(files):
        expected = np.asarray(Image.open(BytesIO(file)).convert("RGB"))
        assert np.array_equal(np.asarray(decode(store.row(i)["image"])), expected)
        assert store.meta.labels[store.row(i)["label"]] == ("warp", "weft", "loom", "reed")[i % 4]


def test_npz_of_encoded_files_keeps_the_contract(tmp_path: Path) -> None:
    jpeg_archive(tmp_path / "a.npz")
    check_format("npz", tmp_path / "a.npz")


def test_offsets_and_labels_out_of_range_are_set_aside(tmp_path: Path) -> None:
    wrong = LABELS.astype(np.uint8)
    wrong[3] = 9
    offsets = np.cumsum([0, *map(len, jpeg_archive(tmp_path / "a.npz"))])
    offsets[7] = 1 << 40
    jpeg_archive(tmp_path / "a.npz", labels=wrong, offsets=offsets)
    store = prepared(tmp_path, tmp_path / "a.npz", max_bad_row_fraction=0.2)
    assert len(store) < 30
    lines = (tmp_path / "prepared/train/quarantine.jsonl").read_text().splitlines()
    reasons = {entry["offset"]: entry["reason"] for entry in map(json.loads, lines)}
    assert reasons[3] == "label 9 of 4 classes"
    assert "bytes" in reasons[6]
    assert "bytes" in reasons[7]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": np.zeros(3)}, "holds the arrays a; images are read from `images` and `labels`"),
        ({"images": PIXELS, "labels": LABELS[:9]}, "30 images and 9 labels"),
        ({"images": PIXELS.astype(np.float32), "labels": LABELS}, "float32 of shape"),
        ({"images": PIXELS[0], "labels": LABELS[:9]}, "give uint8"),
        ({"images": np.asfortranarray(PIXELS), "labels": LABELS}, "not a whole array"),
        (
            {"images": PIXELS, "y": np.eye(4)[LABELS]},
            r"labels have the shape \(30, 4\); give one per image, of one-hot rows "
            r"labels\.argmax\(1\)",
        ),
    ],
    ids=["other names", "lengths", "floats", "one image", "columns first", "one-hot labels"],
)
def test_an_archive_that_is_no_images_is_refused_in_one_line(
    tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        prepared(tmp_path, tmp_path / "a.npz")


class Canary:
    """Leaves a trace if it is unpickled."""

    path = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path(self.path).touch, ())


def test_an_array_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    Canary.path = str(tmp_path / "canary")
    objects = np.empty(30, object)
    objects[0] = Canary()
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=objects)
    with pytest.raises(ValueError, match=r"labels.npy is object"):
        prepared(tmp_path, tmp_path / "a.npz")
    assert not (tmp_path / "canary").exists()


def test_an_archive_that_would_unpack_without_end_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((99, 99, 99), np.uint8), labels=LABELS)
    monkeypatch.setattr(npz_module, "UNPACKED", 1e-6)
    with pytest.raises(ValueError, match=r"images.npy claims 970,427 bytes"):
        prepared(tmp_path, tmp_path / "a.npz")


def test_a_header_whose_product_overflows_is_refused(tmp_path: Path) -> None:
    """2^32 × 2^32 rows are 0 in 64 bits."""
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }"
    body = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as file:
        file.writestr("images.npy", body)
        with zipfile.ZipFile(tmp_path / "a.npz") as good:
            file.writestr("labels.npy", good.read("labels.npy"))
    with pytest.raises(ValueError, match=r"images.npy is uint8 of shape .* not a whole array"):
        prepared(tmp_path, tmp_path / "b.npz")


def test_names_of_classes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS, classes=np.array(["a", "b", "c"]))
    monkeypatch.setattr(npz_module, "MAX_CLASSES", 2)
    with pytest.raises(ValueError, match=r"a\.npz: classes has 3 names.*at most 2"):
        prepared(tmp_path, tmp_path / "a.npz")


def test_a_compressed_archive_is_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from its start for every few rows."""
    pixels = np.random.default_rng(0).integers(0, 256, (400, 50, 50), np.uint8)
    np.savez_compressed(tmp_path / "a.npz", images=pixels, labels=np.zeros(400))
    monkeypatch.setattr(npz_module, "ROWS_PER_READ", 10)
    source = resolve_source(R.Source(paths=(str(tmp_path / "a.npz"),)), R.LabelledImages())
    (piece,) = split_source(source)
    unpacked = 0
    plain = zipfile.ZipExtFile._read1  # type: ignore[attr-defined]

    def counted(self: zipfile.ZipExtFile, n: int) -> bytes:
        nonlocal unpacked
        data: bytes = plain(self, n)
        unpacked += len(data)
        return data

    monkeypatch.setattr(zipfile.ZipExtFile, "_read1", counted)
    rows = list(npz_module.NPZ.read(piece, source))
    assert len(rows) == 400
    assert unpacked < 1.2 * pixels.nbytes


def test_a_changed_byte_in_an_archive_is_found_by_its_checksum(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[900] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.npz is damaged: images\.npy"):
        prepared(tmp_path, tmp_path / "a.npz")


# Parquet


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_parquet_of_images_is_read_with_its_labels_as_numbers_or_names(
    tmp_path: Path, wrapped: bool, named: bool
) -> None:
    files = [encoded(pixels) for pixels in PIXELS]
    cells = [{"bytes": file, "path": None} if wrapped else file for file in files]
    labels = [f"class {n}" if named else int(n) for n in LABELS]
    pq.write_table(pa.table({"image": cells, "label": labels}), tmp_path / "a.parquet")
    store = prepared(tmp_path, tmp_path / "a.parquet")
    assert store.meta.labels == tuple(f"class {n}" if named else str(n) for n in range(4))
    for i in range(30):
        assert np.array_equal(grey(store, i), PIXELS[i])
        assert store.row(i)["label"] == LABELS[i]


def labelled_by_datasets(path: Path, labels: list[int], names: list[str]) -> None:
    """A table as the `datasets` library writes it: images, numbers, and what the numbers
    stand for.
    """
    import datasets

    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    cells = [{"bytes": encoded(pixels), "path": None} for pixels in PIXELS]
    table = datasets.Dataset.from_dict(
        {"image": cells, "label": labels}, features=datasets.Features(features)
    )
    table.to_parquet(str(path))


def test_names_of_classes_that_the_datasets_library_keeps_are_those_of_the_labels(
    tmp_path: Path,
) -> None:
    """In their order, with a class that no image has; a row whose class is unknown is set aside."""
    pytest.importorskip("datasets")
    names = ["zebra", "ape", "cat", "dog", "newt"]
    labels = [-1, *LABELS[1:].tolist()]
    labelled_by_datasets(tmp_path / "a.parquet", labels, names)
    store = prepared(tmp_path, tmp_path / "a.parquet", max_bad_row_fraction=0.1)
    assert store.meta.labels == tuple(names)
    assert [store.row(i)["label"] for i in range(len(store))] == labels[1:]


def test_files_whose_classes_differ_share_the_names_of_both(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    names = ["zebra", "ape", "cat", "dog"]
    labelled_by_datasets(tmp_path / "a.parquet", LABELS.tolist(), names)
    labelled_by_datasets(tmp_path / "b.parquet", LABELS.tolist(), names[::-1])
    store = prepared(tmp_path, tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert store.meta.labels == tuple(sorted(names))
    classes = [store.meta.labels[store.row(i)["label"]] for i in range(60)]
    assert classes == [names[n] for n in LABELS] + [names[::-1][n] for n in LABELS]


@pytest.mark.parametrize(
    "metadata",
    [
        b"{",
        b"[]",
        b"null",
        b'{"info": {"features": {"label": {"_type": "ClassLabel"}}}}',
        b'{"info": {"features": {"label": {"_type": "ClassLabel", "names": "ab"}}}}',
        b'{"info": {"features": {"label": {"_type": "ClassLabel", "names": ["a", "a"]}}}}',
        b'{"info": {"features": {"label": {"_type": "Value"}, "other": 3}}}',
        b"[" * 100_000,
    ],
)
def test_damaged_names_of_classes_leave_numbers(tmp_path: Path, metadata: bytes) -> None:
    table = pa.table({"image": [encoded(pixels) for pixels in PIXELS], "label": LABELS})
    table = table.replace_schema_metadata({b"huggingface": metadata})
    pq.write_table(table, tmp_path / "a.parquet")
    assert prepared(tmp_path, tmp_path / "a.parquet").meta.labels == ("0", "1", "2", "3")


def test_other_columns_of_a_table_are_named_by_the_row(tmp_path: Path) -> None:
    files = [encoded(pixels) for pixels in PIXELS]
    table = pa.table({"image": [b""] * 30, "img": files, "fine_label": LABELS, "label": ["x"] * 30})
    pq.write_table(table, tmp_path / "a.parquet")
    paths = [str(tmp_path / "a.parquet")]
    data = data_from_options(
        PrepareOptions(paths=paths, rows="images", columns=("img", "fine_label"))
    )
    assert data.rows == R.LabelledImages(image="img", label="fine_label")
    store = open_store(prepare(data, tmp_path / "prepared", workers=1).folder)
    assert store.meta.labels == ("0", "1", "2", "3")
    for i in range(30):
        assert np.array_equal(grey(store, i), PIXELS[i])
        assert store.row(i)["label"] == LABELS[i]


def test_a_spoilt_image_of_a_table_is_set_aside_with_its_row(tmp_path: Path) -> None:
    cells = [encoded(pixels) for pixels in PIXELS]
    cells[5] = cells[5][:40]
    pq.write_table(pa.table({"image": cells, "label": LABELS}), tmp_path / "a.parquet")
    assert len(prepared(tmp_path, tmp_path / "a.parquet")) == 29
    (entry,) = map(
        json.loads, (tmp_path / "prepared/train/quarantine.jsonl").read_text().splitlines()
    )
    assert (entry["offset"], entry["file"]) == (5, str(tmp_path / "a.parquet"))


# What is stored


@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3), (1, 1), (1, 1, 3)])
def test_raw_pixels_are_a_file_that_pillow_reads_and_our_reader_gives_the_same(
    shape: tuple[int, ...],
) -> None:
    pixels = DRAW.integers(0, 256, shape, np.uint8)
    data = encode_pixels(pixels)
    ours = raw_image(data)
    assert ours is not None
    assert np.array_equal(np.asarray(ours), pixels)
    assert np.array_equal(np.asarray(Image.open(BytesIO(data))), pixels)
    assert raw_image(data[:-1]) is None
    assert raw_image(data + b"x") is None
    for channels in (1, 3):
        theirs = Image.open(BytesIO(data)).convert({1: "L", 3: "RGB"}[channels])
        assert np.array_equal(np.asarray(decode(data, channels)), np.asarray(theirs))


def pgm(values: np.ndarray, most: int) -> bytes:
    height, width = values.shape
    return b"P5\n%d %d\n%d\n" % (width, height, most) + values.astype(">u2").tobytes()


def odd_images() -> dict[str, tuple[bytes, np.ndarray]]:
    """Encoded images of every mode, and the RGB pixels that they must give."""
    rgb = DRAW.integers(0, 256, (9, 7, 3), np.uint8)
    deep = DRAW.integers(0, 1 << 16, (9, 7), np.uint16)
    alpha = Image.fromarray(np.concatenate((rgb, rgb[..., :1]), -1))
    palette = Image.fromarray(rgb).quantize(8)
    cmyk = Image.fromarray(rgb).convert("CMYK")
    bits = Image.fromarray(rgb).convert("1")

    def save(image: Image.Image, kind: str, **more: Any) -> bytes:
        out = BytesIO()
        image.save(out, kind, **more)
        return out.getvalue()

    return {
        "16 bits": (encoded(deep), np.stack((deep >> 8,) * 3, -1).astype(np.uint8)),
        "16 bits, TIFF": (encoded(deep, "TIFF"), np.stack((deep >> 8,) * 3, -1).astype(np.uint8)),
        "16 bits, PGM": (pgm(deep, 65535), np.stack((deep >> 8,) * 3, -1).astype(np.uint8)),
        "10 bits, PGM": (pgm(deep >> 6, 1023), np.stack((deep >> 8,) * 3, -1).astype(np.uint8)),
        "alpha": (save(alpha, "PNG"), rgb),
        "palette": (save(palette, "PNG"), np.asarray(palette.convert("RGB"))),
        "clear colour": (save(palette, "PNG", transparency=0), np.asarray(palette.convert("RGB"))),
        "CMYK": (save(cmyk, "TIFF"), np.asarray(cmyk.convert("RGB"))),
        "one bit": (save(bits, "PNG"), np.asarray(bits.convert("RGB"))),
        "RGB": (save(Image.fromarray(rgb), "PNG"), rgb),
        "grey": (encoded(rgb[..., 0]), np.stack((rgb[..., 0],) * 3, -1)),
    }


@pytest.mark.parametrize("name", odd_images())
def test_images_of_every_mode_give_their_colours_stored_or_not(name: str) -> None:
    data, expected = odd_images()[name]
    assert np.array_equal(np.asarray(decode(data)), expected)
    for channels in (1, 3):
        stored = np.asarray(decode(stored_image(data), channels))
        assert np.array_equal(stored, np.asarray(decode(data, channels)))


SIGNED = {339: 2}  # the tag that says that the numbers of a TIFF have a sign


@pytest.mark.parametrize(
    ("kind", "tags", "mode"),
    [(np.uint16, SIGNED, "I"), (np.int32, {}, "I"), (np.float32, {}, "F")],
    ids=["signed", "32 bits", "floats"],
)
def test_an_image_of_unknown_range_is_quarantined(
    tmp_path: Path, kind: Any, tags: dict[int, int], mode: str
) -> None:
    cells = [encoded(pixels) for pixels in PIXELS]
    out = BytesIO()
    Image.fromarray(PIXELS[5].astype(kind)).save(out, "TIFF", tiffinfo=tags)
    cells[5] = out.getvalue()
    assert Image.open(out).mode == mode
    pq.write_table(pa.table({"image": cells, "label": LABELS}), tmp_path / "a.parquet")
    assert len(prepared(tmp_path, tmp_path / "a.parquet")) == 29
    (entry,) = map(
        json.loads, (tmp_path / "prepared/train/quarantine.jsonl").read_text().splitlines()
    )
    assert entry["offset"] == 5
    assert "no known range; save it with 8 or 16 bits" in entry["reason"]


def test_small_plain_images_are_stored_raw_and_others_as_they_came() -> None:
    small = encoded(PIXELS[0])
    large = encoded(np.zeros((200, 200), np.uint8))
    assert raw_image(stored_image(small)) is not None
    assert stored_image(large) == large
    assert stored_image(stored_image(small)) == stored_image(small)
    alpha = encoded(np.zeros((9, 7, 4), np.uint8))
    assert stored_image(alpha) == alpha
    assert images_module.RAW_BYTES >= 64 * 64 * 3
