"""Character-level GPT on tinyshakespeare: 65 characters, the last tenth held out.

    weft train recipes/gpt_char.py
    weft train recipes/gpt_char.py:large
    weft train recipes/gpt_char.py:paper
    weft train recipes/gpt_char.py:demo      # the model included in the package under the name demo

Paper:  no paper; the budgets are those of nanoGPT for this text, on a CPU (`tiny`) and on a GPU
        (`paper`).
Cost:   `tiny` 2,000 steps of 768 characters, 8e12 FLOP; `large` 1,500 of 8,192; `demo` 1,100 of
        3,072; `paper` a few minutes on a GPU, hours on two cores.
Expect: `tiny` 1.77, `best` 1.67, `demo` 1.56 nats per character on the whole held-out text; nanoGPT
        reports 1.88 with the budget of `tiny` and 1.4697 with that of `paper`.
Data:   tinyshakespeare/input.txt.gz (1.1 million characters, public domain).
"""

import weft
from weft.recipe import (
    AdamW,
    BestCheckpoint,
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

FILE = ("tinyshakespeare/input.txt.gz",)
DATA = Data(
    rows=Documents(),
    tokenizer=CharacterTokenizer(special_tokens=False),
    train=Source(paths=FILE, document_boundary="file", fraction=(0.0, 0.9)),
    valid=Source(paths=FILE, document_boundary="file", fraction=(0.9, 1.0)),
)

tiny = Recipe(
    name="gpt_char",
    model=weft.with_dropout(
        weft.gpt2(depth=4, width=128, heads=4, vocab_size=65, positions=64, activation="gelu"), 0.0
    ),
    task=CausalLM(),
    data=DATA,
    batch=FixedBatch(size=12, length=64),
    steps=2000,
    optimiser=AdamW(lr=3e-3, betas=(0.9, 0.99), weight_decay=0.1),
    schedule=CosineSchedule(warmup_steps=100, final_fraction=0.03),
    precision="auto",
    eval_every=500,
)

paper = Recipe(
    name="gpt_char-paper",
    model=weft.with_dropout(
        weft.gpt2(depth=6, width=384, heads=6, vocab_size=65, positions=256, activation="gelu"), 0.2
    ),
    task=CausalLM(),
    data=DATA,
    batch=FixedBatch(size=64, length=256),
    steps=5000,
    optimiser=AdamW(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1),
    schedule=CosineSchedule(warmup_steps=100, final_fraction=0.1),
    precision="bf16",
    eval_every=250,
    paper="nanoGPT, character-level Shakespeare: 10.7M parameters",
)

# The same tokens in the same time with better choices: rotary positions, no biases, ReLU, half the
# heads, twice the context, Muon, a quarter of the steps, four times as large.
NORM = weft.LayerNorm(bias=False)
LOOK = weft.Attention(
    heads=2, pattern=weft.CausalAttention(), rope=weft.RoPE(), bias=False, out_bias=False
)
BLOCK = weft.Block(
    attention=weft.pre_norm(NORM, LOOK),
    feedforward=weft.pre_norm(NORM, weft.MLP(hidden=512, activation="relu", bias=False)),
)

best = Recipe(
    name="gpt_char-best",
    model=weft.spec.Spec(
        width=128,
        source=weft.Tokens(vocab_size=65),
        decoder=weft.Stack(blocks=(BLOCK,) * 4, norm=NORM),
        head=weft.LMHead(),
        init=weft.NormalInit(scale_by_depth=True),
    ),
    task=CausalLM(),
    data=DATA,
    batch=FixedBatch(size=24, length=128),
    steps=500,
    optimiser=Muon(lr=0.03, other=AdamW(lr=8e-3, betas=(0.9, 0.95), weight_decay=0.0)),
    schedule=LinearSchedule(warmup_steps=10),
    precision="bf16",
    eval_every=125,
)

# nanoGPT's large shape with the same choices, a fraction of its steps.
WIDE = weft.Attention(
    heads=6, pattern=weft.CausalAttention(), rope=weft.RoPE(), bias=False, out_bias=False
)
TALL = weft.Block(
    attention=weft.pre_norm(NORM, WIDE, dropout=0.3),
    feedforward=weft.pre_norm(
        NORM, weft.MLP(hidden=1536, activation="relu", bias=False), dropout=0.3
    ),
)

large = Recipe(
    name="gpt_char-large",
    model=weft.spec.Spec(
        width=384,
        source=weft.Tokens(vocab_size=65, dropout=0.3),
        decoder=weft.Stack(blocks=(TALL,) * 6, norm=NORM),
        head=weft.LMHead(),
        init=weft.NormalInit(scale_by_depth=True),
    ),
    task=CausalLM(),
    data=DATA,
    batch=FixedBatch(size=32, length=256),
    steps=1500,
    optimiser=Muon(lr=0.006, other=AdamW(lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)),
    schedule=LinearSchedule(warmup_steps=20),
    average=BestCheckpoint(),
    precision="bf16",
    eval_every=100,
)

# A Llama that is small enough for the package, and that transformers opens

demo = Recipe(
    name="gpt_char-demo",
    model=weft.llama(depth=4, width=128, heads=4, kv_heads=4, hidden=344, vocab_size=65, tied=True),
    task=CausalLM(),
    data=DATA,
    batch=FixedBatch(size=12, length=256),
    steps=1100,
    optimiser=Muon(lr=0.02, other=AdamW(lr=6e-3, betas=(0.9, 0.95), weight_decay=0.0)),
    schedule=LinearSchedule(warmup_steps=40),
    checkpoints=Checkpoints(every_steps=100),
    average=BestCheckpoint(),
    eval_every=275,
)
