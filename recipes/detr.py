"""DETR: set prediction of objects, decoded in parallel from learned queries (Carion et al. 2020,
arXiv:2005.12872).

    # 15,000 generated scenes; DATA is $WEFT_DATA
    python -m benchmarks.digits_in_scenes DATA/digits_in_scenes
    weft train recipes/detr.py
    # boxes as queries, with additional noised queries
    weft train recipes/detr.py:denoising
    weft detect runs/detr-denoising scene.jpg --draw out.png
    # from bccd.tar (images, annotations.json) to COCO's layout
    python -m benchmarks.detection bccd DATA/bccd
    # blood cells, starting from the digit model
    weft train recipes/detr.py:bccd

Paper:  `paper` is DETR-R50, section 4: 500 epochs of batches of 64 on COCO, 42.0 AP. The paper
        starts the backbone from ImageNet weights and trains it at a tenth of the learning rate,
        which drops after 400 epochs. This recipe starts from random weights, with trainable norms,
        one learning rate and a cosine schedule, so expect a lower AP. To fine-tune the published
        model instead, use `model=weft.detr("resnet-50")` with
        `init_from="facebook/detr-resnet-50"`. `anchors` uses the queries of DAB-DETR
        (arXiv:2201.12329); `denoising` adds those of DN-DETR (arXiv:2203.01305).
Cost:   steps of 16 images of 128 × 128 pixels: `tiny` 5,410, `anchors` 4,805, `denoising` 4,000,
        all three 1.35e14 FLOP, including noised queries; `bccd` 1,500 steps of 8 larger images;
        `paper` about 3.5e19 FLOP.
Expect: the model learns boxes first and classes after some epochs. `tiny` ends at AP 0.51,
        `anchors` at 0.70, `denoising` at 0.71, each after an hour or more on one slow core; `bccd`
        at AP 0.49, 0.79 at an IoU of 0.5.
Data:   COCO's layout, a JSON file and an image directory: digits_in_scenes/{train,valid},
        bccd/{train,val}.json with bccd/images (github.com/Shenggan/BCCD_Dataset); for `paper`
        coco/annotations, coco/train2017 and coco/val2017.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    EMA,
    AdamW,
    Checkpoints,
    CosineSchedule,
    Data,
    DenoisingQueries,
    Detection,
    FixedBatch,
    ImagesWithBoxes,
    Muon,
    Normalize,
    RandomApply,
    RandomHorizontalFlip,
    RandomShortestSize,
    RandomSizeCrop,
    Recipe,
    Resize,
    Source,
)

# A cell of the last map is 8 × 8 pixels, so that a digit covers several; two stages give it
SMALL = {
    "depth": 1,
    "decoder_depth": 3,
    "width": 128,
    "heads": 4,
    "hidden": 384,
    "queries": 20,
    "depths": (1, 2),
    "widths": (32, 128),
    "stem": 32,
    "activation": "relu",
    "dropout": 0.0,
}

# Scenes have this size; of a photograph, what detection is asked for later, only its size changes
SMALL_IMAGES = (Resize(size=128, max_size=256), Normalize())


def from_scratch(model: weft.Spec) -> weft.Spec:
    """Return the model with a light ResNet for training from random weights, without frozen
    statistics.
    """
    source = replace(model.source, block="basic", norm=weft.GroupNorm(groups=8), padding="masked")
    return replace(model, source=source)


def trainable_norms(model: weft.Spec) -> weft.Spec:
    """Return the model with trainable norms instead of frozen statistics, which random weights do
    not have.
    """
    source = replace(model.source, norm=weft.GroupNorm(groups=32), padding="masked")
    return replace(model, source=source)


tiny = Recipe(
    name="detr",
    model=from_scratch(weft.detr(**SMALL, classes=10)),
    task=Detection(transforms=SMALL_IMAGES),
    data=Data(
        rows=ImagesWithBoxes(),
        train=Source(paths=("digits_in_scenes/train.json", "digits_in_scenes/train")),
        valid=Source(paths=("digits_in_scenes/valid.json", "digits_in_scenes/valid")),
    ),
    batch=FixedBatch(size=16, length=256),
    steps=5_410,
    optimiser=Muon(lr=4e-3, weight_decay=1e-4, other=AdamW(lr=1e-3, weight_decay=1e-4)),
    schedule=CosineSchedule(warmup_steps=300),
    grad_clip=0.1,
    average=EMA(decay=0.999),
    precision="auto",
    checkpoints=Checkpoints(every_steps=500),
    eval_every=1000,
    workers=1,
)

paper = Recipe(
    name="detr-paper",
    model=trainable_norms(weft.detr("resnet-50", classes=80)),
    task=Detection(
        transforms=(
            RandomHorizontalFlip(),
            RandomApply(
                transforms=(
                    RandomShortestSize(min_size=(400, 500, 600)),
                    RandomSizeCrop(min_size=384, max_size=600),
                ),
                p=0.5,
            ),
            RandomShortestSize(
                min_size=(480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800), max_size=1333
            ),
            Normalize(),
        )
    ),
    data=Data(
        rows=ImagesWithBoxes(),
        train=Source(paths=("coco/annotations/instances_train2017.json", "coco/train2017")),
        valid=Source(paths=("coco/annotations/instances_val2017.json", "coco/val2017")),
    ),
    batch=FixedBatch(size=64, length=1050),
    steps=924_000,
    optimiser=AdamW(lr=1e-4, weight_decay=1e-4),
    schedule=CosineSchedule(warmup_steps=2_000),
    grad_clip=0.1,
    micro_batch_size=4,
    workers=8,
    checkpoints=Checkpoints(every_steps=2_000),
    eval_every=20_000,
    paper="arXiv:2005.12872, section 4 and table 1: 41M parameters",
)

# Boxes as queries, refined layer by layer

anchors = replace(
    tiny,
    name="detr-anchors",
    model=from_scratch(weft.dab_detr(**SMALL, classes=10)),
    task=Detection(class_cost=2.0, transforms=SMALL_IMAGES),
    steps=4_805,
)

# And noised boxes beside them, which need no matching

denoising = replace(
    anchors,
    name="detr-denoising",
    task=replace(anchors.task, denoising=DenoisingQueries(groups=5)),
    steps=4_000,
)

# Blood cells, starting from the digits' model

bccd = replace(
    denoising,
    name="detr-bccd",
    init_from="runs/detr-denoising/model",
    model=from_scratch(weft.dab_detr(**SMALL | {"queries": 40}, classes=3)),
    task=replace(
        denoising.task,
        transforms=(
            RandomHorizontalFlip(),
            RandomShortestSize(min_size=(176, 192, 208, 224, 240), max_size=320),
            Normalize(),
        ),
    ),
    data=Data(
        rows=ImagesWithBoxes(),
        train=Source(paths=("bccd/train.json", "bccd/images")),
        valid=Source(paths=("bccd/val.json", "bccd/images")),
    ),
    batch=FixedBatch(size=8, length=768),
    steps=1_500,
    optimiser=Muon(lr=1e-3, weight_decay=1e-4, other=AdamW(lr=3e-4, weight_decay=1e-4)),
    schedule=CosineSchedule(warmup_steps=100),
    eval_every=300,
)
