"""Extractive question answering on SQuAD: start and end of the answer (BERT, arXiv:1810.04805,
sections 4.2 and 4.3).

    weft train recipes/answer_squad.py

Paper:  `paper` fine-tunes BERT base on SQuAD 1.1: three epochs with batches of 32 questions,
        starting from the published weights.
Cost:   `tiny` 600 steps of 16 windows, about three minutes on two cores, without pre-training;
        `paper` at most 6e16 FLOP.
Expect: `tiny` starts near ln 256 = 5.5 and falls slowly: it learns the positions of answers before
        their content. For better results, start from a pre-trained model (init_from =
        "runs/bert/model").
Data:   squad/squad-v1.1-dev.json.gz, articles 1 to 36 for training, 37 to 40 for validation, the
        rest for testing; for `paper` squad/train-v1.1.json and bert-base-uncased/.
"""

import weft
from weft.recipe import (
    AdamW,
    ContextQuestions,
    Data,
    FixedBatch,
    LinearSchedule,
    QuestionAnswering,
    Recipe,
    Source,
    TokenizerFile,
    WordPiece,
)

FILE = ("squad/squad-v1.1-dev.json.gz",)

tiny = Recipe(
    name="answer_squad",
    model=weft.bert(
        "tiny",
        vocab_size=8192,
        positions=256,
        init=weft.NormalInit(std=0.05),
        head=weft.SpanHead(),
    ),
    task=QuestionAnswering(),
    data=Data(
        rows=ContextQuestions(max_length=256, stride=128, max_question_length=32),
        tokenizer=WordPiece(vocab_size=8192),
        train=Source(paths=FILE, fraction=(0.0, 0.75)),
        valid=Source(paths=FILE, fraction=(0.75, 0.84)),
    ),
    batch=FixedBatch(size=16, length=256),
    steps=600,
    optimiser=AdamW(lr=1e-3),
    schedule=LinearSchedule(warmup_steps=60),
    precision="auto",
    eval_every=200,
)

paper = Recipe(
    name="answer_squad-paper",
    model=weft.bert("base", head=weft.SpanHead()),
    task=QuestionAnswering(),
    data=Data(
        rows=ContextQuestions(),
        tokenizer=TokenizerFile(path="bert-base-uncased/tokenizer.json"),
        train=Source(paths=("squad/train-v1.1.json",)),
        valid=Source(paths=FILE),
    ),
    batch=FixedBatch(size=32, length=384),
    steps=8250,
    optimiser=AdamW(lr=5e-5, eps=1e-6),
    schedule=LinearSchedule(warmup_steps=825),
    precision="bf16",
    eval_every=2750,
    init_from="bert-base-uncased",
    paper="arXiv:1810.04805, section 4.2: 110M parameters",
)
