"""Small labelled rows, and models of transformers with the same weights as ours."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.images.image_samples import ImageSamples
from weft.data.shards.store import DataInfo
from weft.tasks.base import Batch, LengthLimitedSamples, Loss, Preprocess

from .made import ORDINARY, VOCABULARY, Given, batch, build_pair, meta, rows

ENDINGS = ("a", "b", "c")
LABELS = ("x", "y", "z")
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
IMAGE: dict[str, Any] = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
PATCHES: dict[str, Any] = {
    "depth": 2,
    "width": 16,
    "heads": 2,
    "hidden": 32,
    "image_size": 16,
    "patch_size": 4,
}


class Kept(Given):
    """A store in memory."""

    def row(self, index: int) -> dict[str, Any]:
        return self.samples[index]


def some(generator: np.random.Generator, most: int) -> np.ndarray:
    return generator.choice(ORDINARY, generator.integers(1, most)).astype(np.uint16)


def examples(
    count: int, length: int = 32, pair: bool = True, number: bool = False, most: int = 20
) -> LengthLimitedSamples:
    g = np.random.default_rng(1)
    label = (lambda: float(g.normal())) if number else (lambda: int(g.integers(3)))
    return LengthLimitedSamples(
        Given(
            [
                {
                    "first": some(g, most),
                    **({"second": some(g, most)} if pair else {}),
                    "label": label(),
                }
                for _ in range(count)
            ]
        ),
        length,
    )


def choices(count: int, length: int = 32, most: int = 16) -> LengthLimitedSamples:
    g = np.random.default_rng(2)
    return LengthLimitedSamples(
        Given(
            [
                {
                    "context": some(g, most),
                    "endings": [some(g, most) for _ in ENDINGS],
                    "label": int(g.integers(3)),
                }
                for _ in range(count)
            ]
        ),
        length,
    )


def tagged(count: int, length: int = 32, most: int = 24) -> LengthLimitedSamples:
    g = np.random.default_rng(3)
    samples = []
    for _ in range(count):
        tokens = some(g, most)
        tags = np.where(g.random(len(tokens)) < 0.3, -100, g.integers(0, 3, len(tokens))).astype(
            np.int32
        )
        tags[0] = g.integers(3)
        samples.append({"tokens": tokens, "tags": tags})
    return LengthLimitedSamples(Given(samples), length)


def questions(count: int, length: int = 32) -> LengthLimitedSamples:
    g = np.random.default_rng(4)
    samples = []
    for i in range(count):
        question = some(g, 8)
        context = some(g, 20)
        start, end = sorted(g.integers(0, len(context), 2).tolist())
        samples.append(
            {
                "question": question,
                "context": context,
                **({"start": start, "end": end} if i % 3 else {"start": -1, "end": -1}),
            }
        )
    return LengthLimitedSamples(Given(samples), length)


def photograph(generator: np.random.Generator, rows: int = 20, columns: int = 24) -> bytes:
    out = BytesIO()
    Image.fromarray(generator.integers(0, 256, (rows, columns, 3), np.uint8)).save(out, "PNG")
    return out.getvalue()


def album(count: int) -> Kept:
    g = np.random.default_rng(5)
    return Kept([{"image": photograph(g), "label": int(g.integers(3))} for _ in range(count)])


def images(
    count: int, spec: S.Spec, still: bool = False, transforms: tuple[R.Transform, ...] | None = None
) -> LengthLimitedSamples:
    samples = ImageSamples(album(count), spec.source, deterministic=still, transforms=transforms)  # type: ignore[arg-type]
    return LengthLimitedSamples(samples, 17)


# Everything that can be random, as a small recipe would have it.
AUGMENTED: tuple[R.Transform, ...] = (
    R.Resize(size=(16, 16)),
    R.RandomCrop(size=16, padding=2),
    R.RandomHorizontalFlip(),
    R.RandAugment(),
    R.ColorJitter(brightness=0.2, hue=0.1),
    R.Normalize(),
    R.RandomErasing(),
    R.RandomChoice(transforms=(R.MixUp(alpha=0.8), R.CutMix())),
)


def vit(**more: Any) -> S.Spec:
    return weft.vit(**{**PATCHES, "classes": 3, **more})


def deit(**more: Any) -> S.Spec:
    return weft.deit(**{**PATCHES, "classes": 3, **more})


def mae() -> S.Spec:
    return weft.mae(**PATCHES, decoder_depth=2, decoder_width=8, decoder_heads=2, decoder_hidden=16)


def twins(kind: str, folder: Path, **config: Any) -> tuple[Any, weft.Model]:
    """A model of transformers and ours, with the same weights."""
    import transformers as hf

    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    made = getattr(hf, kind)
    other = made(made.config_class(**config)).eval()
    with torch.no_grad():
        for name, p in other.named_parameters():
            if p.requires_grad and "LayerNorm" not in name:
                p.normal_(0, 0.3)
    other.save_pretrained(folder)
    return other, weft.load(folder)


def ready(
    value: R.Task, model: weft.Model, known: DataInfo, samples: LengthLimitedSamples
) -> tuple[Preprocess, Loss, Batch]:
    """An objective with a model's weights, and all samples as one batch."""
    corruption, objective = build_pair(value, model.spec, known)
    objective.model.load_state_dict(model.state_dict())
    return corruption, objective.eval(), batch(corruption, rows(corruption, samples))


def mean(corruption: Preprocess, objective: Loss, given: Batch) -> float:
    """The loss of one batch."""
    with torch.no_grad():
        found = objective(given)
    counts = corruption.loss_counts(given)
    assert set(found) == set(counts) == set(corruption.terms)
    return sum(objective.weights[term] * float(found[term]) / counts[term] for term in found)


def told(given: Batch) -> dict[str, torch.Tensor]:
    """A batch in the other side's words."""
    names = {
        "tokens": "input_ids",
        "tokens_attention_mask": "attention_mask",
        "segments": "token_type_ids",
        "image": "pixel_values",
    }
    return {
        name: given[ours].long() if ours == "tokens_attention_mask" else given[ours]
        for ours, name in names.items()
        if ours in given
    }


def labelled(row: R.RowSchema, **more: Any) -> DataInfo:
    return meta(row, **{"labels": LABELS, **more})
