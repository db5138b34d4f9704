"""The original Transformer, English to German (Vaswani et al. 2017, arXiv:1706.03762).

    weft train recipes/translate_multi30k.py
    weft train recipes/translate_multi30k.py:good

Paper:  `paper` is the base model on WMT 2014, sections 5.1 to 5.4 and 6.1: 100,000 steps of about
        25,000 source and target tokens each. `good` has the depth and width of Wu et al. 2021
        (arXiv:2105.14462), who reach 41.02 BLEU, lowercased and tokenised, on the 2016 test set of
        Multi30k.
Cost:   `tiny` 1,200 steps of about 1,800 source and target tokens each, about five minutes on two
        cores; `good` 6,000 steps of about 3,500; `paper` about 1e18 FLOP (the paper estimates
        3.3e18 from its hardware).
Expect: the smoothed loss of `tiny` falls from about 9 to below 4; label smoothing contributes about
        1.1.
Data:   multi30k/train.en.gz, train.de.gz, val.en.gz, val.de.gz; for `paper` wmt14/train.en,
        train.de, newstest2013.en, newstest2013.de.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    BPE,
    Adam,
    AdamW,
    AverageLast,
    Checkpoints,
    Data,
    InverseSqrt,
    LinearSchedule,
    Muon,
    Recipe,
    Source,
    SourceTargetPairs,
    TokenBudget,
    Translation,
    noam_lr,
)

tiny = Recipe(
    name="translate_multi30k",
    model=weft.transformer(depth=3, width=128, heads=4, hidden=512, vocab_size=8000, dropout=0.1),
    task=Translation(label_smoothing=0.1),
    data=Data(
        rows=SourceTargetPairs(),
        tokenizer=BPE(vocab_size=8000, lowercase=True),
        train=Source(paths=("multi30k/train.en.gz", "multi30k/train.de.gz"), format="parallel"),
        valid=Source(paths=("multi30k/val.en.gz", "multi30k/val.de.gz"), format="parallel"),
    ),
    batch=TokenBudget(tokens=2048, length=64),
    steps=1200,
    optimiser=Adam(lr=noam_lr(128, 400)),
    schedule=InverseSqrt(warmup_steps=400),
    grad_clip=None,
    average=AverageLast(checkpoints=5),
    checkpoints=Checkpoints(every_steps=100),
    precision="auto",
    eval_every=400,
)

paper = Recipe(
    name="translate_wmt14-paper",
    model=weft.transformer("base"),
    task=Translation(label_smoothing=0.1),
    data=Data(
        rows=SourceTargetPairs(),
        tokenizer=BPE(vocab_size=37_000),
        train=Source(paths=("wmt14/train.en", "wmt14/train.de"), format="parallel"),
        valid=Source(paths=("wmt14/newstest2013.en", "wmt14/newstest2013.de"), format="parallel"),
    ),
    batch=TokenBudget(tokens=25_000, length=256, sort_pool=100_000),
    steps=100_000,
    optimiser=Adam(lr=noam_lr(512, 4000)),
    schedule=InverseSqrt(warmup_steps=4000),
    grad_clip=None,
    average=AverageLast(checkpoints=5),
    checkpoints=Checkpoints(every_steps=1500),
    precision="bf16",
    workers=2,
    eval_every=5000,  # ten minutes on eight P100
    paper="arXiv:1706.03762, table 3, base: 65M parameters",
)

# Better choices for 29,000 pairs: norms before, Muon, fewer pieces, and a capital letter a mark
# before the small one.
NORM = weft.LayerNorm()
AROUND = {"positions": weft.SinusoidalPositions(), "embedding_scale": 128**0.5, "dropout": 0.2}
LOOK, CAUSAL, FEED = (
    weft.pre_norm(NORM, inner, dropout=0.2)
    for inner in (
        weft.Attention(heads=4),
        weft.Attention(heads=4, pattern=weft.CausalAttention()),
        weft.MLP(hidden=512, activation="relu"),
    )
)

good = replace(
    tiny,
    name="translate_multi30k-good",
    batch=TokenBudget(tokens=4096, length=96),
    model=weft.spec.Spec(
        width=128,
        source=weft.Tokens(vocab_size=6144, **AROUND),
        target=weft.SharedTokens(**AROUND),
        head=weft.LMHead(),
        init=weft.XavierInit(),
        encoder=weft.Stack(blocks=(weft.Block(attention=LOOK, feedforward=FEED),) * 4, norm=NORM),
        decoder=weft.Stack(
            blocks=(weft.Block(attention=CAUSAL, cross_attention=LOOK, feedforward=FEED),) * 4,
            norm=NORM,
        ),
    ),
    data=replace(tiny.data, tokenizer=BPE(vocab_size=6144, lowercase="marked")),
    steps=6000,
    optimiser=Muon(lr=0.01, other=AdamW(lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0)),
    schedule=LinearSchedule(warmup_steps=40),
    grad_clip=1.0,
    average=AverageLast(checkpoints=5),
    checkpoints=Checkpoints(every_steps=100),
    eval_every=500,
    workers=1,
)
