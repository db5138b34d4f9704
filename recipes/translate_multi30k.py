"""The Transformer of 2017, English to German (Vaswani et al. 2017, arXiv:1706.03762).

    weft train recipes/translate_multi30k.py
    weft train recipes/translate_multi30k.py:good

Paper:  `paper` is the base model on WMT 2014, sections 5.1 to 5.4 and 6.1: 100,000 steps of about 25,000 tokens on each side.
        `good` is as deep and wide as that of Wu et al. 2021 (arXiv:2105.14462), who reach 41.02 BLEU, lower-cased and tokenised, on
        Multi30k's test set of 2016.
Cost:   `tiny` 1,200 steps of about 1,800 tokens on each side, about five minutes on two cores; `good` 6,000 of about 3,500;
        `paper` about 1e18 FLOP (the paper says 3.3e18, from its hardware).
Expect: the smoothed loss of `tiny` falls from about 9 to below 4; smoothing alone costs about 1.1.
Data:   multi30k/train.en.gz, train.de.gz, val.en.gz, val.de.gz; for `paper` wmt14/train.en, train.de, newstest2013.en, newstest2013.de.
"""
from dataclasses import replace

import weft
from weft.recipe import (
    BPE,
    Adam,
    AdamW,
    Budget,
    Data,
    InverseRoot,
    Last,
    Linear,
    Muon,
    Pairs,
    Recipe,
    Saves,
    Source,
    Translation,
    rate_2017,
)

tiny = Recipe(
    name="translate_multi30k",
    model=weft.transformer(depth=3, width=128, heads=4, hidden=512, vocabulary=8000, dropout=0.1),
    objective=Translation(smoothing=0.1),
    data=Data(row=Pairs(), tokenizer=BPE(vocabulary=8000, lowercase=True),
              train=Source(paths=("multi30k/train.en.gz", "multi30k/train.de.gz"), format="parallel"),
              valid=Source(paths=("multi30k/val.en.gz", "multi30k/val.de.gz"), format="parallel")),
    batch=Budget(tokens=2048, length=64), steps=1200,
    optimiser=Adam(rate=rate_2017(128, 400)), schedule=InverseRoot(warmup=400), clip=None,
    average=Last(count=5), save=Saves(every=100), precision="bf16", evaluate=400)

paper = Recipe(
    name="translate_wmt14-paper", model=weft.transformer("base"), objective=Translation(smoothing=0.1),
    data=Data(row=Pairs(), tokenizer=BPE(vocabulary=37_000),
              train=Source(paths=("wmt14/train.en", "wmt14/train.de"), format="parallel"),
              valid=Source(paths=("wmt14/newstest2013.en", "wmt14/newstest2013.de"), format="parallel")),
    batch=Budget(tokens=25_000, length=256, pool=100_000), steps=100_000,
    optimiser=Adam(rate=rate_2017(512, 4000)), schedule=InverseRoot(warmup=4000), clip=None,
    average=Last(count=5), save=Saves(every=1500), precision="bf16", workers=2, evaluate=5000,      # ten minutes on eight P100
    paper="arXiv:1706.03762, table 3, base: 65M parameters")

# Better choices for 29,000 pairs: norms before, Muon, fewer pieces, and a capital letter a mark before the small one.
NORM, AROUND = weft.LayerNorm(), {"positions": weft.Sinusoid(), "scale": 128 ** 0.5, "dropout": 0.2}
LOOK, CAUSAL, FEED = (weft.pre(NORM, inner, dropout=0.2) for inner in (
    weft.Attention(heads=4), weft.Attention(heads=4, pattern=weft.Causal()), weft.Dense(hidden=512, activation="relu")))

good = replace(
    tiny, name="translate_multi30k-good", batch=Budget(tokens=4096, length=96),
    model=weft.spec.Model(
        width=128, source=weft.Tokens(vocabulary=6144, **AROUND), target=weft.Shared(**AROUND), head=weft.Vocabulary(), start=weft.Xavier(),
        encoder=weft.Stack(blocks=(weft.Block(attention=LOOK, feedforward=FEED),) * 4, norm=NORM),
        decoder=weft.Stack(blocks=(weft.Block(attention=CAUSAL, cross=LOOK, feedforward=FEED),) * 4, norm=NORM)),
    data=replace(tiny.data, tokenizer=BPE(vocabulary=6144, lowercase="marked")), steps=6000,
    optimiser=Muon(rate=0.01, other=AdamW(rate=3e-3, betas=(0.9, 0.98), decay=0.0)), schedule=Linear(warmup=40),
    clip=1.0, average=Last(count=5), save=Saves(every=100), evaluate=500, workers=1)
