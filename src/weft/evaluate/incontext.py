"""In-context evaluation of a language model: questions after 0, 1 or more solved examples, nothing is trained (Brown et al. 2020,
arXiv:2005.14165, section 2), on a table of questions and answers or on GPT-3's arithmetic tasks (section 3.9.1)."""
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import spec as S
from ..data.columns import Fields, given, need, pick, texts_of
from ..data.lines import Bad, Found
from ..data.load import Entries, items_of, settle_bad
from ..data.plan import share
from ..data.quarantine import MAX_BAD_ROWS, enforce, entry
from ..generate.reading import positions
from ..generate.text import Writer
from .arithmetic import TASKS, problems
from .ask import Known
from .choice import choice
from .predict import How, gather
from .shots import PLAIN, Example, exact, prompts, weigh

QUESTION = ("question", "prompt", "input", "source", "problem", "text", "sentence")
ANSWER = ("answer", "target", "output", "completion", "label", "class", "category", "sentiment")
REASON = ("reason", "rationale", "explanation")
CLASSES = 20                               # answers with more different values than this are free text
POOL = 500                                 # arithmetic problems that the examples are drawn from; none of them is asked
THOUGHT = 128                              # tokens of an answer that gives its reasons first

Progress = Callable[[int, int], None]


class Questions:
    """What is asked, what the examples are drawn from, and the answers to choose from; without these, the model writes one."""

    def __init__(self, name: str, asked: Sequence[Example], pool: Sequence[Example], choices: Sequence[str] | None = None) -> None:
        self.name, self.asked, self.pool, self.choices = name, list(asked), list(pool), choices

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self.asked, self.pool, self.choices)).encode()).hexdigest()


class Score(NamedTuple):
    questions: str                         # whose
    shots: int
    metric: str
    value: float


# Which questions

def arithmetic(count: int, seed: int = 0) -> list[Questions]:
    """The ten tasks of table 3.9; questions and examples never share a problem."""
    return [Questions(task, problems(task, count, seed), problems(task, POOL, seed, held=False)) for task in TASKS]


