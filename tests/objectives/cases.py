"""Every objective once or more, small: what `test_invariants` sweeps. A case gives the objective, a model's spec, what is known of the
data, and samples."""
from collections.abc import Callable
from typing import Any

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.store import Meta
from weft.families.electra import generator
from weft.objectives import Reader

from .made import VOCABULARY, meta, pairs, texts
from .tuning import ENDINGS, choices, examples, labelled, questions, tagged

Case = tuple[R.Objective, S.Model, Meta, Reader]
SMALL: dict[str, Any] = {"depth": 2, "width": 16, "heads": 2, "vocabulary": VOCABULARY, "dropout": 0.0}
CLASSES = S.Classes(outputs=3)
TEXT, SENTENCES = R.Documents(), R.Documents(sentences=True)


def bert(**more: Any) -> S.Model:
    return weft.bert(**{**SMALL, "hidden": 32, "positions": 64, "attention_dropout": 0.0, **more})


def gpt() -> S.Model:
    return weft.gpt2(**SMALL, positions=64, attention_dropout=0.0)


def t5() -> S.Model:
    return weft.t5(**SMALL, hidden=32, head_width=8)


def bart() -> S.Model:
    return weft.bart(**SMALL, hidden=32, positions=64)


def transformer() -> S.Model:
    return weft.transformer(**SMALL, hidden=32)


def electra() -> tuple[S.Model, S.Model]:
    """The model and its generator."""
    shape = {**SMALL, "hidden": 32, "positions": 64, "attention_dropout": 0.0, "embedding": 8}
    return weft.electra(**shape), generator("small", **{**shape, "width": 8, "heads": 1})


def masked(**more: Any) -> Callable[[], Case]:
    return lambda: (R.MaskedTokens(**more), bert(), meta(SENTENCES), texts(14, 38, 41))


def routed(s: S.Model, chosen: int = 2) -> S.Model:
    """The same model with three experts instead of each feed-forward layer."""
    def mix(block: S.Block) -> S.Block:
        return S.replace(block, feedforward=S.replace(block.feedforward, inner=S.Experts(
            count=3, chosen=chosen, expert=block.feedforward.inner, gates="all", balance=0.5, z_loss=0.1)))
    stacks = {name: S.replace(stack, blocks=tuple(mix(b) for b in stack.blocks))
              for name in ("encoder", "decoder") if (stack := getattr(s, name)) is not None}
    return S.replace(s, **stacks)


CASES: dict[str, Callable[[], Case]] = {
    "causal": lambda: (R.NextToken(), gpt(), meta(TEXT), texts(14, 33, 32)),
    "causal, apart": lambda: (R.NextToken(apart=True), gpt(), meta(TEXT), texts(14, 33, 32)),
    "causal, experts": lambda: (R.NextToken(apart=True), routed(gpt(), 1), meta(TEXT), texts(14, 33, 32)),
    "masked": masked(),
    "masked, words": masked(choose="words"),
    "masked, spans": masked(choose="spans"),
    "masked, documents": masked(input="doc-sentences"),
    "masked, segment pairs": masked(input="segment-pair", next_sentence=True),
    "masked, sentence pairs": masked(input="sentence-pair", next_sentence=True),
    "replaced": lambda: (R.ReplacedTokens(generator=electra()[1]), electra()[0], meta(SENTENCES), texts(14, 38, 40)),
    "spans": lambda: (R.CorruptedSpans(), t5(), meta(TEXT), texts(14, 36, 34)),
    "denoise": lambda: (R.Denoising(), bart(), meta(SENTENCES), texts(14, 38, 40)),
    "class": lambda: (R.Classification(smoothing=0.1), bert(head=CLASSES), labelled(R.Examples(second="b")), examples(14)),
    "class, both orders": lambda: (R.Classification(input="gpt", symmetric=True), S.replace(gpt(), head=S.replace(CLASSES, pool="last")),
                                   labelled(R.Examples(second="b")), examples(14)),
    "class, both orders, next token": lambda: (R.Classification(input="gpt", symmetric=True, lm_weight=0.5),
                                               S.replace(gpt(), head=S.replace(CLASSES, pool="last")), labelled(R.Examples(second="b")),
                                               examples(14)),
    "choice, next token": lambda: (R.MultipleChoice(input="gpt", lm_weight=0.5), S.replace(gpt(), head=S.Classes(outputs=1, pool="last")),
                                   meta(R.Choices(endings=ENDINGS)), choices(14)),
    "choice": lambda: (R.MultipleChoice(), bert(head=S.Classes(outputs=1)), meta(R.Choices(endings=ENDINGS)), choices(14)),
    "tag": lambda: (R.Tagging(), bert(head=S.Tags(outputs=3)), labelled(R.Tagged()), tagged(14)),
    "answer": lambda: (R.Answering(), bert(head=S.Spans()), meta(R.Questions(length=32)), questions(14)),
    "class, both orders, experts": lambda: (R.Classification(input="gpt", symmetric=True), S.replace(
        routed(gpt()), head=S.replace(CLASSES, pool="last")), labelled(R.Examples(second="b")), examples(14)),
    "choice, experts": lambda: (R.MultipleChoice(), routed(bert(head=S.Classes(outputs=1))), meta(R.Choices(endings=ENDINGS)), choices(14)),
    "translate, experts": lambda: (R.Translation(), routed(transformer()), meta(R.Pairs()), pairs(14, 30, 24)),
    "translate, experts of the decoder": lambda: (R.Translation(), S.replace(transformer(), decoder=routed(transformer()).decoder),
                                                  meta(R.Pairs()), pairs(14, 30, 24)),
    "text to text, T5": lambda: (R.TextToText(), t5(), meta(R.Templated()), pairs(14, 30, 24)),
    "text to text, BART": lambda: (R.TextToText(input="bart", smoothing=0.1), bart(), meta(R.Pairs()), pairs(14, 30, 24)),
    "translate": lambda: (R.Translation(), transformer(), meta(R.Pairs()), pairs(14, 30, 24)),
}
