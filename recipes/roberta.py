"""RoBERTa: masked tokens only, full sentences, dynamic masking (Liu et al. 2019, arXiv:1907.11692).

    weft train recipes/roberta.py

Paper:  `paper` is RoBERTa large, table 9: 500,000 steps of 8,192 rows of 512 tokens, byte-level
        BPE, no gradient clipping.
Cost:   `tiny` 1,000 steps of 4,096 tokens, a few minutes on two cores; `paper` about 4e21 FLOP.
Expect: `tiny` starts near ln 8192 = 9.0 and falls below the unigram entropy of the pieces, 7.0
        nats.
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` texts with a blank line between documents, such
        as web/*.txt.gz.
"""

import weft
from weft.recipe import (
    AdamW,
    ByteBPE,
    Checkpoints,
    Data,
    Documents,
    FixedBatch,
    LinearSchedule,
    MaskedLM,
    Muon,
    Recipe,
    Source,
)

tiny = Recipe(
    name="roberta",
    model=weft.with_dropout(
        weft.roberta(depth=4, width=128, heads=4, hidden=512, vocab_size=8192, positions=128), 0.0
    ),
    task=MaskedLM(),
    data=Data(
        rows=Documents(sentence_boundaries=True),
        tokenizer=ByteBPE(vocab_size=8192),
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

paper = Recipe(
    name="roberta-paper",
    model=weft.roberta("large"),
    task=MaskedLM(),
    data=Data(
        rows=Documents(sentence_boundaries=True),
        tokenizer=ByteBPE(vocab_size=50265),
        train=Source(
            paths=(
                "wikipedia/*.txt.gz",
                "books/*.txt.gz",
                "news/*.txt.gz",
                "web/*.txt.gz",
                "stories/*.txt.gz",
            )
        ),
    ),
    batch=FixedBatch(size=8192, length=512),
    steps=500_000,
    optimiser=AdamW(lr=4e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01),
    schedule=LinearSchedule(warmup_steps=30_000),
    grad_clip=None,
    precision="bf16",
    micro_batch_size=16,
    workers=2,
    checkpoints=Checkpoints(every_steps=1000),
    paper="arXiv:1907.11692, table 9: 355M parameters",
)
