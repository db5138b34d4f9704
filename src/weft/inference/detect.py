"""Objects of images, as a person asks for them: files or images in, plain boxes out."""

from collections.abc import Sequence
from typing import Any

from .. import recipe as R
from ..data.in_memory import InMemoryStore
from ..model.loaded_model import LoadedModel
from ..tasks.predict import PredictOptions
from ..tasks.task import predict
from .images import ImageInput, encoded_image, with_transforms
from .methods import check_head, label_names, task_as_trained


def detect(
    model: LoadedModel,
    images: Sequence[ImageInput],
    threshold: float = 0.5,
    options: PredictOptions = PredictOptions(),
) -> list[list[dict[str, Any]]]:
    """Of each image the objects that score at least `threshold`, the surest first: `label`, `score`, and `box` as x, y, width and
    height in pixels."""
    check_head(model, R.Detection, "recipes/detr.py")
    if not images:
        return []
    names = label_names(model)
    rows = [{"image": encoded_image(image), "boxes": [], "labels": []} for image in images]
    store = InMemoryStore(rows, R.ImagesWithBoxes(), None, names)
    task = with_transforms(task_as_trained(model, R.Detection), model)
    return [
        [
            {"label": names[label], "score": score, "box": box}
            for label, score, *box in objects
            if score >= threshold
        ]
        for objects in predict(model, task, store, options=options)
    ]
