"""RoBERTa's four inputs, one recipe per row (Liu et al. 2019, arXiv:1907.11692, section 4.2, table
2), at laptop size.

    python -m benchmarks.tables inputs
    weft train recipes/tables/inputs.py:sentence_pair

As in the paper, the two pair inputs are trained with next-sentence prediction, the other two
without. All recipes use the same batch size, row length and number of steps. Sentence pairs fill a
row least; the paper increases the batch size for them.
"""

from dataclasses import replace

import weft
from weft.recipe import (
    AdamW,
    Checkpoints,
    Data,
    Documents,
    FixedBatch,
    LinearSchedule,
    MaskedLM,
    Muon,
    Recipe,
    Source,
    WordPiece,
)

STEPS = 400

# FULL-SENTENCES, which RoBERTa keeps
base = Recipe(
    name="table-inputs-full-sentences",
    model=weft.with_dropout(weft.bert("tiny", vocab_size=4096, positions=128), 0.0),
    task=MaskedLM(input_format="full-sentences"),
    data=Data(
        rows=Documents(sentence_boundaries=True),
        tokenizer=WordPiece(vocab_size=4096),
        train=Source(paths=("wikitext-2/wiki.train.tokens.gz",), document_boundary="heading"),
    ),
    batch=FixedBatch(size=32, length=64),
    steps=STEPS,
    optimiser=Muon(lr=2e-3, other=AdamW(lr=2e-3, betas=(0.9, 0.98), eps=1e-6)),
    schedule=LinearSchedule(warmup_steps=40),
    checkpoints=Checkpoints(every_steps=STEPS, keep=1),
    paper="arXiv:1907.11692, table 2",
)
segment_pair = replace(
    base,
    name="table-inputs-segment-pair",
    task=MaskedLM(input_format="segment-pair", next_sentence=True),
)
sentence_pair = replace(
    base,
    name="table-inputs-sentence-pair",
    task=MaskedLM(input_format="sentence-pair", next_sentence=True),
)
doc_sentences = replace(
    base, name="table-inputs-doc-sentences", task=MaskedLM(input_format="doc-sentences")
)

BETTER = {"reviews": "higher", "entailment": "higher"}
# of the paper's figures, within which rows are the same
MARGIN = {
    "reviews": 0.15,
    "entailment": 0.15,
}
# SST-2, and MNLI-m where we have SICK
PAPER = {
    "base": {"reviews": 92.5, "entailment": 84.7},
    "segment_pair": {"reviews": 92.9, "entailment": 84.0},
    "sentence_pair": {"reviews": 92.1, "entailment": 82.9},
    "doc_sentences": {"reviews": 92.7, "entailment": 84.7},
}
