"""`weft new` writes a recipe for the user's files that trains unchanged."""

import json
import random
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import weft
from weft import recipe as R
from weft.cli import main
from weft.data.images import images
from weft.suggest import image_samples

from ..conftest import unknown_options

ROOT = Path(__file__).parents[2]
WORDS = ("good", "bad", "fine", "awful", "nice", "poor", "great", "dull", "film", "plot", "scene")


def sentence(rng: random.Random, words: int = 5) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def write_data(rng: random.Random) -> None:
    labels = ["pos", "neg"] * 20
    rows = [f'"the {sentence(rng)}, it is",{label}' for label in labels]
    Path("reviews.csv").write_text("\n".join(["review,sentiment", *rows]))
    pairs = [f"{sentence(rng)}\t{sentence(rng).upper()}" for _ in range(40)]
    Path("pairs.tsv").write_text("\n".join(["en\tde", *pairs]))
    Path("text.txt").write_text("\n\n".join(sentence(rng, 30) for _ in range(100)))
    Path("images").mkdir()
    images = []
    notes = []
    for i in range(12):
        Image.new("RGB", (64, 48), (20 * i, 0, 0)).save(f"images/{i}.png")
        images.append({"id": i, "file_name": f"{i}.png"})
        notes.append({"image_id": i, "category_id": i % 2, "bbox": [5, 5, 20, 20]})
    names = [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]
    table = {"images": images, "annotations": notes, "categories": names}
    Path("boxes.json").write_text(json.dumps(table))
    for name, colour in {"red": (200, 0, 0), "blue": (0, 0, 200)}.items():
        Path("photos", name).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (40, 60), colour).save(f"photos/{name}/{i}.png")
    digits = np.zeros((40, 28, 28), np.uint8)
    np.savez("digits.npz", images=digits, labels=np.arange(40) % 3)
    photos = [Path(f"photos/{('red', 'blue')[i % 2]}/{i // 2}.png").read_bytes() for i in range(12)]
    rows = [
        {"img": {"bytes": photo, "path": None}, "fine_label": i % 2}
        for i, photo in enumerate(photos)
    ]
    pq.write_table(pa.Table.from_pylist(rows), "hub.parquet")
    rows = [
        {"image": photo, "label": i % 2, "text": sentence(rng)} for i, photo in enumerate(photos)
    ]
    pq.write_table(pa.Table.from_pylist(rows), "bytes.parquet")
    rows = [row | {"label": ("red", "blue")[i % 2]} for i, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(rows), "named.parquet")
    lines = [f"{color}/{i},{color}\n" for color in ("red", "blue") for i in range(6)]
    named = [f"red/{i % 6}.png,blue/{i % 6}.png,{i % 2}\n" for i in range(12)]
    Path("files.csv").write_text("before,file,label\n" + "".join(named))
    Path("labels.csv").write_text("name,label\n" + "".join(lines))
    Path("colors.csv").write_text(
        "id,color\n" + "".join(lines[i % 2 * 6 + i // 2] for i in range(12))
    )


def write_broken_data() -> None:
    tables = {
        "header": [],
        "other": ["a b c,1,0", "d e f,0,1"],
        "one_class": ["a b c,1", "d e f,1"],
        "no_label": ["a b c,", "d e f,"],
        "wide": ["a b c,1", "d e f,2", "g h,1,3,4", "i j,2,5,6"],
        "twice": ["a b c,1"],
    }
    headers = {"other": "document,label,n", "twice": "text,text"}
    for name, rows in tables.items():
        Path(f"{name}.csv").write_text("\n".join([headers.get(name, "text,label"), *rows, ""]))
    Path("one_column.csv").write_text("text\na b c\nd e f\n")
    for name in ("a", "b"):
        Path("broken_photos", name).mkdir(parents=True)
        Path("broken_photos", name, "0.png").write_bytes(b"no image")
    image = Path("photos/red/0.png").read_bytes()
    tables = {
        "unlabelled": {"image": image, "label": None},
        "one_label": {"image": image, "label": "red"},
        "paths": {"image": {"bytes": None, "path": "photos/red/0.png"}, "label": "red"},
        "junk": {"image": b"no image", "label": "red"},
        "lists": {"image": image, "label": ["red"]},
    }
    for name, row in tables.items():
        other = ["blue"] if name == "lists" else "blue"
        rows = [row, row if name in ("unlabelled", "one_label") else row | {"label": other}]
        pq.write_table(pa.Table.from_pylist(rows), f"{name}.parquet")
    for i, name in enumerate(("a", "a", "a", "a", "b")):
        Path("one_of_b", name).mkdir(parents=True, exist_ok=True)
        Path("one_of_b", name, f"{i}.jpg").write_bytes(image)
    Path("one_of_each", "a").mkdir(parents=True)
    Path("one_of_each", "b").mkdir()
    for name in ("a", "b"):
        Path("one_of_each", name, "0.png").write_bytes(image)
    for name in ("test", "train"):
        Path("splits", name, "a").mkdir(parents=True)
    Path("empty_class", "a").mkdir(parents=True)
    Path("empty_class", "b").mkdir()
    Path("empty_class", "a", "0.png").write_bytes(image)
    cut = BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(cut, "JPEG")
    for name in ("a", "b"):
        Path("cut", name).mkdir(parents=True)
        for i in range(4):
            Path("cut", name, f"{i}.jpg").write_bytes(cut.getvalue()[: len(cut.getvalue()) // 2])
    for name in ("a", "b"):
        Path("two_bad", name).mkdir(parents=True)
        for i in range(6):
            Path("two_bad", name, f"{i}.png").write_bytes(image)
    Path("two_bad", "a", "0.png").write_bytes(b"")
    Path("two_bad", "b", "0.png").write_bytes(image[:60])
    boxes = json.loads(Path("boxes.json").read_text())
    for note in boxes["annotations"]:
        note["bbox"] = [0.1, 0.1, 0.5, 0.5]
    Path("fractions.json").write_text(json.dumps(boxes))
    Path("listed").mkdir()
    Path("listed/labels.csv").write_text("id,color\n")
    Path("latin1.txt").write_bytes("à la carte\n".encode("latin-1") * 100)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(random.Random(0))
    write_broken_data()


@pytest.mark.parametrize(
    ("words", "guessed"),
    [
        (
            ["classify", "reviews.csv"],
            {"text": "'review'", "label": "'sentiment', 2 classes: neg, pos"},
        ),
        (["translate", "pairs.tsv"], {"pairs": "40 (tsv)"}),
        (["pretrain", "text.txt"], {"documents": "end at a blank line"}),
        (
            ["detect", "boxes.json", "images"],
            {
                "classes": "2: cat, dog",
                "longest side": "64 pixels after resizing, a typical box 20",
            },
        ),
        (
            ["classify", "photos"],
            {
                "classes": "2: blue, red",
                "images": "12 (folder), typically 40 × 60 pixels",
                "image size": "32 × 32 pixels after a crop",
            },
        ),
        (
            ["classify", "digits.npz"],
            {"classes": "3: 0, 1, 2", "images": "40 (npz), typically 28 × 28 pixels"},
        ),
        (
            ["classify", "bytes.parquet"],
            {
                "classes": "2: 0, 1",
                "images": "12 (parquet), typically 40 × 60 pixels",
                "columns": "'image' and 'label'",
            },
        ),
        (
            ["classify", "photos", "--valid", "named.parquet"],
            {"validation": "named.parquet", "images": "12 (folder), typically 40 × 60 pixels"},
        ),
        (["classify", "bytes.parquet", "--columns", "text", "label"], {"text": "'text'"}),
        (
            ["classify", "colors.csv", "photos", "--columns", "id", "color"],
            {"images": "12 (image_table), typically 40 × 60 pixels", "columns": "'id' and 'color'"},
        ),
        (
            ["classify", "files.csv", "photos", "--columns", "file", "label"],
            {
                "images": "12 (image_table), typically 40 × 60 pixels",
                "columns": "'file' and 'label'",
                "classes": "2: 0, 1",
            },
        ),
        (
            ["classify", "photos", "--valid", "labels.csv", "photos"],
            {"validation": "labels.csv, photos", "images": "12 (folder), typically 40 × 60 pixels"},
        ),
        (
            ["classify", "hub.parquet", "--columns", "img", "fine_label"],
            {"images": "12 (parquet), typically 40 × 60 pixels"},
        ),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)  # fmt: skip
def test_the_written_recipe_lists_inferred_choices_is_formatted_and_trains(
    words: list[str], guessed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words, "-o", "mine.py", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert guessed.items() <= summary["guessed"].items()
    assert "steps" in summary["guessed"]["cost"]
    text = " ".join(Path("mine.py").read_text().split())
    assert all(f"{name}: {value}" in text for name, value in guessed.items())
    ruff = shutil.which("ruff")
    if ruff is not None:
        config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "mine.py"]
        for check in (["format", "--check"], ["check"]):
            result = subprocess.run([ruff, *check, *config], capture_output=True, text=True)
            assert result.returncode == 0, result.stdout + result.stderr
    small = ["steps=2", "schedule.warmup_steps=1", "precision=fp32"]
    small += ["batch.tokens=64" if words[0] == "translate" else "batch.size=2"]
    recipe = weft.load_recipe("mine.py", small)
    assert recipe.workers == ("images" in guessed or "longest side" in guessed)
    assert [step.step for step in weft.train(recipe, weft.prepare(recipe.data))] == [1, 2]
    assert summary["use"].split()[2] == f"runs/{recipe.name}"
    assert Path("runs", recipe.name, "model").is_dir()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classify", "text.txt"], "text.txt is plain text"),
        (["classify", "pairs.tsv"], "label"),
        (["translate", "text.txt"], "two files with one sentence per line"),
        (["translate", "reviews.csv", "--columns", "review", "label"], "no column 'label'"),
        (["pretrain", "missing.txt"], "missing.txt does not exist"),
        (["detect", "boxes.json"], "the folder of the images"),
        (["pretrain", "boxes.json"], "boxes.json: no column is recognised as the text"),
        (["pretrain", "text.txt", "-o", "text.txt"], "ends in .py"),
        (["pretrain", "images/0.png"], "images/0.png is a binary file"),
        (["translate", "images/0.png", "text.txt"], "images/0.png is a binary file"),
        (["classify", "images/0.png"], "images/0.png is a binary file"),
        (["classify", "images"], "images has no images in sub-folders; a class is a sub-folder"),
        (
            ["classify", "boxes.json", "images"],
            "boxes in COCO's layout, which weft new detect reads",
        ),
        (
            ["classify", "listed"],
            "a class is a sub-folder; if labels.csv names them, give listed/labels.csv listed",
        ),
        (
            ["classify", "colors.csv", "images"],
            "colors.csv: no column of its first rows names a file in images; give the folder",
        ),
        (
            ["classify", "colors.csv", "photos", "--columns", "color", "id"],
            "column 'id' contains images, but 'color' does not; give --columns id color",
        ),
        (
            ["classify", "files.csv", "photos", "--columns", "after", "label"],
            "no column 'after' among 'before', 'file', 'label'; name one of these",
        ),
        (
            ["classify", "hub.parquet"],
            "no column is recognised as the label; available: 'img', 'fine_label'; name it with "
            "--columns IMAGE LABEL",
        ),
        (
            ["classify", "broken_photos"],
            "2 of 2 rows cannot be read (broken_photos/a/0.png and others: cannot identify the "
            "image)",
        ),
        (
            ["classify", "unlabelled.parquet"],
            "label is empty in every row; name another column with --columns IMAGE LABEL",
        ),
        (["classify", "one_label.parquet"], "every image has the class red; give images of two"),
        (
            ["classify", "paths.parquet"],
            "2 of 2 rows cannot be read (paths.parquet, rows 1, 2: an image without its bytes; "
            "embed the files, or give their directory)",
        ),
        (
            ["classify", "bytes.parquet", "--columns", "image", "label", "text"],
            "one column of images is read, not 'image', 'label'; give --columns IMAGE LABEL",
        ),
        (
            ["classify", "bytes.parquet", "--columns", "label", "image"],
            "bytes.parquet: column 'image' contains images, but 'label' does not; give --columns "
            "image label",
        ),
        (
            ["detect", "fractions.json", "images"],
            "fractions.json: box [0.1, 0.1, 0.5, 0.5] and all others look like fractions",
        ),
        (
            ["classify", "two_bad"],
            "2 of 12 rows cannot be read (two_bad/a/0.png and others: empty image)",
        ),
        (["classify", "junk.parquet"], "rows 1, 2: cannot identify the image"),
        (["classify", "lists.parquet"], "label ['red'] is not a class name"),
        (["classify", "cut"], "8 of 8 rows cannot be read (cut/a/0.jpg and others: "),
        (
            ["classify", "one_of_b"],
            "b has no image to train on beside the held-out ones; give more",
        ),
        (["classify", "one_of_each"], "one_of_each has too few images of each class"),
        (["classify", "splits"], "and here those of train are: give splits/train"),
        (["classify", "empty_class"], "every image has the class a; a class is a sub-folder"),
        (
            ["classify", "photos", "bytes.parquet"],
            "bytes.parquet is not a directory; give a directory",
        ),
        (
            ["detect", "boxes.json", "images", "--valid", "boxes.json"],
            "the JSON and the folder of its images; give both, not boxes.json alone",
        ),
        (["pretrain", "latin1.txt"], "not UTF-8"),
        (["classify", "reviews.csv", "--valid", "header.csv"], "header.csv has no row"),
        (["translate", "pairs.tsv", "--valid", "header.csv"], "header.csv has no row"),
        (["classify", "reviews.csv", "--valid", "other.csv"], "no column 'review'"),
        (["classify", "header.csv"], "header.csv has no row"),
        (["classify", "one_column.csv"], "there is only the column 'text', and no label"),
        (["translate", "one_column.csv"], "a pair needs two columns; available: 'text'"),
        (["classify", "one_class.csv"], "every row has label = '1'"),
        (["classify", "no_label.csv"], "label is empty in every row"),
        (["classify", "wide.csv"], "allow more with --max-bad-row-fraction 0.5"),
        (["translate", "wide.csv"], "allow more with --max-bad-row-fraction 0.5"),
        (["classify", "twice.csv"], "give names for all columns with --column-names"),
    ],
)
def test_what_is_no_data_of_its_kind_is_refused_in_one_line_and_nothing_is_written(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(Path().glob("*.py"))


@pytest.mark.parametrize("bad", ["../outside.png", "eps.png", "broken.png"])
def test_the_sizes_of_images_are_read_as_training_reads_them(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only inside the folder, and only in formats that are opened; a few others are skipped, and no
    more.
    """
    Image.new("RGB", (200, 200)).save("outside.png")
    Path("images/eps.png").write_text(
        "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 300 300\n%%EndComments\n"
    )
    Path("images/broken.png").write_bytes(b"no image")
    table = json.loads(Path("boxes.json").read_text())
    table["images"] = [table["images"][0], {"id": 1, "file_name": bad}]
    Path("boxes.json").write_text(json.dumps(table))
    assert "64 × 48" in guessed_of(["detect", "boxes.json", "images"], capsys)["images"]
    table["images"] += [{"id": 2, "file_name": bad}]
    Path("boxes.json").write_text(json.dumps(table))
    Path("recipe.py").unlink()
    assert main(["new", "detect", "boxes.json", "images"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "2 of 3 rows cannot be read" in line
    assert not list(Path().glob("*.py"))


def test_of_large_images_a_few_are_decoded_and_a_damaged_one_among_the_others_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decoded: list[bytes] = []
    monkeypatch.setattr(images, "open_image", decoded.append)
    monkeypatch.setattr(image_samples, "SAMPLE_PIXELS", 4 * 40 * 60 - 1)
    Path("photos/red/5.png").write_bytes(b"no image")
    guessed = guessed_of(["classify", "photos"], capsys)
    assert "1 of 12 rows set aside (photos/red/5.png: cannot identify" in guessed["warning"]
    assert len(decoded) == 3


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ([70, 5, 20, 20], "outside its image of 64×48"),
        ([40, 30, 60, 45], "left, top, right and bottom"),
        ([None, 5, 20, 20], "a box's side is None, not a number"),
        ([5, 5, 20], "give four numbers and a label per box"),
        ([float("nan"), 5, 20, 20], "a box's side is nan"),
    ],
)  # fmt: skip
def test_boxes_that_training_would_refuse_are_refused_before_a_recipe_is_written(
    box: list[int], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = json.loads(Path("boxes.json").read_text())
    for note in table["annotations"]:
        note["bbox"] = box
    Path("boxes.json").write_text(json.dumps(table))
    assert main(["new", "detect", "boxes.json", "images"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "12 of 12 rows cannot be read" in line
    assert message in line
    assert not list(Path().glob("*.py"))


def test_images_of_one_size_are_shifted_and_others_cut(capsys: pytest.CaptureFixture[str]) -> None:
    for side, first in (
        (32, R.RandomCrop(size=32, padding=4)),
        (30, R.RandomResizedCrop(size=32, scale=(0.5, 1.0))),
    ):
        images = np.zeros((40, side, side), np.uint8)
        np.savez("digits.npz", images=images, labels=np.arange(40) % 2)
        guessed = guessed_of(["classify", "digits.npz", "-o", f"side{side}.py"], capsys)
        assert "sorted" not in guessed["warning"]
        assert weft.load_recipe(f"side{side}.py").task.transforms[0] == first


def test_rows_sorted_by_class_are_validated_on_rows_of_every_class(
    capsys: pytest.CaptureFixture[str],
) -> None:
    images = np.zeros((200, 32, 32), np.uint8)
    np.savez("digits.npz", images=images, labels=np.arange(200) // 100)
    rng = random.Random(0)
    rows = [f"{sentence(rng)},{label}" for label in sorted(["pos", "neg"] * 100)]
    Path("sorted.csv").write_text("\n".join(["text,label", *rows]))
    for file, name in (("digits.npz", "images"), ("sorted.csv", "texts")):
        guessed = guessed_of(["classify", file, "-o", f"{name}.py"], capsys)
        assert guessed["validation"] == "20 of 200 rows held out, chosen at random"
        recipe = weft.load_recipe(f"{name}.py")
        prepared = weft.prepare(recipe.data)
        valid = prepared.open("valid")
        assert valid is not None
        assert (len(prepared.train), len(valid)) == (180, 20)
        assert set(map(int, valid.column("label"))) == {0, 1}


def test_a_detector_of_large_boxes_has_larger_cells(capsys: pytest.CaptureFixture[str]) -> None:
    table = json.loads(Path("boxes.json").read_text())
    for note in table["annotations"]:
        note["bbox"] = [0, 0, 50, 48]
    Path("boxes.json").write_text(json.dumps(table))
    main(["new", "detect", "boxes.json", "images", "-o", "recipe.py"])
    assert weft.load_recipe("recipe.py").batch.length == 4**2  # of 64 pixels by 16
    capsys.readouterr()
    main(["show", "recipe.py"])
    assert "for an image of 64 × 64" in " ".join(capsys.readouterr().out.split())


def test_a_recipe_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    for name, output in (("text.py", []), ("mine.py", ["-o", "mine.py"])):
        Path(name).write_text("mine = 1\n")
        assert main(["new", "pretrain", "text.txt", *output]) == 2
        assert (
            f"{name} already exists; delete it, or give another file with --output"
            in capsys.readouterr().err
        )
        assert Path(name).read_text() == "mine = 1\n"


def guessed_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    Path("recipe.py").unlink(missing_ok=True)
    output = [] if "-o" in words else ["-o", "recipe.py"]
    assert main(["new", *words, *output, "--json"]) == 0
    guessed: dict[str, str] = json.loads(capsys.readouterr().out)["guessed"]
    return guessed


def test_more_bad_rows_are_allowed_in_the_recipe_too(capsys: pytest.CaptureFixture[str]) -> None:
    guessed = guessed_of(["classify", "wide.csv", "--max-bad-row-fraction", "0.5"], capsys)
    assert guessed["rows"] == "2 (csv)"
    # by chance, two of three are in one part
    assert weft.load_recipe("recipe.py").data.max_bad_row_fraction >= 0.5


def test_a_run_has_the_name_of_the_data_or_its_folder_and_a_number_if_that_is_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for folder in ("films", "books"):
        Path(folder).mkdir()
        shutil.copy("reviews.csv", f"{folder}/train.csv")
        assert main(["new", "classify", f"{folder}/train.csv"]) == 0
        assert weft.load_recipe(f"{folder}.py").name == folder
    for name in ("reviews", "reviews-2"):
        Path("runs", name).mkdir(parents=True)
    assert main(["new", "classify", "reviews.csv"]) == 0
    assert weft.load_recipe("reviews-3.py").name == "reviews-3"
    assert "weft classify runs/reviews-3 " in Path("reviews-3.py").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "z.py", "classify", "reviews.csv"],
        ["classify", "-o", "z.py", "reviews.csv"],
        ["classify", "reviews.csv", "-o", "z.py"],
        ["-o", "z.py", "--", "classify", "reviews.csv"],
        ["-o", "z.py", "reviews.csv"],
    ],
)
def test_an_option_may_stand_before_the_task_after_it_and_after_the_files(words: list[str]) -> None:
    assert main(["new", *words]) == 0
    assert isinstance(weft.load_recipe("z.py").task, R.Classification)


def test_plain_text_without_a_task_is_pre_trained_on_and_a_task_alone_names_the_fix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["new", "text.txt", "-o", "z.py"]) == 0
    assert isinstance(weft.load_recipe("z.py").task, R.CausalLM)
    capsys.readouterr()
    assert main(["new", "classify"]) == 2
    assert "give the data files too" in capsys.readouterr().err


def test_two_recipes_of_one_text_have_runs_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("causal-lm", "masked-lm"):
        words = ["new", "pretrain", "text.txt", "--objective", name, "-o", f"{name}.py"]
        assert main(words) == 0
        assert weft.load_recipe(f"{name}.py").name == name
    Path("runs/mine").mkdir(parents=True)
    assert main(["new", "pretrain", "text.txt", "-o", "mine.py"]) == 2
    assert "the run runs/mine already exists" in capsys.readouterr().err
    assert not Path("mine.py").exists()


def write_texts(folder: str, *names: str) -> None:
    rng = random.Random(0)
    for name in names:
        Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(f"{sentence(rng, 12)}. {sentence(rng, 9)}." for _ in range(120))
        Path(folder, name).write_text(text)


@pytest.mark.parametrize(
    ("objective", "after"),
    [
        ("causal-lm", ["generate", "{run}", "good film", "--max-new-tokens", "2"]),
        ("masked-lm", ["fill", "{run}", "good [MASK]"]),
        ("span-corruption", ["generate", "{run}", "good film", "--max-new-tokens", "2"]),
        ("denoising", ["generate", "{run}", "good film", "--max-new-tokens", "2"]),
        ("replaced-tokens", ["embed", "{run}", "good film"]),
    ],
)
def test_each_objective_trains_from_a_folder_is_used_and_exported(
    objective: str, after: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts("books", "a.txt", "b.txt")
    guessed = guessed_of(["pretrain", "books", "--objective", objective], capsys)
    small = ["steps=2", "schedule.warmup_steps=1", "precision=fp32", "batch.size=2"]
    recipe = weft.load_recipe("recipe.py", small)
    assert recipe.name == "recipe"
    assert recipe.data.train.paths == recipe.data.valid.paths == ("books/*.txt",)
    assert [step.step for step in weft.train(recipe, weft.prepare(recipe.data))] == [1, 2]
    assert main([word.format(run="runs/recipe") for word in after]) == 0
    assert main(["export", "runs/recipe", "out", "--to", "hf"]) == 0
    family = json.loads(Path("out/config.json").read_text())["model_type"]
    assert guessed["export"].endswith(f"as {family}")


def test_an_objective_is_for_pretraining_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "classify", "reviews.csv", "--objective", "masked-lm"]) == 2
    assert "--objective masked-lm: classify" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "paths", "name"),
    [
        (["books"], ["books/*.txt"], "books"),
        (["books/"], ["books/*.txt"], "books"),
        (["books/*.txt"], ["books/*.txt"], "books"),
        (["books/a.txt", "books/b.txt"], ["books/a.txt", "books/b.txt"], "books"),
        (["books/a.txt"], ["books/a.txt"], "a"),
        (["text.txt", "books"], ["text.txt", "books/*.txt"], "text"),
        (["./books"], ["./books/*.txt"], "books"),
        (["books/a.txt", "books/a.txt", "books"], ["books/a.txt", "books/b.txt"], "books"),
        (["nested"], ["nested/**/*.txt"], "nested"),
        (["link.txt"], ["link.txt"], "link"),
        (["odd[1]"], ["odd[[]1]/*.txt"], "odd-1"),
    ],
)
def test_texts_are_named_after_what_was_typed_and_no_path_is_listed_twice(
    typed: list[str], paths: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts("books", "a.txt", "b.txt")
    write_texts("nested", "a.txt", "more/b.txt")
    write_texts("odd[1]", "a.txt")
    Path("link.txt").symlink_to("books/a.txt")
    assert main(["new", "pretrain", *typed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == f"{name}.py"
    recipe = weft.load_recipe(f"{name}.py")
    assert recipe.name == name
    assert list(recipe.data.train.paths) == list(recipe.data.valid.paths) == paths
    text = Path(f"{name}.py").read_text()
    assert all(text.count(f'"{path}"') == 1 for path in paths)


def test_files_of_one_line_have_a_part_to_validate_on(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(0)
    Path("lines").mkdir()
    for i in range(40):
        Path("lines", f"{i}.txt").write_text(sentence(rng, 60))
    guessed_of(["pretrain", "lines"], capsys)
    small = ["steps=1", "schedule.warmup_steps=0", "precision=fp32", "batch.size=2"]
    recipe = weft.load_recipe("recipe.py", small)
    (step,) = weft.train(recipe, weft.prepare(recipe.data))
    assert step.step == 1
    assert "valid" in Path("runs/recipe/log.jsonl").read_text()


def test_a_recipe_does_not_take_the_name_of_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("numbers", "torch"):
        shutil.copy("reviews.csv", f"{name}.csv")
        assert main(["new", "classify", f"{name}.csv"]) == 0
        assert not Path(f"{name}.py").exists()
        assert weft.load_recipe(f"{name}-recipe.py").name == name


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a.txt", "b.jsonl", "c.txt"], "'mixed/*.txt'"), ([".hidden"], "mixed has no files")],
)
def test_a_folder_without_texts_of_one_kind_is_refused(
    names: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_texts("mixed", *names)
    assert main(["new", "pretrain", "mixed"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "family"),
    [
        (["classify", "photos"], "vit"),
        (["classify", "reviews.csv"], "bert"),
        (["translate", "pairs.tsv"], "marian"),
        (["detect", "boxes.json", "images"], None),
    ],
)
def test_what_is_said_of_the_export_is_so(
    words: list[str], family: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    guessed = guessed_of(words, capsys)
    small = ["steps=2", "schedule.warmup_steps=1", "precision=fp32", "eval_every=2"]
    small += ["batch.tokens=64" if words[0] == "translate" else "batch.size=2"]
    recipe = weft.load_recipe("recipe.py", small)
    assert len(list(weft.train(recipe, weft.prepare(recipe.data)))) == 2
    assert main(["export", f"runs/{recipe.name}", "out", "--to", "hf"]) == (0 if family else 2)
    if family:
        assert f"as {family}" in guessed["export"]
        assert json.loads(Path("out/config.json").read_text())["model_type"] == family
    else:
        assert "only Weft's own layout" in guessed["export"]
        assert "model=DETR" in guessed["warning"]
        text = Path("recipe.py").read_text()
        assert "model=DETR" in text.split("recipe = ")[1]
        Path("other.py").write_text(text.replace("model=MODEL", "model=DETR"))
        recipe = weft.load_recipe("other.py", [*small, "name=other"])
        assert len(list(weft.train(recipe, weft.prepare(recipe.data)))) == 2
        assert main(["export", "runs/other", "out", "--to", "hf"]) == 0


def test_a_cell_is_printed_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 100_000
    Path("cells.csv").write_text("text,label\n" + f"{long} b,{long}\ngood film,neg\n" * 10)
    Path("pairs.csv").write_text("source,target\n" + f"{long},{long}\n" * 10)
    Path("same.csv").write_text("text,label\n" + f"good film,{long}\n" * 10)
    for words in (["classify", "cells.csv"], ["translate", "pairs.csv"], ["classify", "same.csv"]):
        main(["new", *words])
        shown = capsys.readouterr()
        assert len(shown.out + shown.err) < 5000


def test_a_message_that_names_an_option_of_another_verb_fails_every_test() -> None:
    """The check of `conftest.py`, which sees each message that a test brings about."""
    assert unknown_options("new", "repair it, or give --label; weft tune m --label x") == [
        "--label"
    ]
    assert unknown_options("new", "with weft prepare --rows or weft train --set a=1") == []
    assert unknown_options("train", "torchrun --nproc-per-node 2, or --set seed=1") == []


@pytest.mark.parametrize(
    ("files", "valid", "shared"),
    [
        (["reviews.csv"], ["reviews.csv"], "reviews.csv"),
        (["reviews.csv"], ["link.csv"], "reviews.csv"),
        (["reviews.csv"], ["revi*.csv"], "reviews.csv"),
        (["photos"], ["photos"], "photos"),
        (["reviews.csv"], ["other.csv"], None),
        (["photos"], ["labels.csv", "photos"], None),
    ],
)
def test_a_validation_file_that_is_trained_on_is_reported(
    files: list[str], valid: list[str], shared: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy("reviews.csv", "other.csv")
    Path("link.csv").symlink_to("reviews.csv")
    assert main(["new", "classify", *files, "--valid", *valid, "-o", "mine.py"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "also training data" in line]
    assert len(lines) == (shared is not None)
    assert all(str(Path(str(shared)).resolve()) in line for line in lines)


def test_a_run_of_less_than_a_second_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("weft.training.machine.speed", lambda precision: 1e30)
    assert main(["new", "classify", "reviews.csv", "-o", "mine.py", "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["guessed"]["cost"]
    assert cost.endswith(": under a second on this machine")
