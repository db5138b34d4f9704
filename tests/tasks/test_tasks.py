"""Incompatible tasks, models and data raise an error before the first step that names the part or
the value.
"""

from typing import Any

import pytest

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.shards.store import DataInfo

from .cases import SENTENCES, SMALL, TEXT, bart, bert, electra, gpt, t5, transformer
from .made import SENTINELS, build_pair, meta
from .tuning import ENDINGS, album, labelled, mae, vit

PAIR = R.LabelledTexts(text="a", second_text="b")
SINGLE = R.LabelledTexts()
CHOICES = R.ChoiceQuestions(endings=ENDINGS)
PAIRS = R.SourceTargetPairs()
QUESTIONS = R.ContextQuestions(max_length=32, stride=8, max_question_length=8)
MODEL, GENERATOR = electra()
FOREIGN = meta(R.Documents())


def classes(count: int = 3, **more: Any) -> S.Spec:
    return bert(head=S.ClassifierHead(num_labels=count, **more))


def tags(count: int = 3) -> S.Spec:
    return bert(head=S.TokenClassifierHead(num_labels=count))


def masked(words: str, **more: Any) -> tuple[str, R.Task, S.Spec, DataInfo]:
    return words, R.MaskedLM(**more), bert(), meta(SENTENCES)


def replaced(**more: Any) -> R.Task:
    return R.ReplacedTokenDetection(**{"generator": GENERATOR, **more})


def special(row: R.RowSchema, *names: str) -> DataInfo:
    return labelled(row, special_tokens={name: i for i, name in enumerate(names)})


CAUSAL = R.CausalLM()
CLASS = R.Classification()
MASKED = R.MaskedLM()
WRONG_MODEL: list[tuple[str, R.Task, S.Spec, DataInfo]] = [
    ("with a decoder and no encoder", CAUSAL, bert(), meta(TEXT)),
    (
        "LMHead head, not ClassifierHead",
        CAUSAL,
        weft.gpt2(**SMALL, head=classes(2, pooling="last").head),
        meta(TEXT),
    ),
    ("61 tokens, the model 60", CAUSAL, gpt(), meta(TEXT, vocab_size=61)),
    (r"such as CausalLM\(\)", R.FixedBatch(size=1, length=1), gpt(), meta(TEXT)),  # type: ignore[list-item]
    ("with an encoder and no decoder", MASKED, gpt(), meta(SENTENCES)),
    ("LMHead head, not ClassifierHead", MASKED, classes(2), meta(SENTENCES)),
    ("60 tokens, the model 59", MASKED, bert(vocab_size=59), meta(SENTENCES)),
    ("an encoder and a decoder", R.Denoising(), gpt(), meta(SENTENCES)),
    ("an encoder and a decoder", R.SpanCorruption(), bert(), meta(TEXT)),
    ("an encoder and a decoder", R.TextToText(), gpt(), meta(PAIRS)),
    ("an encoder and a decoder", R.Translation(), gpt(), meta(PAIRS)),
    ("ClassifierHead head, not LMHead", CLASS, bert(), labelled(PAIR)),
    ("60 tokens, the model 50", CLASS, bert(head=classes().head, vocab_size=50), labelled(PAIR)),
    ("1 output, the head 3", R.Regression(), classes(), labelled(PAIR, labels=None)),
    ("decoder without an encoder", R.Classification(lm_weight=0.5), classes(), labelled(PAIR)),
    ("ClassifierHead head, not LMHead", R.MultipleChoice(), bert(), meta(CHOICES)),
    ("1 output, the head 2", R.MultipleChoice(), classes(2), meta(CHOICES)),
    ("SpanHead head, not LMHead", R.QuestionAnswering(), bert(), meta(QUESTIONS)),
    ("TokenClassifierHead head", R.TokenClassification(), bert(), labelled(R.TaggedWords())),
    ("PixelDecoder head", R.MaskedAutoencoding(), vit(), labelled(R.LabelledImages())),
    ("TokenClassifierHead head, not LMHead", replaced(), bert(), meta(SENTENCES)),
    ("LMHead head, not Token", replaced(generator=MODEL), MODEL, meta(SENTENCES)),
    ("num_labels=1", replaced(), S.replace(MODEL, head=tags().head), meta(SENTENCES)),
    (r"\(60, 16\), the model's \(60, 8\)", replaced(generator=bert()), MODEL, meta(SENTENCES)),
]
WRONG_DATA: list[tuple[str, R.Task, S.Spec, DataInfo]] = [
    ("3 labels, the head 4", CLASS, classes(4), labelled(PAIR)),
    ("the data have none", CLASS, classes(), labelled(PAIR, labels=None)),
    ("not the data's", CLASS, classes(labels=("z", "y", "x")), labelled(PAIR)),
    ("numbers as labels", R.Regression(), classes(1), labelled(PAIR, labels=None)),
    ("labels are numbers", CLASS, classes(), labelled(R.LabelledTexts(numeric_label=True))),
    ("no second text", R.Classification(both_orders=True), classes(), labelled(SINGLE)),
    ("not of SourceTargetPairs", CLASS, classes(), labelled(PAIRS)),
    ("LabelledImages, .* Tokens", CLASS, classes(), labelled(R.LabelledImages())),
    ("LabelledTexts, .* Patches", CLASS, vit(), labelled(SINGLE)),
    ("eos token", CLASS, classes(), special(PAIR)),
    ("not of SourceTargetPairs", R.MultipleChoice(), classes(1), meta(PAIRS)),
    ("not of LabelledTexts", R.QuestionAnswering(), bert(head=S.SpanHead()), meta(SINGLE)),
    ("3 labels, the head 9", R.TokenClassification(), tags(9), labelled(R.TaggedWords())),
    ("data have none", R.TokenClassification(), tags(), labelled(R.TaggedWords(), labels=None)),
    ("not of LabelledTexts", R.TokenClassification(), tags(), labelled(SINGLE)),
    ("bos token", R.TokenClassification(), tags(), special(R.TaggedWords(), "eos")),
    ("not of LabelledTexts", R.MaskedAutoencoding(), mae(), labelled(SINGLE)),
    ("not of Documents", R.TextToText(), t5(), FOREIGN),
    ("bos token", R.TextToText(input_format="bart"), bart(), special(PAIRS, "eos")),
    ("not of Documents", R.Translation(), transformer(), FOREIGN),
    ("bos and eos token", R.Translation(), transformer(), special(PAIRS)),
    ("sentence_boundaries=True", R.Denoising(), bart(), meta(TEXT)),
    ("bos and mask token", R.Denoising(shuffle_sentences=False), bart(), special(TEXT, "eos")),
    ("pad token", R.SpanCorruption(), t5(), special(TEXT, "eos")),
    ("sentence_boundaries=True", replaced(), MODEL, meta(TEXT)),
    ("sentence_boundaries=True", MASKED, bert(), meta(TEXT)),
    ("mask token", MASKED, bert(), special(SENTENCES, "bos", "eos")),
    ("'words'", R.MaskedLM(masking_unit="words"), bert(), meta(SENTENCES, is_continuation=None)),
]
WRONG_VALUE: list[tuple[str, R.Task, S.Spec, DataInfo]] = [
    masked("next_sentence", next_sentence=True),
    masked("random_token_rate = 0.3", random_token_rate=0.3),
    masked("random_token_rate = 0 ", mask_token_rate=0.0, random_token_rate=0.0),
    *(
        (
            f"mask_rate = {rate} of 16",
            R.MaskedAutoencoding(mask_rate=rate),
            mae(),
            labelled(R.LabelledImages()),
        )
        for rate in (0.99, 0.0)
    ),
]


