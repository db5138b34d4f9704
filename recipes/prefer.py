"""Preference tuning: increase the likelihood of the preferred answer relative to a reference model
(DPO, Rafailov et al. 2023, arXiv:2305.18290).

    weft train recipes/instruct.py       # the initial model and the reference
    weft train recipes/prefer.py
    # a reward model from the same pairs: the second step of RLHF
    weft train recipes/prefer.py:reward
    weft generate runs/prefer "What is 3 plus 4?" --chat

Paper:  `paper` is Pythia 2.8B on Anthropic's helpful and harmless dialogues, section 6 and appendix
        B: one epoch with batches of 64, β = 0.1, a learning rate of 1e-6 after 150 warmup steps.
        The paper uses RMSprop; this recipe uses AdamW.
Cost:   `tiny` 200 steps of 32 pairs, a minute on two cores; `reward` 400; `paper` about 4e18 FLOP.
Expect: the loss starts at ln 2 = 0.69, since the initial model equals the reference. The accuracy
        approaches 1, since the preferred answer is the shorter one.
Data:   assistant/preferences.jsonl.gz and preferences_valid.jsonl.gz: `prompt`, `chosen` and
        `rejected`.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    AdamW,
    ByteTokenizer,
    ChatTemplate,
    ConstantSchedule,
    CosineSchedule,
    Data,
    FixedBatch,
    Preferences,
    PreferenceTuning,
    Recipe,
    RewardModelling,
    Source,
    TokenizerFile,
)

TEMPLATE = ChatTemplate(start="<s>{role}: ", end="</s>", between="")

tiny = Recipe(
    name="prefer",
    init_from="runs/instruct/model",
    model=weft.with_dropout(
        weft.gpt2(depth=4, width=128, heads=4, vocab_size=261, positions=256), 0.0
    ),
    task=PreferenceTuning(reference="runs/instruct/model"),
    data=Data(
        rows=Preferences(template=TEMPLATE),
        tokenizer=ByteTokenizer(),
        train=Source(paths=("assistant/preferences.jsonl.gz",)),
        valid=Source(paths=("assistant/preferences_valid.jsonl.gz",)),
    ),
    batch=FixedBatch(size=32, length=160),
    steps=200,
    optimiser=AdamW(lr=1e-4, betas=(0.9, 0.95)),
    schedule=CosineSchedule(warmup_steps=20, final_fraction=0.1),
    precision="auto",
    eval_every=50,
)

paper = Recipe(
    name="prefer-paper",
    init_from="pythia-2.8b-sft",
    model=weft.gpt_neox(depth=32, width=2560, heads=32, hidden=10_240, vocab_size=50_304),
    task=PreferenceTuning(reference="pythia-2.8b-sft"),
    data=Data(
        rows=Preferences(),
        tokenizer=TokenizerFile(path="pythia-2.8b-sft/tokenizer.json"),
        train=Source(paths=("hh/train.jsonl.gz",)),
        valid=Source(paths=("hh/valid.jsonl.gz",)),
    ),
    batch=FixedBatch(size=64, length=512),
    steps=2650,
    optimiser=AdamW(lr=1e-6),
    schedule=ConstantSchedule(warmup_steps=150),
    precision="bf16",
    micro_batch_size=2,
    eval_every=300,
    paper="arXiv:2305.18290, appendix B: 2.8 billion parameters",
)

# What RLHF does first with the pairs: a number for an answer

reward = replace(
    tiny,
    name="prefer-reward",
    model=replace(tiny.model, head=weft.ClassifierHead(num_labels=1, pooling="last", bias=False)),
    task=RewardModelling(),
    steps=400,
)
