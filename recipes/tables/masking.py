"""BERT's ablations of masking and number of steps, one recipe per row (Devlin et al. 2018,
arXiv:1810.04805, table 8 and figure 5), at laptop size.

    python -m benchmarks.tables masking
    python -m benchmarks.tables steps
    weft train recipes/tables/masking.py:always_mask

Every recipe predicts 15 % of the tokens of the same data in the same order for the same number of
steps, so the FLOPs are equal. They differ in the replacement of the predicted tokens. The models
are then evaluated on named entity recognition, fine-tuned and as features.
"""

from dataclasses import replace
from pathlib import Path

from weft.recipe import Checkpoints, LinearSchedule, MaskedLM, Recipe, WordPiece, load_recipe

base = load_recipe(str(Path(__file__).with_name("inputs.py")))
base = replace(
    base,
    name="table-masking-base",
    task=MaskedLM(),
    data=replace(base.data, tokenizer=WordPiece(vocab_size=4096, lowercase=False)),
    paper="arXiv:1810.04805, table 8",
)


def row(name: str, mask: float, random: float) -> Recipe:
    task = MaskedLM(mask_token_rate=mask, random_token_rate=random)
    return replace(base, name=f"table-masking-{name}", task=task)


def steps(count: int) -> Recipe:
    return replace(
        base,
        name=f"table-steps-{count}",
        steps=count,
        schedule=LinearSchedule(warmup_steps=count // 10),
        checkpoints=Checkpoints(every_steps=count, keep=1),
        paper="arXiv:1810.04805, figure 5",
    )


always_mask = row("always-mask", 1.0, 0.0)
no_same = row("no-same", 0.8, 0.2)
no_random = row("no-random", 0.8, 0.0)
no_mask = row("no-mask", 0.0, 0.8)
always_random = row("always-random", 0.0, 1.0)
steps_100 = steps(100)
steps_200 = steps(200)
steps_800 = steps(800)

BETTER = {"fine-tuned": "higher", "features": "higher"}
# of the paper's figures, within which rows are the same
MARGIN = {
    "fine-tuned": 0.15,
    "features": 0.15,
}
# F1 on the dev set of CoNLL-2003
PAPER = {
    "base": {"fine-tuned": 95.4, "features": 94.9},
    "always_mask": {"fine-tuned": 94.9, "features": 94.0},
    "no_same": {"fine-tuned": 95.2, "features": 94.6},
    "no_random": {"fine-tuned": 95.2, "features": 94.7},
    "no_mask": {"fine-tuned": 94.8, "features": 94.6},
    "always_random": {"fine-tuned": 94.9, "features": 94.6},
}
