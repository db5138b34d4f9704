"""Small cases of every task: task, model spec, metadata of the data, and samples."""

from collections.abc import Callable
from typing import Any

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.shards.store import DataInfo
from weft.families.electra import generator
from weft.tasks.base import LengthLimitedSamples

from .made import VOCABULARY, meta, pairs, texts
from .tuning import AUGMENTED, ENDINGS, choices, examples, images, labelled, questions, tagged, vit

Case = tuple[R.Task, S.Spec, DataInfo, LengthLimitedSamples]
SMALL: dict[str, Any] = {
    "depth": 2,
    "width": 16,
    "heads": 2,
    "vocab_size": VOCABULARY,
    "dropout": 0.0,
}
CLASSES = S.ClassifierHead(num_labels=3)
TEXT = R.Documents()
SENTENCES = R.Documents(sentence_boundaries=True)


def bert(**more: Any) -> S.Spec:
    return weft.bert(**{**SMALL, "hidden": 32, "positions": 64, "attention_dropout": 0.0, **more})


def gpt() -> S.Spec:
    return weft.gpt2(**SMALL, positions=64, attention_dropout=0.0)


def t5() -> S.Spec:
    return weft.t5(**SMALL, hidden=32, head_dim=8)


def bart() -> S.Spec:
    return weft.bart(**SMALL, hidden=32, positions=64)


def transformer() -> S.Spec:
    return weft.transformer(**SMALL, hidden=32)


def electra() -> tuple[S.Spec, S.Spec]:
    """The model and its generator."""
    shape = {**SMALL, "hidden": 32, "positions": 64, "attention_dropout": 0.0, "embedding": 8}
    return weft.electra(**shape), generator("small", **{**shape, "width": 8, "heads": 1})


def masked(**more: Any) -> Callable[[], Case]:
    return lambda: (R.MaskedLM(**more), bert(), meta(SENTENCES), texts(14, 38, 41))


def routed(s: S.Spec, chosen: int = 2) -> S.Spec:
    """The same model with three experts instead of each feed-forward layer."""

    def mix(block: S.Block) -> S.Block:
        return S.replace(
            block,
            feedforward=S.replace(
                block.feedforward,
                inner=S.MixtureOfExperts(
                    experts=3,
                    top_k=chosen,
                    expert=block.feedforward.inner,
                    softmax_over="all",
                    load_balance_weight=0.5,
                    router_z_weight=0.1,
                ),
            ),
        )

    def routed_stack(stack: S.Stack) -> S.Stack:
        return S.replace(stack, blocks=tuple(mix(b) for b in stack.blocks))

    parts: dict[str, Any] = {
        name: routed_stack(stack)
        for name in ("encoder", "decoder")
        if (stack := getattr(s, name)) is not None
    }
    if isinstance(s.head, S.PixelDecoder):
        parts["head"] = S.replace(s.head, stack=routed_stack(s.head.stack))
    return S.replace(s, **parts)


CASES: dict[str, Callable[[], Case]] = {
    "causal": lambda: (R.CausalLM(), gpt(), meta(TEXT), texts(14, 33, 32)),
    "causal, apart": lambda: (
        R.CausalLM(isolate_documents=True),
        gpt(),
        meta(TEXT),
        texts(14, 33, 32),
    ),
    "causal, experts": lambda: (
        R.CausalLM(isolate_documents=True),
        routed(gpt(), 1),
        meta(TEXT),
        texts(14, 33, 32),
    ),
    "masked": masked(),
    "masked, words": masked(masking_unit="words"),
    "masked, spans": masked(masking_unit="spans"),
    "masked, documents": masked(input_format="doc-sentences"),
    "masked, segment pairs": masked(input_format="segment-pair", next_sentence=True),
    "masked, sentence pairs": masked(input_format="sentence-pair", next_sentence=True),
    "replaced": lambda: (
        R.ReplacedTokenDetection(generator=electra()[1]),
        electra()[0],
        meta(SENTENCES),
        texts(14, 38, 40),
    ),
    "spans": lambda: (R.SpanCorruption(), t5(), meta(TEXT), texts(14, 36, 34)),
    "denoise": lambda: (R.Denoising(), bart(), meta(SENTENCES), texts(14, 38, 40)),
    "class": lambda: (
        R.Classification(label_smoothing=0.1),
        bert(head=CLASSES),
        labelled(R.LabelledTexts(second_text="b")),
        examples(14),
    ),
    "class, both orders": lambda: (
        R.Classification(input_format="gpt", both_orders=True),
        S.replace(gpt(), head=S.replace(CLASSES, pooling="last")),
        labelled(R.LabelledTexts(second_text="b")),
        examples(14),
    ),
    "class, both orders, next token": lambda: (
        R.Classification(input_format="gpt", both_orders=True, lm_weight=0.5),
        S.replace(gpt(), head=S.replace(CLASSES, pooling="last")),
        labelled(R.LabelledTexts(second_text="b")),
        examples(14),
    ),
    "choice, next token": lambda: (
        R.MultipleChoice(input_format="gpt", lm_weight=0.5),
        S.replace(gpt(), head=S.ClassifierHead(num_labels=1, pooling="last")),
        meta(R.ChoiceQuestions(endings=ENDINGS)),
        choices(14),
    ),
    "choice": lambda: (
        R.MultipleChoice(),
        bert(head=S.ClassifierHead(num_labels=1)),
        meta(R.ChoiceQuestions(endings=ENDINGS)),
        choices(14),
    ),
    "tag": lambda: (
        R.TokenClassification(),
        bert(head=S.TokenClassifierHead(num_labels=3)),
        labelled(R.TaggedWords()),
        tagged(14),
    ),
    "answer": lambda: (
        R.QuestionAnswering(),
        bert(head=S.SpanHead()),
        meta(R.ContextQuestions(max_length=32)),
        questions(14),
    ),
    "class, both orders, experts": lambda: (
        R.Classification(input_format="gpt", both_orders=True),
        S.replace(routed(gpt()), head=S.replace(CLASSES, pooling="last")),
        labelled(R.LabelledTexts(second_text="b")),
        examples(14),
    ),
    "choice, experts": lambda: (
        R.MultipleChoice(),
        routed(bert(head=S.ClassifierHead(num_labels=1))),
        meta(R.ChoiceQuestions(endings=ENDINGS)),
        choices(14),
    ),
    "translate, experts": lambda: (
        R.Translation(),
        routed(transformer()),
        meta(R.SourceTargetPairs()),
        pairs(14, 30, 24),
    ),
    "translate, experts of the decoder": lambda: (
        R.Translation(),
        S.replace(transformer(), decoder=routed(transformer()).decoder),
        meta(R.SourceTargetPairs()),
        pairs(14, 30, 24),
    ),
    "text to text, T5": lambda: (R.TextToText(), t5(), meta(R.TemplatedPairs()), pairs(14, 30, 24)),
    "text to text, BART": lambda: (
        R.TextToText(input_format="bart", label_smoothing=0.1),
        bart(),
        meta(R.SourceTargetPairs()),
        pairs(14, 30, 24),
    ),
    "translate": lambda: (
        R.Translation(),
        transformer(),
        meta(R.SourceTargetPairs()),
        pairs(14, 30, 24),
    ),
}
IMAGE_CASES: dict[str, Callable[[], Case]] = {
    "images, mixed": lambda: (
        R.Classification(transforms=AUGMENTED, label_smoothing=0.1),
        vit(),
        labelled(R.LabelledImages()),
        images(14, vit(), transforms=AUGMENTED),
    ),
}
