"""The user's own proof: the same folder here and in transformers, the same random input with padding, the differences."""
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import spec as S
from ..model.head import Detected, Pooled
from ..model.model import Model
from .describe import CONFIG
from .folder import load
from .parse import parse


def verify(where: str | Path, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, float]:
    """Largest absolute difference per output."""
    need_transformers()
    model = load(where, dtype=dtype)
    assert model.origin is not None
    if model.family is None:
        raise ValueError(f"{where} is in Weft's own layout; convert it with --to hf first")
    other = theirs(model.origin, dtype)
    return compare(model, other, example(model.spec, seed, dtype))


def need_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise ValueError("verify compares with transformers, which is not installed; pip install transformers") from None
    return transformers


def theirs(folder: Path, dtype: torch.dtype) -> Any:
    """The folder as transformers opens it."""
    library = need_transformers()
    names = parse(folder, CONFIG).get("architectures") or ["?"]
    if not hasattr(library, names[0]):
        raise ValueError(f"{folder / CONFIG}: transformers has no class {names[0]!r}; name one under \"architectures\"")
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    kind = getattr(library, names[0])
    return kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def example(s: S.Model, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """A random batch of two, the second row shorter; right-padded, as all of transformers' position rules agree on."""
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(s.source, S.Tokens):
        side = s.source.image if isinstance(s.source, S.Patches) else 96
        batch = {"pixels": torch.randn(2, s.source.channels, side, side, generator=generator, dtype=dtype)}
        if isinstance(s.source, S.Backbone):
            batch["keep"] = torch.ones(2, side, side, dtype=torch.bool)
            batch["keep"][1, :, 64:] = False
            batch["pixels"] *= batch["keep"][:, None]
        return batch
    length = min(13, getattr(s.source.positions, "count", 13))
    low = min(5, s.source.vocabulary - 1)      # the first ids often mean padding
    ids = torch.randint(low, s.source.vocabulary, (2, length), generator=generator)
    keep = torch.ones(2, length, dtype=torch.bool)
    keep[1, length - 4:] = False
    pad = s.special.pad if s.special.pad is not None and s.special.pad < s.source.vocabulary else 0
    batch = {"ids": ids.masked_fill(~keep, pad), "keep": keep}
    if s.source.segments is not None and s.source.segments > 1:
        batch["segments"] = (torch.arange(length) > length // 2).long().expand(2, -1)
    if s.decoder is not None and s.encoder is not None:
        batch["targets"] = torch.randint(low, s.source.vocabulary, (2, length - 2), generator=generator)
    return batch


def run_ours(model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every output of a forward, under transformers' names, and where each token's row is real."""
    s, outputs = model.spec, {}
    inputs = batch.get("ids", batch.get("pixels"))
    assert inputs is not None
    sequence = model.embed(inputs, keep=batch.get("keep"), segments=batch.get("segments"))
    if isinstance(s.head, S.Pixels):
        sequence = sequence.take(shown(model, len(inputs)))
    if model.encoder is not None:
        sequence = model.encode(sequence)
        if model.decoder is not None:
            outputs["encoder_last_hidden_state"] = sequence.x_BLD
            sequence = model.decode(model.embed_target(batch.get("targets"), sequence), sequence)
    else:
        sequence = model.decode(sequence)
    found = model.read(sequence)
    outputs["last_hidden_state"] = sequence.x_BLD
    if isinstance(found, Detected):
        outputs |= {"logits": found.logits_BNV, "pred_boxes": found.boxes_BN4}
    elif isinstance(found, Pooled):
        outputs |= {} if found.pooled_BD is None else {"pooler_output": found.pooled_BD}
    elif isinstance(s.head, S.Spans):
        outputs |= {"start_logits": found[..., 0], "end_logits": found[..., 1]}
    else:
        outputs["logits"] = found
    return outputs


def shown(model: Model, batch: int) -> Tensor:
    """The class token and every fourth patch: what MAE's encoder sees here."""
    assert isinstance(model.spec.source, S.Patches)
    cells = (model.spec.source.image // model.spec.source.patch) ** 2
    return torch.cat((torch.zeros(1, dtype=torch.long), 1 + torch.arange(0, cells, 4))).expand(batch, -1)


def run_theirs(other: Any, s: S.Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    given: dict[str, Any] = {}
    if "pixels" in batch:
        given["pixel_values"] = batch["pixels"]
        if "keep" in batch:
            given["pixel_mask"] = batch["keep"].long()
        if isinstance(s.head, S.Pixels):   # MAE shows the patches with the smallest noise, in that order
            cells = (s.source.image // s.source.patch) ** 2  # type: ignore[union-attr]
            noise = torch.arange(cells).double() / cells + (torch.arange(cells) % 4 != 0)
            given["noise"] = noise.expand(len(batch["pixels"]), -1)
            other.config.mask_ratio = 1 - len(range(0, cells, 4)) / cells
    else:
        given |= {"input_ids": batch["ids"], "attention_mask": batch["keep"].long()}
        if "segments" in batch:
            given["token_type_ids"] = batch["segments"]
        if "targets" in batch:
            given["decoder_input_ids"] = batch["targets"]
    if type(other).__name__.endswith("MultipleChoice"):
        given = {k: v[:, None] for k, v in given.items()}
    found = dict(other(**given, output_hidden_states=True))
    if "prediction_logits" in found:       # BERT's pre-training class
        found["logits"] = found["prediction_logits"]
    states = found.get("decoder_hidden_states") or found.get("hidden_states")
    if found.get("last_hidden_state") is None and states and "ids" in batch:   # vision models keep theirs before the last norm
        found["last_hidden_state"] = states[-1]
    return {name: t for name, t in found.items() if isinstance(t, Tensor)}


@torch.no_grad()
def compare(model: Model, other: Any, batch: dict[str, Tensor]) -> dict[str, float]:
    """Largest difference per output that both sides have, at tokens that are not padding."""
    return distances(run_ours(model, batch), run_theirs(other, model.spec, batch), batch)


def distances(ours: dict[str, Tensor], others: dict[str, Tensor], batch: dict[str, Tensor]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ours:
        if name not in others:
            continue
        a, b = ours[name], others[name].reshape(ours[name].shape) if others[name].numel() == ours[name].numel() else others[name]
        if a.shape != b.shape:
            if name == "last_hidden_state" and "logits" in ours:
                continue                   # the other side keeps another thing under this name
            raise ValueError(f"{name} is {tuple(a.shape)} here and {tuple(b.shape)} in transformers")
        difference = (a - b).abs()
        keep = batch.get("keep")
        padded = "ids" in batch and (name.startswith("encoder") or "targets" not in batch)
        if padded and keep is not None and a.shape[:2] == keep.shape:
            difference = difference[keep]
        found[name] = float(difference.max())
    if not found:
        raise ValueError(f"no output in common: ours {sorted(ours)}, theirs {sorted(others)}")
    return found
