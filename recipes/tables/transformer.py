"""Ablations of the Transformer, one recipe per row (Vaswani et al. 2017, arXiv:1706.03762, section
6.2, table 3), at laptop size.

    python -m benchmarks.tables transformer
    weft train recipes/tables/transformer.py:heads_1

The base model and all ablations of the paper are scaled down: 4 heads instead of 8, 64 channels
instead of 512, 2 blocks instead of 6. All recipes use the same pairs of Multi30k in the same order
for the same number of steps; those of (A), (D) and (E) also have equal FLOPs.
"""

from dataclasses import replace
from typing import Any

import weft
from weft.recipe import (
    BPE,
    Adam,
    Checkpoints,
    Data,
    InverseSqrt,
    Recipe,
    Source,
    SourceTargetPairs,
    TokenBudget,
    Translation,
    noam_lr,
)

WIDTH = 64
VALUE_DIM = 16
STEPS = 600
WARMUP = 150


def model(**changes: Any) -> weft.Spec:
    """Return the base model with other columns of the size table."""
    sizes = {"depth": 2, "width": WIDTH, "heads": 4, "hidden": 256, "dropout": 0.1}
    return weft.transformer(**sizes | changes, vocab_size=4000)


def with_key_dim(spec: weft.Spec, key_dim: int) -> weft.Spec:
    """Return the model with other queries and keys; the values keep their width."""

    def branch(old: Any) -> Any:
        inner = replace(old.inner, head_dim=key_dim, value_dim=VALUE_DIM)
        return replace(old, inner=inner)

    def stack(old: Any) -> Any:
        block = old.blocks[0]
        cross = block.cross_attention
        changed = replace(
            block,
            attention=branch(block.attention),
            cross_attention=None if cross is None else branch(cross),
        )
        return replace(old, blocks=(changed,) * len(old.blocks))

    return replace(spec, encoder=stack(spec.encoder), decoder=stack(spec.decoder))


def with_learned_positions(spec: weft.Spec) -> weft.Spec:
    source, target = (
        replace(side, positions=weft.LearnedPositions(count=256))
        for side in (spec.source, spec.target)
    )
    return replace(spec, source=source, target=target)


base = Recipe(
    name="table-transformer-base",
    model=model(),
    task=Translation(label_smoothing=0.1),
    data=Data(
        rows=SourceTargetPairs(),
        tokenizer=BPE(vocab_size=4000, lowercase=True),
        train=Source(paths=("multi30k/train.en.gz", "multi30k/train.de.gz"), format="parallel"),
        valid=Source(paths=("multi30k/val.en.gz", "multi30k/val.de.gz"), format="parallel"),
    ),
    batch=TokenBudget(tokens=1024, length=64),
    steps=STEPS,
    # the paper's formula, made for 4,000 steps of warm-up, is too much for a few hundred
    optimiser=Adam(lr=0.3 * noam_lr(WIDTH, WARMUP)),
    schedule=InverseSqrt(warmup_steps=WARMUP),
    grad_clip=None,
    checkpoints=Checkpoints(every_steps=STEPS, keep=1),
    paper="arXiv:1706.03762, table 3",
)


def row(name: str, spec: weft.Spec | None = None, smoothing: float = 0.1) -> Recipe:
    return replace(
        base,
        name=f"table-transformer-{name}",
        model=spec or base.model,
        task=Translation(label_smoothing=smoothing),
    )


heads_1 = row("heads-1", model(heads=1))
heads_2 = row("heads-2", model(heads=2))
heads_8 = row("heads-8", model(heads=8))
heads_16 = row("heads-16", model(heads=16))
key_dim_4 = row("key-dim-4", with_key_dim(base.model, 4))
key_dim_8 = row("key-dim-8", with_key_dim(base.model, 8))
depth_1 = row("depth-1", model(depth=1))
depth_3 = row("depth-3", model(depth=3))
width_32 = row("width-32", model(width=32))
width_128 = row("width-128", model(width=128))
hidden_128 = row("hidden-128", model(hidden=128))
hidden_512 = row("hidden-512", model(hidden=512))
dropout_0 = row("dropout-0", model(dropout=0.0))
dropout_2 = row("dropout-0.2", model(dropout=0.2))
smoothing_0 = row("smoothing-0", smoothing=0.0)
smoothing_2 = row("smoothing-0.2", smoothing=0.2)
learned = row("learned-positions", with_learned_positions(base.model))

BETTER = {"perplexity": "lower", "bleu": "higher"}
MARGIN = {"perplexity": 0.03, "bleu": 0.1}  # of the paper's figures, within which rows are the same
# perplexity per piece and BLEU on newstest2013
PAPER = {
    "base": {"perplexity": 4.92, "bleu": 25.8},
    "heads_1": {"perplexity": 5.29, "bleu": 24.9},
    "heads_2": {"perplexity": 5.00, "bleu": 25.5},  # 4 of 8
    "heads_8": {"perplexity": 4.91, "bleu": 25.8},  # 16
    "heads_16": {"perplexity": 5.01, "bleu": 25.4},  # 32
    "key_dim_4": {"perplexity": 5.16, "bleu": 25.1},  # 16 of 64
    "key_dim_8": {"perplexity": 5.01, "bleu": 25.4},  # 32
    "depth_1": {"perplexity": 6.11, "bleu": 23.7},  # 2 of 6
    "depth_3": {"perplexity": 4.88, "bleu": 25.5},  # 8
    "width_32": {"perplexity": 5.75, "bleu": 24.5},  # 256 of 512
    "width_128": {"perplexity": 4.66, "bleu": 26.0},  # 1,024
    "hidden_128": {"perplexity": 5.12, "bleu": 25.4},  # 1,024 of 2,048
    "hidden_512": {"perplexity": 4.75, "bleu": 26.2},  # 4,096
    "dropout_0": {"perplexity": 5.77, "bleu": 24.6},
    "dropout_2": {"perplexity": 4.95, "bleu": 25.5},
    "smoothing_0": {"perplexity": 4.67, "bleu": 25.3},
    "smoothing_2": {"perplexity": 5.47, "bleu": 25.7},
    "learned": {"perplexity": 4.92, "bleu": 25.7},
}
