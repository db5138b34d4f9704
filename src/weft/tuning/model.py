"""The model of a checkpoint with the head of a task: that of the family's fine-tuning class, where it has one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import recipe as R
from .. import spec as S
from ..data.reading.examples import Examples
from ..data.tokenizer import Tokenizer
from ..interop.describe import read_folder
from ..interop.equivalent_specs import find_family
from ..interop.hub import local_folder
from . import text_to_text
from .options import TuneOptions


def text_to_text_format(start: Path, spec: S.Spec) -> Any:
    """Return the input format: "bart" or "t5"."""
    family = read_folder(start)[0] or family_of(spec)
    return "bart" if family is not None and family.decoder_start == "eos" else "t5"


def with_task_head(spec: S.Spec, start: Path, detected: Examples, options: TuneOptions) -> S.Spec:
    """Return the spec with the task's head. Text-to-text keeps the encoder-decoder; other tasks use its encoder."""
    dropout = options.dropout
    if detected.kind.keeps_decoder:
        there, tokenizer = local_folder(options.checkpoint), Tokenizer.load(start)
        before = R.recipe_of_run(there).task if (there / "recipe.json").is_file() else None
        spec = text_to_text.with_decoder_start(
            spec, text_to_text_format(start, spec), tokenizer, before
        )
        return spec if dropout is None else S.with_dropout(spec, dropout)
    if spec.encoder is not None and spec.decoder is not None:
        spec = replace(spec, decoder=None, target=None, head=S.NoHead())
    family = read_folder(start)[0] or family_of(spec)
    plain = with_finetune_dropout(spec, 0.1 if dropout is None else dropout)
    if dropout is not None or (family is not None and family_of(plain) is not None):
        spec = plain
    labels, outputs = detected.labels, len(detected.labels or ()) or 1
    suffix = detected.kind.hf_class_suffix
    name = next((name for name in family.heads if name.endswith(suffix)), None) if family else None
    if family and name:
        return replace(spec, head=family.head_of_class(name, spec, outputs, labels))
    rate = 0.1 if dropout is None else dropout
    return replace(spec, head=detected.kind.default_head(spec, labels, rate))


def with_layer_mix(spec: S.Spec, options: TuneOptions) -> S.Spec:
    """Return the spec with a head on features of several layers; a pooler that was trained on the last layer's first token is
    removed."""
    if options.layer_mix is None:
        return spec
    if isinstance(spec.head, S.LMHead):
        raise ValueError(
            "--head-layers are what a new head reads; text-to-text keeps the model's own"
        )
    head: Any = spec.head
    return replace(spec, head=replace(head, transform=None), layer_mix=options.layer_mix)


def with_finetune_dropout(spec: S.Spec, probability: float) -> S.Spec:
    """Return the spec with dropout where BERT has it: embeddings, attention weights and residual branches, not the hidden layers."""

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


def family_of(spec: S.Spec) -> Any:
    try:
        export_plan = find_family(spec)
    except ValueError:
        return None
    return None if export_plan.rewrites else export_plan.family
