"""ViT: the class of an image from its patches (Dosovitskiy et al. 2020, arXiv:2010.11929).

    weft train recipes/vit.py

Paper:  `paper` is ViT-B/16 on ImageNet alone, table 3: 300 epochs of batches of 4,096. (The authors' best begin with larger sets.)
Cost:   `tiny` 600 steps of 64 images, about three minutes on two cores; `paper` about 4e19 FLOP.
Expect: `tiny` falls from ln 10 = 2.3 to about 1.7 on random crops; `paper` 77.9 % top-1 when it is fine-tuned at 384 pixels.
Data:   folders of image files, a class a sub-folder: cifar10/train, cifar10/test; for `paper` imagenet/train, imagenet/val.
"""
import weft
from weft.recipe import AdamW, Classification, Cosine, Data, Images, Recipe, Rows, Saves, Source

tiny = Recipe(
    name="vit",
    model=weft.vit(depth=4, width=128, heads=4, hidden=512, image=32, patch=4, classes=10, start=weft.Normal(std=0.05, cut=2.0)),
    objective=Classification(),
    data=Data(row=Images(), train=Source(paths=("cifar10/train",)), valid=Source(paths=("cifar10/test",))),
    batch=Rows(count=64, length=65), steps=600,
    optimiser=AdamW(rate=1e-3, decay=0.05), schedule=Cosine(warmup=60), precision="bf16")

paper = Recipe(
    name="vit-paper", model=weft.vit("base", dropout=0.1), objective=Classification(),
    data=Data(row=Images(), train=Source(paths=("imagenet/train",)), valid=Source(paths=("imagenet/val",))),
    batch=Rows(count=4096, length=197), steps=93_835,
    optimiser=AdamW(rate=3e-3, decay=0.3), schedule=Cosine(warmup=10_000), precision="bf16", micro=64, workers=8,
    save=Saves(every=1000), evaluate=5000, paper="arXiv:2010.11929, tables 1 and 3: 86M parameters")
