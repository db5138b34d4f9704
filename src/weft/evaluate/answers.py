"""Questions with all their answers, from a file of SQuAD's; and how well a model answers them."""
from collections.abc import Iterator
from typing import NamedTuple

from ..data.files import find
from ..data.records import WRONG, lacks, load_json, stretch


class Question(NamedTuple):
    id: str
    question: str
    context: str
    answers: tuple[str, ...]               # none: it cannot be answered from this context


def squad_rows(path: str, part: tuple[float, float] = (0.0, 1.0)) -> list[Question]:
    """Versions 1.1 and 2.0; parts are counted in articles, as `data.records` does."""
    held = load_json(find(path)[0])
    if not isinstance(held, dict) or not isinstance(held.get("data"), list):
        raise ValueError(f"{path} is not SQuAD's JSON: it has no list \"data\"")
    begin, end = stretch(len(held["data"]), part)
    try:
        return list(read(held["data"][begin:end]))
    except WRONG as error:
        raise ValueError(f"{path} is not SQuAD's JSON: {lacks(error)}") from None


def read(articles: list[dict[str, list[dict[str, object]]]]) -> Iterator[Question]:
    for article in articles:
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:             # type: ignore[attr-defined]
                answers = () if asked.get("is_impossible") else tuple(answer["text"] for answer in asked.get("answers", []))
                yield Question(str(asked["id"]), asked["question"], str(paragraph["context"]), answers)
