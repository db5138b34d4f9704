"""Questions with all their answers, from a file of SQuAD's; and how well a model answers them."""
from typing import NamedTuple

from ..data import squad
from ..data.files import find
from ..data.lines import Bad
from ..data.quarantine import MAX_BAD_ROWS, enforce, entry


class Question(NamedTuple):
    id: str
    question: str
    context: str
    answers: tuple[str, ...]               # none: it cannot be answered from this context


def squad_rows(path: str, part: tuple[float, float] = (0.0, 1.0), max_bad_rows: float = MAX_BAD_ROWS) -> list[Question]:
    """Versions 1.1 and 2.0; parts are counted in articles, as `data.squad` does, and bad questions are set aside by its rule."""
    found, bad = list[Question](), list[dict[str, object]]()
    for held in squad.questions(find(path)[0], part):
        if isinstance(held, Bad):
            bad.append(entry(held, held, path, "squad"))
        else:
            found.append(Question(held.id, held.question, held.context, tuple(text for text, _ in held.answers)))
    enforce(len(found), bad, max_bad_rows)
    return found
