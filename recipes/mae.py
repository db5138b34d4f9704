"""MAE: rebuild three of four patches from the fourth (He et al. 2021, arXiv:2111.06377).

    weft train recipes/mae.py

Paper:  `paper` is the base model, table 8: 800 epochs of batches of 4,096, a rate of 1.5e-4 for every 256 images.
Cost:   `tiny` 600 steps of 128 images, about three minutes on two cores; `paper` at most 1.4e20 FLOP.
Expect: `tiny` starts above 1, the variance of a normalised patch, and is at 0.8 after fifty steps; then slowly on.
Data:   folders of image files, a class a sub-folder: cifar10/train, cifar10/test; for `paper` imagenet/train, imagenet/val.
"""
import weft
from weft.recipe import AdamW, Autoencoding, Cosine, Data, Images, Recipe, Rows, Saves, Source

tiny = Recipe(
    name="mae",
    model=weft.mae(depth=4, width=128, heads=4, hidden=512, image=32, patch=4, guess_depth=1, guess_width=64, guess_heads=2,
                   guess_hidden=256, start=weft.Normal(std=0.05, cut=2.0)),
    objective=Autoencoding(),
    data=Data(row=Images(), train=Source(paths=("cifar10/train",)), valid=Source(paths=("cifar10/test",))),
    batch=Rows(count=128, length=65), steps=600,
    optimiser=AdamW(rate=1.5e-3, betas=(0.9, 0.95), decay=0.05), schedule=Cosine(warmup=60), clip=None, precision="bf16")

paper = Recipe(
    name="mae-paper", model=weft.mae("base"), objective=Autoencoding(),
    data=Data(row=Images(), train=Source(paths=("imagenet/train",)), valid=Source(paths=("imagenet/val",))),
    batch=Rows(count=4096, length=197), steps=250_000,
    optimiser=AdamW(rate=2.4e-3, betas=(0.9, 0.95), decay=0.05), schedule=Cosine(warmup=12_500), clip=None, precision="bf16", micro=128,
    workers=8, save=Saves(every=1000), paper="arXiv:2111.06377, appendix A.1 and table 8: 112M parameters with the guessing stack")
