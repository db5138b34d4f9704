"""The first run: a small character model of this project's own source, with nothing to download.

    weft train recipes/first_run.py         # from the root of a clone
    weft resume runs/first_run --check      # the proof that it goes on bit for bit

Paper:  Radford et al. 2019, the architecture of GPT-2, made small.
Cost:   about a minute on two cores.
Expect: a loss of ln 512 = 6.2 falls below 2 nats a character; the last tenth of every file is held out.
"""
import weft
from weft.recipe import AdamW, Characters, Cosine, Data, Documents, NextToken, Recipe, Rows, Saves, Source

TEXT = ("src/weft/**/*.py", "docs/*.md", "README.md")

tiny = Recipe(
    name="first_run",
    model=weft.gpt2(depth=3, width=128, heads=4, vocabulary=512, positions=64, dropout=0.0, attention_dropout=0.0, embedding_dropout=0.0),
    objective=NextToken(),
    data=Data(row=Documents(), tokenizer=Characters(), train=Source(paths=TEXT, document="file", part=(0.0, 0.9)),
              valid=Source(paths=TEXT, document="file", part=(0.9, 1.0))),
    batch=Rows(count=16, length=64), steps=600,
    optimiser=AdamW(rate=2e-3, betas=(0.9, 0.99), decay=0.1), schedule=Cosine(warmup=50, end=0.1),
    precision="bf16", evaluate=200, save=Saves(every=200))
