"""Detection: blood cells in COCO's layout, and what several runs reached at the same cost.

    python -m benchmarks.detection bccd DATA/bccd [--archive DATA/bccd/bccd.tar]
    python -m benchmarks.detection curves runs/detr runs/detr-anchors runs/detr-denoising --plot curves.png

`bccd` reads the archive of BCCD (images, and a list of boxes as left, top, right and bottom) and writes train.json, val.json and
test.json beside the images. `curves` prints the validation's AP of each run by step, training FLOP and seconds; the last line is JSON.
"""

import argparse
import json
import tarfile
from pathlib import Path
from typing import Any

CLASSES = ("Platelets", "RBC", "WBC")


def coco_split(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """COCO's JSON of some images; boxes become x, y, width and height."""
    images, annotations = [], []
    for number, row in enumerate(rows, 1):
        name = Path(row["file"]).name
        images.append(
            {"id": number, "file_name": name, "width": row["width"], "height": row["height"]}
        )
        for (left, top, right, bottom), label in zip(row["boxes"], row["labels"], strict=True):
            width, height = right - left, bottom - top
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


def curve(run: Path) -> dict[str, Any]:
    """The AP of each validation of a run, and what it had cost by then."""
    from weft.recipe.cost import run_flops
    from weft.recipe.files import load_recipe
    from weft.runs.log import read_log

    recipe = load_recipe(str(run / "recipe.json"))
    flop_per_step = run_flops(recipe) / recipe.steps
    points, seconds = [], 0.0
    for line in read_log(run / "log.jsonl"):
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
    return {"run": run.name, "parameters": recipe.model.parameter_count(), "points": points}


def plot(curves: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot

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
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    bccd = verbs.add_parser("bccd")
    bccd.add_argument("folder", type=Path)
    bccd.add_argument("--archive", type=Path)
    compare = verbs.add_parser("curves")
    compare.add_argument("runs", type=Path, nargs="+")
    compare.add_argument("--plot", type=Path)
    args = parser.parse_args()
    if args.verb == "bccd":
        write_bccd(args.folder, args.archive or args.folder / "bccd.tar")
        return
    curves = [curve(run) for run in args.runs]
    for line in curves:
        for point in line["points"]:
            print(f"{line['run']:24} {json.dumps(point)}")
    if args.plot:
        plot(curves, args.plot)
    print(json.dumps(curves))


if __name__ == "__main__":
    main()