@pytest.mark.parametrize(
    ("words", "task", "spec", "info"),
    [*WRONG_MODEL, *WRONG_DATA, *WRONG_VALUE],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_what_does_not_fit_is_refused_in_one_line(
    words: str, task: R.Task, spec: S.Spec, info: DataInfo
) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        build_pair(task, spec, info)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("task", "spec", "info"),
    [
        (CAUSAL, gpt(), meta(TEXT)),
        (CLASS, classes(), labelled(PAIR)),
        (R.QuestionAnswering(), bert(head=S.SpanHead()), meta(QUESTIONS)),
        (R.TokenClassification(), tags(), labelled(R.TaggedWords())),
    ],
)
def test_a_length_beyond_the_positions_is_refused(
    task: R.Task, spec: S.Spec, info: DataInfo
) -> None:
    store: Any = album(1)
    with pytest.raises(ValueError, match="length = 65: the model has 64"):
        build_pair(task, spec, info)[0].open_samples(store, 65)


def test_a_length_without_space_for_text_raises_an_error() -> None:
    store: Any = album(1)
    with pytest.raises(ValueError, match="length = 4 "):
        build_pair(CLASS, classes(), labelled(PAIR))[0].open_samples(store, 4)
    with pytest.raises(ValueError, match="length = 2 "):
        build_pair(R.Denoising(), bart(), meta(SENTENCES))[0].open_samples(store, 2)
    answers = build_pair(R.QuestionAnswering(), bert(head=S.SpanHead()), meta(QUESTIONS))[0]
    with pytest.raises(ValueError, match=r"ContextQuestions\(max_length=31\)"):
        answers.open_samples(store, 31)


def test_too_few_sentinels_and_a_share_that_no_text_gives_are_refused() -> None:
    few = build_pair(R.SpanCorruption(), t5(), meta(TEXT, sentinels=SENTINELS))[0]
    with pytest.raises(ValueError, match="28 sentinels, the tokenizer has 8"):
        few.open_samples(None, 512)  # type: ignore[arg-type]
    all_hidden: Any = build_pair(R.SpanCorruption(mask_rate=1.0), t5(), meta(TEXT))[0]
    with pytest.raises(ValueError, match=r"mask_rate = 1\.0"):
        all_hidden.raw_length(64)
