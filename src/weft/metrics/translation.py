"""Translation metrics (BLEU: Papineni et al. 2002; chrF: Popović 2015) by sacrebleu (Post 2018,
arXiv:1804.08771), with its signatures.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ..support.extras import install_extra
from .moses import KEPT
from .moses import tokenize as moses
from .rows import check_pairs

Scores = Iterator[tuple[str, float | str]]  # a score, or the signature of its computation


def load_sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError:
        raise ValueError(f"BLEU and chrF need the extra: {install_extra('eval')}") from None
    return sacrebleu.metrics


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Scores:
    """BLEU of plain text. `tokenize` is the tokenizer of sacrebleu; "none" is for tokenised text,
    and the metric's name then says so.
    """
    words = ["lower-cased"] if lowercase else []
    words += ["of tokenised text"] if tokenize == "none" else []
    yield from score_with_signature(
        f"BLEU ({', '.join(words)})" if words else "BLEU",
        load_sacrebleu().BLEU(lowercase=lowercase, tokenize=tokenize),
        hypotheses,
        references,
    )


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str = "en",
    lowercase: bool = True,
) -> Scores:
    """BLEU of plain text tokenised by Moses. Text is lower-cased first, as in Multi30k: a full stop
    before a lower-case letter does not end a sentence.
    """

    def tokens(text: str) -> str:
        return " ".join(moses(text.lower() if lowercase else text, language))

    name = f"BLEU ({'lower-cased, ' * lowercase}Moses-tokenised)"
    yield from score_with_signature(
        name,
        load_sacrebleu().BLEU(tokenize="none", lowercase=lowercase, force=True),
        [tokens(h) for h in hypotheses],
        [tokens(r) for r in references],
    )


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    yield from score_with_signature("chrF", load_sacrebleu().CHRF(), hypotheses, references)


def score_with_signature(
    name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str]
) -> Scores:
    check_pairs(hypotheses, references, "translations")
    score = metric.corpus_score(list(hypotheses), [list(references)])
    yield name, float(score.score)
    yield f"{name} signature", str(metric.get_signature())


def translation_metrics(
    hypotheses: Sequence[str], references: Sequence[str], language: str = "en"
) -> Scores:
    """Yield the translation metrics, the one comparable with publications first; Moses-tokenised
    BLEU only for languages with known abbreviations.
    """
    yield from bleu(hypotheses, references)
    yield from chrf(hypotheses, references)
    if language in KEPT:
        yield from tokenised_bleu(hypotheses, references, language)
