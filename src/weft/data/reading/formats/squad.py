"""SQuAD: questions about paragraphs, their answers as spans."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ....recipe import Source
from ....recipe.data.formats import BadRow, SourceItem, SourceRow, Span
from ..files import find
from ..quarantine import MAX_BAD_ROWS, bad_row_entry, check_bad_row_limit
from .base import ENDLESS, WHOLE, FileFormat, stretch
from .json_cursor import JSONCursor, describe_missing_key
from .lines import full_lines


class SQuADFormat(FileFormat):
    """Versions 1.1 and 2.0. A row is a question with its first answer, as characters `begin` to
    `end` of the context."""

    name = "squad"
    suffixes = (".json",)
    offset_unit = "row"

    def sniff(self, head: bytes, path: str) -> float:
        lines = full_lines(head)
        is_object = bool(lines) and lines[0].lstrip().startswith("{")
        return 0.9 if is_object and any('"paragraphs"' in line for line in lines) else 0.0

    def rows(
        self, path: str, span: Span, source: Source, columns: tuple[str, ...]
    ) -> Iterator[SourceItem]:
        return read_squad(path, source.fraction)


class Question(NamedTuple):
    number: int  # counted over the file
    id: str
    question: str
    context: str
    answers: tuple[str, ...]  # none: it cannot be answered from this context
    starts: tuple[int, ...]  # where each answer starts in the context


def iterate_questions(
    path: str, fraction: tuple[float, float] = WHOLE
) -> Iterator[Question | BadRow]:
    """Yield the questions of a fraction of the articles, so that no text is in two parts."""
    articles = stretch(count_articles(path), fraction) if fraction != WHOLE else (0, ENDLESS)
    number = 0
    for article, cursor in iterate_articles(path):
        for paragraph in read_paragraphs(cursor):
            for question in paragraph_questions(number, article, paragraph):
                number += 1
                if article in range(*articles):
                    yield question


def count_articles(path: str) -> int:
    count = 0
    for article, cursor in iterate_articles(path):
        cursor.value()
        count = article + 1
    return count


def iterate_articles(path: str) -> Iterator[tuple[int, JSONCursor]]:
    """Yield the index of each article, with a cursor at it; the caller reads the article."""
    cursor = JSONCursor(path)
    has_articles = False
    for _ in cursor.arrays("data"):
        has_articles = True
        for article in cursor.elements():
            yield article, cursor
    if not has_articles:
        raise ValueError(
            f'{path} is not in SQuAD\'s format: it has no list "data"; give a file such as '
            "train-v2.0.json"
        )
    cursor.end()


def read_paragraphs(cursor: JSONCursor) -> Iterator[Any]:
    """Yield the paragraphs of the article at the cursor, a BadRow if it has none."""
    reason = "there is no list 'paragraphs'"
    if cursor.peek() != "{":
        reason = "the article is not an object"
    for _ in cursor.arrays("paragraphs"):
        reason = ""
        for _ in cursor.elements():
            yield cursor.value()
    if reason:
        yield BadRow(0, reason)


def paragraph_questions(number: int, article: int, paragraph: Any) -> Iterator[Question | BadRow]:
    """Yield the questions of a paragraph, numbered from `number`."""
    if isinstance(paragraph, BadRow):
        reason: str | None = paragraph.reason
    else:
        reason = describe_missing_key(paragraph, {"context": str, "qas": list})
    if reason:
        yield BadRow(number, f"{reason} in article {article}, at question {number}")
        return
    for i, question in enumerate(paragraph["qas"], number):
        reason = describe_wrong_question(question)
        if reason:
            yield BadRow(i, f"{reason} in article {article}, at question {i}")
        else:
            yield read_question(i, question, paragraph["context"])


def describe_wrong_question(question: Any) -> str | None:
    """Return why a question cannot be read, if it cannot."""
    reason = describe_missing_key(question, {"id": str | int, "question": str})
    if reason:
        return reason
    answers = answers_of(question)
    if not isinstance(answers, list):
        return "answers is not a list"
    wrong = (describe_missing_key(answer, {"text": str, "answer_start": int}) for answer in answers)
    return next(filter(None, wrong), None)


def answers_of(question: dict[str, Any]) -> Any:
    return [] if question.get("is_impossible") else question.get("answers") or []


def read_question(number: int, question: dict[str, Any], context: str) -> Question:
    answers = answers_of(question)
    return Question(
        number,
        str(question["id"]),
        question["question"],
        context,
        tuple(answer["text"] for answer in answers),
        tuple(answer["answer_start"] for answer in answers),
    )


def read_squad(path: str, fraction: tuple[float, float]) -> Iterator[SourceItem]:
    """Yield one row per question, with its first answer."""
    for question in iterate_questions(path, fraction):
        yield question if isinstance(question, BadRow) else squad_row(question)


def squad_row(question: Question) -> SourceItem:
    """Return a question with its first answer; one that starts elsewhere is searched for."""
    context = question.context
    answer = question.answers[0] if question.answers else ""
    begin = -1
    end = -1
    if answer:
        begin = question.starts[0]
        if begin < 0 or not context.startswith(answer, begin):
            begin = context.find(answer)
        end = begin + len(answer)
        if begin < 0:
            reason = f"the answer {answer[:40]!r} is not in the context"
            return BadRow(question.number, reason)
    fields = {
        "id": question.id,
        "question": question.question,
        "context": context,
        "answer_start": begin,
        "answer_end": end,
    }
    return SourceRow(question.number, fields)


def read_questions(
    path: str, fraction: tuple[float, float] = WHOLE, max_bad_rows: float = MAX_BAD_ROWS
) -> list[Question]:
    """Return all questions with all their answers; bad ones are skipped by the rule of `weft
    prepare`."""
    questions = list[Question]()
    bad = list[dict[str, object]]()
    for question in iterate_questions(find(path)[0], fraction):
        if isinstance(question, BadRow):
            bad.append(bad_row_entry(question, question, path, "squad"))
        else:
            questions.append(question)
    check_bad_row_limit(len(questions), bad, max_bad_rows)
    return questions


SQUAD = SQuADFormat()
