"""Swin: windowed attention on an image pyramid, shifted in every other block (Liu et al. 2021,
arXiv:2103.14030).

    weft train recipes/swin.py

Paper:  `paper` is Swin-T on ImageNet, section 4.1: 300 epochs with batches of 1,024: 81.2 % top-1.
Cost:   `tiny` (0.20M parameters, as many as `recipes/vit.py:fashion_mnist`) 15 epochs of
        Fashion-MNIST, 7,035 steps, 8e13 FLOP; `paper` 1e19 FLOP.
Expect: `tiny` starts at ln 10 = 2.3 nats and ends at 91.4 % (one seed).
Data:   Fashion-MNIST's four idx files in fashion-mnist; for `paper` directories imagenet/train,
        imagenet/val, one subdirectory per class.
"""

import weft
from weft.recipe import (
    EMA,
    AdamW,
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
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Recipe,
    Source,
)

tiny = Recipe(
    name="swin",
    model=weft.swin(
        width=32,
        depths=(2, 4),
        heads=(2, 4),
        window=7,
        image_size=28,
        patch_size=2,
        channels=1,
        ratio=3.0,
        classes=10,
        init=weft.NormalInit(std=0.05, truncate_at=2.0),
    ),
    task=Classification(
        label_smoothing=0.1,
        transforms=(
            RandomCrop(size=28, padding=2),
            RandomHorizontalFlip(),
            Normalize(mean=(0.286,), std=(0.353,)),
        ),
    ),
    data=Data(
        rows=LabelledImages(),
        train=Source(
            paths=(
                "fashion-mnist/train-images-idx3-ubyte.gz",
                "fashion-mnist/train-labels-idx1-ubyte.gz",
            )
        ),
        valid=Source(
            paths=(
                "fashion-mnist/t10k-images-idx3-ubyte.gz",
                "fashion-mnist/t10k-labels-idx1-ubyte.gz",
            )
        ),
    ),
    batch=FixedBatch(size=128, length=196),
    steps=7035,
    optimiser=Muon(lr=4e-3, weight_decay=0.05, other=AdamW(lr=2e-3, weight_decay=0.05)),
    schedule=CosineSchedule(warmup_steps=300),
    average=EMA(decay=0.999),
    precision="auto",
    workers=1,
    eval_every=469,
)

paper = Recipe(
    name="swin-paper",
    model=weft.swin("tiny", drop_path=0.2),
    task=Classification(
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
    batch=FixedBatch(size=1024, length=3136),
    steps=375_300,
    optimiser=AdamW(lr=1e-3, weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=25_020),
    grad_clip=5.0,
    precision="bf16",
    micro_batch_size=64,
    workers=8,
    checkpoints=Checkpoints(every_steps=1000),
    eval_every=5000,
    paper="arXiv:2103.14030, section 4.1 and appendix A2: 28M parameters",
)
