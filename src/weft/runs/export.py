"""A run's weights as a model folder, one tensor at a time: of its last step, or of its newest checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..addresses import Location
from ..data.mixture import open_split
from ..data.prepare import prepared_location
from ..data.store import DataInfo, PreparedFolder
from ..data.tokenizer import with_special_frame
from ..inference.images import validation_transforms
from ..interop.companion_files import with_end_of_turn, with_special_ids
from ..interop.loading import load
from ..interop.saving import save
from ..model.model import Model, build_on_meta
from ..tasks import build_task
from ..tasks.base import Preprocess
from ..training.checkpoint import latest_checkpoint
from ..training.compatibility import recipe_of
from ..training.trainable import checkpoint_reader

ReadTensor = Callable[[str], Tensor]


class ModelFiles(NamedTuple):
    """What a model folder has beside the weights, and what it takes from the data and the task."""

    recipe: R.Recipe
    meta: DataInfo
    preprocess: Preprocess
    prepared_folder: Location

    def save(self, model: Model, folder: Path, to: str, weights: ReadTensor) -> None:
        """Write a model on the meta device, whose tensors `weights` reads by name, with its tokenizer."""
        recipe, meta, preprocess = self.recipe, self.meta, self.preprocess
        model.spec = with_special_ids(
            S.with_label_names(model.spec, meta.labels),
            meta.special_tokens,
            preprocess.decoder_start,
        )
        text = PreparedFolder(str(self.prepared_folder)).tokenizer() if meta.tokenizer else None
        chat_template = R.chat_template_of(recipe.data.rows)
        if chat_template is not None and text:
            model.spec = with_end_of_turn(model.spec, chat_template, text)
        if text and preprocess.frame:
            text = with_special_frame(text, preprocess.frame)
        images = not isinstance(model.spec.source, S.Tokens)
        save(
            model,
            folder,
            to=to,
            tokenizer=text,
            transforms=validation_transforms(recipe.task, model.spec) if images else None,
            chat_template=chat_template,
            weights=weights,
        )


def export_checkpoint(folder: Path, out: Path, to: str, report: Callable[[str], None]) -> S.Spec:
    """Write the newest checkpoint of a run that is not finished as a model folder; return its spec."""
    recipe = recipe_of(folder, report)
    checkpoint = latest_checkpoint(folder / "checkpoints", report)
    if checkpoint is None:
        raise ValueError(f"{folder} has no checkpoint yet; weft train trains it")
    data = recipe.data
    prepared = prepared_location(data)
    store = open_split(prepared, data, "train")
    assert store is not None
    model, others = build_on_meta(recipe.model), recipe.task.model_folders
    task = build_task(
        recipe.task,
        recipe.model,
        store.meta,
        seed=recipe.seed,
        teacher=load(getattr(recipe.task, others[0])) if others else None,
        model=model,
    )
    files = ModelFiles(recipe, store.meta, task.preprocess, prepared)
    try:
        files.save(model, out, to, checkpoint_reader(checkpoint, recipe))
    except (OSError, ValueError):
        if checkpoint.path.exists():
            raise
        report("the run has removed this checkpoint meanwhile; exporting its newest one")
        return export_checkpoint(folder, out, to, report)
    return model.spec
