"""The command `weft probe`: a linear classifier on frozen image features."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any

from ..support.console import print_result, report, spinner
from ..support.options.declare import Option
from ..support.options.shared import COLUMNS, POOLING, VALID, Pooling, TableOptions, VerbOptions
from .predict_options import BatchOptions

if TYPE_CHECKING:
    from ..data.shards.store import Store
    from ..inference.open_model import OpenModel


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(BatchOptions, TableOptions, VerbOptions):
    """The options of `weft probe`."""

    data: Annotated[
        Sequence[str],
        Option(
            "labelled training images, such as a folder with one sub-folder per class",
            metavar="FILE",
        ),
    ]
    valid: Annotated[Sequence[str], VALID]
    shots: Annotated[
        Sequence[int],
        Option(
            "numbers of training images per class; a last fit uses all images", metavar="N", least=1
        ),
    ] = (1, 5, 10)
    seeds: Annotated[
        int, Option("number of random draws of images per class", metavar="N", least=1)
    ] = 3
    pooling: Annotated[
        Pooling | None,
        replace(POOLING, default="the class token, else the mean"),
    ] = None
    columns: Annotated[
        Sequence[str],
        replace(COLUMNS, help="columns with the image and its class, for a table"),
    ] = ()


def probe(options: ProbeOptions) -> int:
    """Classify images by least squares on a model's frozen features.

    Fits a linear classifier in closed form on a few images per class, and on all images. Its
    accuracy measures the features without training the model.
    """
    with spinner(f"opening {options.name}"):
        from ..evaluation import probe as probes
        from ..inference.open_model import open_model
        from ..tasks.predict import PredictOptions

        model = open_model(options.name, device=options.device)
    labels, train = labelled_images(options, model, options.data)
    valid = labelled_images(options, model, options.valid, labels)[1]
    predict_options = PredictOptions(options.batch_size, options.precision == "bf16")
    with spinner(f"computing the features of {len(train) + len(valid):,} images"):
        shots = [*options.shots, None]
        scores = list(
            probes.probe(
                model, train, valid, shots, options.seeds, options.pooling, predict_options
            )
        )
    rows = [summary(count, [s for s in scores if s.shots == count]) for count in shots]
    print_result(options.json, rows, lambda width: "\n".join(map(line, rows)))
    return 0


def labelled_images(
    options: ProbeOptions,
    model: "OpenModel",
    paths: Sequence[str],
    labels: tuple[str, ...] | None = None,
) -> tuple[tuple[str, ...], "Store"]:
    """Return the class names (by default those of the first files) and the images."""
    from ..inference.images import load_labelled_images

    store = load_labelled_images(
        paths,
        labels,
        options.max_bad_row_fraction,
        report,
        options.columns,
        options.column_names,
    )
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
