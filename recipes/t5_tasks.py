"""Several tasks in one T5, each with its own prefix, sampling rate and text answers (Raffel et al.
2020, arXiv:1910.10683, section 3.5.2).

    weft train recipes/t5_tasks.py
    weft train recipes/t5_tasks.py --set data.train.rates.exponent=0.5 \
        --output runs/t5_tasks-temperature-2
    weft evaluate runs/t5_tasks

Paper:  `paper` is the multi-task model with the size of T5 base: examples-proportional mixing of
        the available tasks; 2^19 + 2^18 steps of 128 rows of 512 tokens.
Cost:   `tiny` 600 steps of 32 examples; `paper` at most 8e19 FLOP.
Expect: the loss of `tiny` falls from ln 4096 = 8.3 to about 2, first on reviews, which have one of
        two words as the answer.
Data:   multi30k/, glue/SST-2/, glue/STS-B/; for `paper` wmt14/ instead of multi30k/.
"""

from dataclasses import replace
from pathlib import Path

import weft
from weft.recipe import (
    Data,
    FixedBatch,
    Mixture,
    NamedSource,
    ProportionalRates,
    Source,
    TemplatedPairs,
    TextToText,
    Unigram,
    load_recipe,
)

T5 = str(Path(__file__).with_name("t5.py"))
REVIEWS = TemplatedPairs(
    template="sst2 sentence: {sentence}",
    target="label",
    labels=("0", "1"),
    label_texts=("negative", "positive"),
)
# the number is decoded as text
SIMILARITY = TemplatedPairs(template="stsb sentence1: {first} sentence2: {second}", target="score")
TRANSLATION = TemplatedPairs(template="translate English to German: {source}")
REVIEW_NAMES = ("label", "sentence")
SIMILARITY_NAMES = ("genre", "origin", "year", "number", "score", "first", "second")


def tasks(part: str, pairs: tuple[str, str]) -> tuple[NamedSource, ...]:
    """Return the three tasks of "train" or "dev"; `pairs` are the two translation files."""
    return (
        NamedSource(
            name="translation", source=Source(paths=pairs, format="parallel"), rows=TRANSLATION
        ),
        NamedSource(
            name="reviews",
            source=Source(paths=(f"glue/SST-2/{part}.tsv.gz",), column_names=REVIEW_NAMES),
            rows=REVIEWS,
        ),
        NamedSource(
            name="similarity",
            source=Source(
                paths=(f"glue/STS-B/sts-{part}.csv.gz",),
                format="tsv",
                column_names=SIMILARITY_NAMES,
                has_header=False,
            ),
            rows=SIMILARITY,
        ),
    )


tiny = replace(
    load_recipe(T5),
    name="t5_tasks",
    model=weft.with_dropout(
        weft.t5(depth=2, width=128, heads=4, hidden=512, head_dim=32, vocab_size=4096), 0.0
    ),
    task=TextToText(),
    data=Data(
        rows=TemplatedPairs(),  # what a user types has its prefix
        tokenizer=Unigram(vocab_size=4096, sentinels=32),
        train=Mixture(
            sources=tasks("train", ("multi30k/train.en.gz", "multi30k/train.de.gz")),
            rates=ProportionalRates(limit=16_384),
        ),
        valid=Mixture(sources=tasks("dev", ("multi30k/val.en.gz", "multi30k/val.de.gz"))),
    ),
    batch=FixedBatch(size=32, length=64, sort_pool=1024),
)

paper = replace(
    load_recipe(f"{T5}:paper"),
    name="t5_tasks-paper",
    task=TextToText(),
    data=replace(
        tiny.data,
        tokenizer=Unigram(vocab_size=32_100, sentinels=100),
        train=Mixture(
            sources=tasks("train", ("wmt14/train.en", "wmt14/train.de")),
            rates=ProportionalRates(limit=2**19),
        ),
        valid=Mixture(sources=tasks("dev", ("wmt14/newstest2013.en", "wmt14/newstest2013.de"))),
    ),
    steps=786_432,
    paper="arXiv:1910.10683, section 3.5.2: 220M parameters",
)