def few_shot(path: str, examples: str | None = None, *, columns: Sequence[str] = (), names: Sequence[str] = (),
             label_words: Sequence[str] = (), count: int | None = None, max_bad_rows: float = MAX_BAD_ROWS,
             say: Callable[[str], None] = print) -> Questions:
    """Rows of a table as questions; examples come from its other rows, or from another table. Bad rows are set aside by the one rule."""
    items = items_of(path, names)
    if not items[0]:
        enforce(0, items[1], max_bad_rows)
        raise ValueError(f"{path} holds no row; give a table with questions and answers")
    asked = columns_of([item.fields for item in items[0]], columns)
    own = solved(*items, asked, max_bad_rows, say)
    pool = own if examples is None else solved(*items_of(examples, names), asked, max_bad_rows, say)
    known = sorted({one.answer for one in (*own, *pool)})
    if not label_words and (len(known) > min(CLASSES, len(own) // 2) or any(one.reason for one in pool)):
        return Questions(path, own[:count], pool)
    if label_words and len(label_words) != len(known):
        raise ValueError(f"--label-words: {len(label_words)} words for the {len(known)} values of {asked[1]!r} ({', '.join(known[:20])})")
    word = dict(zip(known, label_words or known, strict=True))
    own, pool = ([one._replace(answer=word[one.answer]) for one in some] for some in (own, pool))
    return Questions(path, own[:count], pool, [word[name] for name in known])


def columns_of(rows: Sequence[Fields], columns: Sequence[str]) -> tuple[list[str], str, str | None]:
    """The columns of the question, of the answer, and of the reasons for it, if there is one."""
    fields = rows[0]
    given(fields, columns)
    if len(columns) == 1:
        raise ValueError(f"--columns {columns[0]}: give the columns of the question, then that of the answer")
    reason = pick(fields, REASON, columns)
    if columns:
        return list(columns[:-1]), columns[-1], reason
    answer = need(fields, pick(fields, ANSWER), "answer")
    question = pick(fields, QUESTION, [answer]) or next(iter(texts_of(rows, [answer, reason])), None)
    return [need(fields, question, "question")], answer, reason


def solved(found: list[Found], bad: Entries, asked: tuple[list[str], str, str | None], share: float,
           say: Callable[[str], None]) -> list[Example]:
    """The rows as examples, without those that are none."""
    good, wrong = list[Example](), Entries()
    for item in found:
        try:
            good.append(example(item.fields, *asked))
        except ValueError as error:
            wrong.append(entry(Bad(item.offset, str(error)), item, item.path or "", None))
    settle_bad(len(good), [*bad, *wrong], share, say)
    return good


def example(row: Fields, question: Sequence[str], answer: str, reason: str | None) -> Example:
    """Several columns are lines, each behind its name."""
    missing = next((name for name in (*question, answer) if row.get(name) is None or not str(row[name]).strip()), None)
    if missing is not None:
        raise ValueError(f"empty {missing}")
    asked = str(row[question[0]]) if len(question) == 1 else "\n".join(f"{name}: {row[name]}" for name in question)
    return Example(asked.strip(), str(row[answer]).strip(), str(row.get(reason) or "").strip() if reason else "")


# Scores

def in_context(ready: Known, questions: Sequence[Questions], shots: Sequence[int], *, seed: int = 0, how: How = How(),
               precision: Any = None, progress: Progress | None = None) -> Iterator[Score]:
    """One score for each set of questions and number of examples; of answers to choose from, also by the likelihood per token."""
    s = ready.model.spec
    if s.encoder is not None or not isinstance(s.head, S.Vocabulary):
        raise ValueError(f"{ready.name} is no language model: examples in a prompt need a decoder with a language modelling head")
    writer, total, done = Writer(ready, precision), sum(map(len, questions)) * len(shots), 0
    for own in questions:
        for count in shots:
            asked = prompts(own.pool, own.asked, count, seed=seed)
            fitting(writer, asked, own, count)
            found = chosen(ready, own, asked, how) if own.choices else written(writer, own, asked, how)
            yield from (Score(own.name, count, metric, value) for metric, value in found)
            done += len(own)
            if progress is not None:
                progress(done, total)


def longest_answer(writer: Writer, own: Questions) -> int:
    """Tokens that an answer may have: those of the longest, and the end of its line."""
    if any(one.reason for one in own.pool):
        return THOUGHT
    return max(len(writer.tokenizer.encode(" " + one.answer)) for one in (*own.asked, *own.pool)) + 2


def fitting(writer: Writer, asked: Sequence[str], own: Questions, count: int) -> None:
    room = positions(writer.model) or writer.model.spec.context
    need_ = max(len(writer.ids(prompt)) for prompt in asked) + longest_answer(writer, own)
    if room is not None and need_ > room:
        raise ValueError(f"{own.name}: a prompt with {count} examples and its answer has {need_} tokens, the model reads {room}; "
                         "give smaller numbers with --shots")


def chosen(ready: Known, own: Questions, asked: Sequence[str], how: How) -> Iterator[tuple[str, float]]:
    assert own.choices is not None
    mine = share(range(len(asked)), how.ranks.rank, how.ranks.size)
    scores, lengths = weigh(ready.model, ready.text, [asked[i] for i in mine], [own.choices] * len(mine), how.rows)
    every = dict(gather(list(zip(mine, zip(scores, lengths, strict=True), strict=True)), how.ranks))
    right = [own.choices.index(one.answer) for one in own.asked]
    yield from choice([every[i][0] for i in range(len(asked))], right, [every[i][1] for i in range(len(asked))])


def written(writer: Writer, own: Questions, asked: Sequence[str], how: How) -> Iterator[tuple[str, float]]:
    mine = share(range(len(asked)), how.ranks.rank, how.ranks.size)
    said = writer.complete([asked[i] for i in mine], most=longest_answer(writer, own), stops=(PLAIN.stop,), batch=how.rows)
    every = dict(gather(list(zip(mine, said, strict=True)), how.ranks))
    yield from (("exact match", value) for _, value in exact([PLAIN.read(every[i]) for i in range(len(asked))], own.asked))
