"""Named entity recognition on CoNLL-2003: one tag per word (BERT, arXiv:1810.04805, section 5.3).

    weft train recipes/tag_conll2003.py

Paper:  `paper` fine-tunes BERT base, cased: three epochs with batches of 32 sentences, starting
        from the published weights and tokenizer.
Cost:   `tiny` 800 steps of 64 sentences, about three minutes on two cores, without pre-training;
        `paper` at most 6e15 FLOP.
Expect: the loss of `tiny` falls from ln 9 = 2.2 below the entropy of the tags, about 0.7, to less
        than 0.1 in training and about 0.35 in validation.
Data:   conll2003/train.txt.gz, valid.txt.gz; for `paper` also bert-base-cased/ with model and
        tokenizer.json.
"""

import weft
from weft.recipe import (
    AdamW,
    Data,
    FixedBatch,
    LinearSchedule,
    Recipe,
    Source,
    TaggedWords,
    TokenClassification,
    TokenizerFile,
    WordPiece,
)

TAGS = ("O", "B-LOC", "I-LOC", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER")
ROWS = TaggedWords(labels=TAGS)
TRAIN = Source(paths=("conll2003/train.txt.gz",))
VALID = Source(paths=("conll2003/valid.txt.gz",))
HEAD = weft.TokenClassifierHead(num_labels=len(TAGS), labels=TAGS, dropout=0.1)

tiny = Recipe(
    name="tag_conll2003",
    model=weft.bert(
        "tiny", vocab_size=8192, positions=128, init=weft.NormalInit(std=0.05), head=HEAD
    ),
    task=TokenClassification(),
    data=Data(
        rows=ROWS, tokenizer=WordPiece(vocab_size=8192, lowercase=False), train=TRAIN, valid=VALID
    ),
    batch=FixedBatch(size=64, length=128),
    steps=800,
    optimiser=AdamW(lr=1e-3),
    schedule=LinearSchedule(warmup_steps=80),
    precision="auto",
    eval_every=200,
)

paper = Recipe(
    name="tag_conll2003-paper",
    model=weft.bert("base", vocab_size=28996, head=HEAD),
    task=TokenClassification(),
    data=Data(
        rows=ROWS,
        tokenizer=TokenizerFile(path="bert-base-cased/tokenizer.json"),
        train=TRAIN,
        valid=VALID,
    ),
    batch=FixedBatch(size=32, length=256),
    steps=1317,
    optimiser=AdamW(lr=5e-5, eps=1e-6),
    schedule=LinearSchedule(warmup_steps=131),
    precision="bf16",
    eval_every=439,
    init_from="bert-base-cased",
    paper="arXiv:1810.04805, section 5.3: 108M parameters, as the cased vocabulary is smaller",
)
