"""DeiT: a ViT that learns from labels and, on a second token, from a teacher's predictions (Touvron
et al. 2020, arXiv:2012.12877).

    weft train recipes/cct.py                      # the teacher; any model with these classes works
    weft train recipes/deit.py

Paper:  `paper` is DeiT-B with distillation, table 9: 300 epochs of batches of 1,024, three
        repetitions of each image: 83.4 % top-1.
Cost:   `tiny` (0.81M parameters) 10 epochs of 391 steps on CIFAR-10, plus the forward passes of the
        teacher; `paper` 4e19 FLOP, plus the teacher.
Expect: `tiny` starts at ln 10 = 2.3 nats for both losses.
Data:   CIFAR-10 as cifar10/train.npz and cifar10/test.npz; for `paper` directories imagenet/train,
        imagenet/val, one subdirectory per class.
"""

import weft
from weft.recipe import (
    AdamW,
    Checkpoints,
    CosineSchedule,
    CutMix,
    Data,
    Distillation,
    FixedBatch,
    LabelledImages,
    MixUp,
    Normalize,
    RandAugment,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Recipe,
    Source,
)

tiny = Recipe(
    name="deit",
    model=weft.with_drop_path(
        weft.deit(
            depth=6,
            width=128,
            heads=4,
            hidden=256,
            image_size=32,
            patch_size=4,
            classes=10,
            init=weft.NormalInit(std=0.05, truncate_at=2.0),
        ),
        0.05,
    ),
    task=Distillation(
        teacher="runs/cct/model",
        hard_labels=True,
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
    batch=FixedBatch(size=128, length=66),
    steps=3910,
    optimiser=AdamW(lr=1e-3, weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=400),
    precision="auto",
    workers=1,
    eval_every=391,
)

paper = Recipe(
    name="deit-paper",
    model=weft.with_drop_path(weft.deit("base"), 0.1),
    task=Distillation(
        teacher="imagenet-teacher",
        hard_labels=True,
        label_smoothing=0.1,
        transforms=(
            RandomResizedCrop(size=224, interpolation="bicubic"),
            RandomHorizontalFlip(),
            RandAugment(),
            Normalize(),
            RandomErasing(p=0.25, value="random"),
            RandomChoice(transforms=(MixUp(alpha=0.8), CutMix())),
        ),
    ),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("imagenet/train",)),
        valid=Source(paths=("imagenet/val",)),
    ),
    batch=FixedBatch(size=1024, length=198, repeats=3),
    steps=375_300,
    optimiser=AdamW(lr=1e-3, weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=6255),
    grad_clip=None,
    precision="bf16",
    micro_batch_size=64,
    workers=8,
    checkpoints=Checkpoints(every_steps=1000),
    eval_every=5000,
    paper="arXiv:2012.12877, tables 1 and 9: 87M parameters",
)
