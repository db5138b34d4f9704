"""Words that Weft no longer uses do not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for room in ("src", "recipes", "examples") for path in (ROOT / room).rglob("*.py")
)
# Names of values, classes and fields, and what the field calls them.
RETIRED = {
    "Sinusoid": "SinusoidalPositions",
    "Learned2D": "LearnedPositions2D",
    "Sine2D": "SinusoidalPositions2D",
    "Rotary": "RoPE",
    "Stretch": "RoPEScaling",
    "Buckets": "RelativeBias",
    "Alibi": "ALiBi",
    "Windows": "ShiftedWindows",
    "Dense": "MLP",
    "Gated": "GatedMLP",
    "Experts": "MixtureOfExperts",
    "Shared": "SharedTokens",
    "Queries": "ObjectQueries",
    "Backbone": "ResNet",
    "Vocabulary": "LMHead",
    "Classes": "ClassifierHead",
    "Tags": "TokenClassifierHead",
    "Spans": "SpanHead",
    "Boxes": "DetectionHead",
    "Pixels": "PixelDecoder",
    "Features": "NoHead",
    "T5Start": "T5Init",
    "Special": "SpecialTokens",
    "NextToken": "CausalLM",
    "MaskedTokens": "MaskedLM",
    "ReplacedTokens": "ReplacedTokenDetection",
    "CorruptedSpans": "SpanCorruption",
    "Tagging": "TokenClassification",
    "Answering": "QuestionAnswering",
    "Autoencoding": "MaskedAutoencoding",
    "Corrupt": "Preprocess",
    "Saves": "Checkpoints",
    "Moving": "EMA",
    "InverseRoot": "InverseSqrt",
    "Budget": "TokenBudget",
    "Packed": "PackedBatch",
    "Rows": "FixedBatch",
    "View": "AttentionContext",
    "Ready": "OpenModel",
    "Writer": "TextGenerator",
    "Spoken": "StreamDetokenizer",
    "Measured": "ValidationMetrics",
    "Made": "RunState",
    "Held": "InMemoryStore",
    "Asked": "LoadedModel",
    "Known": "LoadedModel",
    "Opened": "LoadedModel",
    "key_width": "head_dim",
    "value_width": "value_dim",
    "sided": "bidirectional",
    "gelu_sigmoid": "quick_gelu",
    "swish": "silu",
    "recompute": "activation_checkpointing",
    "keep_BL": "attention_mask_BL or document_ids_BL",
    "keep_BM": "attention_mask_BM or document_ids_BM",
}
OPTIONS = (
    "--most",
    "--alpha",
    "--repetition",
    "--batch",
    "--draft",
    "--rates",
    "--best",
    "--bf16",
    "--in",
    "--out",
)


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for name in ("id", "attr", "arg", "name"):
            if isinstance(value := getattr(node, name, None), str):
                yield value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_identifier_is_a_retired_word(path: Path) -> None:
    found = RETIRED.keys() & set(identifiers(ast.parse(path.read_text())))
    assert not found, {word: RETIRED[word] for word in found}


# Words that say nothing of what a value is.
VAGUE = {"found", "held", "made", "said", "own", "told", "asked", "wish", "given"}


def assigned_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every variable, parameter and attribute that is given a value, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_variable_has_a_vague_name(path: Path) -> None:
    vague = [
        (line, name) for line, name in assigned_names(ast.parse(path.read_text())) if name in VAGUE
    ]
    assert vague == [], "say what it is, such as best_span or checkpoint_path"


def test_no_option_is_a_retired_word() -> None:
    words = re.compile(rf"(?<![\w-])({'|'.join(OPTIONS)})(?![\w-])")
    texts = [
        *(ROOT / "src/weft/commands").glob("*.py"),
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
    ]
    found = {
        str(path.relative_to(ROOT)): sorted(set(hits))
        for path in texts
        if path.name not in ("log.md", "results.md") and (hits := words.findall(path.read_text()))
    }
    assert found == {}
