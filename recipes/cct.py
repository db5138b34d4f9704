"""CCT: a small Transformer with a convolutional stem, trained only on small images (Hassani et al.
2021, arXiv:2104.05704).

    weft train recipes/cct.py

Paper:  `paper` is CCT-7/3x1 on CIFAR-10, 300 epochs of batches of 128: 96.5 % top-1. The authors'
        configuration file differs slightly: a learning rate from 5.5e-4 to 1e-5 with 10 additional
        epochs, RandAugment instead of AutoAugment, no mixing after epoch 175, and position tables
        initialised with a standard deviation of 0.2.
Cost:   `tiny` is CCT-2/3x2 (0.28M parameters), 40 epochs of 391 steps, 4e14 FLOP; `residual`
        (0.44M) has a small ResNet stem, 25 epochs, the same FLOP; `paper` 1e17 FLOP.
Expect: `tiny` starts at ln 10 = 2.3 nats and ends at 85.6 % (one seed, on a JPEG copy of CIFAR-10);
        the authors reach 89.2 % in 200 epochs. With `--set steps=27370`, 70 epochs, it ends at 86.2
        %. `residual` also ends at 85.6 %.
Data:   CIFAR-10 as cifar10/train.npz and cifar10/test.npz, or directories of image files, one
        subdirectory per class.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    EMA,
    AdamW,
    AutoAugment,
    Checkpoints,
    Classification,
    CosineSchedule,
    CutMix,
    Data,
    FixedBatch,
    LabelledImages,
    MixUp,
    Muon,
    Normalize,
    RandAugment,
    RandomChoice,
    RandomCrop,
    RandomHorizontalFlip,
    Recipe,
    Source,
)

cifar10 = Data(
    rows=LabelledImages(),
    train=Source(paths=("cifar10/train.npz",)),
    valid=Source(paths=("cifar10/test.npz",)),
)
normalize = Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616))

tiny = Recipe(
    name="cct",
    model=weft.cct("2-3x2"),
    task=Classification(
        label_smoothing=0.1,
        transforms=(
            RandomCrop(size=32, padding=4),
            RandomHorizontalFlip(),
            RandAugment(num_ops=1),
            normalize,
        ),
    ),
    data=cifar10,
    batch=FixedBatch(size=128, length=64),
    steps=15_640,
    optimiser=Muon(lr=4e-3, weight_decay=0.03, other=AdamW(lr=2e-3, weight_decay=0.03)),
    schedule=CosineSchedule(warmup_steps=500),
    average=EMA(decay=0.999),
    precision="auto",
    workers=1,
    eval_every=1955,
)

paper = Recipe(
    name="cct-paper",
    model=weft.cct("7-3x1"),
    task=Classification(
        label_smoothing=0.1,
        transforms=(
            RandomCrop(size=32, padding=4),
            RandomHorizontalFlip(),
            AutoAugment(),
            normalize,
            RandomChoice(transforms=(MixUp(alpha=0.8), CutMix())),
        ),
    ),
    data=cifar10,
    batch=FixedBatch(size=128, length=256),
    steps=117_200,
    optimiser=AdamW(lr=6e-4, weight_decay=0.06),
    schedule=CosineSchedule(warmup_steps=3910),
    precision="bf16",
    workers=4,
    checkpoints=Checkpoints(every_steps=1000),
    eval_every=1955,
    paper="arXiv:2104.05704, tables 1 and 2: 3.76M parameters",
)

# `tiny` with the stem of a ResNet for small images: more of the work in convolutions

residual = replace(
    tiny,
    name="cct-residual",
    model=weft.cct(
        "2-3x2",
        stem=weft.ResNetStem(
            depths=(1, 1, 1),
            widths=(32, 64, 96),
            stem_width=32,
            stem_type="3x3",
            block="basic",
            norm=weft.GroupNorm(groups=8),
        ),
    ),
    steps=9_775,
)
