"""Questions as a person asks them, against transformers' own answers on the same folder."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tokenizers import models, pre_tokenizers, processors

import weft
from weft import recipe as R
from weft import spec as S
from weft.data.tokenizing.question_windows import question_windows
from weft.inference import methods
from weft.inference.open_model import OpenModel
from weft.inference.open_model import open_model as opened

from .small import TEXTS, ready, tokenizer

KINDS: dict[str, Any] = {
    "classify": transformers.BertForSequenceClassification,
    "tag": transformers.BertForTokenClassification,
    "answer": transformers.BertForQuestionAnswering,
    "fill": transformers.BertForMaskedLM,
    "embed": transformers.BertModel,
}


QUESTIONS = R.ContextQuestions(max_length=64, stride=32, max_question_length=16)


def theirs(kind: str, folder: Path) -> tuple[Any, OpenModel]:
    """A folder as transformers saves it, opened by both."""
    names = ["O", "B-PER", "I-PER"] if kind == "tag" else ["no", "maybe", "yes"]
    config = transformers.BertConfig(
        vocab_size=tokenizer().size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
        pad_token_id=0,
        **(
            {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}
            if kind in ("classify", "tag")
            else {}
        ),
    )
    torch.manual_seed(0)
    model = KINDS[kind](config).eval()
    model.save_pretrained(folder)
    tokenizer().save(folder / "tokenizer.json")
    return model, opened(folder)


def ids(text: str, pair: str | None = None) -> dict[str, torch.Tensor]:
    """begin text end [pair end], with segments."""
    first = [2, *tokenizer().encode(text).tolist(), 3]
    second = [] if pair is None else [*tokenizer().encode(pair).tolist(), 3]
    return {
        "input_ids": torch.tensor([first + second]),
        "token_type_ids": torch.tensor([[0] * len(first) + [1] * len(second)]),
    }


@torch.no_grad()
def test_classes_of_texts_and_of_pairs_are_transformers_with_its_names(tmp_path: Path) -> None:
    model, own = theirs("classify", tmp_path)
    assert methods.label_names(own) == ("no", "maybe", "yes")
    pairs: list[Any] = [(a, b) for a, b in zip(TEXTS, reversed(TEXTS), strict=True)]
    for asked in ([(text, None) for text in TEXTS], pairs):
        for pair, found in zip(asked, methods.classify(own, asked), strict=True):
            assert found == pytest.approx(
                model(**ids(*pair)).logits[0].double().softmax(-1).tolist(), abs=1e-5
            )


@torch.no_grad()
def test_each_words_tag_is_read_at_its_first_piece_and_words_beyond_the_row_are_outside(
    tmp_path: Path,
) -> None:
    model, own = theirs("tag", tmp_path)
    sentences = [text.split() for text in TEXTS] + [["unknowable", "words"], [], ["house"] * 100]
    found = methods.tag(own, sentences)
    for words, tags in zip(sentences[:-2], found, strict=False):
        logits = model(**ids(" ".join(words))).logits[0].double()
        place = 1
        for word, (name, share) in zip(words, tags, strict=True):
            best, which = logits[place].softmax(-1).max(-1)
            assert (name, share) == (
                model.config.id2label[int(which)],
                pytest.approx(float(best), abs=1e-5),
            )
            place += len(tokenizer().encode(word))
    assert found[-2] == []
    assert len(found[-1]) == 100
    assert {name for name, share in found[-1] if share == 0.0} == {"O"}


@torch.no_grad()
def test_the_answer_is_the_best_span_over_all_windows_in_the_words_of_the_text(
    tmp_path: Path,
) -> None:
    model, own = theirs("answer", tmp_path)
    context = "Paris, is the CAPITAL of france; a dog runs over the green grass"
    (found,) = methods.answer(own, [("what is it", context)])
    out = model(**ids("what is it", context))
    first = len(tokenizer().encode("what is it")) + 2
    tokens, spans = tokenizer().encode_spans(context)
    best, begin, end = max(
        (float(out.start_logits[0, first + i] + out.end_logits[0, first + j]), i, j)
        for i in range(len(tokens))
        for j in range(i, min(i + 30, len(tokens)))
    )
    assert (found.text, found.score) == (
        context[spans[begin, 0] : spans[end, 1]],
        pytest.approx(best, abs=1e-5),
    )
    assert found.no_answer_margin == pytest.approx(
        float(out.start_logits[0, 0] + out.end_logits[0, 0]) - best, abs=1e-5
    )
    assert methods.answer(own, [("who", "a dog"), ("what is it", context)])[
        1
    ].score == pytest.approx(best, abs=1e-5)


@torch.no_grad()
def test_of_a_long_text_the_best_window_answers_and_the_least_sure_that_there_is_none(
    tmp_path: Path,
) -> None:
    model, own = theirs("answer", tmp_path)
    later = 0
    for question in ("who", "what is it", "why not ?"):
        long = " ".join(TEXTS * 4)
        asked = []
        fields = {
            "id": "",
            "question": question,
            "context": long,
            "answer_start": -1,
            "answer_end": -1,
        }
        for window in question_windows(fields, QUESTIONS, tokenizer()):
            tokens = [2, *window["question"].tolist(), 3, *window["context"].tolist(), 3]
            first = len(window["question"]) + 2
            last = len(tokens) - 1
            segments = [0] * first + [1] * (len(tokens) - first)
            out = model(input_ids=torch.tensor([tokens]), token_type_ids=torch.tensor([segments]))
            asked.append(
                (
                    max(
                        float(out.start_logits[0, i] + out.end_logits[0, j])
                        for i in range(first, last)
                        for j in range(i, min(i + 30, last))
                    ),
                    float(out.start_logits[0, 0] + out.end_logits[0, 0]),
                )
            )
        (found,) = methods.answer(own, [(question, long)])
        assert found.text == long[found.start : found.end]
        assert found.score == pytest.approx(max(score for score, _ in asked), abs=1e-5)
        assert found.no_answer_margin == pytest.approx(
            min(none for _, none in asked) - found.score, abs=1e-5
        )
        later += max(asked) > asked[0]
    assert later


@torch.no_grad()
def test_fill_predicts_as_transformers_for_any_mask_name(
    tmp_path: Path,
) -> None:
    model, own = theirs("fill", tmp_path)
    texts = ["the man went to the [MASK] .", "<mask> is the [MASK] of france"]
    found = methods.fill(own, texts, top=3)
    assert [len(places) for places in found] == [1, 2]
    for text, places in zip(texts, found, strict=True):
        parts = [
            tokenizer().encode(part).tolist()
            for part in text.replace("<mask>", "[MASK]").split("[MASK]")
        ]
        row = [2, *parts[0]]
        for part in parts[1:]:
            row += [4, *part]
        row.append(3)
        logits = model(torch.tensor([row])).logits[0].double().softmax(-1)
        for place, guesses in zip([i for i, t in enumerate(row) if t == 4], places, strict=True):
            shares, words = logits[place].topk(3)
            assert [share for _, share in guesses] == pytest.approx(shares.tolist(), abs=1e-5)
            assert [word for word, _ in guesses] == [
                methods.token_text(tokenizer(), int(i)) for i in words
            ]
    with pytest.raises(ValueError, match="has no mask; write \\[MASK\\] or <mask>"):
        methods.fill(own, ["nothing"])


def test_a_mask_beyond_the_length_raises_an_error() -> None:
    own = ready(None)
    for text, line in (
        ("i like it", "has no mask"),
        ("paris " * 70 + "[MASK]", "has a mask beyond the maximum of 64 tokens"),
        ("[MASK] " + "paris " * 70 + "[MASK]", "has a mask beyond the maximum of 64 tokens"),
    ):
        with pytest.raises(ValueError, match=line):
            methods.fill(own, [text])
    assert len(methods.fill(own, ["paris " * 61 + "[MASK]"])[0]) == 1


@pytest.mark.parametrize("context", ["", "\u200b"])
def test_a_context_without_tokens_has_no_answer(context: str) -> None:
    own = ready(S.SpanHead())
    found = methods.answer(own, [("why not ?", context), ("why not ?", TEXTS[4])])
    assert found[0] == ("", 0, 0, float("-inf"), float("inf"))
    assert found[1][:3] == methods.answer(own, [("why not ?", TEXTS[4])])[0][:3]


def test_the_gap_before_a_hidden_word_is_its_own() -> None:
    pieces = tokenizer("ByteBPE")
    assert methods.encode_with_masks(pieces, "the man <mask> to", 4).tolist() == [
        *pieces.encode("the man"),
        4,
        *pieces.encode(" to"),
    ]


@torch.no_grad()
def test_vectors_are_the_mean_the_first_or_the_last_of_transformers_own(tmp_path: Path) -> None:
    model, own = theirs("embed", tmp_path)
    for pool in ("mean", "cls", "last"):
        for text, vector in zip([*TEXTS, ""], methods.embed(own, [*TEXTS, ""], pool), strict=True):
            x = model(**ids(text)).last_hidden_state[0]
            assert vector == pytest.approx(
                {"mean": x.mean(0), "cls": x[0], "last": x[-1]}[pool].tolist(), abs=1e-5
            )
    assert torch.tensor(methods.embed(own, TEXTS, normalised=True)).norm(
        dim=-1
    ).tolist() == pytest.approx([1.0] * len(TEXTS))


def test_a_tuned_model_reads_its_whole_length_and_one_from_scratch_that_of_its_rows() -> None:
    head = S.ClassifierHead(num_labels=2)
    texts = [(f"{'the man ' * 12}{end}", None) for end in ("runs", "flies")]
    for init_from, alike in ((None, True), ("before", False)):
        recipe: Any = SimpleNamespace(
            batch=SimpleNamespace(length=16),
            init_from=init_from,
            task=R.Classification(),
            data=SimpleNamespace(rows=R.LabelledTexts()),
        )
        one, two = methods.classify(ready(head, recipe=recipe), texts)
        assert (one == two) is alike


def test_a_model_of_numbers_gives_numbers() -> None:
    found = methods.classify(
        ready(S.ClassifierHead(num_labels=1)), [(text, None) for text in TEXTS]
    )
    assert all(isinstance(number, float) for number in found)
    assert len(set(found)) == len(TEXTS)


@pytest.mark.parametrize(
    ("verb", "task"), [("classify", "classify"), ("tag", "tag"), ("answer", "answer")]
)
def test_a_model_without_the_head_says_how_to_get_one(verb: str, task: str) -> None:
    asked: Any = {"classify": [("a", None)], "tag": [["a"]], "answer": [("a", "b")]}[verb]
    with pytest.raises(ValueError, match=f"weft tune small --task {task} --data FILE"):
        getattr(methods, verb)(ready(S.NoHead()), asked)


def test_a_model_of_images_without_the_head_learns_from_a_folder() -> None:
    spec = weft.vit(
        depth=1, width=16, heads=2, hidden=16, image_size=16, patch_size=4, head=S.NoHead()
    )
    model = OpenModel("small", weft.build(spec), None, None, Path("."))
    with pytest.raises(ValueError, match="weft tune small --task classify --data FOLDER"):
        methods.classify(model, [(b"", None)])


def test_a_model_without_a_masked_lm_head_raises_an_error() -> None:
    with pytest.raises(ValueError, match="does not predict masked words"):
        methods.fill(ready(S.NoHead()), ["a [MASK]"])


@torch.no_grad()
@pytest.mark.parametrize("kind", ["classify", "answer"])
def test_a_pair_of_robertas_has_two_ends_between_as_transformers_writes_it(
    kind: str, tmp_path: Path
) -> None:
    names = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        *sorted({word for text in TEXTS for word in text.split()}),
    ]
    made = tokenizers.Tokenizer(
        models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    config = transformers.RobertaConfig(
        vocab_size=len(names),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=66,
        initializer_range=0.5,
        type_vocab_size=1,
        pad_token_id=1,
        num_labels=3 if kind == "classify" else 2,
    )
    torch.manual_seed(0)
    head = {
        "classify": transformers.RobertaForSequenceClassification,
        "answer": transformers.RobertaForQuestionAnswering,
    }[kind]
    model = head(config).eval()
    model.save_pretrained(tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    own = opened(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=made)
    for first, second in zip(TEXTS[4:], TEXTS, strict=False):
        given = theirs(first, second, return_tensors="pt", return_token_type_ids=False)
        right = model(**given)
        if kind == "classify":
            assert methods.classify(own, [(first, second)])[0] == pytest.approx(
                right.logits[0].double().softmax(-1).tolist(), abs=1e-5
            )
        else:
            (found,) = methods.answer(own, [(first, second)])
            inside = torch.tensor([part == 1 for part in given.sequence_ids(0)])
            start = right.start_logits[0][inside]
            end = right.end_logits[0][inside]
            assert found.score == pytest.approx(
                max(float(start[i] + end[i:].max()) for i in range(len(start))), abs=1e-4
            )


def test_a_run_whose_task_says_another_verb_is_not_classified() -> None:
    def run(task: R.Task, rows: R.RowSchema) -> Any:
        recipe: Any = SimpleNamespace(task=task, data=SimpleNamespace(rows=rows))
        return ready(S.ClassifierHead(num_labels=1), recipe=recipe)

    with pytest.raises(ValueError, match="trained by MultipleChoice, which weft classify does not"):
        methods.classify(run(R.MultipleChoice(), R.ChoiceQuestions()), [("a text", None)])
    taught = run(R.Distillation(teacher="folder"), R.LabelledTexts())
    methods.check_verb(taught, "classify")  # what the student was taught
