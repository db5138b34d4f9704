"""In-context learning: prompts of solved examples and a question, without training (Brown et al.
2020, arXiv:2005.14165, section 2)."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from ..data.tokenizing.tokenizer import Tokenizer
from ..nn.model import Model
from ..tasks.base import logits_at

CompleteFunction = Callable[[list[str]], list[str]]  # returns the greedy completion of each prompt


class Example(NamedTuple):
    question: str
    answer: str
    reason: str = ""  # text before the answer: chain of thought (Wei et al. 2022, arXiv:2201.11903)


class Template(NamedTuple):
    """The format of an example. The space before an answer belongs to the answer, since byte-level
    tokens start with it."""

    question: str = "Q: {}"
    answer: str = "\nA:"
    therefore: str = " The answer is"
    between: str = "\n\n"
    stop: str = "\n"

    def question_prompt(self, question: str) -> str:
        return self.question.format(question) + self.answer

    def solved_example(self, example: Example) -> str:
        reason = f" {example.reason}{self.therefore}" if example.reason else ""
        return f"{self.question_prompt(example.question)}{reason} {example.answer}"

    def prompt(self, examples: Sequence[Example], question: str) -> str:
        """Return the prompt up to the start of the answer."""
        return self.between.join(
            [*map(self.solved_example, examples), self.question_prompt(question)]
        )

    def parse_answer(self, text: str) -> str:
        """Return the answer in a completion: the text before the stop string and, with a reason,
        after the conclusion."""
        parts = text.partition(self.stop)[0].rpartition(self.therefore)
        return parts[2].strip().removesuffix("." if parts[1] else "")


DEFAULT_TEMPLATE = Template()


def sample_examples(
    pool: Sequence[Example], question: str, count: int, seed: int = 0
) -> list[Example]:
    """Return random examples for a question, excluding the question: a pure function of seed and
    question."""
    others = [example for example in dict.fromkeys(pool) if example.question != question]
    if count > len(others):
        raise ValueError(
            f"the prompt needs {count} examples, but the pool has {len(others)} besides the "
            "question; give a larger table with --examples"
        )
    return Random(f"{seed}/{question}").sample(others, count)


def build_prompts(
    pool: Sequence[Example],
    questions: Sequence[Example],
    count: int,
    template: Template = DEFAULT_TEMPLATE,
    seed: int = 0,
) -> list[str]:
    return [
        template.prompt(sample_examples(pool, example.question, count, seed), example.question)
        for example in questions
    ]


def complete_prompts(
    complete: CompleteFunction,
    pool: Sequence[Example],
    questions: Sequence[Example],
    count: int,
    template: Template = DEFAULT_TEMPLATE,
    seed: int = 0,
) -> list[str]:
    """Return the model's answer to each question after `count` examples."""
    return [
        template.parse_answer(predictions)
        for predictions in complete(build_prompts(pool, questions, count, template, seed))
    ]


def exact_match(
    answers: Sequence[str], questions: Sequence[Example]
) -> Iterator[tuple[str, float]]:
    yield (
        "exact_match",
        float(
            np.mean(
                [
                    predictions == example.answer
                    for predictions, example in zip(answers, questions, strict=True)
                ]
            )
        ),
    )


# Choices by likelihood (section 2.4)


def encode_continuation(tokenizer: Tokenizer, prompt: str, answer: str) -> tuple[list[int], int]:
    """Return the tokens of prompt and answer after the tokenizer's special tokens, and the index of
    the first token that differs from the prompt's, where scoring starts."""
    whole, alone = (
        [*tokenizer.special_frame()[0], *tokenizer.encode(text).tolist()]
        for text in (prompt + answer, prompt)
    )
    same = (i for i, (a, b) in enumerate(zip(whole, alone, strict=False)) if a != b)
    return whole, next(same, min(len(whole), len(alone)))


@torch.inference_mode()
def likelihoods(
    model: Model, rows: Sequence[tuple[list[int], int]], batch: int = 16
) -> list[list[float]]:
    """Return the log-likelihoods of the tokens from the given index of each row; rows of similar
    length share a batch."""
    likelihoods: list[list[float]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
    device = next(model.parameters()).device
    for some in (order[i : i + batch] for i in range(0, len(order), batch)):
        longest = max(len(rows[i][0]) for i in some) - 1
        ids_BL = torch.zeros(len(some), longest, dtype=torch.long)
        at = list[int]()
        labels = list[int]()
        mask_BL = torch.zeros(len(some), longest, dtype=torch.bool)
        for n, i in enumerate(some):
            tokens, first = rows[i]
            assert first > 0, "an answer has a prompt"
            ids_BL[n, : len(tokens) - 1] = torch.tensor(tokens[:-1])
            mask_BL[n, : len(tokens) - 1] = True
            at += range(n * longest + first - 1, n * longest + len(tokens) - 1)
            labels += tokens[first:]
        sequence = model.decode(model.embed(ids_BL.to(device), attention_mask=mask_BL.to(device)))
        logits_TV = logits_at(model, sequence, torch.tensor(at, device=device)).float()
        scores = iter(
            (
                -F.cross_entropy(logits_TV, torch.tensor(labels, device=device), reduction="none")
            ).tolist()
        )
        for i in some:
            likelihoods[i] = [next(scores) for _ in rows[i][0][rows[i][1] :]]
    return likelihoods


def choice_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    questions: Sequence[str],
    choices: Sequence[Sequence[str]],
    batch: int = 16,
) -> tuple[list[list[float]], list[list[int]]]:
    """Return the log-likelihood of each choice after its prompt, and its number of tokens, for
    `multiple_choice_accuracy`."""
    rows = [
        encode_continuation(tokenizer, prompt, " " + choice)
        for prompt, some in zip(questions, choices, strict=True)
        for choice in some
    ]
    token_likelihoods = iter(likelihoods(model, rows, batch))
    each = [[next(token_likelihoods) for _ in some] for some in choices]
    return [[sum(one) for one in some] for some in each], [
        [len(one) for one in some] for some in each
    ]
