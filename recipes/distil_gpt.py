"""Distillation: a student of half the depth learns from the softened logits of a teacher (Hinton et
al. 2015, arXiv:1503.02531).

    weft train recipes/gpt_bpe.py           # the teacher
    weft train recipes/distil_gpt.py

Paper:  `paper` distils GPT-2 small into a student of half its depth; it needs a directory with the
        published weights and tokenizer.
Cost:   `tiny` 600 steps of 2,048 tokens, about two minutes on two cores.
Expect: two loss terms: `label`, the loss on the text, as in gpt_bpe.py, and `teacher`, the distance
        to the teacher, which falls faster.
Data:   the data and tokenizer of the teacher.
"""

import weft
from weft.recipe import (
    AdamW,
    ByteBPE,
    Checkpoints,
    CosineSchedule,
    Data,
    Distillation,
    Documents,
    FixedBatch,
    Recipe,
    Source,
    TokenizerFile,
)

tiny = Recipe(
    name="distil_gpt",
    model=weft.with_dropout(
        weft.gpt2(depth=2, width=128, heads=4, vocab_size=8192, positions=128), 0.0
    ),
    task=Distillation(teacher="runs/gpt_bpe/model", temperature=2.0),
    data=Data(
        rows=Documents(),
        tokenizer=ByteBPE(vocab_size=8192),
        train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document_boundary="heading"),
        valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document_boundary="heading"),
    ),
    batch=FixedBatch(size=16, length=128),
    steps=600,
    optimiser=AdamW(lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1),
    schedule=CosineSchedule(warmup_steps=60, final_fraction=0.1),
    precision="auto",
    eval_every=300,
)

paper = Recipe(
    name="distil_gpt-paper",
    model=weft.gpt2("small", depth=6),
    task=Distillation(teacher="gpt2", temperature=2.0),
    data=Data(
        rows=Documents(),
        tokenizer=TokenizerFile(path="gpt2/tokenizer.json"),
        train=Source(paths=("web/*.txt.gz",)),
    ),
    batch=FixedBatch(size=512, length=1024),
    steps=50_000,
    optimiser=AdamW(lr=2.5e-4, betas=(0.9, 0.98), weight_decay=0.01),
    schedule=CosineSchedule(warmup_steps=2000),
    precision="bf16",
    micro_batch_size=8,
    workers=2,
    checkpoints=Checkpoints(every_steps=1000),
    paper="arXiv:1503.02531; GPT-2 small at half its depth: 82M parameters",
)
