"""The models that a task reads and does not train, such as its teacher."""

from .. import recipe as R
from .. import spec as S
from ..data.images.images import normalisation, validation_transforms
from ..interop.huggingface.image_processor import IMAGES, image_transforms
from ..interop.loading import load
from ..nn.model import Model

TOLERANCE = 0.01  # of means and deviations: files round them


def load_frozen_models(task: R.Task) -> dict[str, Model]:
    """Return the models that a task reads and does not train by their field."""
    models = {name: load(getattr(task, name)).eval() for name in task.model_folders}
    for model in models.values():
        check_teacher_pixels(task, model)
    return models


def check_teacher_pixels(task: R.Task, teacher: Model) -> None:
    """Raise ValueError where a teacher of images would see pixels that are normalised otherwise
    than its folder says: student and teacher read one batch. A folder that says nothing means
    ImageNet's numbers, as in all inference.
    """
    folder = teacher.origin
    if not isinstance(teacher.spec.source, S.Patches) or folder is None:
        return
    channels = teacher.spec.source.channels
    steps = image_transforms(folder, teacher.spec)
    theirs = normalisation(steps, channels)
    ours = normalisation(validation_transforms(task, teacher.spec), channels)
    pairs = zip(theirs.mean + theirs.std, ours.mean + ours.std, strict=True)
    if any(abs(a - b) > TOLERANCE for a, b in pairs):
        has_images = (folder / IMAGES).exists()
        raise ValueError(
            f"{folder / IMAGES} {'has' if has_images else 'is missing, which means'} {theirs}, "
            f"and the task has {ours}; "
            "student and teacher read the same pixels; give the task the teacher's Normalize"
            + ("" if has_images else ", or add the missing file to the teacher's folder")
        )
