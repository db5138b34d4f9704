"""GPT-3's arithmetic tasks from scratch: a small decoder trains on solved problems and answers new
ones after 0, 1, 4 and 16 examples.

    python -m benchmarks.arithmetic_data arithmetic
    weft train recipes/gpt_arithmetic.py

Paper:  Brown et al. 2020, arXiv:2005.14165, section 3.9.1; `paper` is the largest model of table
        2.1, which was not trained for these tasks.
Cost:   4,000 steps of 5,632 characters, 80 % of them in short rows; about half an hour on one core.
Expect: about 90 % of the answers are correct, and 40 % for two-digit multiplication. `python -m
        benchmarks.incontext` draws the curve.
Data:   arithmetic/train.jsonl.gz and valid.jsonl.gz, written by the first command; for `paper`
        texts with a blank line between documents.
"""

import weft
from weft.recipe import (
    AdamW,
    ByteBPE,
    CausalLM,
    Checkpoints,
    CosineSchedule,
    Data,
    Documents,
    FixedBatch,
    LinearSchedule,
    Muon,
    Recipe,
    Source,
    TokenizerFile,
)

NORM = weft.LayerNorm(bias=False)
LOOK = weft.Attention(
    heads=6, pattern=weft.CausalAttention(), rope=weft.RoPE(), bias=False, out_bias=False
)
BLOCK = weft.Block(
    attention=weft.pre_norm(NORM, LOOK),
    feedforward=weft.pre_norm(NORM, weft.MLP(hidden=768, bias=False)),
)

tiny = Recipe(
    name="gpt_arithmetic",
    model=weft.spec.Spec(
        width=192,
        source=weft.Tokens(vocab_size=32),
        decoder=weft.Stack(blocks=(BLOCK,) * 4, norm=NORM),
        head=weft.LMHead(),
        init=weft.NormalInit(scale_by_depth=True),
    ),
    task=CausalLM(),
    data=Data(
        rows=Documents(),
        tokenizer=TokenizerFile(path="arithmetic/tokenizer.json"),
        train=Source(paths=("arithmetic/train.jsonl.gz",)),
        valid=Source(paths=("arithmetic/valid.jsonl.gz",)),
    ),
    batch=FixedBatch(size=16, length=352),
    length_schedule=((0.8, 44), (1.0, 352)),
    steps=4000,
    optimiser=Muon(lr=0.005, other=AdamW(lr=2e-3, betas=(0.9, 0.95), weight_decay=0.0)),
    schedule=LinearSchedule(warmup_steps=100),
    precision="auto",
    eval_every=500,
    checkpoints=Checkpoints(every_steps=500),
)

paper = Recipe(
    name="gpt_arithmetic-paper",
    model=weft.gpt3("175b"),
    task=CausalLM(),
    data=Data(
        rows=Documents(),
        tokenizer=ByteBPE(vocab_size=50257),
        train=Source(paths=("crawl/*.jsonl.zst",)),
    ),
    batch=FixedBatch(size=1563, length=2048),
    steps=93_750,
    optimiser=AdamW(lr=0.6e-4, betas=(0.9, 0.95), weight_decay=0.1),
    schedule=CosineSchedule(warmup_steps=117, final_fraction=0.1),
    precision="bf16",
    micro_batch_size=1,
    workers=2,
    paper="Brown et al. 2020, table 2.1: 175B parameters, 300B tokens",
)
