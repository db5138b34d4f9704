"""Models of images answer as models of text do: `weft classify`, `embed` and `evaluate` on files and folders."""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import weft
from tests.data.made import centre_crop
from weft import spec as S
from weft.cli import main
from weft.data.images import normalise

LABELS = ("dark", "bright")


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
    spec = weft.vit(depth=1, width=16, heads=2, hidden=16, image_size=16, patch_size=4, head=head)
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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.png", "is not a file"),
        ("text.png", "is not an image"),
        ("empty", "without images"),
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


def test_a_text_verb_says_that_the_model_reads_images(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tag", str(folder / "model"), "a text"]) == 2
    assert "reads images, not text" in capsys.readouterr().err


def test_a_truncated_image_is_refused(folder: Path) -> None:
    whole = BytesIO()
    picture(0, True).save(whole, "PNG")
    with pytest.raises(ValueError, match="truncated"):
        weft.open(folder / "model").classify(whole.getvalue()[:200])
