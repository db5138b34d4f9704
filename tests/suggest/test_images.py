"""`weft tune` on images: from a directory to a classifier, for any checkpoint."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import weft
from tests import whole_runs
from weft import cli
from weft import recipe as R
from weft import spec as S
from weft.commands.tune import plan_tuning
from weft.commands.tune_options import TuneOptions
from weft.data.shards.store import open_store
from weft.inference.open_model import open_model
from weft.interop.saving import save
from weft.nn.model import build

from ..tasks.tuning import PATCHES

COLOURS = {"blue": (40, 60, 200), "green": (60, 200, 40), "red": (200, 40, 60)}
NORMALIZE = R.Normalize(mean=(0.5,) * 3, std=(0.25,) * 3)


def picture(colour: tuple[int, int, int], rng: np.random.Generator, side: int = 16) -> Image.Image:
    noise = rng.normal(0, 20, (side, side, 3))
    return Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8))


def write_folder(folder: Path, count: int, side: int = 16) -> Path:
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            picture(colour, rng, side).save(folder / name / f"{i:03d}.png")
    return folder


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("album")
    return write_folder(folder / "album", 20)


def checkpoint(folder: Path, spec: S.Spec) -> Path:
    transforms = (R.Resize(size=(16, 16)), NORMALIZE)
    return save(build(spec, seed=1), folder, to="weft", transforms=transforms)


def options(start: Path, data: Path, **more: Any) -> TuneOptions:
    return TuneOptions(
        checkpoint=str(start),
        data=(str(data),),
        output=str(start.parent / "out"),
        learning_rates=(3e-3,),
        seeds=1,
        precision="fp32",
        **more,
    )


MODELS = {
    "vit": weft.vit(**PATCHES, classes=7),
    "mae": weft.mae(
        **PATCHES, decoder_depth=1, decoder_width=16, decoder_heads=2, decoder_hidden=32
    ),
    "cct": weft.cct("2-3x2", image_size=16, classes=5),
    "swin": weft.swin(
        width=8, depths=(1, 1), heads=(1, 2), window=2, image_size=16, patch_size=4, classes=4
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_of_images_becomes_a_model_that_knows_its_classes(
    name: str, album: Path, tmp_path: Path
) -> None:
    start = checkpoint(tmp_path / "start", MODELS[name])
    out = tmp_path / "run"
    words = f"tune {start} --data {album} --output {out} --learning-rates 1e-2 --seeds 1 --epochs 6"
    assert cli.main([*words.split(), "--batch-size", "9", "--precision", "fp32"]) == 0
    results = json.loads((out / "tune.json").read_text())
    assert (results["train_rows"], results["valid_rows"]) == (54, 6)
    assert results["trials"][0]["accuracy"] > 0.9
    model = open_model(str(out))
    rng = np.random.default_rng(9)
    found = model.classify([picture(colour, rng) for colour in COLOURS.values()])
    assert [max(scores, key=scores.get) for scores in found] == list(COLOURS)


def test_what_the_checkpoint_saw_is_what_the_tuned_model_sees(album: Path, tmp_path: Path) -> None:
    """Its own numbers of Normalize; without a recipe, a random resized crop and a flip."""
    start = checkpoint(tmp_path / "start", MODELS["vit"])
    recipe = plan_tuning(options(start, album)).recipe
    assert recipe.task == R.Classification(
        transforms=(R.RandomResizedCrop(size=16), R.RandomHorizontalFlip(), NORMALIZE),
        eval_transforms=(R.Resize(size=(16, 16)), NORMALIZE),
    )
    assert recipe.model == replace(
        MODELS["vit"], head=S.ClassifierHead(num_labels=3, labels=tuple(COLOURS))
    )


def test_a_run_lends_its_own_transforms_and_small_images_fit_them(tmp_path: Path) -> None:
    """A crop with padding, for images of its size, follows a resize: photographs are larger."""
    album = write_folder(tmp_path / "photos", 10, side=40)
    small = write_folder(tmp_path / "small", 10)
    crop = R.RandomCrop(size=16, padding=2)
    data = R.Data(rows=R.LabelledImages(), train=R.Source(paths=(str(small),)))
    recipe = R.Recipe(
        name="before",
        model=weft.vit(**PATCHES, classes=3),
        task=R.Classification(transforms=(crop, NORMALIZE)),
        data=data,
        batch=R.FixedBatch(size=8, length=17),
        steps=2,
        optimiser=R.AdamW(lr=1e-3),
        precision="fp32",
    )
    list(whole_runs.train(recipe, tmp_path / "before"))
    plan = plan_tuning(options(tmp_path / "before", album))
    assert plan.recipe.task.transforms == (R.Resize(size=(16, 16)), crop, NORMALIZE)  # type: ignore[attr-defined]
    list(whole_runs.train(replace(plan.recipe, steps=2), tmp_path / "trial"))


def test_at_another_size_the_grid_of_positions_is_stretched(album: Path, tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start", MODELS["vit"])
    plan = plan_tuning(options(start, album, image_size=24))
    source = plan.recipe.model.source
    assert isinstance(source, S.Patches)
    assert (source.image_size, plan.recipe.batch.length) == (24, 37)
    list(whole_runs.train(replace(plan.recipe, steps=1), tmp_path / "trial"))
    model = open_model(str(tmp_path / "trial"))
    assert model.model.source.positions.weight.shape == (37, 16)  # type: ignore[union-attr]


def test_a_frozen_body_stays_and_has_higher_rates(album: Path, tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start", MODELS["mae"])
    asked = replace(options(start, album, trainable=R.HeadOnly()), learning_rates=())
    plan = plan_tuning(asked)
    assert plan.learning_rates == pytest.approx((1e-2, 3e-3, 1e-3, 3e-4))
    list(whole_runs.train(replace(plan.recipe, steps=2), tmp_path / "trial"))
    before = open_model(str(start)).model
    after = open_model(str(tmp_path / "trial")).model
    for name, weight in after.encoder.state_dict().items():  # type: ignore[union-attr]
        assert torch.equal(weight, before.encoder.state_dict()[name])  # type: ignore[union-attr]


def test_a_sorted_archive_is_split_at_random_and_every_class_is_trained_on(tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start", MODELS["vit"])
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)
    labels = np.arange(60) // 10
    np.savez(tmp_path / "sorted.npz", images=pixels, labels=labels)
    plan = plan_tuning(options(start, tmp_path / "sorted.npz"))
    held_out = open_store(plan.folder / "prepared", "valid").column("label")
    assert len(set(map(int, held_out))) > 2
    np.savez(tmp_path / "one.npz", images=pixels, labels=np.zeros(60, int))
    with pytest.raises(ValueError, match=r"has the class 0; give images of two classes or more"):
        plan_tuning(replace(options(start, tmp_path / "one.npz"), output=str(tmp_path / "q")))
    lone = tmp_path / "lone"
    write_folder(lone, 10)
    for file in sorted((lone / "red").iterdir())[1:]:
        file.unlink()
    with pytest.raises(ValueError, match="red has no image to train on"):
        plan_tuning(replace(options(start, lone), output=str(tmp_path / "p")))
    np.savez(tmp_path / "mixed.npz", images=pixels, labels=labels[rng.permutation(60)])
    plan = plan_tuning(replace(options(start, tmp_path / "mixed.npz"), output=str(tmp_path / "o")))
    assert (plan.train_rows, plan.valid_rows) == (54, 6)
    assert (
        "60 images (npz), 6 classes (0, 1, 2, 3, …): classify; 6 of 60 rows held out"
        in plan.summary
    )


def test_the_columns_of_a_table_are_found(album: Path, tmp_path: Path) -> None:
    start = checkpoint(tmp_path / "start", MODELS["vit"])
    files = sorted(album.rglob("*.png"), key=lambda file: file.name)
    rows = [
        {"img": {"bytes": f.read_bytes(), "path": f.name}, "class": f.parent.name} for f in files
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    plan = plan_tuning(options(start, tmp_path / "t.parquet"))
    assert "60 images (parquet), 3 classes (blue, green, red)" in plan.summary
    other = replace(options(start, tmp_path / "t.parquet"), output=str(tmp_path / "o"))
    words = "--valid .*: no column 'img' among 'image', 'label', 'file'"
    with pytest.raises(ValueError, match=words):
        plan_tuning(replace(other, valid=(str(album),)))
    with pytest.raises(ValueError, match="one column of images is read, not 'img', 'class'"):
        plan_tuning(replace(other, columns=("img", "class", "class")))
    assert not (tmp_path / "o").exists()


def test_the_columns_of_a_table_that_names_images_are_read_as_they_are_called(
    album: Path, tmp_path: Path
) -> None:
    start = checkpoint(tmp_path / "start", MODELS["vit"])
    names = [f.relative_to(album) for f in sorted(album.rglob("*.png"), key=lambda f: f.name)]
    lines = [f"{names[0]},{name},{name.parent}\n" for name in names]
    (tmp_path / "t.csv").write_text("first,file,label\n" + "".join(lines))
    data = (str(tmp_path / "t.csv"), str(album))
    given = replace(options(start, album), data=data, columns=("file", "label"))
    plan = plan_tuning(given)
    assert "60 images (image_table), 3 classes (blue, green, red)" in plan.summary
    store = open_store(tmp_path / "out" / "prepared", "train")
    assert len({bytes(store.row(i)["image"]) for i in range(len(store))}) == len(store)


def test_invalid_requests_are_one_line_errors_and_write_nothing(
    album: Path, tmp_path: Path
) -> None:
    start = checkpoint(tmp_path / "start", MODELS["vit"])
    detector = weft.detr(depth=1, decoder_depth=1, width=16, heads=2, hidden=16, classes=3)
    save(build(detector, seed=1), tmp_path / "detector", to="weft")
    one = tmp_path / "one"
    write_folder(one, 10)
    for name in ("blue", "green"):
        for file in (one / name).iterdir():
            file.unlink()
        (one / name).rmdir()
    cases = {
        "reads images, and tag does not": options(start, album, task="tag"),
        "--max-length is for texts": options(start, album, max_length=8),
        "--lm-weight is for texts": options(start, album, lm_weight=0.5),
        "is a detector": options(tmp_path / "detector", album),
        r"16 does not divide|patch_size": options(start, album, image_size=18),
    }
    for said, asked in cases.items():
        with pytest.raises(ValueError, match=said):
            plan_tuning(asked)
        assert not Path(str(asked.output)).exists(), said
    with pytest.raises(ValueError, match="every image has the class red"):
        plan_tuning(options(start, one))
