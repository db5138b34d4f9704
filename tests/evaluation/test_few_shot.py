"""Few-shot prompts: the boundary of prompt and answer, sampling of examples, scoring of choices."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from tokenizers.processors import TemplateProcessing

import weft
from weft import recipe as R
from weft.data.tokenizing.tokenizer import Tokenizer
from weft.data.tokenizing.train_tokenizer import fit_tokenizer
from weft.evaluation.few_shot import (
    DEFAULT_TEMPLATE,
    Example,
    Template,
    build_prompts,
    choice_likelihoods,
    complete_prompts,
    encode_continuation,
    exact_match,
    likelihoods,
    sample_examples,
)
from weft.metrics.classification import multiple_choice_accuracy

POOL = [Example(f"What is {a} plus {b}?", str(a + b)) for a, b in product(range(6), range(6))]
TEXT = ["\n\n".join(map(DEFAULT_TEMPLATE.solved_example, POOL[i : i + 9])) for i in range(0, 36, 9)]


@pytest.fixture(
    scope="module",
    params=[R.ByteBPE(vocab_size=300), R.CharacterTokenizer(), R.ByteTokenizer()],
    ids=lambda v: type(v).__name__,
)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return fit_tokenizer(request.param, lambda: TEXT)


# Prompts


def test_a_prompt_is_the_papers_form() -> None:
    assert DEFAULT_TEMPLATE.prompt(
        [Example("What is 48 plus 76?", "124")], "What is 34 minus 53?"
    ) == ("Q: What is 48 plus 76?\nA: 124\n\nQ: What is 34 minus 53?\nA:")


@pytest.mark.parametrize("count", [0, 1, 4, 16])
def test_a_prompt_holds_so_many_answers_and_ends_where_the_next_begins(count: int) -> None:
    for prompt, example in zip(build_prompts(POOL, POOL, count), POOL, strict=True):
        assert prompt.count("\nA: ") == count
        assert prompt.endswith(f"{example.question}\nA:")


def test_examples_are_never_the_question_nor_twice_the_same() -> None:
    for example in POOL:
        some = sample_examples(POOL * 2, example.question, 35)
        assert sorted(some) == sorted(set(POOL) - {example})


def test_examples_are_decided_by_seed_and_question_alone_and_differ_between_them() -> None:
    first = [sample_examples(POOL, example.question, 4) for example in POOL]
    assert first[::-1] == [sample_examples(POOL, example.question, 4) for example in POOL[::-1]]
    assert len({tuple(some) for some in first}) > 30
    assert first != [sample_examples(POOL, example.question, 4, seed=1) for example in POOL]


def test_more_examples_than_there_are_is_refused_in_one_line() -> None:
    with pytest.raises(
        ValueError,
        match=r"needs 36 examples, but the pool has 35 .* --examples",
    ):
        sample_examples(POOL, POOL[0].question, 36)


# Answers


@pytest.mark.parametrize(
    ("said", "answer"),
    [(" 124", "124"), (" 124\n\nQ: What", "124"), ("", ""), ("\n124", ""), (" 124.", "124.")],
)
def test_an_answer_is_read_up_to_the_stop(said: str, answer: str) -> None:
    assert DEFAULT_TEMPLATE.parse_answer(said) == answer


def test_after_a_reason_the_conclusion_is_read() -> None:
    thought = Example(
        "A dog and a cat have how many legs?", "8", "A dog has 4 legs, a cat has 4. 4 + 4 = 8."
    )
    solved = DEFAULT_TEMPLATE.solved_example(thought)
    assert solved.endswith("A: A dog has 4 legs, a cat has 4. 4 + 4 = 8. The answer is 8")
    assert DEFAULT_TEMPLATE.parse_answer(solved.partition("\nA:")[2] + ".\n\nQ:") == "8"


def test_what_is_written_is_scored_by_exact_match() -> None:
    answers = {example.question: example.answer for example in POOL}

    def complete(texts: list[str]) -> list[str]:
        """Right where the sum is below five."""
        right = [answers[text.rpartition("Q: ")[2].removesuffix("\nA:")] for text in texts]
        return [f" {one if int(one) < 5 else '5 perhaps'}\n" for one in right]

    said = complete_prompts(complete, POOL, POOL, 3)
    assert dict(exact_match(said, POOL)) == {
        "exact_match": sum(int(example.answer) < 5 for example in POOL) / 36
    }


def test_a_custom_template_formats_the_prompt() -> None:
    lines = Template(question="{}", answer=" is", between=", ", stop=",")
    assert (
        lines.prompt([Example("Cherry", "red"), Example("lettuce", "green")], "lemon")
        == "Cherry is red, lettuce is green, lemon is"
    )
    assert lines.parse_answer(" yellow, and orange is blue.") == "yellow"


# Choices


def test_an_answer_starts_at_its_own_token(tokenizer: Tokenizer) -> None:
    for prompt, example in zip(build_prompts(POOL, POOL, 2), POOL, strict=True):
        ids, first = encode_continuation(tokenizer, prompt, " " + example.answer)
        assert tokenizer.decode(ids[:first]) == prompt
        assert tokenizer.decode(ids[first:]) == " " + example.answer


def test_what_the_tokenizers_file_puts_before_a_text_stands_before_a_prompt(
    tokenizer: Tokenizer,
) -> None:
    inner = Tokenizer(tokenizer.text).inner
    inner.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.special["bos"])]
    )
    ids, first = encode_continuation(tokenizer, "Q:", " yes")
    assert encode_continuation(Tokenizer(inner.to_str()), "Q:", " yes") == (
        [tokenizer.special["bos"], *ids],
        first + 1,
    )


def test_where_a_piece_spans_prompt_and_answer_it_is_the_answers() -> None:
    pieces = fit_tokenizer(R.ByteBPE(vocab_size=300), lambda: TEXT)
    ids, first = encode_continuation(pieces, "Q: Wh", "at is")
    assert pieces.decode(ids[:first]) == "Q:"
    assert pieces.decode(ids[first:]) == " What is"


@pytest.fixture(scope="module")
def model() -> weft.Model:
    return weft.build(
        weft.llama(depth=2, width=32, heads=2, kv_heads=1, hidden=48, vocab_size=512, tied=True)
    ).eval()


def test_likelihoods_are_those_of_each_row_read_alone(model: weft.Model) -> None:
    pieces = fit_tokenizer(R.ByteTokenizer(), lambda: TEXT)
    rows = [
        encode_continuation(pieces, text, " " + example.answer)
        for text, example in zip(build_prompts(POOL, POOL, 1), POOL, strict=True)
    ]
    rows += [encode_continuation(pieces, "Q:", " a longer answer than others")]
    for (ids, first), found in zip(rows, likelihoods(model, rows, batch=5), strict=True):
        alone = F.log_softmax(model(torch.tensor([ids])), -1)[0, first - 1 : -1].gather(
            1, torch.tensor(ids[first:])[:, None]
        )[:, 0]
        assert len(found) == len(ids) - first > 0
        torch.testing.assert_close(torch.tensor(found), alone.detach(), rtol=1e-5, atol=1e-5)


def test_choices_are_weighed_by_the_whole_of_their_text(
    model: weft.Model, tokenizer: Tokenizer
) -> None:
    asked = build_prompts(POOL, POOL[:6], 1)
    choices = [["1", "12", "1 2 3"][: 2 + i % 2] for i in range(6)]
    scores, lengths = choice_likelihoods(model, tokenizer, asked, choices)
    for prompt, some, own, sizes in zip(asked, choices, scores, lengths, strict=True):
        rows = [encode_continuation(tokenizer, prompt, " " + one) for one in some]
        assert own == pytest.approx([sum(row) for row in likelihoods(model, rows)], rel=1e-5)
        assert sizes == [len(tokenizer.encode(" " + one)) for one in some]
    best = [row.index(max(row)) for row in scores]
    assert dict(multiple_choice_accuracy(scores, best, lengths))["accuracy"] == 1.0
