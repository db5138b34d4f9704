"""DETR's ablations, one recipe per row (Carion et al. 2020, arXiv:2005.12872, tables 3 and 4), at
laptop size.

    python -m benchmarks.digits_in_scenes DATA/digits_in_small_scenes --side 64 --most 3 \
        --train 8000 --valid 500
        # DATA is $WEFT_DATA
    python -m benchmarks.tables detr
    weft train recipes/tables/detr.py:no_giou

Plain DETR on small scenes with up to three digits. All rows use the same scenes in the same order
for the same number of steps. They differ in the placement of positions and object queries, the type
of positions, the terms of the loss, and the auxiliary losses of the decoder layers, for which the
paper gives no figure.
"""

from dataclasses import replace
from typing import Any

import weft
from weft.recipe import (
    AdamW,
    Checkpoints,
    CosineSchedule,
    Data,
    Detection,
    FixedBatch,
    ImagesWithBoxes,
    Muon,
    Normalize,
    Recipe,
    Source,
)

STEPS = 1500


def model(queries_at: Any = "attention", **positions: Any) -> weft.Spec:
    """A small DETR whose ResNet trains from random weights, with other fields of its source."""
    spec = weft.detr(
        depth=1,
        decoder_depth=3,
        width=64,
        heads=4,
        hidden=128,
        queries=8,
        depths=(1, 1),
        widths=(32, 64),
        stem=16,
        dropout=0.0,
        classes=10,
    )
    source = replace(
        spec.source,
        block="basic",
        norm=weft.GroupNorm(groups=8),
        padding="masked",
        **positions,
    )
    return replace(spec, source=source, target=replace(spec.target, at=queries_at))


base = Recipe(
    name="table-detr-base",
    model=model(),
    task=Detection(transforms=(Normalize(),)),
    data=Data(
        rows=ImagesWithBoxes(),
        train=Source(paths=("digits_in_small_scenes/train.json", "digits_in_small_scenes/train")),
        valid=Source(paths=("digits_in_small_scenes/valid.json", "digits_in_small_scenes/valid")),
    ),
    batch=FixedBatch(size=64, length=64),
    steps=STEPS,
    optimiser=Muon(lr=4e-3, weight_decay=1e-4, other=AdamW(lr=1e-3, weight_decay=1e-4)),
    schedule=CosineSchedule(warmup_steps=100),
    grad_clip=0.1,
    precision="fp32",
    checkpoints=Checkpoints(every_steps=1000, keep=1),
    eval_every=STEPS,
    paper="arXiv:2005.12872, tables 3 and 4",
)


def row(name: str, **changes: Any) -> Recipe:
    return replace(base, name=f"table-detr-{name}", **changes)


no_positions = row("no-positions", model=model("input", positions=None))
at_input = row("at-input", model=model("input", positions_at="input"))
learned = row("learned", model=model(positions=weft.LearnedPositions2D()))
decoder_alone = row("decoder-alone", model=model(positions_at="decoder-attention"))
no_l1 = row("no-l1", task=replace(base.task, l1_weight=0.0))
no_giou = row("no-giou", task=replace(base.task, giou_weight=0.0))
no_auxiliary = row("no-auxiliary", task=replace(base.task, auxiliary_losses=False))

BETTER = {"AP": "higher", "AP50": "higher"}
MARGIN = {"AP": 0.4, "AP50": 0.4}  # of the paper's figures, within which rows are the same
# on COCO's validation images
PAPER: dict[str, dict[str, float]] = {
    "base": {"AP": 40.6, "AP50": 61.6},
    "no_positions": {"AP": 32.8, "AP50": 55.2},
    "at_input": {"AP": 39.2, "AP50": 60.0},
    "learned": {"AP": 39.6, "AP50": 60.7},
    "decoder_alone": {"AP": 39.3, "AP50": 60.3},
    "no_l1": {"AP": 39.9, "AP50": 61.6},
    "no_giou": {"AP": 35.8, "AP50": 57.3},
    "no_auxiliary": {},
}
