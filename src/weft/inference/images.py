"""Image inputs of an opened model: files, folders of files, bytes or PIL images."""

import os
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import chain
from typing import Any

import numpy as np
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.images.image_samples import ImageSamples
from ..data.images.images import eight_bits, open_image, upright, validation_transforms
from ..data.reading.files import read_bounded
from ..data.reading.formats.image_folder import IMAGE_SUFFIXES
from ..data.reading.table import open_table
from ..data.shards.in_memory import InMemoryStore
from ..data.shards.store import Store
from ..interop.huggingface.image_processor import image_transforms
from ..nn.heads import pool_tokens
from ..nn.loaded_model import LoadedModel, image_command
from ..recipe.data.cells import class_names, sorted_classes
from ..support.values import replace_path
from ..tasks.base import (
    ArrayRow,
    Batch,
    LengthLimitedSamples,
    Preprocess,
    TaskContext,
    encode_batch,
)
from ..tasks.predict import PredictOptions, device_of, predict_all

ImageInput = str | os.PathLike[str] | bytes | Image.Image
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


def expand_folders(names: Sequence[str]) -> list[str]:
    """Return the files from the command line; a folder stands for every image below it, sorted by
    name."""
    files = []
    for name in names:
        if not os.path.isdir(name):
            files.append(name)
            continue
        below = sorted(
            os.path.join(folder, file)
            for folder, _, in_folder in os.walk(name)
            for file in in_folder
            if file.lower().endswith(IMAGE_SUFFIXES)
        )
        if not below:
            raise ValueError(
                f"{name} has no images ({', '.join(IMAGE_SUFFIXES)}); give a folder with images"
            )
        files += below
    return files


def in_png_mode(image: Image.Image) -> Image.Image:
    """Return a PIL image as `open_image` reads its file, in a mode that PNG supports."""
    plain = eight_bits(upright(image))
    return plain if plain.mode in PNG_MODES else plain.convert("RGB")


def encoded_image(image: ImageInput) -> bytes:
    """Return the bytes of an image file.

    Raises:
        ValueError: for a missing file, an incomplete image, or a PIL image whose values have no
            known range.
    """
    if isinstance(image, Image.Image):
        buffer = BytesIO()
        in_png_mode(image).save(buffer, "PNG")
        return buffer.getvalue()
    if isinstance(image, bytes):
        open_image(image)
        return image
    name = os.fspath(image)
    if os.path.isdir(name):
        raise ValueError(f"{name} is a folder; give the images in it")
    if not os.path.isfile(name):
        raise ValueError(
            f"{name or 'an empty name'} is not a file; give an image or a folder of images"
        )
    try:
        data = read_bounded(name)
        open_image(data)
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {error}") from None
    return data


def image_store(model: LoadedModel, images: Sequence[ImageInput]) -> InMemoryStore:
    """Return a store with the images as samples; the label is unused and set to the first one."""
    labels = model.labels or tuple(map(str, range(getattr(model.model.spec.head, "num_labels", 1))))
    rows = []
    for i, image in enumerate(images):
        try:
            rows.append({"image": encoded_image(image), "label": labels[0]})
        except ValueError as error:  # the error of a file names it
            if isinstance(image, str | os.PathLike) or len(images) == 1:
                raise
            raise ValueError(f"image {i + 1} of {len(images)} cannot be read: {error}") from None
    return InMemoryStore(rows, R.LabelledImages(), None, labels)


def load_labelled_images(
    paths: Sequence[str],
    labels: tuple[str, ...] | None,
    max_bad_rows: float,
    report: Callable[[str], None],
    columns: Sequence[str] = (),
    column_names: Sequence[str] = (),
) -> InMemoryStore:
    """Return the classes and the labelled images from files or a folder with one sub-folder per
    class. The classes are those found, unless given."""
    row = R.LabelledImages()
    table = open_table(paths, columns, column_names, expected=row, max_bad_rows=max_bad_rows)
    if not table.rows:
        raise ValueError(f"{', '.join(paths)}: no labelled image is readable; give labelled images")
    rows = table.row_schema(R.Classification)
    if not labels:
        found = (class_names(item.fields.get(rows.label_column or "")) for item in table.rows)
        labels = tuple(sorted_classes(set(chain.from_iterable(found))))
    good = table.usable(rows, labels)
    for note in good.notes():
        report(note)
    if not good.rows:
        raise ValueError(f"{', '.join(paths)}: no labelled image is readable; give labelled images")
    return InMemoryStore(good.rows, rows, None, labels)


