"""Sentence similarity from 0 to 5: STS-B, one number per pair (BERT, arXiv:1810.04805, section
4.1).

    weft train recipes/similarity_stsb.py

Paper:  `paper` fine-tunes BERT base: three epochs with batches of 32 pairs, starting from the
        published weights and tokenizer.
Cost:   `tiny` 500 steps of 64 pairs, about two minutes on two cores, without pre-training; `paper`
        at most 1.2e15 FLOP.
Expect: the squared error of `tiny` falls immediately from 9 to the variance of the scores, 2.1,
        then below 1 in training. On dev it stays near the variance, since 5,749 pairs are too few
        to learn word meanings. For better results, start from a pre-trained model (init_from =
        "runs/bert/model").
Data:   glue/STS-B/sts-train.csv.gz, sts-dev.csv.gz (tabs, no header); for `paper` also
        bert-base-uncased/.
"""

import weft
from weft.recipe import (
    AdamW,
    Data,
    FixedBatch,
    LabelledTexts,
    LinearSchedule,
    Recipe,
    Regression,
    Source,
    TokenizerFile,
    WordPiece,
)

NAMES = ("genre", "origin", "year", "number", "score", "first", "second")
ROWS = LabelledTexts(text="first", second_text="second", label="score", numeric_label=True)
TRAIN = Source(
    paths=("glue/STS-B/sts-train.csv.gz",), format="tsv", column_names=NAMES, has_header=False
)
VALID = Source(
    paths=("glue/STS-B/sts-dev.csv.gz",), format="tsv", column_names=NAMES, has_header=False
)

tiny = Recipe(
    name="similarity_stsb",
    model=weft.bert(
        "tiny",
        vocab_size=8192,
        positions=128,
        init=weft.NormalInit(std=0.05),
        head=weft.ClassifierHead(num_labels=1, pooling="mean", dropout=0.1),
    ),
    task=Regression(),
    data=Data(rows=ROWS, tokenizer=WordPiece(vocab_size=8192), train=TRAIN, valid=VALID),
    batch=FixedBatch(size=64, length=128),
    steps=500,
    optimiser=AdamW(lr=1e-3),
    schedule=LinearSchedule(warmup_steps=50),
    precision="auto",
    eval_every=125,
)

paper = Recipe(
    name="similarity_stsb-paper",
    model=weft.bert(
        "base",
        head=weft.ClassifierHead(
            num_labels=1, transform=weft.HeadTransform(activation="tanh"), dropout=0.1
        ),
    ),
    task=Regression(),
    data=Data(
        rows=ROWS,
        tokenizer=TokenizerFile(path="bert-base-uncased/tokenizer.json"),
        train=TRAIN,
        valid=VALID,
    ),
    batch=FixedBatch(size=32, length=128),
    steps=540,
    optimiser=AdamW(lr=3e-5, eps=1e-6),
    schedule=LinearSchedule(warmup_steps=72),
    precision="bf16",
    eval_every=180,
    init_from="bert-base-uncased",
    paper="arXiv:1810.04805, section 4.1: 110M parameters",
)
