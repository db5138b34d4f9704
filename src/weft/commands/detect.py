"""`weft detect`."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..console import count_of, print_result, report, spinner
from . import AddCommand, Fields
from .options import add_batch_size, add_device, add_model_name, add_precision, fraction
from .predict import open_for_prediction
from .rows import (
    TABLE_SUFFIXES,
    check_different_outputs,
    check_keeps_inputs,
    check_output_file,
    check_output_folder,
    check_outside_model,
    check_picture_file,
    report_written,
    write_output_rows,
)


def detect(args: argparse.Namespace) -> int:
    check_output_paths(args)
    truth = read_truth(args.coco_truth) if args.coco_truth else None
    model, options = open_for_prediction(args)
    from ..inference import detect as inference
    from ..inference import methods
    from ..inference.images import expand_folders

    images, names = expand_folders(args.images), methods.label_names(model)
    drawings = draw_targets(args.draw, images) if args.draw else []
    check_overwrites(args, drawings, images)
    ids = coco_ids(images, names, truth) if args.coco else None
    with spinner(f"detecting with {args.name}"):
        detected = inference.detect_all(model, images, options)
    if ids is not None:
        scored = {path: one.scored for path, one in zip(images, detected, strict=True)}
        write_coco(args.coco, coco_results(scored, *ids))
    rows: list[Fields] = [
        {"image": path, "objects": one.above(args.threshold)}
        for path, one in zip(images, detected, strict=True)
    ]
    if drawings:
        draw_all(rows, drawings, names)
    if args.output:
        write_output_rows(args.output, rows)
        return report_written(len(rows), args.output)
    print_result(args, rows, lambda _: "\n".join(object_lines(row, args.threshold) for row in rows))
    return 0


def object_lines(row: Fields, threshold: float) -> str:
    """An image with a line per object."""
    lines = [
        f"  {thing['label']}  {thing['score']:.3f}  " + " ".join(f"{x:.1f}" for x in thing["box"])
        for thing in row["objects"]
    ]
    return "\n".join(
        [
            row["image"],
            *(lines or [f"  nothing scores {threshold:g} or more; --threshold sets this"]),
        ]
    )


Ids = dict[str, Any]


def read_truth(path: str) -> tuple[Ids, Ids]:
    """Return the ids of images by the name of their file, and of categories by theirs, as COCO's annotations have them."""
    from ..data.files import size_and_mtime
    from ..data.formats.coco import load_coco

    if not Path(path).is_file():
        raise ValueError(f"--coco-truth {path} is not a file; give COCO's annotations, JSON")
    table = load_coco(path, size_and_mtime(path))
    images: Ids = {}
    for image in table.images:
        if isinstance(image, dict):
            name = Path(image["file_name"]).name
            if name in images:
                raise ValueError(
                    f"--coco-truth {path} names {name} in two folders; images are matched by name: give the annotations of one folder"
                )
            images[name] = image["id"]
    return images, {name: number for number, name in table.names.items()}


def coco_ids(
    images: Sequence[str], names: Sequence[str], truth: tuple[Ids, Ids] | None
) -> tuple[Ids, Ids]:
    """Return the id of each image and of each class: those of `truth`, or numbers from 1 in order."""
    if truth is None:
        return (
            {path: number for number, path in enumerate(images, 1)},
            {name: number for number, name in enumerate(names, 1)},
        )
    ids = {path: truth[0].get(Path(path).name) for path in images}
    for path, number in ids.items():
        if number is None:
            raise ValueError(
                f"{path} is not among the images of --coco-truth; give a file that lists it, or leave the image out"
            )
    unknown = [name for name in names if name not in truth[1]]
    if len(unknown) == len(names):
        raise ValueError(
            f"no class of the model is among the categories of --coco-truth: {', '.join(truth[1])}"
        )
    if unknown:
        report(
            f"not among the categories of --coco-truth, and left out of the results: {', '.join(unknown)}"
        )
    return ids, truth[1]


