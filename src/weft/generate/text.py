"""Text in, text out: what surrounds the tokens of a prompt, what starts a decoder, what ends an answer."""
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from .. import recipe as R
from .. import spec as S
from ..data.tokenizer import Tokenizer
from ..model.model import Model
from .beam import beam_search
from .chat import Message, render
from .choose import Sampling, greedy
from .fast import pack
from .packed import Precision
from .reading import batches, each, fits, positions
from .sample import Said, generate, stream
from .speculate import speculate
from .spoken import Spoken

T = TypeVar("T")
U = TypeVar("U")
Progress = Callable[[int, int], None]      # answers given, answers wanted


class Opened(Protocol):
    """A model with what lies beside it, such as `ready.Ready`."""
    @property
    def model(self) -> Model: ...
    @property
    def text(self) -> Tokenizer: ...
    @property
    def recipe(self) -> R.Recipe | None: ...
    @property
    def folder(self) -> Path: ...


class Answer(NamedTuple):
    text: str
    said: Said


def numbered(make: Callable[[T], U], rows: Many[T]) -> list[U]:
    """`make` of each row; what is wrong with one of several names it."""
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(make(row))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}" if len(rows) > 1 else str(error)) from None
    return found


class Writer:
    """A model and its tokenizer."""

    def __init__(self, opened: Opened, precision: Precision | None = None) -> None:
        """With a precision, the model is packed for the CPU (`fast.pack`)."""
        self.model = opened.model if precision is None else pack(opened.model, precision)
        self.tokenizer, self.folder = opened.text, opened.folder
        self.objective = None if opened.recipe is None else opened.recipe.objective
        self.row = opened.recipe.data.row if opened.recipe is not None and isinstance(self.objective, R.TextToText) else None
        self.before, self.after = self.marks()
        end = self.model.spec.special.end
        self.ends = end if isinstance(end, tuple) else (end,) if end is not None else \
            (self.tokenizer.special["end"],) if "end" in self.tokenizer.special else ()

    def marks(self) -> tuple[list[int], list[int]]:
        """Tokens around a text: as the tokenizer's file says, else as our objectives put them."""
        before, after = self.tokenizer.frame()
        if isinstance(self.objective, R.TextToText):
            return [self.mark("begin")] * (self.objective.input == "bart"), [self.mark("end")]
        if self.model.encoder is None:     # an answer goes on from the text itself
            return before, []
        if before or after:
            return before, after
        begin = [self.mark("begin")] if isinstance(self.objective, R.Denoising) else []
        return begin, [self.mark("end")]

    def start(self) -> int:
        """What the decoder reads first: T5 a pad, BART an end, a translator a begin, unless the model says another."""
        if self.model.spec.special.start is not None:
            return self.model.spec.special.start
        if isinstance(self.objective, R.CorruptedSpans) or (self.model.family or "").startswith("t5"):
            return self.mark("pad")
        return self.mark("end" if isinstance(self.objective, R.Denoising) or self.model.family == "bart" else "begin")

    def mark(self, name: str) -> int:
        if name not in self.tokenizer.special:
            raise ValueError(f"the tokenizer has no token for {name}, which this model needs")
        return self.tokenizer.special[name]

    def source(self, text: str) -> str:
        """A text as the model was trained to read it: inside the template of a run, if that has a single column."""
        one = isinstance(self.row, R.Templated) and len(self.row.columns) == 1
        return self.row.source_text({self.row.columns[0]: text}) if one and isinstance(self.row, R.Templated) else text

    def framed(self, text: str) -> list[int]:
        return [*self.before, *self.tokenizer.encode(text).tolist(), *self.after]

    def ids(self, text: str) -> list[int]:
        found = self.framed(self.source(text))
        if not found:
            raise ValueError("the prompt is empty, and the model has no token to begin with; give a text to go on from")
        return found

    def room(self, prompt: list[int], most: int | None, otherwise: int) -> int:
        """Tokens that the answer to a prompt may have: `most`, which must fit, or `otherwise`, or as many as do."""
        count, length = positions(self.model), len(self.whole(prompt))
        length = length if self.model.encoder is None else 1
        found = most or (otherwise if count is None else max(min(otherwise, count - length), 1))
        fits(self.model, length, found)
        return found

    def whole(self, ids: list[int]) -> list[int]:
        """These tokens, where an encoder has positions for all."""
        learned = getattr(self.model.spec.source, "positions", None)
        if self.model.encoder is not None and isinstance(learned, S.Learned) and len(ids) > learned.count:
            raise ValueError(f"a text of {len(ids)} tokens is over the model's {learned.count} positions; give a shorter one")
        return ids

    def chat(self, messages: list[Message]) -> list[int]:
        """A conversation as the model's own template puts it, open for the answer."""
        return render(self.folder, self.tokenizer, messages)

    def spoken(self, prompt: list[int], stops: tuple[str, ...] = ()) -> Spoken:
        return Spoken(self.tokenizer, prompt if self.model.encoder is None else [], stops)

    def stream(self, prompt: str | list[int], *, most: int, how: Sampling = greedy, stops: tuple[str, ...] = ()) -> Iterator[str]:
        """The text as it comes."""
        ids = self.ids(prompt) if isinstance(prompt, str) else prompt
        spoken = self.spoken(ids, stops)
        for _, token, _, ended in stream(self.model, [ids], most=most, how=how, ends=self.ends, starts=self.starts_of([ids])):
            if not ended:
                yield spoken.add(token)
            if spoken.stopped:
                return
        yield spoken.close()

    def answer(self, prompts: list[str] | list[list[int]], *, most: int | list[int], how: Sampling = greedy, stops: tuple[str, ...] = (),
               samples: int = 1, draft: Model | None = None, batch: int = 32, progress: Progress | None = None) -> list[list[Answer]]:
        """`samples` answers to each prompt, with the seeds seed, seed + 1, …, of at most `most` tokens (one number, or one a prompt);
        prompts of about one length are read together."""
        ids = [self.ids(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
        found: list[list[Answer]] = [[] for _ in ids]
        rows = [(i, sample) for i in range(len(ids)) for sample in range(samples)]
        limits = [limit for limit in each(most, len(ids)) for _ in range(samples)]
        count, done = positions(self.model) if self.model.encoder is None else None, 0
        for chosen in batches([len(ids[i]) for i, _ in rows], limits, batch, count):
            group = [rows[j] for j in chosen]
            heard = [self.spoken(ids[i], stops) for i, _ in group]
            texts = [""] * len(group)

            def until(row: int, token: int, heard: list[Spoken] = heard, texts: list[str] = texts) -> bool:
                texts[row] += heard[row].add(token)
                return heard[row].stopped

            say = generate if draft is None else partial(speculate, draft=draft)
            said = say(self.model, [ids[i] for i, _ in group], most=[limits[j] for j in chosen], how=how, ends=self.ends,
                       starts=self.starts_of(group), seeds=[how.seed + sample for _, sample in group], until=until if stops else None)
            for (i, _), one, ear, text in zip(group, said, heard, texts, strict=True):
                found[i].append(Answer(text + ear.close() if stops else self.said(ids[i], one), one))
            if progress is not None:
                progress(done := done + len(group), len(rows))
        return found

    def starts_of(self, group: Many[object]) -> list[list[int]] | None:
        return None if self.model.encoder is None else [[self.start()]] * len(group)

    def complete(self, texts: list[str], *, most: int, how: Sampling = greedy, stops: tuple[str, ...] = (), batch: int = 32) -> list[str]:
        return [answers[0].text for answers in self.answer(texts, most=most, how=how, stops=stops, batch=batch)]

    def search(self, prompts: list[str] | list[list[int]], *, beams: int = 4, alpha: float = 0.6, most: int | list[int] | None = None,
               best: int = 1, batch: int = 32, progress: Progress | None = None) -> list[list[Answer]]:
        """The `best` answers of beam search, best first."""
        ids = [self.ids(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
        found: list[list[Answer]] = [[] for _ in ids]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        for at in range(0, len(ids), batch):
            group = order[at:at + batch]
            said = beam_search(self.model, [ids[i] for i in group], beams=beams, alpha=alpha, best=best, ends=self.ends,
                               most=[most[i] for i in group] if isinstance(most, list) else most, starts=self.starts_of(group))
            for i, answers in zip(group, said, strict=True):
                found[i] = [Answer(self.said(ids[i], one), one) for one in answers]
            if progress is not None:
                progress(at + len(group), len(ids))
        return found

    def said(self, prompt: list[int], said: Said) -> str:
        spoken = self.spoken(prompt)
        return "".join(map(spoken.add, said.tokens[:-1] if said.ended else said.tokens)) + spoken.close()

    def translate(self, texts: list[str], *, beams: int = 4, alpha: float = 0.6, batch: int = 32,
                  progress: Progress | None = None) -> list[str]:
        """One translation a text, in order; a blank text stays blank."""
        if self.model.encoder is None:
            raise ValueError("this model has no encoder to read a text with; weft generate goes on from one")
        ids = numbered(lambda text: self.whole(self.ids(text)) if text.strip() else [], texts)
        real, found = [i for i, row in enumerate(ids) if row], [""] * len(texts)
        for i, answers in zip(real, self.search([ids[i] for i in real], beams=beams, alpha=alpha, batch=batch, progress=progress),
                              strict=True):
            found[i] = answers[0].text
        return found
