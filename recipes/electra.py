"""ELECTRA: a small generator fills masks, the model finds its work at every token (Clark et al. 2020, arXiv:2003.10555).

    weft train recipes/electra.py
    weft train recipes/electra.py:mini

Paper:  `paper` and `base` are ELECTRA small and base, table 6; the generators are a quarter and a third as wide.
Cost:   `tiny` 1,000 steps of 4,096 tokens, some minutes on two cores; `paper` about 1.5e18 FLOP, `base` about 8e19.
Expect: loss = token + 50 · replaced. `token`, the generator's, starts near ln 8192 = 9.0 and falls below the unigram entropy of the
        pieces, 6.7 nats; `replaced` falls at once from ln 2 = 0.69 to 0.4, as 15 % of the tokens are replaced, and then slowly.
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` and `base` as for bert.py.
"""
from dataclasses import replace

import weft
from weft.families.electra import generator
from weft.recipe import AdamW, Data, Documents, Linear, Muon, Recipe, ReplacedTokens, Rows, Saves, Source, WordPiece

SIZE = dict(depth=4, embedding=128, vocabulary=8192, positions=128)

tiny = Recipe(
    name="electra",
    model=weft.with_dropout(weft.electra(width=128, heads=4, hidden=512, **SIZE), 0.0),
    objective=ReplacedTokens(generator=weft.with_dropout(generator(width=32, heads=1, hidden=128, **SIZE), 0.0)),
    data=Data(row=Documents(sentences=True), tokenizer=WordPiece(vocabulary=8192),
              train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document="heading"),
              valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document="heading")),
    batch=Rows(count=64, length=64), steps=1000,
    optimiser=Muon(rate=0.01, other=AdamW(rate=2e-3, betas=(0.9, 0.98), eps=1e-6)), schedule=Linear(warmup=40),
    precision="bf16", evaluate=250)

CORPUS = Data(row=Documents(sentences=True), tokenizer=WordPiece(vocabulary=30522),
              train=Source(paths=("wikipedia/*.txt.gz", "books/*.txt.gz")))

paper = Recipe(
    name="electra-paper", model=weft.electra("small"),
    objective=ReplacedTokens(generator=generator("small", width=64, heads=1, hidden=256)), data=CORPUS,
    batch=Rows(count=128, length=128), steps=1_000_000, optimiser=AdamW(rate=5e-4, eps=1e-6, decay=0.01),
    schedule=Linear(warmup=10_000), precision="bf16", workers=2, save=Saves(every=10_000),
    paper="arXiv:2003.10555, table 6, small: 14M parameters")

base = Recipe(
    name="electra-base", model=weft.electra("base"), objective=ReplacedTokens(generator=generator("base")),
    data=CORPUS, batch=Rows(count=256, length=512), steps=766_000,
    optimiser=AdamW(rate=2e-4, eps=1e-6, decay=0.01), schedule=Linear(warmup=10_000), precision="bf16", micro=32, workers=2,
    save=Saves(every=10_000), paper="arXiv:2003.10555, table 6, base: 110M parameters")

# As wide and as dear as recipes/bert.py:mini. At 0.005 Muon's matrices outgrow their start, and a tagger cannot be tuned (docs/log.md).
mini = replace(
    tiny, name="electra-mini", model=weft.with_dropout(weft.electra(width=256, heads=4, hidden=1024, **SIZE), 0.0), steps=1530,
    objective=ReplacedTokens(generator=weft.with_dropout(generator(width=64, heads=1, hidden=256, **SIZE), 0.0)),
    optimiser=Muon(rate=0.002, decay=0.1, other=AdamW(rate=1e-3, betas=(0.9, 0.98), eps=1e-6)), schedule=Linear(warmup=100))
