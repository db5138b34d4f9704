"""Checkpoints to start from, and their models with the head of a task: the head of the family's
fine-tuning class, if it has one.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .. import recipe as R
from .. import spec as S
from ..data.tokenizing.tokenizer import Tokenizer
from ..families import families
from ..families.base import Family
from ..interop.huggingface.describe import read_folder
from ..interop.huggingface.hub import local_folder
from ..interop.manifest import model_of_run
from ..support.folder_files import find_file

BERT_DROPOUT = 0.1


class Checkpoint(NamedTuple):
    """A checkpoint, read from its JSON files.

    Attributes:
        name: the name that the user gave.
        folder: the model folder.
        spec: the spec of the model.
        family: the family whose config.json describes the spec; None if there is none.
        task: the task that it was trained for; None if unknown.
    """

    name: str
    folder: Path
    spec: S.Spec
    family: Family | None
    task: R.Task | None

    @property
    def reads_images(self) -> bool:
        return not isinstance(self.spec.source, S.Tokens)

    @property
    def is_text_to_text(self) -> bool:
        """Whether the model is an encoder-decoder with a language modelling head."""
        both = self.spec.encoder is not None and self.spec.decoder is not None
        return both and isinstance(self.spec.head, S.LMHead)

    @property
    def input_format(self) -> Literal["bart", "t5"]:
        """The special tokens around a text of an encoder-decoder."""
        return "bart" if self.family is not None and self.family.decoder_start == "eos" else "t5"

    @property
    def tokenizer_file(self) -> str:
        if not find_file(self.folder, "tokenizer.json"):
            raise ValueError(
                f"{self.folder} has no tokenizer.json; add the one that the model was trained with"
            )
        return str((self.folder / "tokenizer.json").resolve())


def open_checkpoint(name: str, model: Path | None = None) -> Checkpoint:
    """Read the JSON files of a checkpoint.

    Args:
        name: a model folder, a run, or a hub name.
        model: the model folder of an unfinished run (default: that of `name`).

    Raises:
        ValueError: if the model does not exist, or if a run has none yet.
    """
    there = local_folder(name)
    is_run = (there / "recipe.json").is_file()
    folder = model or (model_of_run(there) if is_run else there)
    if folder is None:
        raise ValueError(
            f"{name} has no model yet; finish it with weft train, or start from it with weft tune"
        )
    folder = folder.resolve()
    family, spec = read_folder(folder)
    task = R.recipe_of_run(there).task if is_run else None
    return Checkpoint(name, folder, spec, family or family_of(spec), task)


def family_of(spec: S.Spec) -> Family | None:
    """Return the first family whose config.json describes the spec exactly."""
    for family in families():
        if family.model_type:
            try:
                family.to_config(spec)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
            return family
    return None


# Models with a task's head


def with_text_head(
    checkpoint: Checkpoint,
    kind: type[R.Task],
    labels: tuple[str, ...] | None,
    dropout: float | None,
) -> S.Spec:
    """Return the model with the task's head. Text-to-text keeps the encoder-decoder; other tasks
    use its encoder.
    """
    spec = checkpoint.spec
    if kind.keeps_decoder:
        spec = with_decoder_start(checkpoint)
        return spec if dropout is None else S.with_dropout(spec, dropout)
    if spec.encoder is not None and spec.decoder is not None:
        spec = replace(spec, decoder=None, target=None, head=S.NoHead())
    family = checkpoint.family
    rate = BERT_DROPOUT if dropout is None else dropout
    plain = with_finetune_dropout(spec, rate)
    if dropout is not None or (family is not None and family_of(plain) is not None):
        spec = plain
    outputs = len(labels or ()) or 1
    name = head_class(family, kind.hf_class_suffix)
    if family is not None and name is not None:
        return replace(spec, head=family.head_of_class(name, spec, outputs, labels))
    return replace(spec, head=kind.default_head(spec, labels, rate))


def head_class(family: Family | None, suffix: str) -> str | None:
    """Return the family's class for a task, such as BertForTokenClassification."""
    return next((name for name in family.heads if name.endswith(suffix)), None) if family else None


def with_layer_mix(spec: S.Spec, layer_mix: S.LayerMix | None) -> S.Spec:
    """Return the spec with a head on several layers; removes a pooler, which was trained on the
    first token of the last layer.
    """
    if layer_mix is None:
        return spec
    if isinstance(spec.head, S.LMHead):
        raise ValueError(
            "--head-layers needs a new head; text-to-text keeps the model's own, so remove it"
        )
    head: Any = spec.head
    return replace(spec, head=replace(head, transform=None), layer_mix=layer_mix)


def with_finetune_dropout(spec: S.Spec, probability: float) -> S.Spec:
    """Return the spec with dropout as in BERT: on embeddings, attention weights and residual
    branches, not on hidden layers.
    """

    def change(plain: Any) -> Any:
        if isinstance(plain, dict):
            hidden = plain.get("kind") in ("MLP", "GatedMLP")
            return {
                name: probability if name == "dropout" and not hidden else change(part)
                for name, part in plain.items()
            }
        return [change(part) for part in plain] if isinstance(plain, list) else plain

    changed: S.Spec = S.from_plain(change(S.to_plain(spec)))
    return changed


def with_decoder_start(checkpoint: Checkpoint) -> S.Spec:
    """Return the spec with the decoder's start token, for generation."""
    spec = checkpoint.spec
    if spec.special_tokens.decoder_start is not None:
        return spec
    mark = checkpoint.task.decoder_start() if checkpoint.task else "pad"
    if checkpoint.input_format == "bart":
        mark = "eos"
    start = Tokenizer.load(checkpoint.tokenizer_file).special.get(mark)
    return replace(spec, special_tokens=replace(spec.special_tokens, decoder_start=start))
