"""Sentiment of sentences from film reviews: SST-2, one text per row (BERT, arXiv:1810.04805,
section 4.1).

    weft train recipes/classify_sst2.py

Paper:  `paper` fine-tunes BERT base: three epochs with batches of 32 sentences, starting from the
        published weights and tokenizer.
Cost:   `tiny` 800 steps of 128 phrases, about two minutes on two cores, without pre-training;
        `paper` at most 1.4e16 FLOP.
Expect: the loss of `tiny` falls from ln 2 = 0.69 to 0.2 in training and about 0.5 on dev, 80 %
        accuracy; `paper` 93 % accuracy.
Data:   glue/SST-2/train.tsv.gz, dev.tsv.gz; for `paper` also bert-base-uncased/ with model and
        tokenizer.json.
"""

import weft
from weft.recipe import (
    AdamW,
    Classification,
    Data,
    FixedBatch,
    LabelledTexts,
    LinearSchedule,
    Recipe,
    Source,
    TokenizerFile,
    WordPiece,
)

NAMES = ("label", "sentence")  # the headers of the two files differ
ROWS = LabelledTexts(text="sentence", labels=("0", "1"))
TRAIN = Source(paths=("glue/SST-2/train.tsv.gz",), column_names=NAMES)
VALID = Source(paths=("glue/SST-2/dev.tsv.gz",), column_names=NAMES)

tiny = Recipe(
    name="classify_sst2",
    # nothing is pre-trained: every token votes
    model=weft.bert(
        "tiny",
        vocab_size=8192,
        positions=64,
        init=weft.NormalInit(std=0.05),
        head=weft.ClassifierHead(num_labels=2, pooling="mean", dropout=0.1),
    ),
    task=Classification(),
    data=Data(rows=ROWS, tokenizer=WordPiece(vocab_size=8192), train=TRAIN, valid=VALID),
    batch=FixedBatch(size=128, length=64),
    steps=800,
    optimiser=AdamW(lr=1e-3),
    schedule=LinearSchedule(warmup_steps=80),
    precision="auto",
    eval_every=200,
)

paper = Recipe(
    name="classify_sst2-paper",
    model=weft.bert(
        "base",
        head=weft.ClassifierHead(
            num_labels=2, transform=weft.HeadTransform(activation="tanh"), dropout=0.1
        ),
    ),
    task=Classification(),
    data=Data(
        rows=ROWS,
        tokenizer=TokenizerFile(path="bert-base-uncased/tokenizer.json"),
        train=TRAIN,
        valid=VALID,
    ),
    batch=FixedBatch(size=32, length=128),
    steps=6315,
    optimiser=AdamW(lr=2e-5, eps=1e-6),
    schedule=LinearSchedule(warmup_steps=631),
    precision="bf16",
    eval_every=2105,
    init_from="bert-base-uncased",
    paper="arXiv:1810.04805, section 4.1: 110M parameters",
)
