"""BERT: predict masked tokens, and whether the second segment follows the first (Devlin et al.
2018, arXiv:1810.04805).

    weft train recipes/bert.py
    weft train recipes/bert.py:mini

Paper:  `paper` is BERT base as in section 3.1 and appendix A.2: a million steps of 131,072 tokens,
        90 % of them at length 128. Masks are sampled in every epoch; the authors stored ten copies
        of the text with different masks.
Cost:   `tiny` 1,000 steps of 4,096 tokens, a few minutes on two cores; `mini` 1.4e14 FLOP, about
        fifteen minutes; `paper` about 7e19 FLOP.
Expect: the term `token` starts near ln 8192 = 9.0 and falls below the unigram entropy of the
        pieces, 6.5 nats; `next` starts at ln 2 = 0.69, which is also the loss of predicting from
        the label frequency or the lengths. `tiny` ends at 4.50 and 0.693: it does not learn
        next-sentence prediction in so few steps (docs/results/learn_bert.json).
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` texts with a blank line between documents:
        wikipedia/*.txt.gz, books/*.txt.gz.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    AdamW,
    Checkpoints,
    Data,
    Documents,
    FixedBatch,
    LinearSchedule,
    MaskedLM,
    Muon,
    Recipe,
    Source,
    WordPiece,
)

OBJECTIVE = MaskedLM(input_format="segment-pair", next_sentence=True)

tiny = Recipe(
    name="bert",
    model=weft.with_dropout(weft.bert("tiny", depth=4, vocab_size=8192, positions=128), 0.0),
    task=OBJECTIVE,
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

paper = Recipe(
    name="bert-paper",
    model=weft.bert("base"),
    task=OBJECTIVE,
    data=Data(
        rows=Documents(sentence_boundaries=True),
        tokenizer=WordPiece(vocab_size=30522),
        train=Source(paths=("wikipedia/*.txt.gz", "books/*.txt.gz")),
    ),
    batch=FixedBatch(size=256, length=512),
    length_schedule=((0.9, 128), (1.0, 512)),
    steps=1_000_000,
    optimiser=AdamW(lr=1e-4, eps=1e-6, weight_decay=0.01),
    schedule=LinearSchedule(warmup_steps=10_000),
    precision="bf16",
    micro_batch_size=32,
    workers=2,
    checkpoints=Checkpoints(every_steps=10_000),
    paper="arXiv:1810.04805, section 3 and appendix A.2: 110M parameters",
)

# at tiny's rate a model twice as wide learns less than at half of it
mini = replace(
    tiny,
    name="bert-mini",
    model=weft.with_dropout(weft.bert("mini", vocab_size=8192, positions=128), 0.0),
    steps=1600,
    optimiser=Muon(lr=0.005, other=AdamW(lr=1e-3, betas=(0.9, 0.98), eps=1e-6)),
    schedule=LinearSchedule(warmup_steps=100),
)
