"""The course page: docs/lectures.md supplies the command and receipt of each topic number."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from .markdown import table
from .usage import ROOT

TOPIC = re.compile(r"[A-H]\d?")


class Topic(NamedTuple):
    """A row of docs/lectures.md."""

    number: str
    topic: str
    file: str
    test: str
    command: str
    receipt: str


def topics() -> dict[str, Topic]:
    rows = [
        Topic(*(cell.strip() for cell in line.strip("|").split("|")))
        for line in (ROOT / "docs" / "lectures.md").read_text().splitlines()
        if re.match(rf"\| {TOPIC.pattern} \|", line)
    ]
    return {row.number: row for row in rows}


def receipt_link(text: str) -> str:
    """Return a receipt's path as a link."""
    return re.sub(r"`docs/results/([\w-]+\.json)`", r"[\1](results/\1)", text)


def expand_course(text: str) -> str:
    """Add the columns `command` and `receipt` to every table whose last column is `topic`."""
    by_number = topics()
    lines = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[-1] == "topic":
            inside = True
            lines += [*table((*cells, "command", "receipt, or the reason for its absence"), ())]
        elif inside and line.startswith("|---"):
            continue
        elif inside and line.startswith("|"):
            rows = [by_number[number] for number in cells[-1].split(", ")]
            commands = dict.fromkeys(row.command for row in rows)
            receipts = dict.fromkeys(receipt_link(row.receipt) for row in rows)
            numbers = ", ".join(f"[{row.number}](lectures.md)" for row in rows)
            lines += [
                "| "
                + " | ".join((*cells[:-1], numbers, "<br>".join(commands), "<br>".join(receipts)))
                + " |"
            ]
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines) + "\n"


def trained_pictures() -> Iterator[str]:
    """Yield the pictures of trained models with their receipt, or `Not measured yet.`"""
    path = ROOT / "docs" / "results" / "course.json"
    if not path.exists():
        yield "Not measured yet."
        return
    result = json.loads(path.read_text())["result"]
    yield (
        "![Patch filters, similarity of positions and attention distance of a small "
        "ViT](results/vit.svg)"
    )
    yield ""
    yield (
        f"`recipes/vit.py:fashion_mnist` after {result['steps']:,} steps: "
        f"validation loss {result['vit']['valid_loss']:.3f}. "
        "Each small square in the middle compares one position with all others."
    )
    yield ""
    yield "![Images, visible patches, reconstructions](results/mae.png)"
    yield ""
    yield (
        f"`recipes/mae.py:cifar10` after {result['steps']:,} steps: the image, "
        "the patches visible to the encoder, and the reconstruction. "
        "Masked patches have the brightness and contrast of the original, "
        "as in the paper's figures. "
        "Receipt: [course.json](results/course.json)."
    )


def detection_pictures() -> Iterator[str]:
    """Yield detections and attention maps with their receipt, or `Not measured yet.`"""
    path = ROOT / "docs" / "results" / "detection.json"
    if not path.exists():
        yield "Not measured yet."
        return
    best = max(json.loads(path.read_text())["result"], key=lambda run: float(run["averaged"]["ap"]))
    last = best["points"][-1]
    yield "![Scenes with the digits detected by a small DETR](results/detection_boxes.png)"
    yield ""
    yield (
        f"{best['run']} after {last['step']:,} steps from random weights: held-out scenes, "
        "boxes with a score of at least 0.3; "
        f"AP {best['averaged']['ap']:.3f}, at an IoU of 0.5 {best['averaged']['ap50']:.3f}."
    )
    yield ""
    yield "![Attention maps of encoder and decoder](results/detection_maps.png)"
    yield ""
    yield (
        "Top: attention of the encoder from the centre of an object. "
        "Bottom: attention of the decoder for this object. Mean over the heads of the last layer. "
        "Receipt: [detection.json](results/detection.json)."
    )
