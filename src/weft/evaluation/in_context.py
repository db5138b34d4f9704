"""In-context evaluation of a language model: questions after 0, 1 or more solved examples, without
training (Brown et al. 2020, arXiv:2005.14165, section 2), on a table of questions and answers or on
GPT-3's arithmetic tasks (section 3.9.1)."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .. import spec as S
from ..data.batches.batching import slice_of_rank
from ..data.reading.column_names import check_columns_exist, find_column, require_column
from ..data.reading.columns import infer_text_columns
from ..data.reading.inputs import open_input
from ..data.reading.quarantine import MAX_BAD_ROWS
from ..data.reading.table import Table
from ..generate.session import max_positions
from ..generate.text_generator import Progress, TextGenerator
from ..metrics.classification import multiple_choice_accuracy
from ..nn.loaded_model import LoadedModel
from ..recipe.data.formats import BadRow, Fields, SourceRow
from ..tasks.predict import PredictOptions, gather_predictions
from .arithmetic import TASKS, problems
from .few_shot import DEFAULT_TEMPLATE, Example, build_prompts, choice_likelihoods, exact_match

QUESTION = ("question", "prompt", "input", "source", "problem", "text", "sentence")
ANSWER = ("answer", "target", "output", "completion", "label", "class", "category", "sentiment")
REASON = ("reason", "rationale", "explanation")
CLASSES = 20  # maximum distinct answers of a choice; more are free text
POOL = 500  # arithmetic problems for examples, disjoint from the questions
MAX_REASONING_TOKENS = 128  # tokens of an answer with a reason


@dataclass(frozen=True)
class QuestionSet:
    """Questions, the pool of examples, and the choices; without choices, the model generates the
    answer."""

    name: str
    questions: list[Example]
    pool: list[Example]
    choices: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self.questions, self.pool, self.choices)).encode()).hexdigest()


class InContextScore(NamedTuple):
    questions: str  # name of the question set
    shots: int
    metric: str
    value: float


# Question sets


def arithmetic(count: int, seed: int = 0) -> list[QuestionSet]:
    """Return the ten tasks of table 3.9; questions and examples share no problem."""
    return [
        QuestionSet(task, problems(task, count, seed), problems(task, POOL, seed, held_out=False))
        for task in TASKS
    ]


def few_shot(
    path: str,
    examples: str | None = None,
    *,
    columns: Sequence[str] = (),
    names: Sequence[str] = (),
    label_words: Sequence[str] = (),
    count: int | None = None,
    max_bad_rows: float = MAX_BAD_ROWS,
    report: Callable[[str], None] = print,
) -> QuestionSet:
    """Return the rows of a table as questions; the examples are its other rows, or rows of another
    table. Bad rows are skipped as usual."""
    table = open_input(path, columns, names, max_bad_rows=max_bad_rows)
    columns_found = question_columns(table.require_rows(), columns)
    questions = solved(table, columns_found, report)
    pool = questions
    if examples is not None:
        others = open_input(examples, columns, names, max_bad_rows=max_bad_rows)
        pool = solved(others, columns_found, report)
    answers = sorted({one.answer for one in (*questions, *pool)})
    if not label_words and (
        len(answers) > min(CLASSES, len(questions) // 2) or any(one.reason for one in pool)
    ):
        return QuestionSet(path, questions[:count], pool)
    if label_words and len(label_words) != len(answers):
        raise ValueError(
            f"--label-texts: {len(label_words)} texts for the {len(answers)} values of "
            f"{columns_found[1]!r} ({', '.join(answers[:20])})"
        )
    word = dict(zip(answers, label_words or answers, strict=True))
    questions, pool = (
        [one._replace(answer=word[one.answer]) for one in some] for some in (questions, pool)
    )
    return QuestionSet(path, questions[:count], pool, [word[name] for name in answers])


def question_columns(
    rows: Sequence[Fields], columns: Sequence[str]
) -> tuple[list[str], str, str | None]:
    """Return the columns of the question, of the answer, and of its reason or None."""
    fields = rows[0]
    check_columns_exist(fields, columns)
    if len(columns) == 1:
        raise ValueError(
            f"--columns {columns[0]}: give the question columns, then the answer column"
        )
    reason = find_column(fields, REASON, columns)
    if columns:
        return list(columns[:-1]), columns[-1], reason
    answer = require_column(fields, find_column(fields, ANSWER), "answer")
    question = find_column(fields, QUESTION, [answer]) or next(
        iter(infer_text_columns(rows, [answer, reason])), None
    )
    return [require_column(fields, question, "question")], answer, reason


def solved(
    table: Table, columns: tuple[list[str], str, str | None], report: Callable[[str], None]
) -> list[Example]:
    """Return the rows as examples, without unusable ones."""
    question, answer, _ = columns
    usable = table.usable_by(lambda item: empty_cell(item, (*question, answer)))
    for note in usable.notes():
        report(note)
    return [example(item.fields, *columns) for item in usable.rows]


def empty_cell(item: SourceRow, columns: Sequence[str]) -> BadRow | None:
    """Return a bad row that names the first empty column, or None."""
    for name in columns:
        if item.fields.get(name) is None or not str(item.fields[name]).strip():
            return BadRow(item.offset, f"empty {name}")
    return None


def example(row: Fields, question: Sequence[str], answer: str, reason: str | None) -> Example:
    """Return a row as an example; several columns become lines that start with the column name."""
    question_text = (
        str(row[question[0]])
        if len(question) == 1
        else "\n".join(f"{name}: {row[name]}" for name in question)
    )
    return Example(
        question_text.strip(),
        str(row[answer]).strip(),
        str(row.get(reason) or "").strip() if reason else "",
    )


# Scores


def evaluate_in_context(
    model: LoadedModel,
    questions: Sequence[QuestionSet],
    shots: Sequence[int],
    *,
    seed: int = 0,
    options: PredictOptions = PredictOptions(),
    progress: Progress | None = None,
) -> Iterator[InContextScore]:
    """Yield one score per question set and number of examples; with choices, also the score by
    likelihood per token."""
    s = model.model.spec
    if s.encoder is not None or not isinstance(s.head, S.LMHead):
        raise ValueError(
            f"{model.name} is not a decoder with a language modelling head, which in-context "
            "evaluation needs; give a language model such as gpt2"
        )
    writer = TextGenerator(model)
    total = sum(map(len, questions)) * len(shots)
    done = 0
    for question_set in questions:
        for count in shots:
            prompts = build_prompts(question_set.pool, question_set.questions, count, seed=seed)
            check_prompt_length(writer, prompts, question_set, count)
            metrics = (
                choose_by_likelihood(model, question_set, prompts, options)
                if question_set.choices
                else generate_answers(writer, question_set, prompts, options)
            )
            yield from (
                InContextScore(question_set.name, count, metric, value) for metric, value in metrics
            )
            done += len(question_set)
            if progress is not None:
                progress(done, total)


def longest_answer(writer: TextGenerator, question_set: QuestionSet) -> int:
    """Return the maximum number of tokens of an answer, including the end of its line."""
    if any(one.reason for one in question_set.pool):
        return MAX_REASONING_TOKENS
    return (
        max(
            len(writer.tokenizer.encode(" " + one.answer))
            for one in (*question_set.questions, *question_set.pool)
        )
        + 2
    )


def check_prompt_length(
    writer: TextGenerator, prompts: Sequence[str], question_set: QuestionSet, count: int
) -> None:
    room = max_positions(writer.model) or writer.model.spec.context_length
    need_ = max(len(writer.encode_prompt(prompt)) for prompt in prompts) + longest_answer(
        writer, question_set
    )
    if room is not None and need_ > room:
        raise ValueError(
            f"{question_set.name}: a prompt with {count} examples and its answer has {need_} "
            f"tokens, but the model reads at most {room}; "
            "give smaller numbers with --shots"
        )


def choose_by_likelihood(
    model: LoadedModel, question_set: QuestionSet, prompts: Sequence[str], options: PredictOptions
) -> Iterator[tuple[str, float]]:
    assert question_set.choices is not None
    rank_indices = slice_of_rank(range(len(prompts)), options.ranks.rank, options.ranks.size)
    scores, lengths = choice_likelihoods(
        model.model,
        model.require_tokenizer,
        [prompts[i] for i in rank_indices],
        [question_set.choices] * len(rank_indices),
        options.batch_size,
    )
    every = dict(
        gather_predictions(
            list(zip(rank_indices, zip(scores, lengths, strict=True), strict=True)), options.ranks
        )
    )
    references = [question_set.choices.index(one.answer) for one in question_set.questions]
    yield from multiple_choice_accuracy(
        [every[i][0] for i in range(len(prompts))],
        references,
        [every[i][1] for i in range(len(prompts))],
    )


def generate_answers(
    writer: TextGenerator,
    question_set: QuestionSet,
    prompts: Sequence[str],
    options: PredictOptions,
) -> Iterator[tuple[str, float]]:
    rank_indices = slice_of_rank(range(len(prompts)), options.ranks.rank, options.ranks.size)
    predictions = writer.complete(
        [prompts[i] for i in rank_indices],
        max_new_tokens=longest_answer(writer, question_set),
        stop_strings=(DEFAULT_TEMPLATE.stop,),
        batch_size=options.batch_size,
    )
    every = dict(
        gather_predictions(list(zip(rank_indices, predictions, strict=True)), options.ranks)
    )
    yield from (
        ("exact_match", value)
        for _, value in exact_match(
            [DEFAULT_TEMPLATE.parse_answer(every[i]) for i in range(len(prompts))],
            question_set.questions,
        )
    )
