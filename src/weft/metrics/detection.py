"""Average precision of boxes, as defined by COCO (Lin et al. 2014, arXiv:1405.0312;
cocodataset.org/#detection-eval).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ..support.extras import install_extra

MAX_DETECTIONS = 100  # per image, those with the highest scores
NAMES = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")  # in the order of COCO's stats

Box = Sequence[float]


def detection_metrics(
    predictions: Sequence[Sequence[Box]], references: Sequence[Sequence[Box]]
) -> Iterator[tuple[str, float]]:
    """Yield AP over IoU .50 to .95, at .50 and .75, and per object size that occurs. The area of an
    object is width times height. Crowd annotations of COCO are ignored, so results on them differ
    slightly from published ones.

    Args:
        predictions: per image a list of boxes: class, score, x, y, width, height.
        references: per image a list of boxes: class, x, y, width, height.
    """
    if len(predictions) != len(references):
        raise ValueError(
            f"{len(predictions)} predictions for {len(references)} images; give one list per image"
        )
    stats = coco_stats(predictions, references)
    for i, name in enumerate(NAMES):
        if stats[i] >= 0:
            yield name, float(stats[i])
        elif i < 3:  # without objects, none can be missed
            yield name, 0.0


def coco_stats(
    predictions: Sequence[Sequence[Box]], references: Sequence[Sequence[Box]]
) -> Sequence[float]:
    """Return COCO's twelve statistics, computed by faster-coco-eval."""
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError:
        raise ValueError(
            f"metric 'ap' needs faster-coco-eval; run {install_extra('vision')}"
        ) from None
    results = coco_results(predictions)
    if not results:  # the evaluator does not accept an empty list
        return [0.0] * 3 + [-1.0] * 9
    truth = COCO(coco_ground_truth(references))
    evaluation = COCOeval_faster(
        truth, truth.loadRes(results), "bbox", print_function=lambda *_: None
    )
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    stats: Sequence[float] = evaluation.stats
    return stats


def coco_ground_truth(references: Sequence[Sequence[Box]]) -> dict[str, Any]:
    """Return references in COCO's format; classes and images are numbered from 1."""
    annotations: list[dict[str, Any]] = [
        {
            "id": 0,
            "image_id": image,
            "category_id": int(label) + 1,
            "bbox": list(box),
            "area": box[2] * box[3],
            "iscrowd": 0,
        }
        for image, boxes in enumerate(references, 1)
        for label, *box in boxes
    ]
    for number, annotation in enumerate(annotations, 1):
        annotation["id"] = number
    classes = sorted({annotation["category_id"] for annotation in annotations})
    return {
        "images": [{"id": image} for image in range(1, len(references) + 1)],
        "categories": [{"id": number, "name": str(number)} for number in classes],
        "annotations": annotations,
    }


def coco_results(predictions: Sequence[Sequence[Box]]) -> list[dict[str, Any]]:
    """Return predictions in the format of COCO's results."""
    return [
        {
            "image_id": image,
            "category_id": int(label) + 1,
            "bbox": list(box),
            "score": score,
        }
        for image, boxes in enumerate(predictions, 1)
        for label, score, *box in boxes
    ]


def average_precision(predictions: Any, references: Any) -> Iterator[tuple[str, float]]:
    """The metric `ap`, with its details."""
    return detection_metrics(predictions, references)
