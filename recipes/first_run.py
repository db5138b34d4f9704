"""First run: a small character-level language model of Weft's source code, without downloads.

    weft train recipes/first_run.py                 # from the root of a clone
    weft resume runs/first_run --verify             # verifies bit-exact resuming
    weft train recipes/first_run.py:shakespeare     # the plays included in Weft

Paper:  Radford et al. 2019, a small GPT-2; `shakespeare` is a small Llama (Touvron et al. 2023).
Cost:   about a minute on two cores, bf16 on processors with AMX, else fp32; `shakespeare` about
        two.
Expect: the loss falls from ln 512 = 6.2 to below 2 nats per character; the last tenth of every file
        is held out, and a tenth of it is used for validation. `shakespeare` starts at ln 65 = 4.2
        and generates text in the form of a play.
Data:   the source of Weft; 300,000 characters of Shakespeare (public domain) from the package.
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
    LinearSchedule,
    Muon,
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

PLAYS = ("src/weft/demo/shakespeare.txt.gz",)

shakespeare = Recipe(
    name="shakespeare",
    model=weft.llama(depth=3, width=96, heads=3, kv_heads=3, hidden=256, vocab_size=65, tied=True),
    task=CausalLM(),
    data=Data(
        rows=Documents(),
        tokenizer=CharacterTokenizer(special_tokens=False),
        train=Source(paths=PLAYS, document_boundary="file", fraction=(0.0, 0.9)),
        valid=Source(paths=PLAYS, document_boundary="file", fraction=(0.9, 1.0)),
    ),
    batch=FixedBatch(size=16, length=128),
    steps=400,
    optimiser=Muon(lr=0.02, other=AdamW(lr=6e-3, betas=(0.9, 0.95), weight_decay=0.0)),
    schedule=LinearSchedule(warmup_steps=10),
    checkpoints=Checkpoints(every_steps=50),
    eval_every=100,
)
