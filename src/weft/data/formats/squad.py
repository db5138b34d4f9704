"""SQuAD: questions about paragraphs, their answers as spans."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...recipe import Source
from ...recipe.formats import BadRow, SourceItem, SourceRow, Span
from ..files import find
from ..json_cursor import JSONCursor, describe_missing_key
from ..quarantine import MAX_BAD_ROWS, bad_row_entry, check_bad_row_limit
from .base import WHOLE, FileFormat, stretch
from .lines import full_lines


class SQuADFormat(FileFormat):
    """Versions 1.1 and 2.0. A row is a question with its first answer, as characters `begin` to `end` of the context."""

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
    begin, end = (0, None) if fraction == WHOLE else stretch(count_articles(path), fraction)
    number = 0
    for article, paragraph in iterate_paragraphs(path):
        for question in paragraph_questions(number, article, paragraph):
            number += 1
            if begin <= article and (end is None or article < end):
                yield question


def iterate_paragraphs(path: str) -> Iterator[tuple[int, Any]]:
    """Yield each paragraph with the index of its article, a BadRow for an article without any."""
    for article, cursor in iterate_positions(path):
        yield from ((article, paragraph) for paragraph in iterate_values(cursor))


def count_articles(path: str) -> int:
    return sum(1 + sum(0 for _ in iterate_values(cursor)) for _, cursor in iterate_positions(path))


def iterate_articles(path: str) -> Iterator[Any]:
    """Yield each article of the file."""
    return (cursor.value() for _, cursor in iterate_positions(path))


def iterate_positions(path: str) -> Iterator[tuple[int, JSONCursor]]:
    """Yield a cursor at each article, which the caller reads, with its index."""
    cursor, listed = JSONCursor(path), False
    for name in cursor.members() if cursor.peek() == "{" else ():
        if name != "data" or cursor.peek() != "[":
            cursor.value()
            continue
        listed = True
        for article in cursor.elements():
            yield article, cursor
    if not listed:
        raise ValueError(
            f'{path} is not SQuAD\'s JSON: it has no list "data"; give a file such as train-v2.0.json'
        )
    cursor.end()


def iterate_values(cursor: JSONCursor) -> Iterator[Any]:
    """Yield the paragraphs of the article at the cursor."""
    if cursor.peek() != "{":
        cursor.value()
        yield BadRow(0, "the article is not an object")
        return
    listed = False
    for name in cursor.members():
        if name == "paragraphs" and cursor.peek() == "[":
            listed = True
            for _ in cursor.elements():
                yield cursor.value()
        else:
            cursor.value()
    if not listed:
        yield BadRow(0, "there is no list 'paragraphs'")


def paragraph_questions(number: int, article: int, paragraph: Any) -> Iterator[Question | BadRow]:
    """Yield the questions of a paragraph."""
    where = f" in article {article}, at question "
    reason = (
        paragraph.reason
        if isinstance(paragraph, BadRow)
        else describe_missing_key(paragraph, {"context": str, "qas": list})
    )
    if reason:
        yield BadRow(number, f"{reason}{where}{number}")
        return
    for i, question in enumerate(paragraph["qas"], number):
        reason = describe_missing_key(question, {"id": str | int, "question": str})
        answers = [] if reason or question.get("is_impossible") else question.get("answers") or []
        if not isinstance(answers, list):
            reason = "answers is not a list"
        reason = reason or next(
            filter(
                None,
                (
                    describe_missing_key(answer, {"text": str, "answer_start": int})
                    for answer in answers
                ),
            ),
            None,
        )
        yield (
            BadRow(i, f"{reason}{where}{i}")
            if reason
            else Question(
                i,
                str(question["id"]),
                question["question"],
                paragraph["context"],
                tuple(answer["text"] for answer in answers),
                tuple(answer["answer_start"] for answer in answers),
            )
        )


def read_squad(path: str, fraction: tuple[float, float]) -> Iterator[SourceItem]:
    """Yield one row per question, with its first answer."""
    for question in iterate_questions(path, fraction):
        yield question if isinstance(question, BadRow) else squad_row(question)


def squad_row(question: Question) -> SourceItem:
    context = question.context
    answer, place = (question.answers[0], question.starts[0]) if question.answers else ("", -1)
    if answer and (place < 0 or context[place : place + len(answer)] != answer):
        place = context.find(answer)
        if place < 0:
            return BadRow(question.number, f"the answer {answer[:40]!r} is not in the context")
    return SourceRow(
        question.number,
        {
            "id": question.id,
            "question": question.question,
            "context": context,
            "answer_start": place if answer else -1,
            "answer_end": place + len(answer) if answer else -1,
        },
    )


def read_questions(
    path: str, fraction: tuple[float, float] = (0.0, 1.0), max_bad_rows: float = MAX_BAD_ROWS
) -> list[Question]:
    """Return all questions with all their answers; bad ones are skipped by the rule of `weft prepare`."""
    questions, bad = list[Question](), list[dict[str, object]]()
    for question in iterate_questions(find(path)[0], fraction):
        if isinstance(question, BadRow):
            bad.append(bad_row_entry(question, question, path, "squad"))
        else:
            questions.append(question)
    check_bad_row_limit(len(questions), bad, max_bad_rows)
    return questions


SQUAD = SQuADFormat()
