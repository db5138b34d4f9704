"""T5: decode the spans replaced by sentinels (Raffel et al. 2020, arXiv:1910.10683).

    weft train recipes/t5.py
    weft train recipes/t5.py:mini

Paper:  `paper` is the baseline of section 3.1, with the size of T5 base: 524,288 steps of 128 rows
        of 512 tokens. Its learning rate 1 / √max(step, 10,000) equals that of Adafactor with
        lr=0.01.
Cost:   `tiny` 600 steps of 4,096 input and about 900 output tokens, 1.6e13 FLOP; `paper` at most
        3e19 FLOP.
Expect: `tiny` starts near ln 8192 = 9.0. A quarter of the output tokens are sentinels, whose order
        is learned quickly. Together with the unigram entropy of the pieces, 5.8 nats, a model
        without context would reach 4.4.
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` C4 from the hub (pip install 'weft[hub]').
"""

from dataclasses import replace

import weft
from weft.recipe import (
    Adafactor,
    Checkpoints,
    ConstantSchedule,
    Data,
    Documents,
    FixedBatch,
    InverseSqrt,
    LinearSchedule,
    Recipe,
    Source,
    SpanCorruption,
    Unigram,
)

tiny = Recipe(
    name="t5",
    model=weft.with_dropout(
        weft.t5(depth=3, width=128, heads=4, hidden=512, head_dim=32, vocab_size=8192), 0.0
    ),
    task=SpanCorruption(),
    data=Data(
        rows=Documents(),
        tokenizer=Unigram(vocab_size=8192, sentinels=32),
        train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document_boundary="heading"),
        valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document_boundary="heading"),
    ),
    batch=FixedBatch(size=32, length=128),
    steps=600,
    optimiser=Adafactor(lr=3e-2),
    schedule=InverseSqrt(warmup_steps=60),
    precision="auto",
    eval_every=300,
)

paper = Recipe(
    name="t5-paper",
    model=weft.t5("base"),
    task=SpanCorruption(),
    data=Data(
        rows=Documents(),
        tokenizer=Unigram(vocab_size=32_100, sentinels=100),
        train=Source(paths=("allenai/c4:en:train",), format="hub"),
    ),
    batch=FixedBatch(size=128, length=512),
    steps=524_288,
    optimiser=Adafactor(lr=1e-2),
    schedule=ConstantSchedule(),
    grad_clip=None,
    precision="bf16",
    micro_batch_size=32,
    workers=2,
    checkpoints=Checkpoints(every_steps=5000),
    paper="arXiv:1910.10683, section 3.1: 220M parameters",
)

# As wide and as dear as recipes/bert.py:mini. Its rate ends at 0, not at 16 % of its peak; tune it
# with Adafactor (docs/log.md).
mini = replace(
    tiny,
    name="t5-mini",
    steps=2445,
    schedule=LinearSchedule(warmup_steps=60),
    model=weft.with_dropout(
        weft.t5(depth=2, width=256, heads=4, hidden=1024, head_dim=64, vocab_size=8192), 0.0
    ),
)
