"""`weft detect`."""

import argparse
import json
from pathlib import Path

from ..console import print_result, report, spinner
from . import AddCommand, Fields
from .options import add_batch_size, add_device, add_model_name, add_precision, fraction
from .predict import open_for_prediction
from .rows import check_output_file, report_written, write_output_rows


def detect(args: argparse.Namespace) -> int:
    check_output_file(args.output)
    check_output_file(args.coco)
    if args.draw and len(args.images) > 1 and Path(args.draw).suffix:
        raise ValueError(f"--draw {args.draw}: give a folder for {len(args.images)} images")
    model, options = open_for_prediction(args)
    from ..inference import detect as inference
    from ..inference import methods

    with spinner(f"detecting with {args.name}"):
        objects = inference.detect(model, args.images, args.threshold, options)
    rows: list[Fields] = [
        {"image": path, "objects": image_objects}
        for path, image_objects in zip(args.images, objects, strict=True)
    ]
    if args.draw:
        draw(args.draw, rows)
    if args.coco:
        names = methods.label_names(model)
        Path(args.coco).write_text(json.dumps(coco_results(rows, names)))
        report_written(sum(len(row["objects"]) for row in rows), args.coco)
    if args.output:
        write_output_rows(args.output, rows)
        return report_written(len(rows), args.output)
    print_result(args, rows, lambda _: "\n".join(map(object_lines, rows)))
    return 0


def object_lines(row: Fields) -> str:
    """An image with a line per object."""
    lines = [
        f"  {thing['label']}  {thing['score']:.3f}  " + " ".join(f"{x:.1f}" for x in thing["box"])
        for thing in row["objects"]
    ]
    return "\n".join([row["image"], *(lines or ["  nothing"])])


def coco_results(rows: list[Fields], names: tuple[str, ...]) -> list[Fields]:
    """COCO's results file; an image's id is the number in its file's name, or its place; a category's its place among the
    classes, from 1."""
    results = []
    for place, row in enumerate(rows, 1):
        stem = Path(row["image"]).stem
        image_id = int(stem) if stem.isdecimal() else place
        for thing in row["objects"]:
            category = names.index(thing["label"]) + 1
            results.append(
                {
                    "image_id": image_id,
                    "category_id": category,
                    "bbox": thing["box"],
                    "score": thing["score"],
                }
            )
    return results


def draw(target: str, rows: list[Fields]) -> None:
    """Draw the objects of one image into a file, or those of each image into a folder."""
    from PIL import Image

    from ..observe.boxes import draw_boxes

    into_file = bool(Path(target).suffix)
    if not into_file:
        Path(target).mkdir(parents=True, exist_ok=True)
    for row in rows:
        out = Path(target) if into_file else Path(target) / f"{Path(row['image']).stem}.png"
        with Image.open(row["image"]) as image:
            draw_boxes(image, row["objects"]).save(out)
        report(f"{len(row['objects'])} objects drawn in {out}")


def add(verb: AddCommand) -> None:
    parser = verb(
        detect,
        "detect the objects of images",
        "Example: weft detect runs/detr scene.jpg --draw out.png.",
    )
    add_model_name(parser)
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="image file")
    parser.add_argument(
        "--threshold",
        type=fraction,
        default=0.5,
        metavar="X",
        help="lowest score of an object, from 0 to 1 (default: 0.5)",
    )
    parser.add_argument(
        "--draw",
        metavar="PATH",
        help="draw the boxes: an image file, or a folder for several images",
    )
    parser.add_argument(
        "--coco", metavar="FILE", help="write the objects as COCO's results file, JSON"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="output file: .jsonl or .json, one row per image with its objects",
    )
    add_batch_size(parser)
    add_precision(parser)
    add_device(parser)
