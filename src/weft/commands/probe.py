"""`weft probe`."""

import argparse
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from ..console import print_result, report, spinner
from . import AddCommand
from .options import (
    add_batch_size,
    add_columns_option,
    add_device,
    add_max_bad_rows,
    add_model_name,
    add_precision,
    positive_int,
)

if TYPE_CHECKING:
    from ..data.store import Store
    from ..inference.open_model import OpenModel


def probe(args: argparse.Namespace) -> int:
    with spinner(f"opening {args.name}"):
        from ..inference import probe as probes
        from ..inference.open_model import open_model
        from ..tasks.predict import PredictOptions

        model = open_model(args.name, device=args.device)
    labels, train = labelled_images(args, model, args.data)
    valid = labelled_images(args, model, args.valid, labels)[1]
    options = PredictOptions(args.batch_size, args.precision == "bf16")
    with spinner(f"computing the features of {len(train) + len(valid):,} images"):
        shots = [*args.shots, None]
        scores = list(probes.probe(model, train, valid, shots, args.seeds, args.pooling, options))
    rows = [summary(count, [s for s in scores if s.shots == count]) for count in shots]
    print_result(args, rows, lambda width: "\n".join(map(line, rows)))
    return 0


def labelled_images(
    args: argparse.Namespace,
    model: "OpenModel",
    paths: list[str],
    labels: tuple[str, ...] | None = None,
) -> tuple[tuple[str, ...], "Store"]:
    """Return the names of the classes, those of the first files unless given, and the images."""
    from ..inference.images import load_labelled_images

    store = load_labelled_images(paths, labels, args.max_bad_row_fraction, report, args.columns)
    return store.meta.labels or (), store


def summary(shots: int | None, scores: list[Any]) -> dict[str, Any]:
    accuracy = [score.accuracy for score in scores]
    return {
        "shots": shots,
        "accuracy": mean(accuracy),
        "stdev": stdev(accuracy) if len(accuracy) > 1 else None,
        "seeds": len(accuracy),
        "l2": [score.l2 for score in scores],
    }


def line(row: dict[str, Any]) -> str:
    spread = "" if row["stdev"] is None else f" ± {row['stdev']:.4f} over {row['seeds']} draws"
    shots = "all images" if row["shots"] is None else f"{row['shots']} per class"
    return f"{shots:>14}  accuracy {row['accuracy']:.4f}{spread}"


def add(verb: AddCommand) -> None:
    parser = verb(
        probe,
        "classify images by least squares on a model's frozen features",
        "Fits a linear classifier in closed form on a few images per class, and on all: how good are the features, without training?",
    )
    add_model_name(parser)
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILE",
        help="labelled images to fit on, such as a folder with one sub-folder per class",
    )
    parser.add_argument(
        "--valid",
        nargs="+",
        required=True,
        metavar="FILE",
        help="validation files",
    )
    parser.add_argument(
        "--shots",
        nargs="+",
        type=positive_int,
        default=[1, 5, 10],
        metavar="N",
        help="images per class; all images are tried too (default: 1 5 10)",
    )
    parser.add_argument(
        "--seeds",
        type=positive_int,
        default=3,
        metavar="N",
        help="number of seeds (default: 3)",
    )
    parser.add_argument(
        "--pooling",
        choices=("mean", "max", "cls", "last"),
        help="how the vectors of the tokens become one (default: the class token, else the mean)",
    )
    add_columns_option(parser, "columns of the image and its class in a table")
    add_max_bad_rows(parser)
    add_batch_size(parser)
    add_precision(parser)
    add_device(parser)
