"""The first run: a small character model of this project's own source, with nothing to download.

    weft train recipes/first_run.py         # from the root of a clone
    weft resume runs/first_run --verify      # proves that it resumes bit for bit

Paper:  Radford et al. 2019, the architecture of GPT-2, made small.
Cost:   about a minute on two cores; bf16 on processors with AMX, else fp32.
Expect: the loss falls from ln 512 = 6.2 to below 2 nats per character; the last tenth of every file is held out, and a tenth of that is
        enough to validate on.
"""

import weft
from weft.recipe import (
    AdamW,
    CausalLM,
    CharacterTokenizer,
    Checkpoints,
    CosineSchedule,
    Data,
    Documents,
    FixedBatch,
    Recipe,
    Source,
)

TEXT = ("src/weft/**/*.py", "docs/*.md", "README.md")

tiny = Recipe(
    name="first_run",
    model=weft.gpt2(
        depth=3,
        width=128,
        heads=4,
        vocab_size=512,
        positions=64,
        dropout=0.0,
        attention_dropout=0.0,
        embedding_dropout=0.0,
    ),
    task=CausalLM(),
    data=Data(
        rows=Documents(),
        tokenizer=CharacterTokenizer(),
        train=Source(paths=TEXT, document_boundary="file", fraction=(0.0, 0.9)),
        valid=Source(paths=TEXT, document_boundary="file", fraction=(0.99, 1.0)),
    ),
    batch=FixedBatch(size=16, length=64),
    steps=600,
    optimiser=AdamW(lr=2e-3, betas=(0.9, 0.99), weight_decay=0.1),
    schedule=CosineSchedule(warmup_steps=50, final_fraction=0.1),
    precision="auto",
    eval_every=200,
    checkpoints=Checkpoints(every_steps=200),
)
