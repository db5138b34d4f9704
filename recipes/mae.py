"""MAE: reconstruct three of four patches from the fourth (He et al. 2021, arXiv:2111.06377).

    weft train recipes/mae.py
    weft train recipes/mae.py:cifar10              # longer training of a deeper model
    weft reconstruct runs/mae-cifar10 photo.png --draw rebuilt.png

Paper:  `paper` is the base model, table 8: 800 epochs of batches of 4,096, a learning rate of
        1.5e-4 per 256 images.
Cost:   `tiny` 600 steps of 128 images, about three minutes on two cores; `cifar10` 20 epochs, 7,820
        steps, 1.3e14 FLOP; `paper` 6e19 FLOP.
Expect: `tiny` starts above 1, the variance of a normalised patch, reaches 0.8 after 50 steps, and
        then falls slowly.
Data:   directories of image files, one subdirectory per class: cifar10/train, cifar10/test; for
        `paper` imagenet/train, imagenet/val; for `cifar10` the arrays cifar10/train.npz and
        cifar10/test.npz.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    AdamW,
    Checkpoints,
    CosineSchedule,
    Data,
    FixedBatch,
    LabelledImages,
    MaskedAutoencoding,
    Muon,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Recipe,
    Resize,
    Source,
)

tiny = Recipe(
    name="mae",
    model=weft.mae(
        depth=4,
        width=128,
        heads=4,
        hidden=512,
        image_size=32,
        patch_size=4,
        decoder_depth=1,
        decoder_width=64,
        decoder_heads=2,
        decoder_hidden=256,
        init=weft.NormalInit(std=0.05, truncate_at=2.0),
    ),
    task=MaskedAutoencoding(),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("cifar10/train",)),
        valid=Source(paths=("cifar10/test",)),
    ),
    batch=FixedBatch(size=128, length=65),
    steps=600,
    optimiser=AdamW(lr=1.5e-3, betas=(0.9, 0.95), weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=60),
    grad_clip=None,
    precision="auto",
)

paper = Recipe(
    name="mae-paper",
    model=weft.mae("base"),
    task=MaskedAutoencoding(),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("imagenet/train",)),
        valid=Source(paths=("imagenet/val",)),
    ),
    batch=FixedBatch(size=4096, length=197),
    steps=250_000,
    optimiser=AdamW(lr=2.4e-3, betas=(0.9, 0.95), weight_decay=0.05),
    schedule=CosineSchedule(warmup_steps=12_500),
    grad_clip=None,
    precision="bf16",
    micro_batch_size=128,
    workers=8,
    checkpoints=Checkpoints(every_steps=1000),
    paper="arXiv:2111.06377, appendix A.1 and table 8: 112M parameters with the decoder",
)

cifar10 = replace(
    tiny,
    name="mae-cifar10",
    model=weft.mae(
        depth=6,
        width=128,
        heads=4,
        hidden=256,
        image_size=32,
        patch_size=4,
        decoder_depth=2,
        decoder_width=64,
        decoder_heads=2,
        decoder_hidden=256,
        init=weft.NormalInit(std=0.05, truncate_at=2.0),
    ),
    task=MaskedAutoencoding(
        transforms=(
            RandomResizedCrop(size=32, scale=(0.5, 1.0), interpolation="bicubic"),
            RandomHorizontalFlip(),
            Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616)),
        ),
        eval_transforms=(
            Resize(size=(32, 32)),
            Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616)),
        ),
    ),
    data=Data(
        rows=LabelledImages(),
        train=Source(paths=("cifar10/train.npz",)),
        valid=Source(paths=("cifar10/test.npz",)),
    ),
    steps=7820,
    optimiser=Muon(
        lr=1e-2,
        weight_decay=0.05,
        other=AdamW(lr=1.5e-3, betas=(0.9, 0.95), weight_decay=0.05),
    ),
    schedule=CosineSchedule(warmup_steps=200),
    precision="auto",
    workers=1,
    eval_every=1955,
)
