"""The command `weft detect`: objects in images."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ..support.console import count_of, print_result, report, spinner
from ..support.options.declare import Option
from ..support.options.shared import Images, VerbOptions
from . import Fields
from .files import (
    check_different_outputs,
    check_keeps_inputs,
    check_output_file,
    check_output_folder,
    check_outside_model,
    check_picture_file,
)
from .predict import open_for_prediction
from .predict_options import BatchOptions
from .rows import TABLE_SUFFIXES, report_written, write_output_rows


@dataclass(frozen=True, kw_only=True)
class DetectOptions(BatchOptions, VerbOptions):
    """The options of `weft detect`."""

    images: Images
    threshold: Annotated[
        float,
        Option(
            "minimum score of an object, from 0 to 1; --coco writes every score",
            metavar="X",
            least=0,
            most=1,
        ),
    ] = 0.5
    draw: Annotated[
        str | None,
        Option("image file to draw the boxes in, or a folder for several images", metavar="PATH"),
    ] = None
    coco: Annotated[
        str | None,
        Option(
            "JSON file to write in the format of COCO results; "
            "without --coco-truth, ids of images and classes count from 1",
            metavar="FILE",
        ),
    ] = None
    coco_truth: Annotated[
        str | None,
        Option(
            "COCO annotations (JSON) that give the ids of images (by file name) and of "
            "categories for --coco",
            metavar="FILE",
        ),
    ] = None
    output: Annotated[
        str | None,
        Option(
            "output file: .jsonl, .json, .csv, .tsv or .parquet, "
            "one row per image with its objects",
            metavar="FILE",
            short="-o",
        ),
    ] = None


def detect(options: DetectOptions) -> int:
    """Detect the objects of images. Example: weft detect runs/detr scene.jpg --draw out.png."""
    check_output_paths(options)
    truth = read_truth(options.coco_truth) if options.coco_truth else None
    model, predict_options = open_for_prediction(options)
    from ..inference import detect as inference
    from ..inference import methods
    from ..inference.images import expand_folders

    images = expand_folders(options.images)
    names = methods.label_names(model)
    drawings = draw_targets(options.draw, images) if options.draw else []
    check_overwrites(options, drawings, images)
    ids = coco_ids(images, names, truth) if options.coco else None
    with spinner(f"detecting with {options.name}"):
        detected = inference.detect_all(model, images, predict_options)
    if options.coco and ids is not None:
        scored = {path: one.scored for path, one in zip(images, detected, strict=True)}
        write_coco(options.coco, coco_results(scored, *ids))
    rows: list[Fields] = [
        {"image": path, "objects": one.above(options.threshold)}
        for path, one in zip(images, detected, strict=True)
    ]
    if drawings:
        draw_all(rows, drawings, names)
    if options.output:
        write_output_rows(options.output, rows)
        return report_written(len(rows), options.output)
    print_result(
        options.json,
        rows,
        lambda _: "\n".join(object_lines(row, options.threshold) for row in rows),
    )
    return 0


def object_lines(row: Fields, threshold: float) -> str:
    """Return one line for the image and one per object."""
    lines = [
        f"  {thing['label']}  {thing['score']:.3f}  " + " ".join(f"{x:.1f}" for x in thing["box"])
        for thing in row["objects"]
    ]
    return "\n".join(
        [
            row["image"],
            *(lines or [f"  no object scores {threshold:g} or more; lower --threshold"]),
        ]
    )


Ids = dict[str, Any]


def read_truth(path: str) -> tuple[Ids, Ids]:
    """Return the image ids by file name and the category ids by name from COCO annotations."""
    from ..data.reading.files import size_and_mtime
    from ..data.reading.formats.coco import load_coco

    if not Path(path).is_file():
        raise ValueError(f"--coco-truth {path} is not a file; give COCO annotations (JSON)")
    table = load_coco(path, size_and_mtime(path))
    images: Ids = {}
    for image in table.images:
        if isinstance(image, dict):
            name = Path(image["file_name"]).name
            if name in images:
                raise ValueError(
                    f"--coco-truth {path} lists {name} in two folders; "
                    "images are matched by file name: give the annotations of one folder"
                )
            images[name] = image["id"]
    return images, {name: number for number, name in table.names.items()}


def coco_ids(
    images: Sequence[str], names: Sequence[str], truth: tuple[Ids, Ids] | None
) -> tuple[Ids, Ids]:
    """Return the ids of images and classes: those of `truth`, or numbers from 1 in order."""
    if truth is None:
        return (
            {path: number for number, path in enumerate(images, 1)},
            {name: number for number, name in enumerate(names, 1)},
        )
    ids = {path: truth[0].get(Path(path).name) for path in images}
    for path, number in ids.items():
        if number is None:
            raise ValueError(
                f"--coco-truth does not list the image {path}; give annotations that list it, "
                "or remove the image"
            )
    unknown = [name for name in names if name not in truth[1]]
    if len(unknown) == len(names):
        raise ValueError(
            f"--coco-truth has none of the model's classes; its categories: {', '.join(truth[1])}"
        )
    if unknown:
        report(f"--coco-truth lacks these classes, and the results omit them: {', '.join(unknown)}")
    return ids, truth[1]


def coco_results(scored: dict[str, list[Fields]], images: Ids, categories: Ids) -> list[Fields]:
    """Return the rows of a COCO results file, with every score for average precision."""
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


def check_output_paths(options: DetectOptions) -> None:
    """Raise ValueError if an output file cannot be written, before the model is opened."""
    outputs = [("--output", options.output), ("--coco", options.coco), ("--draw", options.draw)]
    check_different_outputs(outputs)
    check_output_file(options.output, TABLE_SUFFIXES)
    check_output_file(options.coco, option="--coco")
    if options.draw and is_picture_path(options.draw):
        check_picture_file(options.draw, "--draw")
    for option, path in outputs:
        check_outside_model(option, [path], options.name)


def is_picture_path(path: str) -> bool:
    """Return whether a path names one image file, not a folder."""
    return bool(Path(path).suffix) and not Path(path).is_dir()


def draw_targets(target: str, images: Sequence[str]) -> list[Path]:
    """Return the file that each image is drawn in: `target`, or one file per image in it."""
    if is_picture_path(target):
        if len(images) > 1:
            raise ValueError(f"--draw {target}: give a folder for {len(images)} images")
        return [Path(target)]
    check_output_folder(target, "--draw")
    drawings = [Path(target) / f"{Path(path).stem}.png" for path in images]
    name, count = Counter(drawings).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"--draw {target}: {count} images would be drawn in {name}; "
            "draw them into different folders"
        )
    return drawings


def check_overwrites(
    options: DetectOptions, drawings: Sequence[Path], images: Sequence[str]
) -> None:
    """Raise ValueError if an output would overwrite an image or the annotations."""
    inputs = [*images, options.coco_truth] if options.coco_truth else images
    check_keeps_inputs("--draw", drawings, inputs)
    rows = [("--output", options.output), ("--coco", options.coco)]
    for option, path in rows:
        check_keeps_inputs(option, [path] if path else [], inputs)
    check_different_outputs([*rows, *(("--draw", path) for path in drawings)])


def draw_all(rows: Sequence[Fields], drawings: Sequence[Path], names: Sequence[str]) -> None:
    """Draw the images. The folder is created here, after all checks."""
    from ..data.images.images import open_image
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
