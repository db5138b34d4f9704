"""GPT: next-token prediction (Radford et al. 2018, "Improving Language Understanding by Generative
Pre-Training").

    weft train recipes/gpt_bpe.py

Paper:  `paper` has the sizes and rates of section 4.1; the books are lowercased, with a vocabulary
        of 40,478 pieces. 100 epochs of about 1.1 billion pieces are 3.3 million steps.
Cost:   `tiny` 1,000 steps of 2,048 tokens, about four minutes on two cores; `paper` about 8e19
        FLOP.
Expect: `tiny` starts near ln 8192 = 9.0 and ends well below the unigram entropy of its pieces, 7.0
        nats.
Data:   wikitext-2/wiki.train.tokens.gz; for `paper` texts with a blank line between documents:
        books/*.txt.gz.
"""

import weft
from weft.recipe import (
    BPE,
    AdamW,
    ByteBPE,
    CausalLM,
    Checkpoints,
    CosineSchedule,
    Data,
    Documents,
    FixedBatch,
    Recipe,
    Source,
)

tiny = Recipe(
    name="gpt_bpe",
    model=weft.with_dropout(
        weft.gpt2(depth=4, width=128, heads=4, vocab_size=8192, positions=128), 0.0
    ),
    task=CausalLM(),
    data=Data(
        rows=Documents(),
        tokenizer=ByteBPE(vocab_size=8192),
        train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document_boundary="heading"),
        valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document_boundary="heading"),
    ),
    batch=FixedBatch(size=16, length=128),
    steps=1000,
    optimiser=AdamW(lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1),
    schedule=CosineSchedule(warmup_steps=100, final_fraction=0.1),
    precision="auto",
    eval_every=500,
)

paper = Recipe(
    name="gpt_bpe-paper",
    model=weft.gpt("base"),
    task=CausalLM(),
    data=Data(
        rows=Documents(),
        tokenizer=BPE(vocab_size=40478, lowercase=True),
        train=Source(paths=("books/*.txt.gz",)),
    ),
    batch=FixedBatch(size=64, length=512),
    steps=3_300_000,
    optimiser=AdamW(lr=2.5e-4, weight_decay=0.01),
    schedule=CosineSchedule(warmup_steps=2000),
    precision="bf16",
    micro_batch_size=16,
    workers=2,
    checkpoints=Checkpoints(every_steps=10_000),
    paper="Radford et al. 2018, section 4.1: 117M parameters",
)
