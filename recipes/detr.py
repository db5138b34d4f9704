"""DETR: objects as a set, decoded in parallel from learned queries (Carion et al. 2020, arXiv:2005.12872).

    python -m benchmarks.digits_in_scenes DATA/digits_in_scenes    # 15,000 generated scenes; DATA is where WEFT_DATA points
    weft train recipes/detr.py
    weft detect runs/detr scene.jpg --draw out.png

Paper:  `paper` is DETR-R50, section 4: 500 epochs of COCO, batches of 64, 42.0 AP. Its backbone starts from ImageNet's weights and
        is trained at a tenth of the rate; here the whole model starts from `init_from`.
Cost:   `tiny` 9,000 steps of 32 images of 128 × 128 pixels, about 90 minutes on two cores; `paper` about 3e20 FLOP.
Expect: `tiny`: the boxes come first, the classes after some epochs; see docs/results.
Data:   COCO's layout, a JSON and a folder of images: digits_in_scenes/{train,valid}; coco/annotations and coco/train2017 for `paper`.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    AdamW,
    Checkpoints,
    CosineSchedule,
    Data,
    Detection,
    FixedBatch,
    ImagesWithBoxes,
    Recipe,
    Source,
)


def small(classes: int) -> weft.Spec:
    """A light ResNet that trains from scratch, read at a sixteenth of the image, and a narrow DETR."""
    model = weft.detr(
        depth=2,
        decoder_depth=3,
        width=128,
        heads=8,
        hidden=384,
        queries=20,
        depths=(1, 1, 2),
        widths=(32, 64, 128),
        stem=32,
        dropout=0.0,
        classes=classes,
    )
    source = replace(model.source, block="basic", norm=weft.GroupNorm(groups=8), padding="masked")
    return replace(model, source=source)


tiny = Recipe(
    name="detr",
    model=small(classes=10),
    task=Detection(),
    data=Data(
        rows=ImagesWithBoxes(),
        train=Source(paths=("digits_in_scenes/train.json", "digits_in_scenes/train")),
        valid=Source(paths=("digits_in_scenes/valid.json", "digits_in_scenes/valid")),
    ),
    batch=FixedBatch(size=32, length=64),
    steps=9_000,
    optimiser=AdamW(lr=5e-4, weight_decay=1e-4),
    schedule=CosineSchedule(warmup_steps=300),
    grad_clip=0.1,
    checkpoints=Checkpoints(every_steps=500),
    eval_every=1000,
)
