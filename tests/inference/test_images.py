"""Models of images answer as models of text do: `weft classify`, `embed` and `evaluate` on files
and folders.
"""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import ExifTags, Image

import weft
from tests.data.made import centre_crop
from tests.tasks.scenes import detector
from weft import recipe as R
from weft import spec as S
from weft.cli import main
from weft.data.images.images import (
    fit_to_size,
    normalise,
    open_image,
    usual_transforms,
    validation_transforms,
)
from weft.data.images.transforms import ImagePipeline
from weft.evaluation.data import task_of
from weft.inference.images import load_labelled_images
from weft.interop.huggingface.image_processor import image_transforms

LABELS = ("dark", "bright")
SMALL = {"depth": 1, "width": 16, "heads": 2, "hidden": 16, "image_size": 16, "patch_size": 4}
FLIPPED = (R.RandomHorizontalFlip(), R.Normalize(mean=(0.3,) * 3, std=(0.4,) * 3))


def picture(seed: int, bright: bool, size: tuple[int, int] = (20, 24)) -> Image.Image:
    low = 160 if bright else 0
    pixels = np.random.default_rng(seed).integers(low, low + 90, (*size[::-1], 3), np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of two images each, and the folder of a model."""
    root = tmp_path_factory.mktemp("images")
    for label, bright in zip(LABELS, (False, True), strict=True):
        (root / "data" / label).mkdir(parents=True)
        for i in range(2):
            picture(i, bright).save(root / "data" / label / f"{i}.png")
    head = S.ClassifierHead(num_labels=2, labels=LABELS)
    spec = weft.vit(**SMALL, head=head)
    weft.save(weft.build(spec, seed=3), root / "model")
    return root


def expected(model: weft.Model, file: Path) -> torch.Tensor:
    """The probabilities of one image, from its pixels on."""
    pixels = normalise(centre_crop(Image.open(file), 16))
    with torch.no_grad():
        logits = model(torch.from_numpy(pixels)[None])
    assert isinstance(logits, torch.Tensor)
    return logits[0].softmax(-1)


def test_a_model_classifies_files_bytes_and_images_alike(folder: Path) -> None:
    file = folder / "data" / "dark" / "0.png"
    model = weft.open(folder / "model")
    by_file = model.classify(str(file))
    assert list(by_file) == list(LABELS)
    assert list(by_file.values()) == pytest.approx(expected(model.model, file).tolist(), abs=1e-6)
    for other in model.classify([file, file.read_bytes(), Image.open(file)]):
        assert other == pytest.approx(by_file, abs=1e-7)
    assert "classify" in dir(model)
    assert "embed" in dir(model)
    assert "fill" not in dir(model)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "LAB", "HSV", "PA", "RGBX", "I;16"])
def test_an_image_of_any_mode_is_seen_as_its_colours(mode: str, folder: Path) -> None:
    model = weft.open(folder / "model")
    image = picture(0, True)
    if mode == "I;16":
        pixels = np.asarray(image.convert("L"))
        other = Image.fromarray(pixels.astype(np.uint16) << 8)
        plain = Image.fromarray(pixels)
    else:
        other = image.convert("P" if mode == "PA" else "RGB").convert(mode)
        plain = other.convert("RGB")
    assert other.mode == mode
    assert model.classify(other) == pytest.approx(model.classify(plain), abs=1e-7)


@pytest.mark.parametrize("mode", ["F", "I"])
def test_numbers_of_an_unknown_range_are_refused(mode: str, folder: Path) -> None:
    with pytest.raises(ValueError, match="no known range"):
        weft.open(folder / "model").classify(picture(0, True).convert("L").convert(mode))


def test_a_photograph_is_turned_as_a_file_and_as_an_image(folder: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    picture(0, True).save(tmp_path / "photo.png", exif=exif)
    model = weft.open(folder / "model")
    with Image.open(tmp_path / "photo.png") as image:
        by_image = model.embed(image)
    assert torch.equal(by_image, model.embed(tmp_path / "photo.png"))
    assert not torch.allclose(by_image, model.embed(picture(0, True)))


def test_the_command_classifies_a_file_and_every_image_of_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(folder / "model")
    assert main(["classify", name, str(folder / "data"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    model = weft.open(name)
    assert [Path(row["file"]).relative_to(folder / "data").as_posix() for row in rows] == [
        "bright/0.png",
        "bright/1.png",
        "dark/0.png",
        "dark/1.png",
    ]
    for row in rows:
        share = expected(model.model, Path(row["file"]))
        assert row["prediction"] == LABELS[int(share.argmax())]
        assert row["probability"] == pytest.approx(float(share.max()), abs=1e-6)
    assert main(["classify", name, rows[0]["file"]]) == 0
    assert capsys.readouterr().out.startswith(f"{rows[0]['prediction']}  0.")


def test_an_embedding_is_the_class_tokens_vector_or_the_mean_of_the_patches(folder: Path) -> None:
    files = sorted((folder / "data").rglob("*.png"))
    model = weft.open(folder / "model")
    pixels = [normalise(centre_crop(Image.open(file), 16)) for file in files]
    with torch.no_grad():
        x_BLD = model.model.encode(model.model.embed(torch.from_numpy(np.stack(pixels)))).x_BLD
    assert torch.allclose(model.embed(files), x_BLD[:, 0], atol=1e-6, rtol=0)
    assert torch.allclose(model.embed(files, pooling="mean"), x_BLD.mean(1), atol=1e-6, rtol=0)
    single = model.embed(files[1], normalise=True)
    assert torch.allclose(single, x_BLD[1, 0] / x_BLD[1, 0].norm(), atol=1e-6, rtol=0)


def test_the_command_writes_embeddings_as_an_array(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    arguments = ["embed", str(folder / "model"), str(folder / "data"), "-o", str(out)]
    assert main(arguments) == 0
    vectors = np.load(out)
    assert vectors.shape == (4, 16)
    assert len(np.unique(vectors[:, 0])) == 4


def test_a_model_is_evaluated_on_a_folder_of_classes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt = tmp_path / "receipt.json"
    arguments = ["evaluate", str(folder / "model"), "--task", "classify", "--json"]
    data = str(folder / "data")
    assert main([*arguments, "--data", data, "--output", str(receipt)]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    model = weft.open(folder / "model")
    right = [
        LABELS[int(expected(model.model, file).argmax())] == file.parent.name
        for file in sorted(Path(data).rglob("*.png"))
    ]
    assert scores["accuracy"] == pytest.approx(np.mean(right))


def image_table(folder: Path, file: Path, image: str, label: str) -> list[str]:
    """The images of a folder as a Parquet file with these columns; its words for a command."""
    files = sorted((folder / "data").rglob("*.png"))
    rows = [{image: file.read_bytes(), label: file.parent.name} for file in files]
    pq.write_table(pa.Table.from_pylist(rows), file)
    return [str(file), "--columns", image, label]


def test_images_of_a_table_are_evaluated_by_the_columns_that_are_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = []
    table = image_table(folder, tmp_path / "t.parquet", "picture", "kind")
    for data in ([str(folder / "data")], table):
        arguments = ["evaluate", str(folder / "model"), "--task", "classify", "--json", "--data"]
        assert main([*arguments, *data]) == 0
        scores.append(json.loads(capsys.readouterr().out)["scores"])
    assert scores[0] == scores[1]


@pytest.mark.parametrize("wrapped", [False, True])
def test_images_of_a_table_are_classified(
    wrapped: bool, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((folder / "data").rglob("*.png"))
    cells = [
        {"bytes": f.read_bytes(), "path": f.name} if wrapped else f.read_bytes() for f in files
    ]
    rows = [{"id": i, "img": cell} for i, cell in enumerate(cells)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    table = ["--input", str(tmp_path / "t.parquet")]
    answers = []
    for given in ([str(folder / "data")], table):
        assert main(["classify", str(folder / "model"), "--json", *given]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert [row["probabilities"] for row in answers[0]] == [
        row["probabilities"] for row in answers[1]
    ]
    assert answers[1][1].keys() == {"id", "file", "prediction", "probability", "probabilities"}
    assert answers[1][1]["file"] == (files[1].name if wrapped else "row 2")
    out = tmp_path / "vectors.npy"
    assert main(["embed", str(folder / "model"), *table, "--output", str(out)]) == 0
    assert np.load(out).shape == (len(files), 16)


def test_the_other_columns_of_a_table_are_kept_and_bytes_are_not_printed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column called `file` is the user's own, and the column that holds images is read
    before it.
    """
    image = next((folder / "data").rglob("*.png")).read_bytes()
    row = {
        "file": "cat.jpg",
        "img": image,
        "thumbs": [image, image],
        "more": {"x": image},
        "traffic": {"bytes": 5, "packets": 2},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    model = str(folder / "model")
    assert main(["classify", model, "--json", "--input", str(tmp_path / "t.parquet")]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["file"] == "cat.jpg"
    assert answer["traffic"] == row["traffic"]
    assert not {"img", "thumbs", "more"} & answer.keys()


def test_names_of_files_in_a_table_are_found_by_the_name_of_their_column(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next((folder / "data").rglob("*.png"))
    (tmp_path / "t.csv").write_text(f"id,image\nx1,{file}\n")
    model = str(folder / "model")
    assert main(["classify", model, "--json", "--input", str(tmp_path / "t.csv")]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert (answer["id"], answer["file"]) == ("x1", str(file))
    (tmp_path / "t.csv").write_text(f"id,image\nx1,{file}\nx2,\n")
    assert main(["classify", model, "--input", str(tmp_path / "t.csv")]) == 2
    assert "t.csv, row 2: 'image' contains neither an image nor" in capsys.readouterr().err


@pytest.mark.parametrize("names", [("dark", "bright"), ("bright", "dark")])
@pytest.mark.parametrize("labels", [LABELS, ("0", "1"), ("LABEL_0", "LABEL_1")])
def test_class_numbers_whose_names_a_table_keeps_are_those_of_the_model(
    names: tuple[str, str],
    labels: tuple[str, str],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By their names where the model has names, else by their numbers."""
    files = sorted((folder / "data").rglob("*.png"))[1:]  # else a constant answer is right by half
    arguments = with_named_numbers(tmp_path, labels, files, names)
    assert main([*arguments, "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["scores"]["accuracy"]
    wanted = labels if labels == LABELS else names
    answers = weft.open(tmp_path / "model").classify([str(file) for file in files])
    best = [wanted[np.argmax(list(answer.values()))] for answer in answers]
    right = sum(a == f.parent.name for a, f in zip(best, files, strict=True))
    assert accuracy == right / len(files)
    assert accuracy != 0.5


def with_named_numbers(
    out: Path, labels: tuple[str, ...], files: list[Path], names: tuple[str, ...]
) -> list[str]:
    """Save a model with these labels and a table of the files with a number each, and what it
    stands for; how to evaluate it.
    """
    head = S.ClassifierHead(num_labels=len(labels), labels=labels)
    weft.save(weft.build(weft.vit(**SMALL, head=head), seed=3), out / "model")
    rows = [{"image": f.read_bytes(), "label": i % len(names)} for i, f in enumerate(files)]
    if files[0].parent.name in names:
        rows = [r | {"label": names.index(f.parent.name)} for r, f in zip(rows, files, strict=True)]
    features = {"label": {"_type": "ClassLabel", "names": names}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pa.Table.from_pylist(rows).replace_schema_metadata(metadata)
    pq.write_table(table, out / "t.parquet")
    data = str(out / "t.parquet")
    return ["evaluate", str(out / "model"), "--task", "classify", "--data", data]


@pytest.mark.parametrize("names", [("0", "1"), ("LABEL_0", "LABEL_1"), ("7", "8")])
def test_class_numbers_without_names_of_their_own_are_the_models_in_order(
    names: tuple[str, str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((folder / "data").rglob("*.png"))[1:]
    arguments = with_named_numbers(tmp_path, LABELS, files, names)
    assert main([*arguments, "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["scores"]["accuracy"]
    answers = weft.open(tmp_path / "model").classify([str(file) for file in files])
    best = [int(np.argmax(list(answer.values()))) for answer in answers]
    assert accuracy == sum(a == i % 2 for i, a in enumerate(best)) / len(files)


@pytest.mark.parametrize("labels", [("cat", "dog"), ("dogs ", "LABEL_1"), ("a", "b", "c")])
def test_classes_of_other_names_are_not_taken_for_the_models_by_their_order(
    labels: tuple[str, ...], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((folder / "data").rglob("*.png"))
    assert main(with_named_numbers(tmp_path, labels, files, ("dogs", "cats"))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"its classes dogs, cats are not among the model's classes {', '.join(labels)}" in line
    assert "t.parquet" in line
    assert "weft tune" in line


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("id", None, "t.parquet, rows 1, 2: 'id' contains neither an image nor a file name"),
        ("img", b"no image", "image 2 of 2 cannot be read: "),
        ("img", None, "t.parquet, row 2: 'img' contains neither an image nor a file name"),
        ("picture", b"", "no column 'picture' among 'id', 'img'; name one of these"),
    ],
)
def test_a_table_without_images_is_refused_in_one_line(
    column: str,
    cell: bytes | None,
    words: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    image = next((folder / "data").rglob("*.png")).read_bytes()
    rows = [{"id": 1, "img": image}, {"id": 2, "img": cell}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    table = ["--input", str(tmp_path / "t.parquet"), "--columns", column]
    assert main(["classify", str(folder / "model"), *table]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_the_columns_of_images_are_found_by_their_content(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, *_ = image_table(folder, tmp_path / "t.parquet", "pixels", "class")
    scores = []
    for data in (path, str(folder / "data")):
        arguments = ["evaluate", str(folder / "model"), "--task", "classify", "--json"]
        assert main([*arguments, "--data", data]) == 0
        printed = capsys.readouterr()
        scores.append(json.loads(printed.out)["scores"])
        assert ("reading 'pixels' as image, 'class' as label" in printed.err) == (data == path)
        arguments = ["probe", str(folder / "model"), "--json", "--shots", "1"]
        assert main([*arguments, "--data", data, "--valid", data]) == 0
        scores.append(json.loads(capsys.readouterr().out))
    assert scores[:2] == scores[2:]


@pytest.mark.parametrize("verb", ["tune", "evaluate"])
def test_columns_in_the_wrong_order_are_named_in_the_right_one(
    verb: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, option, image, label = image_table(folder, tmp_path / "t.parquet", "picture", "kind")
    task = ["--task", "classify"]
    assert main([verb, str(folder / "model"), *task, "--data", path, option, label, image]) == 2
    assert "'kind' does not; give --columns picture kind" in capsys.readouterr().err


def test_a_run_of_a_table_is_evaluated_on_a_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _, image, label = image_table(folder, tmp_path / "t.parquet", "picture", "kind")
    data = R.Data(
        rows=R.LabelledImages(image=image, label=label),
        train=R.Source(paths=(path,)),
        valid=R.Source(paths=(path,)),
    )
    scores = []
    run = trained(tmp_path, None, data)
    for name in (path, str(folder / "data")):
        assert main(["evaluate", str(run), "--data", name, "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out)["scores"])
    assert scores[0] == scores[1]


def trained(
    out: Path, transforms: tuple[R.Transform, ...] | None, data: R.Data | None = None
) -> Path:
    """A run of two steps on images of the model's size, with validation."""
    for label, bright in zip(LABELS, (False, True), strict=True):
        (out / "album" / label).mkdir(parents=True)
        for i in range(4):
            picture(i, bright, (16, 16)).save(out / "album" / label / f"{i}.png")
    source = R.Source(paths=(str(out / "album"),))
    recipe = R.Recipe(
        name="small",
        model=weft.vit(**SMALL, classes=2),
        task=R.Classification(transforms=transforms),
        data=data or R.Data(rows=R.LabelledImages(), train=source, valid=source),
        batch=R.FixedBatch(size=4, length=17),
        steps=2,
        optimiser=R.AdamW(lr=1e-3),
        precision="fp32",
    )
    list(weft.train(recipe, weft.prepare(recipe.data), out / "run"))
    return out / "run"


def test_a_run_is_evaluated_on_images_of_any_size_as_it_classifies_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, FLIPPED)
    data = str(folder / "data")
    assert main(["classify", str(run), data, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    right = [row["prediction"] == Path(row["file"]).parent.name for row in rows]
    assert main(["evaluate", str(run), "--data", data, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    assert scores["accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("own", [None, FLIPPED], ids=["usual", "own"])
def test_the_data_of_a_run_are_evaluated_as_training_validated_them(
    own: tuple[R.Transform, ...] | None, tmp_path: Path
) -> None:
    run = trained(tmp_path, own)
    validated = R.transforms_for(R.Classification(transforms=own), evaluation=True)
    task = task_of(weft.open(run), None)
    assert isinstance(task, R.Classification)
    assert task.eval_transforms is not None
    image = picture(1, True, (16, 16))
    rng = np.random.default_rng(0)
    before, now = (
        ImagePipeline(steps)(image, None, rng)[0]
        for steps in (validated or usual_transforms(16), task.eval_transforms)
    )
    assert np.array_equal(before, now)


@pytest.mark.parametrize("own", [None, FLIPPED], ids=["usual", "own"])
def test_the_model_of_a_run_always_says_what_it_sees_of_an_image(
    own: tuple[R.Transform, ...] | None, tmp_path: Path
) -> None:
    folder = trained(tmp_path, own) / "model"
    assert (folder / "preprocessor_config.json").is_file()
    expected = usual_transforms(16) if own is None else fit_to_size(own[1:], 16)
    assert image_transforms(folder, weft.load(folder).spec) == expected


def test_a_detector_of_a_run_without_transforms_sees_what_its_validation_saw() -> None:
    assert validation_transforms(R.Detection(), detector()) == (R.Normalize(),)


@pytest.mark.parametrize("verb", ["embed", "probe"])
def test_a_detector_has_no_vector_of_an_image(
    verb: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weft.save(weft.build(detector()), tmp_path / "detr", to="weft")
    name = str(tmp_path / "detr")
    data = str(folder / "data")
    words = [data] if verb == "embed" else ["--data", data, "--valid", data, "--shots", "1"]
    assert main([verb, name, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{name} has no single vector per image; use weft detect {name} IMAGE" in line


def test_a_detector_is_no_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weft.save(weft.build(detector()), tmp_path / "detr", to="weft")
    picture(0, True).save(tmp_path / "a.png")
    assert main(["classify", str(tmp_path / "detr"), str(tmp_path / "a.png")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"needs ClassifierHead; use weft detect {tmp_path / 'detr'} IMAGE")


def test_what_is_no_image_is_named_in_one_line(folder: Path, tmp_path: Path) -> None:
    weft.save(weft.build(detector()), tmp_path / "detr", to="weft")
    for method in (weft.open(folder / "model").classify, weft.open(tmp_path / "detr").detect):
        with pytest.raises(ValueError, match="give a file, its bytes or a PIL image") as info:
            method(np.zeros((64, 64, 3), np.uint8))
        assert len(str(info.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # Pillow's own, earlier
def test_an_image_beyond_the_limit_says_so(tmp_path: Path) -> None:
    Image.new("1", (12_000, 12_000)).save(tmp_path / "large.png")
    with pytest.raises(ValueError, match="12000 × 12000 pixels exceed the limit of 134,217,728"):
        open_image((tmp_path / "large.png").read_bytes())


def test_empty_labels_are_no_class(folder: Path, tmp_path: Path) -> None:
    rows = [
        {"image": file.read_bytes(), "label": None if i else file.parent.name}
        for i, file in enumerate(sorted((folder / "data").rglob("*.png")))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    store = load_labelled_images([str(tmp_path / "t.parquet")], None, 0.9, print)
    assert store.meta.labels == ("bright",)


def test_a_model_of_text_has_no_features_of_images(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(folder / "data")
    assert main(["probe", "demo", "--data", data, "--valid", data, "--shots", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "demo reads text, not images; give " in line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.png", "is not a file"),
        ("text.png", "cannot be read"),
        ("empty", "has no images"),
    ],
)
def test_what_is_no_image_is_refused_in_one_line(
    name: str, words: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty").mkdir()
    assert main(["classify", str(folder / "model"), str(tmp_path / name)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("verb", ["tag", "generate", "fill", "translate"])
def test_a_text_verb_names_the_verb_for_images(
    verb: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(folder / "model")
    assert main([verb, name, "a text"]) == 2
    words = f"weft: {name} reads images, not text; use weft classify {name} IMAGE\n"
    assert capsys.readouterr().err == words


def test_a_folder_is_no_image_and_a_classifier_is_no_detector(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = weft.open(folder / "model")
    with pytest.raises(ValueError, match="data is a folder; give the images in it"):
        model.classify(str(folder / "data"))
    image = str(next((folder / "data").rglob("*.png")))
    assert main(["detect", str(folder / "model"), image]) == 2
    assert (
        f"needs DetectionHead; use weft classify {folder / 'model'} IMAGE"
        in capsys.readouterr().err
    )
    target = str(tmp_path / "out.xyz")
    assert main(["detect", str(folder / "model"), image, "--draw", target]) == 2
    assert (
        f"--draw {target}: unknown image file extension '.xyz'; give a" in capsys.readouterr().err
    )


def test_some_images_may_be_skipped(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(next((folder / "data").rglob("*.png")).read_bytes())
    (tmp_path / "b.png").write_bytes(b"")
    lines = ("image", *(str(tmp_path / name) for name in ("a.png", "b.png")))
    (tmp_path / "t.csv").write_text("\n".join(lines))
    for words in ([str(tmp_path)], ["--input", str(tmp_path / "t.csv")]):
        command = ["classify", str(folder / "model"), *words, "--json"]
        assert main(command) == 2
        assert "b.png cannot be read" in capsys.readouterr().err
        assert main([*command, "--max-bad-row-fraction", "0.5"]) == 0
        printed = capsys.readouterr()
        assert [row["file"] for row in json.loads(printed.out)] == [str(tmp_path / "a.png")]
        assert "1 of 2 rows set aside" in printed.err
    (tmp_path / "c.png").write_bytes(b"no image")
    (tmp_path / "d.png").write_bytes(b"no image")
    command = ["classify", str(folder / "model"), str(tmp_path), "--max-bad-row-fraction", "0.5"]
    assert main(command) == 2
    assert "3 of 4 rows cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("cell", [None, b""])
def test_rows_without_an_image_may_be_skipped(
    cell: bytes | None, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = next((folder / "data").rglob("*.png")).read_bytes()
    rows = [{"id": i, "img": data} for i, data in enumerate([image, cell, image])]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    command = ["classify", str(folder / "model"), "--input", str(tmp_path / "t.parquet"), "--json"]
    assert main(command) == 2
    assert "allow more with --max-bad-row-fraction 0.334" in capsys.readouterr().err
    assert main([*command, "--max-bad-row-fraction", "0.334"]) == 0
    printed = capsys.readouterr()
    assert [row["id"] for row in json.loads(printed.out)] == [0, 2]
    assert "1 of 3 rows set aside" in printed.err
    assert "t.parquet, row 2: 'img' contains neither" in printed.err


def test_a_column_of_captions_named_as_the_images_in_training_is_not_taken_for_images(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, *_, label = image_table(folder, tmp_path / "t.parquet", "image", "kind")
    rows = R.LabelledImages(image="image", label=label)
    run = trained(tmp_path, None, R.Data(rows=rows, train=R.Source(paths=(path,))))
    images = sorted((folder / "data").rglob("*.png"))
    for column, cells in (
        ("pixels", [file.read_bytes() for file in images]),
        ("image", [str(file) for file in images]),
    ):
        fields = [{"image": "a cat photo", "text": "none.png", column: cell} for cell in cells]
        pq.write_table(pa.Table.from_pylist(fields), tmp_path / "captions.parquet")
        table = ["--input", str(tmp_path / "captions.parquet"), "--json"]
        assert main(["classify", str(run), *table]) == 0
        assert len(json.loads(capsys.readouterr().out)) == len(images)


def test_a_truncated_image_is_refused(folder: Path) -> None:
    whole = BytesIO()
    picture(0, True).save(whole, "PNG")
    with pytest.raises(ValueError, match="truncated"):
        weft.open(folder / "model").classify(whole.getvalue()[:200])
