"""BART: reconstruct a text with masked spans and shuffled sentences (Lewis et al. 2019,
arXiv:1910.13461).

    weft train recipes/bart.py

Paper:  `paper` is BART large, section 5: 500,000 steps of 8,000 rows, a third of the text masked,
        all sentences shuffled. Learning rate, warmup and length are those of RoBERTa, which the
        paper follows. The final steps without dropout are omitted.
Cost:   `tiny` 800 steps of 3,072 input and output tokens, a few minutes on two cores; `paper` about
        5e21 FLOP.
Expect: `tiny` starts near ln 8192 = 9.0 and falls below the unigram entropy of the pieces, 7.0
        nats; it learns to copy unmasked text later, and then the loss drops steeply.
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` see roberta.py.
"""

import weft
from weft.recipe import (
    AdamW,
    ByteBPE,
    Checkpoints,
    Data,
    Denoising,
    Documents,
    FixedBatch,
    LinearSchedule,
    Muon,
    Recipe,
    Source,
)

tiny = Recipe(
    name="bart",
    model=weft.with_dropout(
        weft.bart(depth=2, width=128, heads=4, hidden=512, vocab_size=8192, positions=128), 0.0
    ),
    task=Denoising(),
    data=Data(
        rows=Documents(sentence_boundaries=True),
        tokenizer=ByteBPE(vocab_size=8192),
        train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document_boundary="heading"),
        valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document_boundary="heading"),
    ),
    batch=FixedBatch(size=48, length=64),
    steps=800,
    optimiser=Muon(lr=0.01, other=AdamW(lr=2e-3, betas=(0.9, 0.98), eps=1e-6)),
    schedule=LinearSchedule(warmup_steps=40),
    precision="auto",
    eval_every=200,
)

paper = Recipe(
    name="bart-paper",
    model=weft.bart("large"),
    task=Denoising(),
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
    batch=FixedBatch(size=8000, length=512),
    steps=500_000,
    optimiser=AdamW(lr=4e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01),
    schedule=LinearSchedule(warmup_steps=30_000),
    grad_clip=None,
    precision="bf16",
    micro_batch_size=16,
    workers=2,
    checkpoints=Checkpoints(every_steps=1000),
    paper="arXiv:1910.13461, section 5: 406M parameters",
)
