"""Comparison of a model directory in Weft and in transformers on the same random input with
padding.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import spec as S
from ...nn.heads import Detections, Pooled
from ...nn.model import Model
from ..json_files import read_json_object
from ..loading import load
from .describe import CONFIG_FILE


def verify(
    where: str | Path, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> dict[str, float]:
    """Return the largest absolute difference per output."""
    import_transformers()
    model = load(where, dtype=dtype)
    assert model.origin is not None
    if model.family is None:
        raise ValueError(f"{where} is in Weft's own layout; export it with weft export first")
    other = load_in_transformers(model.origin, dtype)
    return compare(model, other, example(model.spec, seed, dtype))


def import_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise ValueError(
            "verify compares with transformers, which is not installed; pip install transformers"
        ) from None
    return transformers


def load_in_transformers(folder: Path, dtype: torch.dtype) -> Any:
    """Open the directory with transformers."""
    library = import_transformers()
    names = read_json_object(folder, CONFIG_FILE).get("architectures") or ["?"]
    if not hasattr(library, names[0]):
        raise ValueError(
            f"{folder / CONFIG_FILE}: transformers has no class {names[0]!r}; name one under "
            '"architectures"'
        )
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    kind = getattr(library, names[0])
    return kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def example(spec: S.Spec, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return a random batch of two rows, the second one shorter and right-padded, on which all
    position rules of transformers agree.
    """
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(spec.source, S.Tokens):
        side = spec.source.image_size if isinstance(spec.source, S.Patches) else 96
        batch = {
            "pixels": torch.randn(
                2, spec.source.channels, side, side, generator=generator, dtype=dtype
            )
        }
        if isinstance(spec.source, S.ResNet):
            batch["attention_mask"] = torch.ones(2, side, side, dtype=torch.bool)
            batch["attention_mask"][1, :, 64:] = False
            batch["pixels"] *= batch["attention_mask"][:, None]
        return batch
    length = min(13, getattr(spec.source.positions, "count", 13))
    low = min(5, spec.source.vocab_size - 1)  # the first ids often mean padding
    ids = torch.randint(low, spec.source.vocab_size, (2, length), generator=generator)
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[1, max(1, length - 4) :] = False
    pad = (
        spec.special_tokens.pad
        if spec.special_tokens.pad is not None and spec.special_tokens.pad < spec.source.vocab_size
        else 0
    )
    batch = {"ids": ids.masked_fill(~mask, pad), "attention_mask": mask}
    if spec.source.token_types is not None and spec.source.token_types > 1:
        batch["segments"] = (torch.arange(length) > length // 2).long().expand(2, -1)
    if spec.decoder is not None and spec.encoder is not None:
        batch["targets"] = torch.randint(
            low, spec.source.vocab_size, (2, length - 2), generator=generator
        )
    return batch


def run_ours(model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return every output of a forward pass under transformers' names, without padding."""
    s = model.spec
    outputs = {}
    inputs = batch.get("ids", batch.get("pixels"))
    assert inputs is not None
    sequence = model.embed(
        inputs, attention_mask=batch.get("attention_mask"), token_type_ids=batch.get("segments")
    )
    if isinstance(s.head, S.PixelDecoder):
        sequence = sequence.select(visible_patches(model, len(inputs)))
    if model.encoder is not None:
        sequence = model.encode(sequence)
        if model.decoder is not None:
            outputs["encoder_last_hidden_state"] = sequence.x_BLD
            sequence = model.decode(model.embed_target(batch.get("targets"), sequence), sequence)
    else:
        sequence = model.decode(sequence)
    output = model.read(sequence)
    outputs["last_hidden_state"] = sequence.x_BLD
    if isinstance(output, Detections):
        outputs |= {"logits": output.logits_BNV, "pred_boxes": output.boxes_BN4}
    elif isinstance(output, Pooled):
        outputs |= {} if output.pooled_BD is None else {"pooler_output": output.pooled_BD}
    elif isinstance(s.head, S.SpanHead):
        outputs |= {"start_logits": output[..., 0], "end_logits": output[..., 1]}
    else:
        outputs["logits"] = output
    return outputs


def visible_patches(model: Model, batch: int) -> Tensor:
    """Return the visible positions for MAE: the class token and every fourth patch."""
    assert isinstance(model.spec.source, S.Patches)
    cells = (model.spec.source.image_size // model.spec.source.patch_size) ** 2
    return torch.cat((torch.zeros(1, dtype=torch.long), 1 + torch.arange(0, cells, 4))).expand(
        batch, -1
    )


def run_theirs(other: Any, spec: S.Spec, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    inputs: dict[str, Any] = {}
    if "pixels" in batch:
        inputs["pixel_values"] = batch["pixels"]
        if "attention_mask" in batch:
            inputs["pixel_mask"] = batch["attention_mask"].long()
        # MAE keeps the patches with the smallest noise visible, in that order
        if isinstance(spec.head, S.PixelDecoder):
            assert isinstance(spec.source, S.Patches)
            cells = (spec.source.image_size // spec.source.patch_size) ** 2
            noise = torch.arange(cells).double() / cells
            # Every fourth patch is shown
            noise[torch.arange(cells) % 4 != 0] += 1
            inputs["noise"] = noise.expand(len(batch["pixels"]), -1)
            other.config.mask_ratio = 1 - len(range(0, cells, 4)) / cells
    else:
        inputs |= {"input_ids": batch["ids"], "attention_mask": batch["attention_mask"].long()}
        if "segments" in batch:
            inputs["token_type_ids"] = batch["segments"]
        if "targets" in batch:
            inputs["decoder_input_ids"] = batch["targets"]
    if type(other).__name__.endswith("MultipleChoice"):
        inputs = {k: v[:, None] for k, v in inputs.items()}
    outputs = dict(other(**inputs, output_hidden_states=True))
    if "prediction_logits" in outputs:  # BERT's pre-training class
        outputs["logits"] = outputs["prediction_logits"]
    states = outputs.get("decoder_hidden_states") or outputs.get("hidden_states")
    # vision models return hidden states before the last norm
    if outputs.get("last_hidden_state") is None and states and "ids" in batch:
        outputs["last_hidden_state"] = states[-1]
    return {name: t for name, t in outputs.items() if isinstance(t, Tensor)}


@torch.no_grad()
def compare(model: Model, other: Any, batch: dict[str, Tensor]) -> dict[str, float]:
    """Return the largest difference of each common output, without padding tokens."""
    return output_differences(run_ours(model, batch), run_theirs(other, model.spec, batch), batch)


def output_differences(
    ours: dict[str, Tensor], others: dict[str, Tensor], batch: dict[str, Tensor]
) -> dict[str, float]:
    differences: dict[str, float] = {}
    for name in ours:
        if name not in others:
            continue
        a = ours[name]
        b = (
            others[name].reshape(ours[name].shape)
            if others[name].numel() == ours[name].numel()
            else others[name]
        )
        if a.shape != b.shape:
            if name == "last_hidden_state" and "logits" in ours:
                continue  # the same name has another meaning in transformers
            raise ValueError(
                f"{name} has shape {tuple(a.shape)} in Weft and {tuple(b.shape)} in transformers"
            )
        difference = (a - b).abs()
        mask = batch.get("attention_mask")
        padded = "ids" in batch and (name.startswith("encoder") or "targets" not in batch)
        if padded and mask is not None and a.shape[:2] == mask.shape:
            difference = difference[mask]
        differences[name] = float(difference.max())
    if not differences:
        raise ValueError(
            f"no common outputs: Weft has {sorted(ours)}, transformers {sorted(others)}"
        )
    return differences
