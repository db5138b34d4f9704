"""SQuAD's JSON, versions 1.1 and 2.0 (arXiv:1806.03822), read paragraph by paragraph; what is not a question is set aside by itself."""
from collections.abc import Iterator
from typing import Any, NamedTuple

from .json_cursor import Cursor
from .lines import WHOLE, Bad, Found, Item, stretch


class Question(NamedTuple):
    number: int                            # counted over the file
    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...]   # texts and where they start; none: it cannot be answered from this context


def questions(path: str, part: tuple[float, float] = WHOLE) -> Iterator[Question | Bad]:
    """Parts are counted in articles, so that no text is on both sides."""
    begin, end = (0, None) if part == WHOLE else stretch(count_articles(path), part)
    number = 0
    for article, paragraph in paragraphs(path):
        for found in asked(number, article, paragraph):
            number += 1
            if begin <= article and (end is None or article < end):
                yield found


def paragraphs(path: str) -> Iterator[tuple[int, Any]]:
    """Each paragraph with the number of its article, a Bad for an article that has none."""
    for article, cursor in places(path):
        yield from ((article, paragraph) for paragraph in within(cursor))


def count_articles(path: str) -> int:
    return sum(1 + sum(0 for _ in within(cursor)) for _, cursor in places(path))


def articles(path: str) -> Iterator[Any]:
    """Each article as it stands in the file."""
    return (cursor.value() for _, cursor in places(path))


def places(path: str) -> Iterator[tuple[int, Cursor]]:
    """A cursor at each article, which the caller reads, with its number."""
    cursor, listed = Cursor(path), False
    for name in cursor.members() if cursor.peek() == "{" else ():
        if name != "data" or cursor.peek() != "[":
            cursor.value()
            continue
        listed = True
        for article in cursor.elements():
            yield article, cursor
    if not listed:
        raise ValueError(f"{path} is not SQuAD's JSON: it has no list \"data\"")
    cursor.end()


def within(cursor: Cursor) -> Iterator[Any]:
    """The paragraphs of the article at which the cursor stands."""
    if cursor.peek() != "{":
        cursor.value()
        yield Bad(0, "the article is not an object")
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
        yield Bad(0, "there is no list 'paragraphs'")


def asked(number: int, article: int, paragraph: Any) -> Iterator[Question | Bad]:
    """The questions of a paragraph."""
    where = f" in article {article}, at question "
    reason = paragraph.reason if isinstance(paragraph, Bad) else lack(paragraph, {"context": str, "qas": list})
    if reason:
        yield Bad(number, f"{reason}{where}{number}")
        return
    for i, held in enumerate(paragraph["qas"], number):
        reason = lack(held, {"id": str | int, "question": str})
        answers = [] if reason or held.get("is_impossible") else held.get("answers") or []
        if not isinstance(answers, list):
            reason = "answers is not a list"
        reason = reason or next(filter(None, (lack(answer, {"text": str, "answer_start": int}) for answer in answers)), None)
        yield Bad(i, f"{reason}{where}{i}") if reason else Question(
            i, str(held["id"]), held["question"], paragraph["context"], tuple((a["text"], a["answer_start"]) for a in answers))


def lack(held: Any, fields: dict[str, Any]) -> str | None:
    """What an object lacks, if it does."""
    if not isinstance(held, dict):
        return f"{str(held)[:40]!r} is not an object"
    missing = next((name for name in fields if name not in held), None)
    if missing:
        return f"there is no {missing!r}"
    wrong = next((name for name, kind in fields.items() if not isinstance(held[name], kind)), None)
    return f"{wrong} is {type(held[wrong]).__name__}" if wrong else None


def squad(path: str, part: tuple[float, float]) -> Iterator[Item]:
    """A row per question, with its first answer."""
    for held in questions(path, part):
        yield held if isinstance(held, Bad) else row(held)


def row(held: Question) -> Item:
    context, (answer, place) = held.context, held.answers[0] if held.answers else ("", -1)
    if answer and (place < 0 or context[place:place + len(answer)] != answer):
        place = context.find(answer)
        if place < 0:
            return Bad(held.number, f"the answer {answer[:40]!r} is not in the context")
    return Found(held.number, {"id": held.id, "question": held.question, "context": context, "begin": place if answer else -1,
                               "end": place + len(answer) if answer else -1})
