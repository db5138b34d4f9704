"""BERT: guess hidden tokens, and whether the second segment follows the first (Devlin et al. 2018, arXiv:1810.04805).

    weft train recipes/bert.py
    weft train recipes/bert.py:mini

Paper:  `paper` is BERT base as in section 3.1 and appendix A.2: a million steps of 131,072 tokens, nine tenths of them at length 128.
        Masks are drawn anew in every epoch; the authors wrote ten copies of the text with a mask each.
Cost:   `tiny` 1,000 steps of 4,096 tokens, some minutes on two cores, `mini` 1.7e14 FLOP, about fifteen; `paper` about 9e19 FLOP.
Expect: the term `token` starts near ln 8192 = 9.0 and falls below the unigram entropy of the pieces, 6.7 nats; `next` starts at
        ln 2 = 0.69, which is also what the labels' share or the lengths alone would give, and moves late in a run this short.
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` any text with a blank line between documents as wikipedia/*.txt.gz, books/*.txt.gz.
"""
from dataclasses import replace

import weft
from weft.recipe import AdamW, Data, Documents, Linear, MaskedTokens, Muon, Recipe, Rows, Saves, Source, WordPiece

OBJECTIVE = MaskedTokens(input="segment-pair", next_sentence=True)

tiny = Recipe(
    name="bert",
    model=weft.with_dropout(weft.bert("tiny", depth=4, vocabulary=8192, positions=128), 0.0),
    objective=OBJECTIVE,
    data=Data(row=Documents(sentences=True), tokenizer=WordPiece(vocabulary=8192),
              train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document="heading"),
              valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document="heading")),
    batch=Rows(count=64, length=64), steps=1000,
    optimiser=Muon(rate=0.01, other=AdamW(rate=2e-3, betas=(0.9, 0.98), eps=1e-6)), schedule=Linear(warmup=40),
    precision="bf16", evaluate=250)

paper = Recipe(
    name="bert-paper", model=weft.bert("base"), objective=OBJECTIVE,
    data=Data(row=Documents(sentences=True), tokenizer=WordPiece(vocabulary=30522),
              train=Source(paths=("wikipedia/*.txt.gz", "books/*.txt.gz"))),
    batch=Rows(count=256, length=512), lengths=((0.9, 128), (1.0, 512)), steps=1_000_000,
    optimiser=AdamW(rate=1e-4, eps=1e-6, decay=0.01), schedule=Linear(warmup=10_000), precision="bf16", micro=32, workers=2,
    save=Saves(every=10_000), paper="arXiv:1810.04805, section 3 and appendix A.2: 110M parameters")

mini = replace(                            # at tiny's rate a model twice as wide learns less than at half of it
    tiny, name="bert-mini", model=weft.with_dropout(weft.bert("mini", vocabulary=8192, positions=128), 0.0), steps=1600,
    optimiser=Muon(rate=0.005, other=AdamW(rate=1e-3, betas=(0.9, 0.98), eps=1e-6)), schedule=Linear(warmup=100))
