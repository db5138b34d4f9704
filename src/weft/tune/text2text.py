"""Text-to-text fine-tuning of an encoder-decoder: which columns are source and target, how a labelled row is written as text (T5,
arXiv:1910.10683, section 2.4 and appendix D), and which tokens the checkpoint puts around a text."""
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import recipe as R
from .. import spec as S
from ..data.columns import MANY, column, given, is_text, pick
from ..data.files import expand
from ..data.load import Fields, load
from ..data.quarantine import allowed
from ..data.sniff import SOURCE, SUFFIXES, TARGET, format_of, suffix_of
from ..data.tokenizer import Tokenizer
from ..values import suggest
from .guess import Guess, classes, guess, same_columns, short, sound, source_of

if TYPE_CHECKING:
    from .plan import Wish

TASK = "text2text"
NAMES = (("source", "target"), ("input", "output"), ("document", "summary"), ("article", "highlights"), ("text", "summary"))


def writes(spec: S.Model) -> bool:
    """An encoder-decoder with a language modelling head."""
    return spec.encoder is not None and spec.decoder is not None and isinstance(spec.head, S.Vocabulary)


def read(wish: "Wish", spec: S.Model) -> Guess | None:
    """The data as text-to-text, if --task asks for it, or if an encoder-decoder gets texts or classes and no --task; else None."""
    if wish.task not in (None, TASK) or not writes(spec):
        if wish.task == TASK:
            raise ValueError(f"--task {TASK} needs an encoder-decoder with a language modelling head, such as T5 or BART; "
                             f"{wish.checkpoint} is none")
        if wish.prefix or wish.words:
            raise ValueError(f"--prefix and --label-words are for --task {TASK}")
        return None
    if (found := pairs(wish)) is not None:
        return found
    found = guess(wish.data, wish.dev, None, wish.names, wish.columns, wish.label, wish.max_bad_rows)
    row = found.row
    if isinstance(row, R.Examples) and row.labels is not None:
        texts = [name for name in (row.first, row.second) if name]
        return told(found, templated(wish, texts, row.label, row.labels, found.rows[0]))
    if wish.task == TASK:
        raise ValueError(f"{wish.data[0]}: which columns are the source and the target? Say --columns SOURCE [SOURCE …] TARGET")
    return None


def pairs(wish: "Wish") -> Guess | None:
    """Two aligned files, or a table with a column of source text and one of target text."""
    paths, dev = expand(wish.data), expand(wish.dev) if wish.dev else []
    if len(paths) == 2 and not any(suffix_of(path) in SUFFIXES for path in paths):
        train, beside = (R.Source(paths=tuple(own), format="parallel", names=("source", "target")) if own else None for own in (paths, dev))
        assert train is not None
        return read_pairs(wish, train, beside, ["source", "target"])
    kind = format_of(paths[0])
    if kind in ("squad", "conll"):
        return None
    asked = [*wish.columns, *([wish.label] if wish.label else [])]
    train = source_of(paths, kind, wish.names, asked)
    rows = load(train)[0]
    chosen = columns_of(wish, [item.fields for item in rows]) if rows else None
    if chosen is None:
        return None
    given(rows[0].fields, asked)
    return read_pairs(wish, train, same_columns(train, rows, dev, asked) if dev else None, chosen)


def read_pairs(wish: "Wish", train: R.Source, dev: R.Source | None, chosen: list[str]) -> Guess:
    """All rows of a source whose columns are known; targets that repeat are labels."""
    *texts, target = chosen
    (rows, bad), (other, worse) = load(train), load(dev) if dev else ([], [])
    cells = [cell for item in (*rows, *other) if (cell := item.fields.get(target)) not in (None, "")]
    free = is_text(cells) or len(set(map(str, cells))) > min(MANY, len(cells) // 2)
    labels = None if free else classes(cells, target, TASK, allowed(len(rows), wish.max_bad_rows))
    row = templated(wish, texts, target, labels, rows[0].fields if rows else {})
    held, note = sound(rows, bad, row, train, wish.max_bad_rows, "")
    valid, more = sound(other, worse, row, dev, wish.max_bad_rows, "dev ") if dev else ([], ())
    return told(Guess(TASK, train, dev, row, held, valid, "", (*note, *more)), row)


def columns_of(wish: "Wish", held: list[Fields]) -> list[str] | None:
    """Those of the source, then the target."""
    if wish.columns:
        found = [*wish.columns, *([wish.label] if wish.label else [])]
        return found if len(found) > 1 and (wish.task == TASK or is_text(column(held, found[-1]))) else None
    for source, target in (*NAMES, *((source, target) for source in SOURCE for target in TARGET)):
        both = pick(held[0], (source,)), pick(held[0], (target,))
        if both[0] and both[1]:
            return [both[0], both[1]]
    names = list(held[0])
    return names if len(names) == 2 and all(is_text(column(held, name)) for name in names) else None


def templated(wish: "Wish", texts: Sequence[str], target: str, labels: tuple[str, ...] | None, first: Fields) -> R.Templated:
    """The prefix, then the text; of several texts each behind its column's name, as T5 writes them."""
    body = f"{{{texts[0]}}}" if len(texts) == 1 else " ".join(f"{name}: {{{name}}}" for name in texts)
    made = R.Templated(template=wish.prefix + body, target=target, labels=labels, words=wish.words or None)
    wrong = next((name for name in made.columns if name not in first), None)
    if wrong is not None:
        raise ValueError(f"--prefix {wish.prefix!r}: there is no column {wrong!r}; {suggest(wrong, list(map(str, first)))}")
    return made


def told(found: Guess, row: R.Templated) -> Guess:
    form = found.train.format
    what = f"{len(row.labels)} labels in {row.target!r} ({short(row.targets)})" if row.labels else f"target text in {row.target!r}"
    line = f"{found.train.paths[0]}: {len(found.rows):,} rows ({form}), source {row.template!r}, {what}: {TASK}"
    return found._replace(task=TASK, row=row, line=line)


# The model

def whole(spec: S.Model, style: Any, tokenizer: Tokenizer, before: R.Objective | None) -> S.Model:
    """The whole encoder-decoder, with its decoder's start token named, so that generation starts from it too."""
    if spec.special.start is not None:
        return spec
    mark = "end" if style == "bart" else "begin" if isinstance(before, R.Translation) else "pad"
    return replace(spec, special=replace(spec.special, start=tokenizer.special.get(mark)))
