"""ViT: image classification from patches (Dosovitskiy et al. 2020, arXiv:2010.11929).

    weft train recipes/vit.py
    # fine-tunes the result at 48 pixels; interpolates the position table
    weft train recipes/vit.py:tiny_48
    weft train recipes/vit.py:fashion_mnist  # 0.21M parameters, 28 pixels, greyscale
    weft train recipes/vit.py:cifar10        # 0.81M parameters

Paper:  `paper` is ViT-B/16 on ImageNet only, table 3: 300 epochs with batches of 4,096. (The
        authors' best models pre-train on larger data sets.) `paper_384` fine-tunes it at 384
        pixels, appendix B.1.1: 20,000 steps of 512 images, with the best of four learning rates on
        held-out images.
Cost:   `tiny` 600 steps of 64 images; `tiny_48` 200 steps; `paper` about 4e19 FLOP, `paper_384`
        3.4e18; `fashion_mnist` 25 epochs, 11,725 steps, 1.1e14 FLOP; `cifar10` 40 epochs, 15,640
        steps, 7e14 FLOP.
Expect: `tiny` starts at ln 10 = 2.3 nats; `fashion_mnist` ends at 92.6 % (three seeds), `cifar10`
        at 83.0 % (one seed, on a JPEG copy); `paper_384` 77.9 % top-1, after `paper`.
Data:   directories of image files, one subdirectory per class: cifar10/train, cifar10/test; for
        `paper` imagenet/train, imagenet/val; Fashion-MNIST's four idx files in fashion-mnist;
        CIFAR-10 as cifar10/train.npz and cifar10/test.npz.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    EMA,
    SGD,
    AdamW,
    Checkpoints,
    Classification,
    CosineSchedule,
    Data,
    FixedBatch,
    LabelledImages,
    Muon,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomHorizontalFlip,
    Recipe,
    Source,
)

tiny = Recipe(
    name="vit",
    model=weft.vit(
        depth=4,
        width=128,
        heads=4,
        hidden=512,
        image_size=32,
        patch_size=4,
        classes=10,
        init=weft.NormalInit(std=0.05, truncate_at=2.0),
    ),
    task=Classification(),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("cifar10/train",)),
        valid=Source(paths=("cifar10/test",)),
    ),
    batch=FixedBatch(size=64, length=65),
    steps=600,
    optimiser=AdamW(lr=1e-3, weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=60),
    precision="auto",
)

paper = Recipe(
    name="vit-paper",
    model=weft.vit("base", dropout=0.1),
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
    micro_batch_size=64,
    workers=8,
    checkpoints=Checkpoints(every_steps=1000),
    eval_every=5000,
    paper="arXiv:2010.11929, tables 1 and 3: 86M parameters",
)

# The same models at a higher resolution: more patches of the same size (section 3.2)

tiny_48 = replace(
    tiny,
    name="vit-48",
    init_from="runs/vit/model",
    model=weft.vit(
        depth=4,
        width=128,
        heads=4,
        hidden=512,
        image_size=48,
        patch_size=4,
        classes=10,
        init=weft.NormalInit(std=0.05, truncate_at=2.0),
    ),
    batch=FixedBatch(size=64, length=145),
    steps=200,
    optimiser=AdamW(lr=1e-4, weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=20),
)

paper_384 = replace(
    paper,
    name="vit-paper-384",
    init_from="runs/vit-paper/model",
    model=weft.vit("base", image_size=384),
    batch=FixedBatch(size=512, length=577),
    steps=20_000,
    optimiser=SGD(lr=0.01),
    schedule=CosineSchedule(warmup_steps=500),
    micro_batch_size=16,
    paper="arXiv:2010.11929, appendix B.1.1: 87M parameters",
)

# From scratch on small images

fashion_mnist = Recipe(
    name="vit-fashion-mnist",
    model=weft.vit(
        depth=6,
        width=64,
        heads=2,
        hidden=128,
        image_size=28,
        patch_size=4,
        channels=1,
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
    batch=FixedBatch(size=128, length=50),
    steps=11_725,
    optimiser=Muon(lr=4e-3, weight_decay=0.05, other=AdamW(lr=2e-3, weight_decay=0.05)),
    schedule=CosineSchedule(warmup_steps=300),
    average=EMA(decay=0.999),
    precision="auto",
    workers=1,
    eval_every=469,
)

cifar10 = Recipe(
    name="vit-cifar10",
    model=weft.with_drop_path(
        weft.vit(
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
    task=Classification(
        label_smoothing=0.1,
        transforms=(
            RandomCrop(size=32, padding=4),
            RandomHorizontalFlip(),
            RandAugment(num_ops=1),
            Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616)),
        ),
    ),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("cifar10/train.npz",)),
        valid=Source(paths=("cifar10/test.npz",)),
    ),
    batch=FixedBatch(size=128, length=65),
    steps=15_640,
    optimiser=Muon(lr=4e-3, weight_decay=0.05, other=AdamW(lr=2e-3, weight_decay=0.05)),
    schedule=CosineSchedule(warmup_steps=500),
    average=EMA(decay=0.999),
    precision="auto",
    workers=1,
    eval_every=1564,
)
