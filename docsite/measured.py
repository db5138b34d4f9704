"""Measured effects of choices: the receipt that compares each, and the measured quantity.

Only comparisons and task results count; use in a model does not measure a part. The table of
choices shows "not measured yet" for a choice without an entry here. The results page lists the
numbers.
"""

import re
from functools import cache
from pathlib import Path

from .markdown import slug

ROOT = Path(__file__).parents[1]
# choice -> (name of a receipt in docs/results, measured quantity)
MEASURED = {
    "FullAttention": ("attention_cost", "time and memory against the sequence length"),
    "SlidingWindow": ("attention_cost", "time and memory against the sequence length"),
    "Linformer": ("attention_cost", "time and memory against the sequence length"),
    "MixtureOfExperts": ("experts", "load and loss with and without the routers' losses"),
    "Translation": ("multi30k", "BLEU"),
    "CausalLM": ("gpt_char", "loss against time"),
    "MaskedLM": ("transfer", "gain of pre-training"),
    "ReplacedTokenDetection": ("transfer", "gain of pre-training"),
    "SpanCorruption": ("transfer", "gain of pre-training"),
    "Denoising": ("learn", "loss against time"),
    "Classification": ("tune", "scores compared with transformers' Trainer"),
    "Regression": ("tune", "scores compared with transformers' Trainer"),
    "TokenClassification": ("tune", "scores compared with transformers' Trainer"),
    "QuestionAnswering": ("tune_squad", "scores compared with transformers' Trainer"),
    "InstructionTuning": ("assistants", "win rate against the original model"),
    "PreferenceTuning": ("assistants", "win rate against the original model"),
    "ExactDeduplication": ("deduplicate", "speed, and recall on planted copies"),
    "NearDeduplication": ("deduplicate", "speed, and recall on planted copies"),
    "LengthFilter": ("deduplicate", "speed of the quality filters"),
    "CharacterFilter": ("deduplicate", "speed of the quality filters"),
    "LineFilter": ("deduplicate", "speed of the quality filters"),
    "RepetitionFilter": ("deduplicate", "speed of the quality filters"),
    "ForbiddenTextFilter": ("deduplicate", "speed of the quality filters"),
    "DLCL": ("deep_encoders", "convergence of encoders with 30 blocks"),
    "post_norm": ("deep_encoders", "convergence of encoders with 30 blocks"),
    "pre_norm": ("deep_encoders", "convergence of encoders with 30 blocks"),
    "deepnorm_branch": ("deep_encoders", "convergence of encoders with 30 blocks"),
    "ProportionalRates": ("multilingual", "loss of each language against the exponent"),
    "FixedRates": ("mixtures", "several tasks in one model"),
    "Mixture": ("mixtures", "several tasks in one model"),
    "Attention": ("table_transformer", "perplexity and BLEU of ablations"),
    "MLP": ("table_transformer", "perplexity and BLEU of ablations"),
    "LearnedPositions": ("table_transformer", "perplexity and BLEU of ablations"),
    "SinusoidalPositions": ("table_transformer", "perplexity and BLEU of ablations"),
    "Detection": ("detection", "AP against training FLOP"),
    "Parallel": ("ranks", "speed of two ranks relative to one process"),
}


@cache
def sections() -> dict[str, str]:
    """Return the heading in docs/results.md of each receipt."""
    heading = ""
    by_receipt = {}
    for line in (ROOT / "docs" / "results.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        for name in re.findall(r"\]\(results/(\w[\w-]*)\.json\)", line):
            by_receipt.setdefault(name, heading)
    return by_receipt


def measured_effect(choice: str, up: str = "") -> str:
    """Return a link to the measurement of a choice, or "not measured yet"."""
    receipt, question = MEASURED.get(choice, ("", ""))
    heading = sections().get(receipt)
    if heading:
        return f"{question}: [{heading}]({up}results.md#{slug(heading)})"
    if receipt and (ROOT / "docs" / "results" / f"{receipt}.json").exists():
        return f"{question}: [{receipt}.json]({up}results/{receipt}.json)"
    return "not measured yet"
