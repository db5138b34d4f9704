"""What was measured of a choice: the receipts that compare it, and the question they answer.

Only comparisons count, and results of tasks; that a model uses a part measures nothing. A choice
that is not named here says "not measured yet" in the table of choices.
The numbers are on the page of results.
"""

import re
from functools import cache
from pathlib import Path

from .markdown import slug

ROOT = Path(__file__).parents[1]
# choice -> (name of a receipt in docs/results, what it compares)
MEASURED = {
    "FullAttention": ("attention_cost", "time and memory against the length"),
    "SlidingWindow": ("attention_cost", "time and memory against the length"),
    "Linformer": ("attention_cost", "time and memory against the length"),
    "MixtureOfExperts": ("experts", "load and loss with and without the routers' losses"),
    "Translation": ("multi30k", "BLEU"),
    "CausalLM": ("gpt_char", "loss against time"),
    "MaskedLM": ("transfer", "what pre-training is worth"),
    "ReplacedTokenDetection": ("transfer", "what pre-training is worth"),
    "SpanCorruption": ("transfer", "what pre-training is worth"),
    "Denoising": ("learn", "loss against time"),
    "Classification": ("tune", "scores beside transformers' Trainer"),
    "Regression": ("tune", "scores beside transformers' Trainer"),
    "TokenClassification": ("tune", "scores beside transformers' Trainer"),
    "QuestionAnswering": ("tune_squad", "scores beside transformers' Trainer"),
    "InstructionTuning": ("assistants", "wins over the original model"),
    "PreferenceTuning": ("assistants", "wins over the original model"),
    "ExactDeduplication": ("deduplicate", "speed, and planted copies that it drops"),
    "NearDeduplication": ("deduplicate", "speed, and planted copies that it drops"),
    "LengthFilter": ("deduplicate", "speed of the quality filters"),
    "CharacterFilter": ("deduplicate", "speed of the quality filters"),
    "LineFilter": ("deduplicate", "speed of the quality filters"),
    "RepetitionFilter": ("deduplicate", "speed of the quality filters"),
    "ForbiddenTextFilter": ("deduplicate", "speed of the quality filters"),
    "DLCL": ("deep_encoders", "which encoders of 30 blocks train"),
    "post_norm": ("deep_encoders", "which encoders of 30 blocks train"),
    "pre_norm": ("deep_encoders", "which encoders of 30 blocks train"),
    "deepnorm_branch": ("deep_encoders", "which encoders of 30 blocks train"),
    "ProportionalRates": ("multilingual", "loss of each language against the exponent"),
    "FixedRates": ("mixtures", "several tasks in one model"),
    "Mixture": ("mixtures", "several tasks in one model"),
    "Attention": ("table_transformer", "perplexity and BLEU of variations"),
    "MLP": ("table_transformer", "perplexity and BLEU of variations"),
    "LearnedPositions": ("table_transformer", "perplexity and BLEU of variations"),
    "SinusoidalPositions": ("table_transformer", "perplexity and BLEU of variations"),
    "Detection": ("detection", "AP against training FLOP"),
    "Parallel": ("ranks", "speed of two ranks beside one process"),
}


@cache
def sections() -> dict[str, str]:
    """Return the heading of docs/results.md under which each receipt is named."""
    heading = ""
    by_receipt = {}
    for line in (ROOT / "docs" / "results.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        for name in re.findall(r"\]\(results/(\w[\w-]*)\.json\)", line):
            by_receipt.setdefault(name, heading)
    return by_receipt


def measured_effect(choice: str, up: str = "") -> str:
    """Return a link to what was measured of a choice, or "not measured yet"."""
    receipt, question = MEASURED.get(choice, ("", ""))
    heading = sections().get(receipt)
    if heading:
        return f"{question}: [{heading}]({up}results.md#{slug(heading)})"
    if receipt and (ROOT / "docs" / "results" / f"{receipt}.json").exists():
        return f"{question}: [{receipt}.json]({up}results/{receipt}.json)"
    return "not measured yet"
