"""Instruction tuning: predict the assistant's turns of conversations (InstructGPT, Ouyang et al.
2022, arXiv:2203.02155).

    # questions with one-word answers; DATA is $WEFT_DATA
    python -m benchmarks.assistant_data DATA/assistant
    weft train recipes/instruct.py
    weft generate runs/instruct "What is 3 plus 4?" --chat
    weft train recipes/prefer.py                        # next: preference tuning

Paper:  `paper` is the supervised step of InstructGPT's 1.3 B model, section 3.5 and appendix C.1:
        16 epochs of about 13,000 prompts in batches of 32, a cosine schedule, residual dropout of
        0.2, starting from a pre-trained model and its tokenizer.
Cost:   `tiny` 1,200 steps of 32 conversations, three minutes on two cores, without pre-training;
        `paper` at most 4e18 FLOP.
Expect: `tiny` starts at ln 261 = 5.6 nats per byte of the answers. It learns the answer format and
        most one-digit sums.
Data:   assistant/train.jsonl.gz and valid.jsonl.gz, each row has a field `messages`.
"""

import weft
from weft.recipe import (
    AdamW,
    ByteTokenizer,
    ChatTemplate,
    Conversations,
    CosineSchedule,
    Data,
    InstructionTuning,
    PackedBatch,
    Recipe,
    Source,
    TokenizerFile,
)

TEMPLATE = ChatTemplate(start="<s>{role}: ", end="</s>", between="")

tiny = Recipe(
    name="instruct",
    model=weft.with_dropout(
        weft.gpt2(depth=4, width=128, heads=4, vocab_size=261, positions=256), 0.0
    ),
    task=InstructionTuning(),
    data=Data(
        rows=Conversations(template=TEMPLATE),
        tokenizer=ByteTokenizer(),
        train=Source(paths=("assistant/train.jsonl.gz",)),
        valid=Source(paths=("assistant/valid.jsonl.gz",)),
    ),
    batch=PackedBatch(size=8, length=256),
    steps=1200,
    optimiser=AdamW(lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1),
    schedule=CosineSchedule(warmup_steps=100, final_fraction=0.1),
    precision="auto",
    eval_every=200,
)

paper = Recipe(
    name="instruct-paper",
    init_from="gpt3-1.3b",
    model=weft.with_dropout(weft.gpt2(depth=24, width=2048, heads=16, positions=2048), 0.2),
    task=InstructionTuning(),
    data=Data(
        rows=Conversations(),
        tokenizer=TokenizerFile(path="gpt3-1.3b/tokenizer.json"),
        train=Source(paths=("instructions/train.jsonl.gz",)),
        valid=Source(paths=("instructions/valid.jsonl.gz",)),
    ),
    batch=PackedBatch(size=32, length=2048),
    steps=6500,
    optimiser=AdamW(lr=9.65e-6, betas=(0.9, 0.95)),
    schedule=CosineSchedule(final_fraction=0.1),
    precision="bf16",
    micro_batch_size=4,
    eval_every=400,
    paper="arXiv:2203.02155, appendix C.1: 1.3 billion parameters",
)
