"""Distillation: a student of half the depth learns from a teacher's softened scores (Hinton et al. 2015, arXiv:1503.02531).

    weft train recipes/gpt_bpe.py           # the teacher
    weft train recipes/distil_gpt.py

Paper:  `paper` is half of GPT-2 small, taught by all of it; it needs a folder with the published weights and tokenizer.
Cost:   `tiny` 600 steps of 2,048 tokens, about two minutes on two cores.
Expect: two terms: `label`, the loss on the text, as in gpt_bpe.py, and `teacher`, the distance from the teacher, which falls faster.
Data:   that of the teacher, so that both read the same pieces.
"""
import weft
from weft.recipe import AdamW, ByteBPE, Cosine, Data, Distillation, Documents, Recipe, Rows, Saves, Source, TokenizerFile

tiny = Recipe(
    name="distil_gpt",
    model=weft.with_dropout(weft.gpt2(depth=2, width=128, heads=4, vocabulary=8192, positions=128), 0.0),
    objective=Distillation(teacher="runs/gpt_bpe/model", temperature=2.0),
    data=Data(row=Documents(), tokenizer=ByteBPE(vocabulary=8192),
              train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document="heading"),
              valid=Source(paths=("wikitext-2/wiki.valid.tokens.gz",), document="heading")),
    batch=Rows(count=16, length=128), steps=600,
    optimiser=AdamW(rate=2e-3, betas=(0.9, 0.95), decay=0.1), schedule=Cosine(warmup=60, end=0.1), precision="bf16", evaluate=300)

paper = Recipe(
    name="distil_gpt-paper", model=weft.gpt2("small", depth=6), objective=Distillation(teacher="gpt2", temperature=2.0),
    data=Data(row=Documents(), tokenizer=TokenizerFile(path="gpt2/tokenizer.json"), train=Source(paths=("web/*.txt.gz",))),
    batch=Rows(count=512, length=1024), steps=50_000,
    optimiser=AdamW(rate=2.5e-4, betas=(0.9, 0.98), decay=0.01), schedule=Cosine(warmup=2000), precision="bf16", micro=8, workers=2,
    save=Saves(every=1000), paper="arXiv:1503.02531; GPT-2 small at half its depth: 82M parameters")
