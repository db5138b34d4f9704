"""Textual entailment on SICK: entailment, contradiction or neutral per sentence pair (BERT,
arXiv:1810.04805, section 4.1).

    weft train recipes/entail_sick.py

Paper:  `paper` fine-tunes BERT base on RTE: three epochs with batches of 32 pairs, starting from
        the published weights and tokenizer.
Cost:   `tiny` 600 steps of 64 pairs, about a minute on two cores, without pre-training; `paper` at
        most 1e15 FLOP.
Expect: the loss of `tiny` falls from ln 3 = 1.1 below the entropy of the three classes, 0.96;
        `paper` 66 % accuracy.
Data:   sick/SICK.txt.gz, with the last fifth held out (the file does not contain the official
        split); for `paper` glue/RTE/train.tsv.gz, dev.tsv.gz and bert-base-uncased/.
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

FILE = ("sick/SICK.txt.gz",)

tiny = Recipe(
    name="entail_sick",
    model=weft.bert(
        "tiny",
        vocab_size=4096,
        positions=96,
        init=weft.NormalInit(std=0.05),
        head=weft.ClassifierHead(num_labels=3, pooling="mean", dropout=0.1),
    ),
    task=Classification(),
    data=Data(
        rows=LabelledTexts(
            text="sentence_A", second_text="sentence_B", label="entailment_judgment"
        ),
        tokenizer=WordPiece(vocab_size=4096),
        train=Source(paths=FILE, format="tsv", fraction=(0.0, 0.8)),
        valid=Source(paths=FILE, format="tsv", fraction=(0.8, 1.0)),
    ),
    batch=FixedBatch(size=64, length=96),
    steps=600,
    optimiser=AdamW(lr=1e-3),
    schedule=LinearSchedule(warmup_steps=60),
    precision="auto",
    eval_every=150,
)

paper = Recipe(
    name="entail_rte-paper",
    model=weft.bert(
        "base",
        head=weft.ClassifierHead(
            num_labels=2, transform=weft.HeadTransform(activation="tanh"), dropout=0.1
        ),
    ),
    task=Classification(),
    data=Data(
        rows=LabelledTexts(text="sentence1", second_text="sentence2"),
        tokenizer=TokenizerFile(path="bert-base-uncased/tokenizer.json"),
        train=Source(paths=("glue/RTE/train.tsv.gz",)),
        valid=Source(paths=("glue/RTE/dev.tsv.gz",)),
    ),
    batch=FixedBatch(size=32, length=256),
    steps=234,
    optimiser=AdamW(lr=2e-5, eps=1e-6),
    schedule=LinearSchedule(warmup_steps=23),
    precision="bf16",
    eval_every=78,
    init_from="bert-base-uncased",
    paper="arXiv:1810.04805, section 4.1: 110M parameters",
)
