"""Hybrid: a ViT on the feature map of a ResNet, trained jointly (Dosovitskiy et al. 2020,
arXiv:2010.11929, section 3.1).

    weft train recipes/hybrid.py

Paper:  `paper` is R50+ViT-B/16 on ImageNet only, with the settings of table 3; the authors
        pre-train on larger data sets.
Cost:   `tiny` (0.7M parameters) 10 epochs of 391 steps on CIFAR-10, 5e13 FLOP; `paper` 5e19 FLOP.
Expect: `tiny` starts at ln 10 = 2.3 nats.
Data:   CIFAR-10 as cifar10/train.npz and cifar10/test.npz; for `paper` directories imagenet/train,
        imagenet/val, one subdirectory per class.
"""

import weft
from weft.recipe import (
    AdamW,
    Checkpoints,
    Classification,
    CosineSchedule,
    Data,
    FixedBatch,
    LabelledImages,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    Recipe,
    Source,
)

tiny = Recipe(
    name="hybrid",
    model=weft.vit(
        depth=3,
        width=128,
        heads=4,
        hidden=256,
        image_size=32,
        patch_size=8,
        classes=10,
        stem=weft.ResNetStem(depths=(1, 1), widths=(64, 128), stem_width=32, block="basic"),
        init=weft.NormalInit(std=0.05, truncate_at=2.0),
    ),
    task=Classification(
        label_smoothing=0.1,
        transforms=(
            RandomCrop(size=32, padding=4),
            RandomHorizontalFlip(),
            Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616)),
        ),
    ),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("cifar10/train.npz",)),
        valid=Source(paths=("cifar10/test.npz",)),
    ),
    batch=FixedBatch(size=128, length=17),
    steps=3910,
    optimiser=AdamW(lr=1e-3, weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=400),
    precision="auto",
    workers=1,
    eval_every=391,
)

paper = Recipe(
    name="hybrid-paper",
    model=weft.vit("base", dropout=0.1, stem=weft.ResNetStem(norm=weft.GroupNorm(groups=32))),
    task=Classification(),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("imagenet/train",)),
        valid=Source(paths=("imagenet/val",)),
    ),
    batch=FixedBatch(size=4096, length=197),
    steps=93_835,
    optimiser=AdamW(lr=3e-3, weight_decay=0.3),
    schedule=CosineSchedule(warmup_steps=10_000),
    precision="bf16",
    micro_batch_size=32,
    workers=8,
    checkpoints=Checkpoints(every_steps=1000),
    eval_every=5000,
    paper="arXiv:2010.11929, section 3.1 and tables 3 and 6: 99M parameters",
)
