"""Detection benchmark: convert BCCD to COCO's layout, compare runs at the same cost, and draw boxes
and attention maps.

    python -m benchmarks.detection bccd DATA/bccd [--archive DATA/bccd/bccd.tar]
    python -m benchmarks.detection curves runs/detr runs/detr-anchors runs/detr-denoising
        [--plot curves.svg] [--boxes boxes.png] [--maps maps.png] [--receipt FILE]

`bccd` reads the archive of BCCD (images, and a list of boxes as left, top, right and bottom) and
writes train.json, val.json and test.json beside the images. `curves` prints the validation's AP of
each run by step, training FLOP and seconds; the last line is JSON. Of the run whose averaged
weights have the best AP, --boxes draws the objects that it detects in the first validation images,
and --maps, of one of them, where the encoder looks from the middle of each object and where the
decoder looks for it, as in figures 3 and 6 of DETR's paper.
"""

import argparse
import json
import tarfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from weft import recipe as R
from weft import spec as S

from . import command, receipt

CLASSES = ("Platelets", "RBC", "WBC")
SHOWN = 8
COLUMNS = 4
MAPPED = 4
SCORE = 0.3  # of a drawn box at least: focal scores of few steps are low


def coco_split(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """COCO's JSON of some images; boxes become x, y, width and height."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, row in enumerate(rows, 1):
        name = Path(row["file"]).name
        images.append(
            {"id": number, "file_name": name, "width": row["width"], "height": row["height"]}
        )
        for (left, top, right, bottom), label in zip(row["boxes"], row["labels"], strict=True):
            width = right - left
            height = bottom - top
            if width > 0 and height > 0:  # one box of the set is empty
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": number,
                        "category_id": CLASSES.index(label) + 1,
                        "bbox": [left, top, width, height],
                        "area": width * height,
                        "iscrowd": 0,
                    }
                )
    categories = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def write_bccd(folder: Path, archive: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    rows = json.loads((folder / "annotations.json").read_text())
    for split in ("train", "val", "test"):
        part = [row for row in rows if row["split"] == split]
        table = coco_split(part)
        (folder / f"{split}.json").write_text(json.dumps(table))
        print(f"{split}: {len(part)} images, {len(table['annotations'])} boxes")


def with_noised_queries(recipe: R.Recipe) -> R.Recipe:
    """The recipe with as many queries as training has, for counting: noised ones too, for the most
    objects that an image has.
    """
    from weft.data.reading.files import find

    assert isinstance(recipe.task, R.Detection)
    assert isinstance(recipe.data.train, R.Source)
    noised = recipe.task.denoising
    if noised is None:
        return recipe
    table = json.loads(Path(find(recipe.data.train.paths[0])[0]).read_text())
    most = max(Counter(row["image_id"] for row in table["annotations"]).values())
    target = recipe.model.target
    assert isinstance(target, S.ObjectQueries | S.AnchorQueries)
    target = replace(target, count=target.count + noised.groups * most)
    return replace(recipe, model=replace(recipe.model, target=target))


def curve(run: Path) -> dict[str, Any]:
    """The AP of each validation of a run, and what it had cost by then."""
    from weft.plan.cost import run_flops
    from weft.recipe.files import load_recipe
    from weft.runs.logs.log import read_log

    recipe = load_recipe(str(run / "recipe.json"))
    if recipe.task.name != "detect":
        raise ValueError(f"{run} is of {type(recipe.task).__name__}; give runs of Detection")
    flop_per_step = run_flops(with_noised_queries(recipe)) / recipe.steps
    points: list[dict[str, Any]] = []
    seconds = 0.0
    averaged: dict[str, float] = {}
    for line in read_log(run / "log.jsonl"):
        averaged = line.get("averaged", averaged)
        seconds += line.get("seconds", 0.0)
        if "valid" in line:
            valid = line["valid"]
            points.append(
                {
                    "step": line["step"],
                    "flop": line["step"] * flop_per_step,
                    "seconds": round(seconds, 1),
                    **{name: valid[name] for name in ("loss", "ap", "ap50") if name in valid},
                }
            )
    return {
        "run": run.name,
        "parameters": recipe.model.parameter_count(),
        "points": points,
        "averaged": averaged or points[-1],
    }


def plot(curves: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot

    from .plots import STYLE

    pyplot.rcParams.update(STYLE)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for line in curves:
        axes.plot(
            [point["flop"] for point in line["points"]],
            [point["ap"] for point in line["points"]],
            marker="o",
            label=line["run"],
        )
    axes.set(xlabel="training FLOP", ylabel="AP on held-out scenes", ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)


def validation_images(run: Path, count: int) -> list[Image.Image]:
    """The first validation images of a run whose data are in COCO's layout."""
    from weft.data.reading.files import find
    from weft.recipe.files import load_recipe

    source = load_recipe(str(run / "recipe.json")).data.valid
    assert isinstance(source, R.Source)
    table, folder = source.paths
    names = [row["file_name"] for row in json.loads(Path(find(table)[0]).read_text())["images"]]
    return [Image.open(Path(find(folder)[0]) / name).convert("RGB") for name in names[:count]]


def draw_detections(run: Path, path: Path) -> None:
    """Write a sheet of images with the objects that the run detects."""
    from weft.inference.detect import detect
    from weft.inference.methods import label_names
    from weft.inference.open_model import open_model
    from weft.observe.boxes import draw_boxes

    model = open_model(str(run))
    images = validation_images(run, SHOWN)
    drawn = [
        draw_boxes(image, objects, label_names(model))
        for image, objects in zip(images, detect(model, images, SCORE), strict=True)
    ]
    (width, height) = drawn[0].size
    gap = 6
    rows = -(-len(drawn) // COLUMNS)
    size = (COLUMNS * (width + gap) - gap, rows * (height + gap) - gap)
    sheet = Image.new("RGB", size, "white")
    for i, image in enumerate(drawn):
        row, column = divmod(i, COLUMNS)
        sheet.paste(image, (column * (width + gap), row * (height + gap)))
    sheet.quantize(128).save(path, optimize=True)


def draw_maps(run: Path, path: Path) -> None:
    """Write where the encoder looks from the middle of each object, and where the decoder looks for
    it: mean of the last layer's heads.
    """
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    from weft.inference.look import look
    from weft.inference.open_model import open_model

    from .plots import STYLE

    model = open_model(str(run))
    seen = max(
        (look(model, image) for image in validation_images(run, SHOWN)),
        key=lambda observation: len(observation.objects[:MAPPED]),
    )
    assert seen.image is not None
    panels = {panel.kind: panel for panel in seen.panels}
    width, height = seen.image.size
    pyplot.rcParams.update(STYLE)
    figure, axes = pyplot.subplots(
        2, MAPPED, figsize=(2.4 * MAPPED, 5.4), layout="constrained", squeeze=False
    )
    for column, thing in enumerate(seen.objects[:MAPPED]):
        x, y, w, h = thing.box
        grid = panels["encoder"].query_grid
        assert grid is not None
        cell = int((y + h / 2) * grid.rows) * grid.columns + int((x + w / 2) * grid.columns)
        for row, (kind, query) in enumerate((("encoder", cell), ("cross", thing.query))):
            weight_M = panels[kind].maps[-1].float().mean(0)[query].cpu()
            axis = axes[row, column]
            axis.imshow(seen.image)
            axis.imshow(
                weight_M.view(grid.rows, grid.columns),
                cmap="inferno",
                alpha=0.65,
                extent=(0, width, height, 0),
            )
            axis.add_patch(
                Rectangle(
                    (x * width, y * height), w * width, h * height, fill=False, edgecolor="#5eead4"
                )
            )
            axis.set(xticks=[], yticks=[])
        axes[0, column].plot((x + w / 2) * width, (y + h / 2) * height, "o", color="#5eead4")
        axes[1, column].set_xlabel(f"{thing.label}: {thing.score:.2f}")
    axes[0, 0].set_ylabel("encoder, from the point")
    axes[1, 0].set_ylabel("decoder, for the object")
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    bccd = verbs.add_parser("bccd")
    bccd.add_argument("folder", type=Path)
    bccd.add_argument("--archive", type=Path)
    compare = verbs.add_parser("curves")
    compare.add_argument("runs", type=Path, nargs="+")
    compare.add_argument("--plot", type=Path)
    compare.add_argument("--receipt", metavar="FILE")
    compare.add_argument("--boxes", type=Path)
    compare.add_argument("--maps", type=Path)
    args = parser.parse_args()
    start = time.perf_counter()
    if args.verb == "bccd":
        write_bccd(args.folder, args.archive or args.folder / "bccd.tar")
        return
    curves = [curve(run) for run in args.runs]
    for line in curves:
        for point in line["points"]:
            print(f"{line['run']:24} {json.dumps(point)}")
    best = args.runs[max(range(len(curves)), key=lambda i: curves[i]["averaged"]["ap"])]
    if args.plot:
        plot(curves, args.plot)
    if args.boxes:
        draw_detections(best, args.boxes)
    if args.maps:
        draw_maps(best, args.maps)
    if args.receipt:
        receipt.write(args.receipt, curves, time.perf_counter() - start)
    print(json.dumps(curves))


if __name__ == "__main__":
    command.run(main)