def evaluation_transforms(model: LoadedModel) -> tuple[R.Transform, ...]:
    """Return the evaluation transforms: those of the run's validation; without a run, those of the
    folder's preprocessor_config.json."""
    if model.recipe is not None:
        return validation_transforms(model.recipe.task, model.model.spec)
    return image_transforms(model.model.origin or model.folder, model.model.spec)


def with_transforms(task: R.Task, model: LoadedModel) -> R.Task:
    """Return the task with the transforms that the model was trained with."""
    if not model.reads_images or not hasattr(task, "eval_transforms"):
        return task
    changed: R.Task = replace_path(task, "eval_transforms", evaluation_transforms(model))
    return changed


class ImagePreprocess(Preprocess):
    """Preprocessing of a single image, as in validation."""

    fields: dict[str, tuple[str, int]] = {}

    def __init__(self, model: LoadedModel, store: Store) -> None:
        super().__init__(None, TaskContext(model.model.spec, store.meta))
        self.source = model.model.spec.source
        self.transforms = evaluation_transforms(model)

    def read_samples(self, store: Store, length: int, include_partial: bool) -> Any:
        assert isinstance(self.source, S.Patches)
        return ImageSamples(store, self.source, transforms=self.transforms)

    def __call__(
        self, samples: LengthLimitedSamples, index: int, rng: np.random.Generator
    ) -> ArrayRow:
        images = samples.samples
        assert isinstance(images, ImageSamples)
        image = images.transform(samples[index]["image"], rng)
        return {"image": image, "labels": np.asarray(0)}


def embed_images(
    model: LoadedModel,
    images: Sequence[ImageInput],
    pooling: str | None = None,
    normalised: bool | None = None,
    options: PredictOptions = PredictOptions(),
) -> list[list[float]]:
    """Return one vector per image: of the class token, or the mean over patches without one
    (Dosovitskiy et al. 2020, section 3.1)."""
    store = image_store(model, images)
    vectors: list[list[float]] = embed_store(model, store, pooling, normalised, options).tolist()
    return vectors


def check_embeds_images(model: LoadedModel) -> None:
    if not model.reads_images:
        raise ValueError(f"{model.name} reads text, not images; give an image model")
    if not isinstance(model.model.spec.source, S.Patches):
        raise ValueError(f"{model.name} has no single vector per image; use {image_command(model)}")


def embed_store(
    model: LoadedModel,
    store: Store,
    pooling: str | None = None,
    normalised: bool | None = None,
    options: PredictOptions = PredictOptions(),
) -> np.ndarray:
    """Return one vector per image of a store, in order, (N, D).

    Raises:
        ValueError: for a text model, or for a model without a vector per image.
    """
    check_embeds_images(model)
    extra = getattr(model.model.spec.source, "extra_tokens", ())
    chosen = pooling or ("cls" if "class" in extra else "mean")

    def vectors(batch: Batch) -> Tensor:
        return pool_tokens(encode_batch(model.model, batch), chosen).float()

    def plain(x_BD: Tensor, batch: Batch) -> list[Any]:
        x_BD = F.normalize(x_BD, dim=-1) if normalised else x_BD
        if options.ranks.size == 1:
            return list(x_BD.cpu().numpy())
        out: list[Any] = x_BD.tolist()  # serialised between ranks
        return out

    whole = ImagePreprocess(model, store)
    samples = whole.open_samples(store, 1, include_partial=True)
    rows = predict_all(whole, samples, vectors, plain, device_of(model.model), options)
    return np.array(rows, np.float32)