def coco_results(scored: dict[str, list[Fields]], images: Ids, categories: Ids) -> list[Fields]:
    """COCO's results file, of every score, since average precision counts the unsure ones too."""
    return [
        {
            "image_id": images[path],
            "category_id": categories[thing["label"]],
            "bbox": thing["box"],
            "score": thing["score"],
        }
        for path, objects in scored.items()
        for thing in objects
        if thing["label"] in categories
    ]


def write_coco(path: str, results: list[Fields]) -> None:
    Path(path).write_text(json.dumps(results))
    report_written(len(results), path)


def check_output_paths(args: argparse.Namespace) -> None:
    """Raise before the model is opened if a file cannot be written."""
    outputs = [("--output", args.output), ("--coco", args.coco), ("--draw", args.draw)]
    check_different_outputs(outputs)
    for option, path in outputs:
        check_outside_model(option, [path], args.name)
    check_output_file(args.output, TABLE_SUFFIXES)
    check_output_file(args.coco, option="--coco")
    if args.draw and is_picture_path(args.draw):
        check_picture_file(args.draw, "--draw")


def is_picture_path(path: str) -> bool:
    """Return whether a path is that of one picture, not of a folder of pictures."""
    return bool(Path(path).suffix) and not Path(path).is_dir()


def draw_targets(target: str, images: Sequence[str]) -> list[Path]:
    """Return where each image is drawn: in the file, or in a folder under its own name."""
    if is_picture_path(target):
        if len(images) > 1:
            raise ValueError(f"--draw {target}: give a folder for {len(images)} images")
        return [Path(target)]
    check_output_folder(target, "--draw")
    drawings = [Path(target) / f"{Path(path).stem}.png" for path in images]
    name, count = Counter(drawings).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"--draw {target}: {count} images would be drawn in {name}; draw them into several folders"
        )
    return drawings


def check_overwrites(
    args: argparse.Namespace, drawings: Sequence[Path], images: Sequence[str]
) -> None:
    """Raise if an output would take the place of an image or of the annotations."""
    inputs = [*images, args.coco_truth] if args.coco_truth else images
    check_keeps_inputs("--draw", drawings, inputs)
    rows = [("--output", args.output), ("--coco", args.coco)]
    for option, path in rows:
        check_keeps_inputs(option, [path] if path else [], inputs)
    check_different_outputs([*rows, *(("--draw", path) for path in drawings)])


def draw_all(rows: Sequence[Fields], drawings: Sequence[Path], names: Sequence[str]) -> None:
    """Draw the images; their folder is made now, when nothing can be refused any more."""
    from ..data.images import open_image
    from ..observe.boxes import draw_boxes

    for row, out in zip(rows, drawings, strict=True):
        out.parent.mkdir(parents=True, exist_ok=True)
        draw_boxes(open_image(Path(row["image"]).read_bytes()), row["objects"], names).save(out)
    objects = count_of(sum(len(row["objects"]) for row in rows), "object")
    report(
        f"{objects} drawn in {drawings[0]}"
        if len(drawings) == 1
        else f"{objects} in {len(rows):,} images drawn in {drawings[0].parent}"
    )


def add(verb: AddCommand) -> None:
    parser = verb(
        detect,
        "detect the objects of images",
        "Example: weft detect runs/detr scene.jpg --draw out.png.",
    )
    add_model_name(parser)
    parser.add_argument(
        "images", metavar="IMAGE", nargs="+", help="image files, or folders of images"
    )
    parser.add_argument(
        "--threshold",
        type=fraction,
        default=0.5,
        metavar="X",
        help="lowest score of an object, from 0 to 1 (default: 0.5); --coco has every score",
    )
    parser.add_argument(
        "--draw",
        metavar="PATH",
        help="draw the boxes: an image file, or a folder for several images",
    )
    parser.add_argument(
        "--coco",
        metavar="FILE",
        help="write the objects as COCO's results file, JSON; images and classes are numbered from 1",
    )
    parser.add_argument(
        "--coco-truth",
        metavar="FILE",
        help="COCO's annotations, JSON: take the ids of images (by file name) and categories from there",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="output file: .jsonl, .json, .csv, .tsv or .parquet, one row per image with its objects",
    )
    add_batch_size(parser)
    add_precision(parser)
    add_device(parser)
