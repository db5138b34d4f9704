"""Checks that a teacher's pixels are normalised as in its own training."""

from .. import recipe as R
from .. import spec as S
from ..data.folder_files import find_file
from ..inference.images import validation_transforms
from ..interop.image_processor import IMAGES, PLAIN, image_transforms, per_channel
from ..model.model import Model

TOLERANCE = 0.01  # of means and deviations: files round them


def check_teacher_pixels(task: R.Task, teacher: Model) -> None:
    """Raise ValueError where a teacher of images would see pixels that are normalised otherwise than its folder says: student and teacher
    read one batch. A folder that says nothing means ImageNet's numbers, as in all inference."""
    source, folder = teacher.spec.source, teacher.origin
    if not isinstance(source, S.Patches) or folder is None:
        return
    ours = validation_transforms(task, teacher.spec)
    theirs = image_transforms(folder, teacher.spec)
    normals = [
        next((step for step in steps if isinstance(step, R.Normalize)), PLAIN)
        for steps in (theirs, ours)
    ]
    numbers = [
        [*per_channel(normal.mean, source.channels), *per_channel(normal.std, source.channels)]
        for normal in normals
    ]
    if any(abs(a - b) > TOLERANCE for a, b in zip(*numbers, strict=True)):
        known = find_file(folder, IMAGES) is not None
        raise ValueError(
            f"{folder / IMAGES} {'has' if known else 'is missing, which means'} {normals[0]}, and the task has {normals[1]}; "
            "student and teacher see the same pixels: give the task the teacher's Normalize"
            + ("" if known else ", or the folder the file that it was trained with")
        )
