"""ELECTRA: a small generator replaces masked tokens, the model detects the replacements at every
token (Clark et al. 2020, arXiv:2003.10555).

    weft train recipes/electra.py
    weft train recipes/electra.py:mini

Paper:  `paper` and `base` are ELECTRA small and base, table 6; the generators have a quarter and a
        third of the width.
Cost:   `tiny` 1,000 steps of 4,096 tokens, a few minutes on two cores; `paper` about 1.1e18 FLOP,
        `base` about 7e19.
Expect: loss = token + 50 · replaced. `token`, the generator loss, starts near ln 8192 = 9.0 and
        falls below the unigram entropy of the pieces, 6.5 nats; `replaced` falls immediately from
        ln 2 = 0.69 to 0.4, since 15 % of the tokens are replaced, and then slowly.
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` and `base` see bert.py.
"""

from dataclasses import replace

import weft
from weft.families.electra import generator
from weft.recipe import (
    AdamW,
    Checkpoints,
    Data,
    Documents,
    FixedBatch,
    LinearSchedule,
    Muon,
    Recipe,
    ReplacedTokenDetection,
    Source,
    WordPiece,
)

SIZE = dict(depth=4, embedding=128, vocab_size=8192, positions=128)

tiny = Recipe(
    name="electra",
    model=weft.with_dropout(weft.electra(width=128, heads=4, hidden=512, **SIZE), 0.0),
    task=ReplacedTokenDetection(
        generator=weft.with_dropout(generator(width=32, heads=1, hidden=128, **SIZE), 0.0)
    ),
    data=Data(
        rows=Documents(sentence_boundaries=True),
        tokenizer=WordPiece(vocab_size=8192),
        train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document_boundary="heading"),
        valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document_boundary="heading"),
    ),
    batch=FixedBatch(size=64, length=64),
    steps=1000,
    optimiser=Muon(lr=0.01, other=AdamW(lr=2e-3, betas=(0.9, 0.98), eps=1e-6)),
    schedule=LinearSchedule(warmup_steps=40),
    precision="auto",
    eval_every=250,
)

CORPUS = Data(
    rows=Documents(sentence_boundaries=True),
    tokenizer=WordPiece(vocab_size=30522),
    train=Source(paths=("wikipedia/*.txt.gz", "books/*.txt.gz")),
)

paper = Recipe(
    name="electra-paper",
    model=weft.electra("small"),
    task=ReplacedTokenDetection(generator=generator("small", width=64, heads=1, hidden=256)),
    data=CORPUS,
    batch=FixedBatch(size=128, length=128),
    steps=1_000_000,
    optimiser=AdamW(lr=5e-4, eps=1e-6, weight_decay=0.01),
    schedule=LinearSchedule(warmup_steps=10_000),
    precision="bf16",
    workers=2,
    checkpoints=Checkpoints(every_steps=10_000),
    paper="arXiv:2003.10555, table 6, small: 14M parameters",
)

base = Recipe(
    name="electra-base",
    model=weft.electra("base"),
    task=ReplacedTokenDetection(generator=generator("base")),
    data=CORPUS,
    batch=FixedBatch(size=256, length=512),
    steps=766_000,
    optimiser=AdamW(lr=2e-4, eps=1e-6, weight_decay=0.01),
    schedule=LinearSchedule(warmup_steps=10_000),
    precision="bf16",
    micro_batch_size=32,
    workers=2,
    checkpoints=Checkpoints(every_steps=10_000),
    paper="arXiv:2003.10555, table 6, base: 110M parameters",
)

# As wide and as dear as recipes/bert.py:mini. AdamW, as in the paper, at the rate of its base size:
# Muon's steps and larger ones follow the noise of the discriminator's gradient, and a tagger cannot
# be tuned from what they leave (docs/log.md).
mini = replace(
    tiny,
    name="electra-mini",
    model=weft.with_dropout(weft.electra(width=256, heads=4, hidden=1024, **SIZE), 0.0),
    steps=1530,
    task=ReplacedTokenDetection(
        generator=weft.with_dropout(generator(width=64, heads=1, hidden=256, **SIZE), 0.0)
    ),
    optimiser=AdamW(lr=2e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01),
    schedule=LinearSchedule(warmup_steps=100),
)
