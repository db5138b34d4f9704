"""Export of a run's weights as a model folder, one tensor at a time: the last step, or the newest
checkpoint.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from .. import recipe as R
from .. import spec as S
from ..data.images.images import validation_transforms
from ..data.preparing.prepared import PreparedData, locate_prepared
from ..data.tokenizing.tokenizer import with_special_frame
from ..interop.huggingface.companion_files import (
    TOKENIZER_FILES,
    with_end_of_turn,
    with_special_ids,
)
from ..interop.huggingface.image_processor import IMAGES
from ..interop.loading import load
from ..interop.manifest import MANIFEST_FILE
from ..interop.saving import read_as_saved, save
from ..nn.layers.lora import merged_reader
from ..nn.model import Model, build_on_meta
from ..support.storage import unseal_json
from ..tasks import build_task
from ..tasks.base import Preprocess
from ..training.checkpoints.checkpoint import latest_checkpoint
from ..training.checkpoints.compatibility import recipe_of
from ..training.parallel.sharding import full_tensor
from ..training.trainable import checkpoint_reader
from .directory import RunDirectory
from .run import Run

ReadTensor = Callable[[str], Tensor]
READ_WITH_MODEL = (*TOKENIZER_FILES, IMAGES)


class ModelFiles(NamedTuple):
    """The files of a model folder beside the weights, from the task and the prepared data."""

    task: R.Task
    preprocess: Preprocess
    prepared: PreparedData

    def save(self, model: Model, folder: Path, to: str, weights: ReadTensor) -> None:
        """Write a model and its tokenizer. The model is on the meta device; `weights` returns its
        tensors by name.
        """
        meta = self.prepared.train.meta
        frame = self.preprocess.frame
        spec = with_special_ids(
            S.with_label_names(model.spec, meta.labels),
            meta.special_tokens,
            self.preprocess.decoder_start,
        )
        text = self.prepared.tokenizer()
        chat_template = R.chat_template_of(self.prepared.data.rows)
        if chat_template is not None and text:
            spec = with_end_of_turn(spec, chat_template, text)
        if text and frame:
            text = with_special_frame(text, frame)
        model.spec = spec
        images = not isinstance(spec.source, S.Tokens)
        save(
            model,
            folder,
            to=to,
            tokenizer=text,
            transforms=validation_transforms(self.task, spec) if images else None,
            chat_template=chat_template,
            weights=weights,
        )


def export_model(run: Run, directory: RunDirectory) -> None:
    """Write the trained model and its tokenizer to the run directory. The first rank writes one
    tensor at a time; the other ranks send their shards of it.
    """
    ranks = run.trainer.ranks
    model = build_on_meta(run.recipe.model).to(run.loss.model.dtype)
    state = run.loss.model.state_dict()
    weights = merged_reader(run.loss.model, lambda name: full_tensor(state[name]).detach().cpu())
    if not ranks.is_first:
        if ranks.splits_weights:
            read_as_saved(model, weights)
        return
    files = ModelFiles(run.recipe.task, run.preprocess, run.prepared)
    files.save(model, directory.model, "weft", weights)
    remove_others(directory.model)


def remove_others(folder: Path) -> None:
    """Remove files of an earlier model that are no part of the new one, such as its tokenizer."""
    files = unseal_json((folder / MANIFEST_FILE).read_text("utf-8"))["files"]
    for name in READ_WITH_MODEL:
        if name not in files:
            (folder / name).unlink(missing_ok=True)


def export_checkpoint(folder: Path, out: Path, to: str, report: Callable[[str], None]) -> S.Spec:
    """Write the newest checkpoint of an unfinished run as a model folder; return its spec."""
    recipe = recipe_of(folder, report)
    checkpoint = latest_checkpoint(folder / "checkpoints", report)
    if checkpoint is None:
        raise ValueError(f"{folder} has no checkpoint; train it with weft train")
    prepared = locate_prepared(recipe.data)
    model = build_on_meta(recipe.model)
    others = recipe.task.model_folders
    task = build_task(
        recipe.task,
        recipe.model,
        prepared.train.meta,
        seed=recipe.seed,
        teacher=load(getattr(recipe.task, others[0])) if others else None,
        model=model,
    )
    files = ModelFiles(recipe.task, task.preprocess, prepared)
    try:
        files.save(model, out, to, checkpoint_reader(checkpoint, recipe.model, recipe.trainable))
    except (OSError, ValueError):
        if checkpoint.path.exists():
            raise
        report("the run removed this checkpoint during the export; exporting its newest one")
        return export_checkpoint(folder, out, to, report)
    return model.spec
