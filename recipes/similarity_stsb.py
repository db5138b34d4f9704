"""How alike are two sentences, from 0 to 5? STS-B, a number a pair (BERT, arXiv:1810.04805, section 4.1).

    weft train recipes/similarity_stsb.py

Paper:  `paper` fine-tunes BERT base: three epochs of 32 pairs. It starts from a folder with the published weights and tokenizer.
Cost:   `tiny` 500 steps of 64 pairs, about two minutes on two cores, nothing pre-trained; `paper` at most 1.5e15 FLOP.
Expect: the squared error of `tiny` falls at once from 9 to the scores' variance, 2.1, then below 1 in training; on dev it stays near the
        variance, since 5,749 pairs teach no words. Start from a model that has read (start = "runs/bert/model") for more.
Data:   glue/STS-B/sts-train.csv.gz, sts-dev.csv.gz (tabs, no header); for `paper` also bert-base-uncased/.
"""
import weft
from weft.recipe import AdamW, Data, Examples, Linear, Recipe, Regression, Rows, Source, TokenizerFile, WordPiece

NAMES = ("genre", "origin", "year", "number", "score", "first", "second")
ROWS = Examples(first="first", second="second", label="score", number=True)
TRAIN = Source(paths=("glue/STS-B/sts-train.csv.gz",), format="tsv", names=NAMES, header=False)
VALID = Source(paths=("glue/STS-B/sts-dev.csv.gz",), format="tsv", names=NAMES, header=False)

tiny = Recipe(
    name="similarity_stsb",
    model=weft.bert("tiny", vocabulary=8192, positions=128, start=weft.Normal(std=0.05),
                    head=weft.Classes(outputs=1, pool="mean", dropout=0.1)),
    objective=Regression(), data=Data(row=ROWS, tokenizer=WordPiece(vocabulary=8192), train=TRAIN, valid=VALID),
    batch=Rows(count=64, length=128), steps=500,
    optimiser=AdamW(rate=1e-3), schedule=Linear(warmup=50), precision="bf16", evaluate=125)

paper = Recipe(
    name="similarity_stsb-paper",
    model=weft.bert("base", head=weft.Classes(outputs=1, transform=weft.Transform(activation="tanh"), dropout=0.1)),
    objective=Regression(), data=Data(row=ROWS, tokenizer=TokenizerFile(path="bert-base-uncased/tokenizer.json"), train=TRAIN, valid=VALID),
    batch=Rows(count=32, length=128), steps=540,
    optimiser=AdamW(rate=3e-5, eps=1e-6), schedule=Linear(warmup=72), precision="bf16", evaluate=180,
    start="bert-base-uncased", paper="arXiv:1810.04805, section 4.1: 110M parameters")
