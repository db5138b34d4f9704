"""Conversion between evaluation transforms and preprocessor_config.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import recipe as R
from ... import spec as S
from ...data.images.images import fit_to_size, normalisation, usual_transforms
from ...support.folder_files import find_file
from ..json_files import read_json_object

IMAGES = "preprocessor_config.json"
RESAMPLE = {"nearest": 0, "bilinear": 2, "bicubic": 3}  # Pillow's numbers


def image_processor_config(
    spec: S.Patches, transforms: Sequence[R.Transform] | None = None
) -> dict[str, Any]:
    """Convert evaluation transforms to a Hugging Face image processor config.

    Args:
        spec: the model's input.
        transforms: evaluation transforms (default: those of the model's input).
    """
    steps = usual_transforms(spec.image_size) if transforms is None else transforms
    steps = fit_to_size(steps, spec.image_size)
    sides = {"height": spec.image_size, "width": spec.image_size}
    return {
        "image_processor_type": "BitImageProcessor",
        **resize_config(steps, R.Resize(size=spec.image_size)),
        "do_center_crop": any(isinstance(step, R.CenterCrop) for step in steps),
        "crop_size": sides,
        **pixel_config(steps, spec.channels),
    }


def detection_processor_config(transforms: Sequence[R.Transform]) -> dict[str, Any]:
    """Convert evaluation transforms for images of any size to a Hugging Face image processor
    config.
    """
    return {
        "image_processor_type": "DetrImageProcessor",
        **resize_config(transforms, R.Resize(size=800, max_size=1333)),
        "do_pad": True,
        **pixel_config(transforms, 3),
    }


def resize_config(steps: Sequence[R.Transform], usual: R.Resize) -> dict[str, Any]:
    """Return the config of the resize step; `usual` is the default without one."""
    resizes = [step for step in steps if isinstance(step, R.Resize)]
    resize = (resizes or [usual])[0]
    size: dict[str, int]
    if isinstance(resize.size, int):
        longest = {} if resize.max_size is None else {"longest_edge": resize.max_size}
        size = {"shortest_edge": resize.size} | longest
    else:
        size = {"height": resize.size[0], "width": resize.size[1]}
    return {
        "do_resize": bool(resizes),
        "size": size,
        "resample": RESAMPLE[resize.interpolation],
    }


def pixel_config(steps: Sequence[R.Transform], channels: int) -> dict[str, Any]:
    normal = normalisation(steps, channels)
    return {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(normal.mean),
        "image_std": list(normal.std),
        "do_convert_rgb": channels == 3,
    }


def transforms_from_config(config: dict[str, Any]) -> tuple[R.Transform, ...]:
    """Return the transforms of a preprocessor_config.json.

    Raises:
        ValueError: for unsupported settings.
    """
    steps: list[R.Transform] = []
    if config.get("do_resize", True) and "size" in config:
        names = {number: name for name, number in RESAMPLE.items()}
        method: Any = names.get(config.get("resample", 2))
        if method is None:
            raise ValueError(f"resample is {config['resample']!r}; give 0, 2 or 3")
        size = config["size"]
        longest = config.get("max_size")
        if isinstance(size, dict):
            longest = size.get("longest_edge", longest)
        sides = size if longest and isinstance(size, int) else read_size(size)
        steps.append(R.Resize(size=sides, max_size=longest, interpolation=method))
    if config.get("do_center_crop") and "crop_size" in config:
        sides = read_size(config["crop_size"])
        steps.append(R.CenterCrop(size=sides if isinstance(sides, int) else sides[0]))
    if config.get("do_normalize", True):
        mean, std = (tuple(map(float, config[key])) for key in ("image_mean", "image_std"))
        steps.append(R.Normalize(mean=mean, std=std))
    return tuple(steps)


def read_size(size: Any) -> int | tuple[int, int]:
    """Parse a size; one number sets both sides, as in old files without `max_size`."""
    if isinstance(size, int):
        return size, size
    if "shortest_edge" in size:
        return int(size["shortest_edge"])
    return int(size["height"]), int(size["width"])


def image_transforms(folder: Path, spec: S.Spec) -> tuple[R.Transform, ...]:
    """Return the evaluation transforms of a model directory: those of preprocessor_config.json, or
    the default.

    Raises:
        ValueError: for an unreadable file.
    """
    if find_file(folder, IMAGES):
        try:
            return transforms_from_config(read_json_object(folder, IMAGES))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / IMAGES} cannot be read: {error}") from None
    if isinstance(spec.source, S.Patches):
        return usual_transforms(spec.source.image_size)
    return (R.Normalize(),)  # convolutions accept images of any size
